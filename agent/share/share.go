package share

import (
	"time"

	"github.com/spillgate/spillgate/limit"
)

// share is an agent's part of one bucket: a token bucket of the same depth, whose tokens cost n times as much time. So it holds
// the n-th part of the burst, whole tokens of it, and refills at the n-th part of the rate; n of them together are the
// bucket. Times are nanoseconds of the agent's monotonic clock.
type share struct {
	bucket limit.Bucket
	terms  *limit.Terms
	// tat is when the share is full again if nothing is taken.
	tat int64
	// per is the time in which a token of the share refilled when one was last taken.
	per int64
	// given are tokens that were admitted without the store's knowledge.
	given limit.Tokens
	// owing: the share is in the table's list of those.
	owing bool
}

// Ask is a check on the share of a bucket.
type Ask struct {
	Bucket *limit.Bucket
	Terms  *limit.Terms
	N      limit.Tokens // 0 to the burst; 0 looks and takes nothing
	// Agents that share the bucket, 1 to MostAgents.
	Agents int
	// Since is the moment at which the share was empty: when the agent first noticed that the shard does not answer. 0 if it
	// answers others: then a share begins empty, now, and one that has begun goes on.
	Since int64
	Now   int64
	// Told: the store is asked as well, so there will be nothing to charge.
	Told bool
}

// MostAgents is the largest fleet that Ask takes.
const MostAgents = 1 << 16

// depth is the time in which a share fills.
func (a *Ask) depth() int64 { return int64(a.Terms.Class.Duration(a.Terms.Depth)) }

// per is the time in which a token of the share refills, at most depth. It is for shares that hold one.
func (a *Ask) per() int64 {
	return int64(a.Agents) * int64(a.Terms.Class.Duration(a.Terms.Emission))
}

// fits reports whether a share can hold so many tokens.
func (a *Ask) fits(n limit.Tokens) bool { return n*limit.Tokens(a.Agents) <= a.Terms.Burst }

// begin is the time at which the share is full again, at the earliest: it was empty at Since.
func (a *Ask) begin(s *share) int64 {
	switch {
	case a.Since > 0 && s != nil:
		return max(s.tat, a.Since+a.depth(), a.Now)
	case a.Since > 0:
		return max(a.Since+a.depth(), a.Now)
	case s != nil:
		return max(s.tat, a.Now)
	}
	return a.Now + a.depth()
}

// retryNever is what a caller is told to wait whose cost is above the share: by then the store may be back.
const retryNever = time.Second

// judge decides a check on a share that is full again at tat, and says when it will be then.
func (a *Ask) judge(tat int64) (d limit.Decision, next int64) {
	d = limit.Decision{Admitted: a.N == 0, Reason: limit.StoreLocal, Limit: a.Terms.Burst, RetryAfter: retryNever}
	if d.Admitted {
		d.RetryAfter = limit.NoRetry
	}
	if !a.fits(max(1, a.N)) {
		return d, tat
	}
	full, cost := a.Now+a.depth(), int64(a.N)*a.per()
	if wait := tat + cost - full; wait <= 0 {
		d.Admitted, d.RetryAfter = true, limit.NoRetry
		tat += cost
	} else {
		d.RetryAfter = time.Duration(wait)
	}
	d.Remaining = limit.Tokens((full - tat) / a.per())
	d.ResetAfter = time.Duration(tat - a.Now)
	return d, tat
}

// owed is what the store should be charged of what was given: what had not refilled a while ago. To look at the past, and not at
// now, charges for the time in which others may have been charged already.
func (s *share) owed(now int64, while time.Duration) limit.Tokens {
	missing := s.tat - (now - int64(while))
	if missing <= 0 || s.given == 0 {
		return 0
	}
	return min(s.given, limit.Tokens((missing+s.per-1)/s.per))
}
