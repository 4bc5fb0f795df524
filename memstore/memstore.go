package memstore

import (
	"context"
	"crypto/rand"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/spillgate/spillgate/batcher"
	"github.com/spillgate/spillgate/limit"
)

// errFull is the cause when MaxCells are in use.
var errFull = fmt.Errorf("%w: memstore: all MaxCells cells are in use", batcher.ErrNotRun)

// shards is the number of locks, a power of two.
const shards = 64

// Config of a Store. The zero value is ready for use.
type Config struct {
	// MaxCells bounds the cells in memory, about 100 bytes each; those that count in windows take twice that, and sliding logs 8 bytes
	// for each token besides. New buckets beyond it are not
	// counted but answered by the rule's fail policy. Default 16,777,216.
	MaxCells int
}

func (c *Config) ensureDefaults() {
	if c.MaxCells == 0 {
		c.MaxCells = 1 << 24
	}
}

func (c *Config) validate() error {
	if c.MaxCells < shards {
		return fmt.Errorf("memstore: MaxCells is %d, it must be at least %d", c.MaxCells, shards)
	}
	return nil
}

// Store keeps cells in memory. It is safe for concurrent use.
type Store struct {
	secret limit.Secret
	start  time.Time
	most   int // cells per shard
	shard  [shards]shard
}

// shard is a part of the cells under one lock, padded to keep neighbours' locks
// out of its cache line.
type shard struct {
	mu struct {
		sync.Mutex
		hashes []hash // one per time class in use: few, so they are searched in order
		cells  int
	}
	_ [24]byte
}

// hash holds the cells of one class. TATs are relative to the start of the generation
// in which they were written; those of the newest and of the one before are alive.
type hash struct {
	class  limit.Class
	step   limit.Ticks // class.Step
	newest int64       // generation of the newest write
	clock  limit.Ticks // its time, in whole steps
	cells  table
	// leased are the cells that have more than a TAT; their slots hold elsewhere.
	leased map[limit.Sum]leasedCell
	// loads are the counts of entries on buckets that are hot somewhere.
	loads map[limit.Sum]load
	// windows are the cells of a window kind; their slots hold elsewhere.
	windows map[limit.Sum]windowCell
	// cur and prev count the cells last written in the newest generation and in the one before.
	cur, prev int
}

// New returns an empty store.
func New(cfg Config) (*Store, error) {
	cfg.ensureDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	s := &Store{start: time.Now(), most: cfg.MaxCells / shards}
	rand.Read(s.secret[:]) // never fails
	return s, nil
}

// Secret implements batcher.Store. It is random for each Store.
func (s *Store) Secret() (*limit.Secret, bool) { return &s.secret, true }

// Shard implements batcher.Store.
func (s *Store) Shard(*limit.Bucket, *limit.Part) int { return 0 }

// Now implements batcher.Direct: the wall clock at New plus the time since, so
// a step of the wall clock does not move it.
func (s *Store) Now() int64 { return s.start.UnixNano() + int64(time.Since(s.start)) }

// Apply implements batcher.Store.
func (s *Store) Apply(_ context.Context, _ int, entries []*batcher.Entry) {
	now := s.Now()
	for _, e := range entries {
		s.ApplyAt(now, e)
	}
}

// ApplyAt implements batcher.Direct.
//
// Hot path: 1 lock, 1 cache line of cells, 0 allocations once the cell exists.
func (s *Store) ApplyAt(nanos int64, e *batcher.Entry) {
	sum := e.Bucket.PartSum(e.Part)
	sh := &s.shard[e.Bucket.Sum().Lo%shards] // the parts of a bucket share its lock, and its clock
	sh.mu.Lock()
	e.Split = nil
	e.Out, e.Err = sh.applyLocked(nanos, sum, e, s.most)
	sh.mu.Unlock()
}

func (sh *shard) applyLocked(nanos int64, sum limit.Sum, e *batcher.Entry, most int) (limit.Outcome, error) {
	h := sh.hashLocked(e.Terms.Class)
	gen, now := h.class.At(nanos)
	lag := int64(0)
	if gen < h.newest || gen == h.newest && now < h.clock {
		// The clock was set back behind a write: time stands still until it is there again.
		lag, gen, now = h.lag(gen, now), h.newest, h.clock
	}
	at, tat := h.cells.find(sum), now
	if e.Terms.Algorithm != limit.TokenBucket {
		return sh.applyWindowLocked(nanos, h, at, sum, e, gen, now, lag, most)
	}
	alive := at != nil && at.age >= ageOf(gen-1)
	if e.Op >= limit.Lease || e.Part.At() > 0 || alive && at.tat == elsewhere {
		return sh.applyLeasedLocked(nanos, h, at, sum, e, gen, now, lag, most)
	}
	if alive {
		if tat = at.tat; at.age < ageOf(gen) {
			tat -= h.class.Span()
		}
	}
	next, granted, write := e.Terms.Apply(e.Op, e.N, tat, now)
	if write && !sh.writeLocked(nanos, h, at, sum, next, gen, now, most) {
		return limit.Outcome{}, errFull
	}
	return limit.Outcome{Granted: granted, Level: max(0, next-now), Lag: lag}, nil
}

// writeLocked stores a cell as of a moment that the clock then shows. It is false when
// there is no room for one more living cell.
func (sh *shard) writeLocked(nanos int64, h *hash, at *slot, sum limit.Sum, tat limit.Ticks, gen int64, now limit.Ticks, most int) bool {
	if gen != h.newest {
		sh.openLocked(nanos, h, gen, now)
		at = h.cells.find(sum)
	} else if now >= h.clock+h.step {
		h.clock = now
	}
	return sh.storeLocked(nanos, h, at, sum, tat, most)
}

// lag is by how much a time is behind the recorded clock, in nanoseconds of whole
// microseconds, rounded up as in the script.
func (h *hash) lag(gen int64, now limit.Ticks) int64 {
	micros := int64(math.Ceil(float64(h.clock-now) / h.class.PerMicro))
	return 1000 * ((h.newest-gen)*h.class.Length.Microseconds() + micros)
}

// hashLocked returns the hash of a class, made at its first use.
func (sh *shard) hashLocked(c limit.Class) *hash {
	for i := range sh.mu.hashes {
		if h := &sh.mu.hashes[i]; h.class == c {
			return h
		}
	}
	sh.mu.hashes = append(sh.mu.hashes, hash{class: c, step: c.Step(), newest: math.MinInt64})
	return &sh.mu.hashes[len(sh.mu.hashes)-1]
}

// openLocked begins a generation of h, and drops in every class of the shard the
// cells that no read can see any more.
func (sh *shard) openLocked(nanos int64, h *hash, gen int64, now limit.Ticks) {
	h.prev = 0
	if gen == h.newest+1 {
		h.prev = h.cur
	}
	h.newest, h.clock, h.cur = gen, now, 0
	h.forget()
	if 16*(h.prev+leastSlots) < len(h.cells.slots) {
		h.cells.rebuild(h.oldest()) // after a flood
	}
	sh.sweepLocked(nanos)
}

// oldest is the age of the generation before the newest: what is older is dead.
func (h *hash) oldest() age { return ageOf(h.newest - 1) }

// sweepLocked drops the hashes that were last written two generations ago: their
// cells are full. It leaves them at the present time, so that they stay full, and
// are not filled twice, when the clock is set back.
func (sh *shard) sweepLocked(nanos int64) {
	sh.mu.cells = 0
	for i := range sh.mu.hashes {
		h := &sh.mu.hashes[i]
		alive := h.cur + h.prev
		if gen, now := h.class.At(nanos); alive > 0 && gen > h.newest+1 {
			*h, alive = hash{class: h.class, step: h.step, newest: gen, clock: now}, 0
		}
		sh.mu.cells += alive
	}
}

// storeLocked writes the cell of a bucket into its slot, if it has one, in the newest
// generation. It is false when there is no room for one more living cell.
func (sh *shard) storeLocked(nanos int64, h *hash, at *slot, sum limit.Sum, tat limit.Ticks, most int) bool {
	newest := ageOf(h.newest)
	switch {
	case at != nil && at.age == newest:
		at.tat = tat
		return true
	case at != nil && at.age >= h.oldest():
		h.prev--
	case !sh.roomLocked(nanos, most):
		return false
	default:
		sh.mu.cells++
	}
	h.cur++
	if at != nil {
		at.tat, at.age = tat, newest
	} else {
		h.cells.insert(slot{sum, tat, newest}, h.oldest())
	}
	return true
}

// roomLocked reports whether one more cell may live, if need be after a look for classes
// whose cells are full by now.
func (sh *shard) roomLocked(nanos int64, most int) bool {
	if sh.mu.cells >= most {
		sh.sweepLocked(nanos)
	}
	return sh.mu.cells < most
}

// Cells is the number of cells in memory, for Stats.
func (s *Store) Cells() int {
	n := 0
	for i := range s.shard {
		sh := &s.shard[i]
		sh.mu.Lock()
		n += sh.mu.cells
		sh.mu.Unlock()
	}
	return n
}
