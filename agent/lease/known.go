package lease

import (
	"time"

	"github.com/spillgate/spillgate/limit"
)

// Known is the last that the store said of a bucket that is not hot.
type Known struct {
	Sum   limit.Sum
	Terms *limit.Terms
	Out   limit.Outcome
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
	if n == 0 || n > t.Burst || now >= k.AsOf+knownFor {
		return false
	}
	missing := t.Wait(n, k.Out)
	wait := k.AsOf + int64(missing) + k.Out.Lag - now
	if missing <= 0 || wait <= 0 {
		return false
	}
	*d = t.Decide(n, k.at(now))
	d.Admitted, d.Reason, d.RetryAfter = false, limit.OverLimit, time.Duration(wait)
	return true
}

// at is what the store would say at a time.
func (k *Known) at(now int64) limit.Outcome { return k.Terms.Later(k.Out, time.Duration(now-k.AsOf)) }
