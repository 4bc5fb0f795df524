package lease

import (
	"time"

	"github.com/spillgate/spillgate/limit"
)

// Grant is what one reply of the store brought: tokens to spend, perhaps none, and what the
// store knew then. All but the purse is set once, before others see the Grant.
type Grant struct {
	terms     *limit.Terms
	expires   int64 // the first moment at which no token may be spent
	low       int64 // with fewer left it is time to ask
	renewAt   int64 // and at this moment
	denyUntil int64 // until then nothing else is to be had
	asOf      int64 // when the reply came
	fullAt    int64 // when the bucket is full if nobody takes anything
	level     limit.Ticks
	lag       int64

	tokens limit.Tokens
	epoch  int64
	// accounted are tokens of which the store was told, or will be: spent or returned. Under the
	// Holding's lock.
	accounted limit.Tokens

	purse purse
}

// held is what may still be spent; of no grant nothing.
func (g *Grant) held() limit.Tokens {
	if g == nil {
		return 0
	}
	return g.purse.held()
}

// decides reports whether a check of n tokens needs nothing else: they are there, or it is denied.
func (g *Grant) decides(now int64, n limit.Tokens) bool {
	if g.held() >= n {
		return now < g.expires
	}
	return now < g.denyUntil
}

// levelAt is the level of the bucket at a time since the reply, as if the tokens that are left
// had not been taken. Another agent's share of it is unknown.
func (g *Grant) levelAt(now, left int64) limit.Ticks {
	class := &g.terms.Class
	passed := min(max(0, now-g.asOf), int64(class.Length)) // by then it is full
	level := max(0, g.level-class.Ticks(passed))
	return max(0, level-limit.Ticks(max(0, left))*g.terms.Emission)
}

// admitted makes d, which is zero, the decision on a check whose tokens came from the grant.
//
// Hot path: 0 allocations, no lock.
func (g *Grant) admitted(now int64, d *limit.Decision) {
	d.Admitted, d.Reason, d.RetryAfter = true, limit.OK, limit.NoRetry
	d.Limit, d.Remaining = g.terms.Burst, g.terms.Burst
	if now < g.fullAt {
		level := g.levelAt(now, int64(g.held()))
		d.Remaining, d.ResetAfter = g.terms.Remaining(level), g.terms.Class.Duration(level)
	}
}

// denied is the decision on a check of n tokens that the grant denies: the wait is until the bucket has them,
// but at least until something else may be had here.
func (g *Grant) denied(now int64, n limit.Tokens, d *limit.Decision) {
	*d = g.terms.Decide(n, limit.Outcome{Level: g.levelAt(now, int64(g.held())), Lag: g.lag})
	d.Admitted, d.Reason = false, limit.OverLimit
	d.RetryAfter = max(d.RetryAfter, time.Duration(g.denyUntil-now))
}
