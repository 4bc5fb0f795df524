package share

import (
	"sync"
	"time"

	"github.com/spillgate/spillgate/limit"
)

// Config of a Table. The zero value is ready for use.
type Config struct {
	// Most shares at a time, about 200 bytes each. A check that needs one more is denied: to forget one would admit
	// its tokens again. Default 32,768.
	Most int
	// While is how long after a shard's return its shares still bind, and how far back charges look: longer than it takes
	// all agents to notice the return. Default 1.05 s.
	While time.Duration
}

// Table has an agent's shares. It is safe for concurrent use.
type Table struct {
	cfg Config

	mu struct {
		sync.Mutex
		shares map[limit.Sum]*share
		owing  []*share // those with something given, each once; a ring that Due goes round in
	}
}

// NewTable returns an empty table.
func NewTable(cfg Config) *Table {
	if cfg.Most == 0 {
		cfg.Most = 1 << 15
	}
	if cfg.While == 0 {
		cfg.While = 1050 * time.Millisecond
	}
	t := &Table{cfg: cfg}
	t.mu.shares = make(map[limit.Sum]*share)
	return t
}

// Len is the number of shares.
func (t *Table) Len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.mu.shares)
}

// Take decides a check by the agent's share of its bucket. The reason is limit.StoreLocal.
//
// Cost: 1 lock; a share that admits for the first time takes its memory.
func (t *Table) Take(a Ask) limit.Decision {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.mu.shares[a.Bucket.Sum()]
	d, tat := a.judge(a.begin(s))
	took := d.Admitted && a.N > 0
	if a.N == 0 {
		return d
	}
	if !took && (s != nil || a.Since > 0 || !a.fits(a.N)) {
		return d // nothing changes, and a share that begins at Since can begin there later as well
	}
	if s == nil {
		if s = t.addLocked(&a); s == nil {
			return limit.Decision{Reason: limit.StoreLocal, Limit: a.Terms.Burst, RetryAfter: retryNever}
		}
	}
	if s.tat = tat; !took {
		return d
	}
	s.terms, s.per = a.Terms, a.per()
	if !a.Told {
		s.given += a.N
		t.owesLocked(s)
	}
	return d
}

// addLocked makes a share; nil if there are too many.
func (t *Table) addLocked(a *Ask) *share {
	if len(t.mu.shares) >= t.cfg.Most {
		return nil
	}
	s := &share{bucket: *a.Bucket}
	t.mu.shares[s.bucket.Sum()] = s
	return s
}

func (t *Table) owesLocked(s *share) {
	if !s.owing {
		s.owing = true
		t.mu.owing = append(t.mu.owing, s)
	}
}

// Undo gives back tokens that Take admitted, and that were not told to the store: another descriptor of the check was denied.
func (t *Table) Undo(b *limit.Bucket, n limit.Tokens) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s := t.mu.shares[b.Sum()]; s != nil && s.given >= n {
		s.given -= n
		s.tat -= int64(n) * s.per
	}
}

// Charge is what the store is to be told of.
type Charge struct {
	Bucket limit.Bucket
	Terms  *limit.Terms
	N      limit.Tokens
}

// Due looks at up to so many of the shares that admitted something, and returns the charges for those whose shard is well: they
// count as told. What has refilled since is not charged any more. well is called with the table locked.
func (t *Table) Due(now int64, most int, well func(*limit.Bucket) bool) []Charge {
	t.mu.Lock()
	defer t.mu.Unlock()
	var due []Charge
	for range min(most, len(t.mu.owing)) {
		s := t.mu.owing[0]
		t.mu.owing = t.mu.owing[1:]
		if n := s.owed(now, t.cfg.While); n == 0 {
			s.given = 0
		} else if well(&s.bucket) {
			due = append(due, Charge{s.bucket, s.terms, n})
			s.given = 0
		}
		if s.owing = s.given > 0; s.owing {
			t.mu.owing = append(t.mu.owing, s)
		}
	}
	return due
}

// Failed takes back a charge, or part of it, that certainly did not reach the store: it is due again. A share that has been forgotten
// owes nothing.
func (t *Table) Failed(b *limit.Bucket, n limit.Tokens) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s := t.mu.shares[b.Sum()]; s != nil {
		s.given += n
		t.owesLocked(s)
	}
}

// Sweep looks at up to so many shares and forgets those that are full again and owe nothing. One that is made anew has no more.
func (t *Table) Sweep(now int64, most int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for sum, s := range t.mu.shares { // begins anywhere
		if most--; most < 0 {
			return
		}
		if !s.owing && s.tat <= now-int64(t.cfg.While) {
			delete(t.mu.shares, sum)
		}
	}
}
