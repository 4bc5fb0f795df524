package main

import (
	"math/bits"
	"time"
)

// histogram counts durations in buckets that are 1/32 of their value wide: a quantile is off by 3 % at most.
type histogram struct {
	counts [60 << subBits]uint32
	n      uint64
}

// subBits is the number of bits after the leading one that a bucket tells apart.
const subBits = 5

// slot is the bucket of a duration. Values below 2^subBits have one each.
func slot(d time.Duration) int {
	v := uint64(max(d, 0))
	shift := max(0, bits.Len64(v)-subBits-1)
	return shift<<subBits + int(v>>shift)
}

// top is the largest duration in a bucket.
func top(slot int) time.Duration {
	shift := max(0, slot>>subBits-1)
	return time.Duration(slot-shift<<subBits+1)<<shift - 1
}

func (h *histogram) add(d time.Duration) {
	h.counts[slot(d)]++
	h.n++
}

func (h *histogram) merge(other *histogram) {
	for i, c := range other.counts {
		h.counts[i] += c
	}
	h.n += other.n
}

// quantile is the duration that a share q of the values does not exceed; 0 without values.
func (h *histogram) quantile(q float64) time.Duration {
	rank, seen := uint64(q*float64(h.n)), uint64(0)
	for i, c := range h.counts {
		if seen += uint64(c); seen > rank || seen == h.n && seen > 0 {
			return top(i)
		}
	}
	return 0
}
