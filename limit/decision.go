package limit

import "time"

// Reason says why a Decision is what it is. The zero value is no reason: it is never given.
type Reason uint8

// The reasons, in the words of the wire (INTERFACE: SG.CHECK).
const (
	_ Reason = iota
	// OK: a token was there.
	OK
	// OverLimit: no token was there; RetryAfter says when.
	OverLimit
	// Never: the cost is above the burst or the limit is zero.
	Never
	// ShadowOver: a shadow rule is over its limit; it admits all the same.
	ShadowOver
	// NoRule: no rule matches; admitted.
	NoRule
	// Unlimited: the rule admits everything.
	Unlimited
	// StoreOpen: the store gave no answer in time and the rule fails open.
	StoreOpen
	// StoreClosed: the store gave no answer in time and the rule fails closed.
	StoreClosed
	// StoreLocal: the store gave no answer in time and the agent's own share decided.
	StoreLocal
	// Overloaded: the agent's queue was full; the rule's policy decided.
	Overloaded

	reasons
)

var reasonNames = [reasons]string{OK: "ok", OverLimit: "over_limit", Never: "never", ShadowOver: "shadow", NoRule: "no_rule",
	Unlimited: "unlimited", StoreOpen: "store_open", StoreClosed: "store_closed", StoreLocal: "store_local", Overloaded: "overloaded"}

// String is the word for the reason on every wire.
func (r Reason) String() string {
	if r >= reasons {
		return ""
	}
	return reasonNames[r]
}

// Reasons lists every reason, for metrics that are made once.
func Reasons() []Reason {
	all := make([]Reason, 0, reasons-1)
	for r := OK; r < reasons; r++ {
		all = append(all, r)
	}
	return all
}

// NoRetry stands in Decision.RetryAfter when there is nothing to wait for:
// the request was admitted, or it can never be.
const NoRetry time.Duration = -1

// Decision is the answer to a check.
type Decision struct {
	Admitted bool
	Reason   Reason
	// Limit is the rule's burst, or the limit of a window; 0 when no rule counted.
	Limit Tokens
	// Remaining tokens after this check, at least 0.
	Remaining Tokens
	// RetryAfter is how long to wait until the same request would be admitted
	// if nobody else asked, exactly, rounded up to the nanosecond (in buckets that take over
	// 18 hours to fill, to the tick of at most 8 us); NoRetry if there is no such time.
	RetryAfter time.Duration
	// ResetAfter is how long until the bucket is full.
	ResetAfter time.Duration
	// Rule is the name of the rule that decided; "" without one.
	Rule string
}

// Unavailable reports whether the request was denied for want of an answer, and not for its rate: HTTP's 503 and not 429.
func (d *Decision) Unavailable() bool {
	return !d.Admitted && (d.Reason == StoreClosed || d.Reason == Overloaded)
}

// Decide turns the outcome of a take of n tokens into a decision, without a
// rule's name. A take of more than Burst is Never.
func (t *Terms) Decide(n Tokens, out Outcome) Decision {
	if t.Algorithm != TokenBucket {
		return t.decideWindow(n, &out)
	}
	d := Decision{
		Admitted:   out.Granted >= n,
		Reason:     OK,
		Limit:      t.Burst,
		Remaining:  t.Remaining(out.Level),
		RetryAfter: NoRetry,
		ResetAfter: t.Class.Duration(out.Level),
	}
	switch {
	case d.Admitted:
	case n > t.Burst:
		d.Reason = Never
	default:
		d.Reason = OverLimit
		d.RetryAfter = t.Class.Duration(out.Level+Ticks(n)*t.Emission-t.Depth) + time.Duration(out.Lag)
	}
	if out.Level > 0 {
		d.ResetAfter += time.Duration(out.Lag)
	}
	return d
}

// Remaining is the number of whole tokens in a bucket at the level, at least 0.
func (t *Terms) Remaining(level Ticks) Tokens {
	if level >= t.Depth {
		return 0
	}
	return Tokens((t.Depth - level) / t.Emission)
}
