package lease

import (
	"time"

	"github.com/spillgate/spillgate/limit"
)

// Known is the last that the store said of a bucket that is not hot.
type Known struct {
	Sum   limit.Sum
	Terms *limit.Terms
	Level limit.Ticks
	Lag   int64
	AsOf  int64 // when it said so
}

// Memory keeps what is Known. It may forget at any time, but never gives anything else than the
// last that was set for the sum, or something older. Safe for concurrent use.
type Memory interface {
	Get(limit.Sum) (Known, bool)
	Set(Known)
	Forget(limit.Sum)
}

// knownFor is how long a denial is believed, at most: tokens may come back in ways that this agent does
// not see, such as a reset by another.
const knownFor = mostHint

// denies says whether n tokens cannot be there yet, and the decision that follows.
func (k *Known) denies(now int64, n limit.Tokens, d *limit.Decision) bool {
	t := k.Terms
	missing := k.Level + limit.Ticks(n)*t.Emission - t.Depth
	if n == 0 || n > t.Burst || missing <= 0 || now >= k.AsOf+knownFor {
		return false
	}
	wait := k.AsOf + int64(t.Class.Duration(missing)) + k.Lag - now
	if wait <= 0 {
		return false
	}
	*d = t.Decide(n, limit.Outcome{Level: k.levelAt(now), Lag: k.Lag})
	d.Admitted, d.Reason, d.RetryAfter = false, limit.OverLimit, time.Duration(wait)
	return true
}

func (k *Known) levelAt(now int64) limit.Ticks {
	class := &k.Terms.Class
	passed := min(max(0, now-k.AsOf), int64(class.Length))
	return max(0, k.Level-class.Ticks(passed))
}
