package split

import (
	"sync"
	"sync/atomic"

	"github.com/spillgate/spillgate/batcher"
	"github.com/spillgate/spillgate/limit"
)

// Config of a Table. Clock and Send are required.
type Config struct {
	// Threshold is the number of entries per second on one bucket, of all agents, from which it is split; 0 never
	// splits, and ends what others have split.
	Threshold int64
	// Divisible reports whether the store has several masters. While it has not, home is not told of the load on a bucket that is
	// whole. Nil stands for yes.
	Divisible func() bool
	// Clock is a monotonic clock in nanoseconds.
	Clock func() int64
	// Send gives a claim to the batcher. An error means that it was not taken.
	Send func(*batcher.Claim) error
	// Seed tells agents apart.
	Seed uint64
	// Most Spreads at a time; further buckets are left whole, as far as this agent is concerned. Default 4,096.
	Most int
	// OnEvent, if set, is told when a bucket is split or whole again, in the order in which it was learned. It must not block.
	OnEvent func(Event)
}

// Table keeps the Spreads of an agent. Safe for concurrent use.
type Table struct {
	cfg   Config
	count atomic.Int32

	mu struct {
		sync.RWMutex
		spreads map[cell]*Spread
		ended   Totals // of Spreads that are forgotten
	}
}

// cell names the home of a bucket: rules whose classes differ count one bucket in two cells.
type cell struct {
	sum   limit.Sum
	class limit.Class
}

// NewTable returns an empty Table.
func NewTable(cfg Config) *Table {
	if cfg.Most == 0 {
		cfg.Most = 4096
	}
	t := &Table{cfg: cfg}
	t.mu.spreads = make(map[cell]*Spread)
	return t
}

// Find returns the Spread of a bucket under such terms, nil if there is none.
//
// Hot path while there are none: 1 atomic load.
func (t *Table) Find(b *limit.Bucket, terms *limit.Terms) *Spread {
	if t.count.Load() == 0 {
		return nil
	}
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.mu.spreads[cell{b.Sum(), terms.Class}]
}

// Watch returns the Spread of a bucket that is hot or divided, made if there is none; nil if there are too many. off says that the
// rule forbids to split. [1]
func (t *Table) Watch(id []byte, b *limit.Bucket, terms *limit.Terms, off bool) *Spread {
	s := t.Find(b, terms)
	if s == nil {
		s = t.add(New(id, b, terms, t.cfg.Clock(), t.cfg.Seed))
	}
	if s != nil {
		s.KeepWhole(off)
	}
	return s
}

// add adds a Spread, unless another was faster.
func (t *Table) add(s *Spread) *Spread {
	t.mu.Lock()
	defer t.mu.Unlock()
	name := s.cell()
	if there := t.mu.spreads[name]; there != nil {
		return there
	}
	if len(t.mu.spreads) >= t.cfg.Most {
		return nil
	}
	t.mu.spreads[name] = s
	t.count.Store(int32(len(t.mu.spreads)))
	return s
}

// Learn takes the outcome of an entry on a bucket that has a Spread, and sends what follows from it. [3]
func (t *Table) Learn(s *Spread, c *batcher.Claim) {
	now := t.cfg.Clock()
	e := s.Learn(now, c)
	t.tell(s)
	if e == EventSplit && c.Op == limit.Touch {
		t.begin(s)
	}
	t.touch(s, now)
	t.merge(s, now)
}

// tell reports events.
func (t *Table) tell(s *Spread) {
	s.telling.Lock()
	defer s.telling.Unlock()
	for _, e := range s.Untold() {
		if t.cfg.OnEvent != nil {
			t.cfg.OnEvent(e)
		}
	}
}

// merge makes a bucket whole whose load has gone, if it is time for that: it looks at the parts, closes them, and tells home. [6]
func (t *Table) merge(s *Spread, now int64) {
	for _, p := range s.beginMerge(now) {
		t.send(s, &batcher.Claim{Op: limit.TakePartial, Part: p}, func(c *batcher.Claim) {
			for _, p := range s.looked(c) {
				t.send(s, &batcher.Claim{Op: limit.Close, Part: p}, func(c *batcher.Claim) { t.closed(s, c) })
			}
		})
	}
}

// closed takes the answer to a Close.
func (t *Table) closed(s *Spread, c *batcher.Claim) {
	if p, out := s.closed(c, t.cfg.Clock(), t.cfg.Threshold); p != nil {
		t.send(s, &batcher.Claim{Op: limit.Merge, N: out, Part: p}, nil)
	}
}

// begin looks at all parts of a bucket that was just split: the sooner they begin, the less of what refills is lost.
func (t *Table) begin(s *Spread) {
	for _, p := range s.parts() {
		t.send(s, &batcher.Claim{Op: limit.TakePartial, Part: p}, nil)
	}
}

// touch tells home of the load, if it is time for that. [5]
func (t *Table) touch(s *Spread, now int64) {
	if p := s.due(now, t.cfg.Threshold, t.cfg.Divisible); p != nil {
		t.send(s, &batcher.Claim{Op: limit.Touch, Part: p}, nil)
	}
}

// sweep removes the parts of a split that is over: in a class of months they would stay for months.
func (t *Table) sweep(s *Spread, now int64) {
	for _, p := range s.leftovers(now) {
		c := &batcher.Claim{Bucket: s.Bucket, Terms: s.terms(), Op: limit.Close, Part: p, Lazy: true}
		_ = t.cfg.Send(c) // what is not removed ends with its generation
	}
}

// send sends a claim of the Table's own. then, if set, is told of the outcome, after the Spread.
func (t *Table) send(s *Spread, c *batcher.Claim, then func(*batcher.Claim)) {
	c.Bucket = s.Bucket
	c.Terms = s.terms()
	c.Done = func(c *batcher.Claim) {
		t.Learn(s, c)
		if then != nil {
			then(c)
		}
	}
	if err := t.cfg.Send(c); err != nil {
		c.Err = err
		s.unsent(c)
		if then != nil {
			then(c)
		}
	}
}

// unsent takes back what was to be sent.
func (s *Spread) unsent(c *batcher.Claim) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.Op == limit.Touch {
		s.mu.touching = false
		s.mu.ops += c.Part.Ops
		s.mu.totals.Touches--
	}
}

// cell names the home that the Spread is of.
func (s *Spread) cell() cell { return cell{s.Bucket.Sum(), s.terms().Class} }

func (s *Spread) terms() *limit.Terms {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.terms
}

// Tend looks after the Spreads, some ten times a second. [5] [6] [7]
func (t *Table) Tend() {
	if t.count.Load() == 0 {
		return
	}
	now := t.cfg.Clock()
	for _, s := range t.all() {
		t.tell(s)
		t.touch(s, now)
		t.merge(s, now)
		t.sweep(s, now)
		if s.unused(now) {
			t.forget(s, now)
		}
	}
}

// forget drops a Spread that nobody uses.
func (t *Table) forget(s *Spread, now int64) {
	s.forget(now)
	t.tell(s)
	t.mu.Lock()
	defer t.mu.Unlock()
	name := s.cell()
	if t.mu.spreads[name] != s {
		return
	}
	delete(t.mu.spreads, name)
	t.count.Store(int32(len(t.mu.spreads)))
	sum := s.totals()
	sum.Active = 0
	t.mu.ended.add(sum)
}

// Clear forgets everything: the store lost its data, and its buckets have other names.
func (t *Table) Clear() {
	now := t.cfg.Clock()
	for _, s := range t.all() {
		t.forget(s, now)
	}
}

func (t *Table) all() []*Spread {
	t.mu.RLock()
	defer t.mu.RUnlock()
	all := make([]*Spread, 0, len(t.mu.spreads))
	for _, s := range t.mu.spreads {
		all = append(all, s)
	}
	return all
}

// Divided lists the buckets that are divided, as far as the agent knows, in no order.
func (t *Table) Divided() (all []Info) {
	now := t.cfg.Clock()
	for _, s := range t.all() {
		if i, divided := s.info(now); divided {
			all = append(all, i)
		}
	}
	return all
}

// Stats are totals since NewTable, and what is divided now.
func (t *Table) Stats() Totals {
	all := t.all()
	t.mu.RLock()
	sum := t.mu.ended
	t.mu.RUnlock()
	for _, s := range all {
		sum.add(s.totals())
	}
	return sum
}

func (s *Spread) totals() Totals {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.mu.totals
	if len(s.mu.parts) > 0 {
		t.Active = 1
	}
	return t
}

// add adds other totals; of Spreads that are forgotten none is active.
func (t *Totals) add(o Totals) {
	t.Active += o.Active
	t.Split += o.Split
	t.Merged += o.Merged
	t.Ended += o.Ended
	t.Touches += o.Touches
	t.Refused += o.Refused
	t.Overflow += o.Overflow
}
