package lease

import (
	"math"

	"github.com/spillgate/spillgate/limit"
)

// measureLocked updates the demand: up at once, down by halves.
func (h *Holding) measureLocked(now int64) {
	wanted := h.mu.spent + limit.Tokens(h.missed.Swap(0))
	h.mu.spent = 0
	if wanted > 0 {
		h.mu.seenDemand = now
	}
	span := max(now-h.mu.lastAsk, leastSpan)
	rate := float64(wanted) / float64(span)
	passed := min(span, now-h.mu.measured) // less at first: what New was told is of that moment
	h.mu.measured = now
	if rate >= h.mu.demand {
		h.mu.demand = rate
		return
	}
	h.mu.demand = rate + (h.mu.demand-rate)*math.Exp2(-float64(passed)/halfLife)
}

// wantLocked is how many tokens the demand needs for a horizon: the fuller the bucket, the longer. What is leased and
// spent takes room in the bucket until the next request, so all contenders together keep it small beside the
// burst, but for what is needed for the shortest horizon.
func (h *Holding) wantLocked() float64 {
	least := h.mu.demand * float64(leastHorizon)
	most := h.mu.demand * h.mu.fill * h.mu.fill * float64(mostHorizon)
	room := float64(h.terms.Load().Burst) / float64(leaseRoom*max(1, h.mu.contenders))
	return math.Ceil(max(least, min(most, room)))
}

// hintLocked is the pause after a reply that was not enough: the time in which each contender's token
// refills, but not so long that the bucket runs full meanwhile.
func (h *Holding) hintLocked(contenders int64) int64 {
	one, all := h.terms.Load().Refill()
	hint := max(contenders*min(mostHint, int64(one)), leastHint)
	hint = min(hint, mostHint, max(1, int64(all)/2))
	return min(h.jitterLocked(hint), mostHint)
}

// jitterLocked is d, give or take a quarter.
func (h *Holding) jitterLocked(d int64) int64 {
	x := h.mu.random // xorshift64, Marsaglia 2003
	x ^= x << 13
	x ^= x >> 7
	x ^= x << 17
	h.mu.random = x
	return d - d/4 + int64(x%uint64(d/2+1))
}

// endingLocked is when it is time for the next lease because this one ends. One that ends with its window has no next
// before that.
func (h *Holding) endingLocked(g *Grant) int64 {
	if g.terms.Algorithm != limit.TokenBucket && g.out.Term < ttl {
		return g.expires
	}
	return g.expires - max(roundTrips*h.mu.roundTrip, ttl/8)
}
