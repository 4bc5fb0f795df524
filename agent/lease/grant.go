package lease

import (
	"sync/atomic"
	"time"

	"github.com/spillgate/spillgate/agent/split"
	"github.com/spillgate/spillgate/limit"
)

// Grant is what one reply of the store brought: tokens to spend, perhaps none, and what the
// store knew then. All but the purse is set once, before others see the Grant.
type Grant struct {
	terms     *limit.Terms
	call      uint64        // that brought it, see batcher.Claim
	expires   int64         // the first moment at which no token may be spent
	low       int64         // with fewer left it is time to ask
	renewAt   int64         // and at this moment
	denyUntil int64         // until then nothing else is to be had
	spread    *split.Spread // of a divided bucket, else nil
	asOf      int64         // when the reply came
	fullAt    int64         // when the bucket is full if nobody takes anything
	out       limit.Outcome // of the reply

	tokens limit.Tokens
	where  where
	epoch  int64
	// accounted are tokens of which the store was told, or will be: spent or returned. Under the
	// Holding's lock.
	accounted limit.Tokens
	// back are tokens that were returned ahead of the end: for a caller they are in the bucket.
	back atomic.Int64

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
	if g.purse.has(n) {
		return now < g.expires
	}
	return now < g.denyUntil
}

// levelAt is the level of a token bucket at a time since the reply, as if the tokens that are not spent
// had not been taken. Another agent's share of it is unknown.
func (g *Grant) levelAt(now int64) limit.Ticks {
	class := &g.terms.Class
	passed := min(max(0, now-g.asOf), int64(class.Length)) // by then it is full
	return max(0, max(0, g.out.Level-class.Ticks(passed))-limit.Ticks(g.unspent())*g.terms.Emission)
}

func (g *Grant) unspent() limit.Tokens { return g.held() + limit.Tokens(g.back.Load()) }

// outcomeAt is what the store would say of the bucket at a time, in the same sense.
func (g *Grant) outcomeAt(now int64) limit.Outcome {
	if g.terms.Algorithm == limit.TokenBucket {
		return limit.Outcome{Level: g.levelAt(now), Lag: g.out.Lag}
	}
	out := g.terms.Later(limit.Outcome{Level: g.out.Level, Lag: g.out.Lag, Left: g.out.Left, Fading: g.out.Fading, Epoch: g.epoch}, time.Duration(now-g.asOf))
	if out.Epoch == g.epoch { // what is held of a window that is over is in no other
		out.Level = max(0, out.Level-limit.Ticks(g.unspent()))
	}
	return out
}

// admitted makes d, which is zero, the decision on a check whose n tokens came from the grant.
//
// Hot path: 0 allocations, no lock.
func (g *Grant) admitted(now int64, n limit.Tokens, d *limit.Decision) {
	level := limit.Ticks(n) * g.terms.Emission // at least what this check took
	if g.terms.Algorithm != limit.TokenBucket {
		out := g.outcomeAt(now)
		out.Granted, out.Level = n, max(level, out.Level)
		*d = g.terms.Decide(n, out)
		return
	}
	if now < g.fullAt {
		level = max(level, g.levelAt(now))
	}
	d.Admitted, d.Reason, d.RetryAfter = true, limit.OK, limit.NoRetry
	d.Limit, d.Remaining, d.ResetAfter = g.terms.Burst, g.terms.Remaining(level), g.terms.Class.Duration(level)
}

// denied is the decision on a check of n tokens that the grant denies: the wait is until the bucket has them,
// but at least until something else may be had here. Tokens that may be in the bucket by now are not for this agent
// before that.
func (g *Grant) denied(now int64, n limit.Tokens, d *limit.Decision) {
	*d = g.terms.Decide(n, g.outcomeAt(now))
	d.Admitted, d.Reason, d.Remaining = false, limit.OverLimit, min(d.Remaining, n-1)
	d.RetryAfter = max(d.RetryAfter, time.Duration(g.denyUntil-now))
	if g.spread != nil {
		d.RetryAfter = max(g.spread.Wait(now, n), time.Duration(g.denyUntil-now))
	}
}
