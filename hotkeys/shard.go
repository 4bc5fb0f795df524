package hotkeys

import (
	"math"
	"math/bits"

	"github.com/spillgate/spillgate/limit"
)

const (
	// ways is the number of slots in a set: eight 8-byte words fill a cache line.
	ways = 8
	// steps is the number of steps per half-life at whose starts 2^x is computed. Within a
	// step it is taken for a straight line, which is at most 0.006 % off.
	steps = 32
	// censuses is how often per half-life a shard reviews all its slots.
	censuses = 4
	// maxAge is the number of half-lives after which a shard moves its landmark, so
	// that the scale stays far from the end of float32.
	maxAge = 32
)

// A set is the few slots in which a key may lie, as columns: a search reads one
// cache line, and the choice of a victim another. A slot that holds nothing has sum 0.
type set struct {
	lo, hi [ways]uint64
	sum    [ways]float64 // decayed touches, scaled
	slack  [ways]float32 // how much of sum may be touches of the keys that were here before
	hot    uint8         // bit i: slot i is Hot
	_      [31]byte
}

// A shard is a share of the keys, the pure core of the Tracker: it has neither lock
// nor clock. What it shares with the other shards is in ranks.
//
// Decay is forward decay: a touch at time t adds 2^((t-landmark)/halfLife), so that no
// slot changes as time passes, and sums compare as they are. A sum divided by that power of
// now, the scale of now, is in touches of now. Cormode, Shkapenyuk, Srivastava, Xu, "Forward Decay:
// A Practical Time Decay Model for Streaming Systems", ICDE 2009.
type shard struct {
	ranks *ranks
	sets  []set
	mask  uint64
	rng   uint64

	halfLife float64 // in nanoseconds
	landmark int64
	at, end  int64   // the step that time has reached
	base     float64 // scale at the start of the step, 0 before the first
	slope    float64 // its growth per nanosecond
	review   int64   // time of the next census

	enter, leave float64 // a key becomes hot at enter touches of now, and cold below leave

	census [bins]uint32 // what this shard counted last; it is a part of ranks.count
}

func (s *shard) init(r *ranks, sets int, halfLife float64, seed uint64) {
	s.ranks, s.sets, s.mask = r, make([]set, sets), uint64(sets-1)
	s.halfLife, s.rng = halfLife, seed
	s.end = math.MinInt64
}

// advance lets time pass up to now and returns the scale of now. Time does not run
// back: a now before the step that has been reached is taken for the start of the step.
func (s *shard) advance(now int64) float64 {
	if now >= s.end {
		s.step(now)
	}
	return s.base + s.slope*float64(max(0, now-s.at))
}

// step begins a new step at now.
func (s *shard) step(now int64) {
	if s.base == 0 {
		s.landmark, s.review = now, now
	}
	age := float64(now-s.landmark) / s.halfLife
	if age > maxAge {
		s.rebase(math.Exp2(-age))
		s.landmark, age = now, 0
	}
	s.at, s.end = now, now+int64(s.halfLife/steps)
	s.base = math.Exp2(age)
	s.slope = s.base * (math.Exp2(1./steps) - 1) / (s.halfLife / steps)
	if now >= s.review {
		s.review = now + int64(s.halfLife/censuses)
		s.takeCensus()
	}
}

// rebase multiplies all sums by scale, which is 0 after a long silence.
func (s *shard) rebase(scale float64) {
	for i := range s.sets {
		set := &s.sets[i]
		for j := range set.sum {
			set.sum[j] *= scale
			set.slack[j] *= float32(scale)
		}
	}
}

// touch adds weight to a key, at a time of that scale.
//
// A key that has no slot gets one by a coin flip: it replaces the least of its set,
// of sum m, with probability weight/(m+weight), and takes over its sum. So the keys of a
// flood, each of which comes once, mostly find no room, while a key that comes again
// and again does. This is d-way RAP: Ben Basat, Einziger, Friedman, Kassner, "Randomized Admission
// Policy for Efficient Top-k and Frequency Estimation", INFOCOM 2017, https://arxiv.org/abs/1612.02962.
func (s *shard) touch(scale float64, key limit.Sum, weight uint32) Class {
	set := s.set(key)
	w := float64(weight) * scale
	if i := set.find(key); i >= 0 {
		set.sum[i] += w
		return s.classify(scale, set, i)
	}
	i := set.least()
	if s.coin()*(set.sum[i]+w) >= w {
		return Cold
	}
	s.cool(set, i)
	set.lo[i], set.hi[i] = key.Lo, key.Hi
	set.slack[i] = float32(set.sum[i])
	set.sum[i] += w
	return s.classify(scale, set, i)
}

// set is where key lies. The lowest bits of Lo chose the shard.
func (s *shard) set(key limit.Sum) *set { return &s.sets[key.Lo>>shardBits&s.mask] }

// find returns the slot of key, or -1. It is written without the loop that would stop at the
// slot, because no processor foresees where that is.
func (t *set) find(key limit.Sum) int {
	lo := &t.lo
	same := bit(lo[0] == key.Lo) | bit(lo[1] == key.Lo)<<1 | bit(lo[2] == key.Lo)<<2 | bit(lo[3] == key.Lo)<<3 |
		bit(lo[4] == key.Lo)<<4 | bit(lo[5] == key.Lo)<<5 | bit(lo[6] == key.Lo)<<6 | bit(lo[7] == key.Lo)<<7
	if same == 0 {
		return -1
	}
	if i := bits.TrailingZeros8(same); t.hi[i&(ways-1)] == key.Hi {
		return i & (ways - 1)
	}
	return t.findTwin(key)
}

// bit is 1 for true, without a branch.
func bit(b bool) uint8 {
	if b {
		return 1
	}
	return 0
}

// findTwin is find when another key of the set has the same low half, so almost never.
func (t *set) findTwin(key limit.Sum) int {
	for i := range t.lo {
		if t.lo[i] == key.Lo && t.hi[i] == key.Hi {
			return i
		}
	}
	return -1
}

// least returns the slot of the smallest sum. Sums are not negative, so their bits are in their
// order; the slot's number takes the place of the last three. This has no branches.
func (t *set) least() int {
	v := func(i int) uint64 { return math.Float64bits(t.sum[i])&^(ways-1) | uint64(i) }
	m := lesser(lesser(lesser(v(0), v(1)), lesser(v(2), v(3))), lesser(lesser(v(4), v(5)), lesser(v(6), v(7))))
	return int(m & (ways - 1))
}

// lesser is min, of which Go 1.26 makes a branch.
func lesser(a, b uint64) uint64 {
	if b < a {
		a = b
	}
	return a
}

// coin is a number in [0, 1) by xorshift64* (Vigna, https://arxiv.org/abs/1402.6246).
func (s *shard) coin() float64 {
	s.rng ^= s.rng >> 12
	s.rng ^= s.rng << 25
	s.rng ^= s.rng >> 27
	return float64(s.rng*0x2545f4914f6cdd1d>>11) * 0x1p-53
}

// sure is what certainly are touches of the slot's own key, scaled.
func (t *set) sure(i int) float64 { return t.sum[i] - float64(t.slack[i]) }

// classify moves slot i over the bars, if it has to. Only touches that surely are the
// key's own count, so a newcomer is not hot by what its predecessor left.
func (s *shard) classify(scale float64, set *set, i int) Class {
	sure := set.sure(i)
	if set.hot&(1<<i) != 0 {
		if sure >= s.leave*scale {
			return Hot
		}
		s.cool(set, i)
		return Cold
	}
	if sure < s.enter*scale || !s.ranks.admit() {
		return Cold
	}
	set.hot |= 1 << i
	return Hot
}

// cool makes slot i cold.
func (s *shard) cool(set *set, i int) {
	if set.hot&(1<<i) != 0 {
		set.hot &^= 1 << i
		s.ranks.hot.Add(-1)
	}
}
