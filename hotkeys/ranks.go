package hotkeys

import (
	"math"
	"sync/atomic"
)

const (
	// perOctave is the number of bins per doubling of the sum, as a power of two.
	perOctave = 3
	// bins of the histogram: 32 octaves above the lowest sum that matters.
	bins = 32 << perOctave
	// binShift leaves of a float64 its exponent and perOctave bits below.
	binShift = 52 - perOctave
	// contest is how far above the K-th a key must be to become hot, so that keys at the
	// border do not take turns.
	contest = 1.25
)

// ranks tells the shards which sum makes a key one of the top K: a histogram, on a
// logarithmic scale, of the sums in all shards. Each shard brings its part up to date
// by its census, so nobody ever walks over all keys.
//
// Sums are in touches of now, not scaled.
type ranks struct {
	top   int64
	min   float64 // sum at which a key of MinRate stands
	floor uint64  // bin 0, as float64 bits >> binShift

	hot atomic.Int64 // hot slots; never above top
	_   [120]byte    // it changes seldom, count often

	count [bins]atomic.Int64
}

func (r *ranks) init(top int, min float64) {
	r.top, r.min = int64(top), min
	r.floor = math.Float64bits(min/2) >> binShift
}

// admit reserves a place among the top K, or reports that there is none.
func (r *ranks) admit() bool {
	if r.hot.Add(1) <= r.top {
		return true
	}
	r.hot.Add(-1)
	return false
}

// bin returns the bin of a sum, or -1 if it cannot be hot.
func (r *ranks) bin(sum float64) int {
	b := int(math.Float64bits(max(sum, 0))>>binShift) - int(r.floor)
	return max(-1, min(b, bins-1))
}

// bars returns the sum at which a key becomes hot and the sum below which it is cold
// again. Unless the top is full they stand at MinRate and at half of it. Else the lower one
// is at the first edge of a bin above which there are no more than top keys.
func (r *ranks) bars() (enter, leave float64) {
	enter, leave = r.min, r.min/2
	n := int64(0)
	for b := bins - 1; b >= 0; b-- {
		if n += r.count[b].Load(); n > r.top {
			kth := math.Float64frombits((r.floor + uint64(b) + 1) << binShift)
			return max(enter, kth*contest), max(leave, kth)
		}
	}
	return enter, leave
}

// takeCensus counts the shard's slots into ranks, fetches the bars, and cools the
// slots below, whose keys may never come again. It takes a few microseconds.
func (s *shard) takeCensus() {
	var now [bins]uint32
	for i := range s.sets {
		set := &s.sets[i]
		for j := range set.sum {
			if b := s.ranks.bin(set.sure(j) / s.base); b >= 0 {
				now[b]++
			}
		}
	}
	for b := range now {
		if now[b] != s.census[b] {
			s.ranks.count[b].Add(int64(now[b]) - int64(s.census[b]))
		}
	}
	s.census = now
	s.enter, s.leave = s.ranks.bars()
	for i := range s.sets {
		for set, j := &s.sets[i], 0; set.hot != 0 && j < ways; j++ {
			if set.sure(j) < s.leave*s.base {
				s.cool(set, j)
			}
		}
	}
}
