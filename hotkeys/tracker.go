package hotkeys

import (
	"cmp"
	"math"
	"math/bits"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/spillgate/spillgate/limit"
)

const (
	// shardBits of a key choose its shard.
	shardBits = 6
	shards    = 1 << shardBits
	// spare is the number of slots per hot key.
	spare = 16
)

// A Tracker finds the hot keys in a stream of checks. It is safe for concurrent use; make
// one with New.
type Tracker struct {
	perSecond float64 // rate = sum * perSecond
	ranks     ranks
	shards    [shards]lockedShard
}

// A lockedShard is the shell of a shard. Two cores seldom meet in one; if
// they do, Touch does not wait.
type lockedShard struct {
	mu sync.Mutex
	shard
	lost atomic.Uint64
	_    [64]byte // the next shard's lock is in another cache line
}

// Heavy is a key of Top. Rates are decayed touches per second.
type Heavy struct {
	Key  limit.Sum
	Rate float64
	// Error is the part of Rate that may be due to other keys, from whom this one took its slot; the true
	// rate is at least Rate - Error. It halves with every half-life. The true
	// rate may also be higher than Rate, by touches before the key found its slot: of m
	// per second with probability about 1/e, where m is the Error it began with.
	Error float64
	Class Class
}

// New returns a Tracker, or an error that wraps ErrConfig and names the field. All memory
// that it will ever use is allocated here: 64 KB, and about 512 bytes per key of Top.
func New(c Config) (*Tracker, error) {
	c.ensureDefaults()
	if err := c.validate(); err != nil {
		return nil, err
	}
	halfLife := float64(c.HalfLife)
	t := &Tracker{perSecond: math.Ln2 / halfLife * 1e9}
	t.ranks.init(c.Top, c.MinRate/t.perSecond)
	sets := ceilPow2((c.Top*spare + shards*ways - 1) / (shards * ways))
	for i := range t.shards {
		// An odd multiple of the golden ratio, so never 0, on which the generator would stand still.
		seed := (2*(c.Seed*shards+uint64(i)) + 1) * 0x9e3779b97f4a7c15
		t.shards[i].init(&t.ranks, sets, halfLife, seed)
	}
	return t, nil
}

func ceilPow2(n int) int { return 1 << bits.Len(uint(n-1)) }

// Touch counts weight checks of key at now and returns the class of the key.
//
// now is in nanoseconds on the caller's monotonic clock, of any origin. A now before one that
// the key's shard has seen counts as that one: time does not run back. The weight is in
// tokens; one touch of 500 has the effect of 500 touches of 1, and one of 0 none.
//
// It is lossy: if another core is in the same shard, nothing is counted (Lost tells how
// much was not) and the answer is Cold. So Cold from a Touch is no proof that a hot
// key has cooled; ask Rate.
//
// Hot path: 1 shard lock, never waited for, 0 allocations, no clock read; about 20 ns.
// Four times per half-life and shard it takes some microseconds.
func (t *Tracker) Touch(now int64, key limit.Sum, weight uint32) Class {
	s := &t.shards[key.Lo%shards]
	if !s.mu.TryLock() {
		s.lost.Add(uint64(weight))
		return Cold
	}
	class := s.touch(s.advance(now), key, weight)
	s.mu.Unlock()
	return class
}

// Rate returns the decayed rate of key at now, in tokens per second, and its class, without
// counting a touch. They are 0 and Cold for a key that is not tracked. Unlike Touch it waits
// for the shard's lock, and its Cold is the truth.
func (t *Tracker) Rate(now int64, key limit.Sum) (perSecond float64, class Class) {
	s := &t.shards[key.Lo%shards]
	s.mu.Lock()
	defer s.mu.Unlock()
	scale := s.advance(now)
	set := s.set(key)
	i := set.find(key)
	if i < 0 {
		return 0, Cold
	}
	class = s.classify(scale, set, i)
	return set.sum[i] / scale * t.perSecond, class
}

// Top returns the n keys of the highest rates at now, the highest first, whatever their
// class; fewer if there are not as many. It looks at all slots, for about a millisecond, and holds
// one shard at a time.
func (t *Tracker) Top(now int64, n int) []Heavy {
	var all []Heavy
	for i := range t.shards {
		all = t.shards[i].appendAll(all, now, t.perSecond)
		if len(all) > 2*n {
			all = best(all, n)
		}
	}
	return best(all, n)
}

// best sorts and cuts to the first n.
func best(all []Heavy, n int) []Heavy {
	slices.SortFunc(all, func(a, b Heavy) int {
		return cmp.Or(cmp.Compare(b.Rate, a.Rate), cmp.Compare(a.Key.Hi, b.Key.Hi), cmp.Compare(a.Key.Lo, b.Key.Lo))
	})
	return all[:max(0, min(n, len(all)))]
}

func (s *lockedShard) appendAll(to []Heavy, now int64, perSecond float64) []Heavy {
	s.mu.Lock()
	defer s.mu.Unlock()
	perSecond /= s.advance(now)
	for i := range s.sets {
		set := &s.sets[i]
		for j := range set.sum {
			if set.sum[j] == 0 {
				continue
			}
			to = append(to, Heavy{
				Key: limit.Sum{Hi: set.hi[j], Lo: set.lo[j]}, Rate: set.sum[j] * perSecond,
				Error: float64(set.slack[j]) * perSecond, Class: Class(set.hot >> j & 1),
			})
		}
	}
	return to
}

// Hot returns the number of keys that are hot, at most Config.Top.
func (t *Tracker) Hot() int { return int(min(t.ranks.hot.Load(), t.ranks.top)) }

// Lost returns the weight that Touch did not count because two cores met.
func (t *Tracker) Lost() uint64 {
	n := uint64(0)
	for i := range t.shards {
		n += t.shards[i].lost.Load()
	}
	return n
}
