package limit

import (
	"fmt"
	"math/bits"
	"time"
)

// Rate is what a person writes: so many requests per period, at most burst at
// once. Zero Requests deny everything; the zero value is not valid, it lacks a Period.
type Rate struct {
	// Algorithm of the bucket. What follows about refill, Burst and Debt is for token buckets; of the others Requests is
	// the limit and Period, of MinWindow to MaxWindow, the length of the window (see windowTerms).
	Algorithm Algorithm
	// Requests per Period; 0 denies everything. At most MaxTokens.
	Requests Tokens
	// Period over which Requests are refilled; 1 us to MaxPeriod.
	Period time.Duration
	// Burst is the capacity: the most that can be admitted at one moment.
	// 0 stands for Requests. At most MaxTokens.
	Burst Tokens
	// Debt is how many tokens charges may take below empty: what may be admitted before a store
	// has heard of it. 0 for none. At most MaxTokens.
	Debt Tokens
}

// MaxPeriod is the longest period of a rate: ten years, without leap days.
const MaxPeriod = 10 * 365 * 24 * time.Hour

// FieldError says which parameter of a rate is out of range and what would be right.
type FieldError struct {
	Field   string // "requests", "period", "burst"
	Problem string
}

func (e *FieldError) Error() string { return "limit: " + e.Field + ": " + e.Problem }

// Terms are the parameters of a bucket, compiled for its time class.
// They are immutable and shared by every cell of a rule.
type Terms struct {
	// Algorithm of the bucket. The rest is said for token buckets; those of the window kinds have a limit, Burst, and count it in
	// Depth and Level by ticks of one token.
	Algorithm Algorithm
	Class     Class
	// Emission is the time in which one token is refilled, at least 1 tick.
	// It is rounded up to a whole tick: the rate is never exceeded, and falls
	// short of the configured one by less than 1 part in 2^44/Burst where the
	// bucket fills in a class' length.
	Emission Ticks
	// Burst is the capacity in tokens, at least 1.
	Burst Tokens
	// Depth is Burst * Emission: the time to fill from empty.
	Depth Ticks
	// Ceiling is how far these terms move a TAT ahead of now: Depth, or more where charges
	// may run into debt. Larger terms may have left one that is further ahead.
	Ceiling Ticks
}

// Terms compiles the rate. The error is a *FieldError. A rate of zero requests has
// no terms: the answer is known without a cell, and Terms returns nil, nil.
func (r Rate) Terms() (*Terms, error) {
	switch {
	case r.Requests < 0 || r.Requests > MaxTokens:
		return nil, &FieldError{"requests", fmt.Sprintf("%d is not between 0 and %d", r.Requests, MaxTokens)}
	case r.Algorithm != TokenBucket:
		return r.windowTerms()
	case r.Burst < 0 || r.Burst > MaxTokens:
		return nil, &FieldError{"burst", fmt.Sprintf("%d is not between 0 and %d", r.Burst, MaxTokens)}
	case r.Debt < 0 || r.Debt > MaxTokens:
		return nil, &FieldError{"debt", fmt.Sprintf("%d is not between 0 and %d", r.Debt, MaxTokens)}
	case r.Period < time.Microsecond || r.Period > MaxPeriod:
		return nil, &FieldError{"period", fmt.Sprintf("%v is not between 1us and %v", r.Period, MaxPeriod)}
	case r.Requests == 0:
		return nil, nil
	}
	burst := r.Burst
	if burst == 0 {
		burst = r.Requests
	}
	fill := float64(burst+r.Debt)*float64(r.Period)/float64(r.Requests) + float64(LeaseTTL)
	if fill > float64(MaxFill) {
		return nil, r.tooSlow(burst)
	}
	for class, ok := BucketClass(time.Duration(fill)); ok; class, ok = BucketClass(class.Length + 1) {
		emission := r.emission(class)
		t := &Terms{Class: class, Emission: emission, Burst: burst, Depth: Ticks(burst) * emission}
		t.Ceiling = t.Depth + Ticks(r.Debt)*emission
		// A cell is forgotten a generation after it was last written. An epoch may end that long after a
		// write and clamp the cell: only then must it have the time to fill. Besides,
		// rounding up may push a bucket that just fits over the class' length.
		if t.Ceiling+class.EpochTicks() <= class.Span() {
			return t, nil
		}
	}
	return nil, r.tooSlow(burst)
}

func (r Rate) tooSlow(burst Tokens) error {
	return &FieldError{"period", fmt.Sprintf("a bucket of %d at %d per %v takes more than %v to fill", burst, r.Requests, r.Period, MaxFill)}
}

// emission is ceil(Period / Requests) in ticks of the class, exactly.
func (r Rate) emission(c Class) Ticks {
	num, den := c.perMicro()
	hi, lo := bits.Mul64(uint64(r.Period), uint64(num))
	quotient, rest := bits.Div64(hi, lo, uint64(r.Requests)*1000*uint64(den))
	if rest > 0 {
		quotient++
	}
	return Ticks(quotient)
}
