package limit

import (
	"fmt"
	"math/bits"
	"time"
)

// Portion is what one of several data centers may enforce of a limit: share * (1 + headroom), but at most all of it, exactly.
// share is above 0 to 1 and headroom 0 to 10, both as NearestFraction has them. The error is a *FieldError that
// names "share" or "headroom".
func Portion(share, headroom float64) (Fraction, error) {
	s, err := NearestFraction(share)
	if err != nil || s.Num == 0 || s.Num > s.Den {
		return Fraction{}, &FieldError{"share", fmt.Sprintf("%v is not between %v and 1", share, 1.0/MaxDen)}
	}
	h, err := NearestFraction(headroom)
	if err != nil {
		return Fraction{}, &FieldError{"headroom", fmt.Sprintf("%v is not between 0 and 10", headroom)}
	}
	if f := (Fraction{s.Num * (h.Den + h.Num), s.Den * h.Den}).lowest(); f.Num < f.Den {
		return f, nil
	}
	return Fraction{1, 1}, nil
}

// Scale is the rate of which only a portion f, a millionth to 1, is to be enforced. Never more than the portion is refilled, and hardly less: the same
// requests come over a longer period, rounded up to the nanosecond, so that 1 per hour becomes 1 per 2.5 hours and not 0.
// The burst is rounded down, but is at least 1: bursts of several portions can add up to more than the whole. Debt stays.
//
// A period that would be longer than MaxPeriod is MaxPeriod, and the requests are fewer, rounded down. The error is a *FieldError
// where none would be left.
func (r Rate) Scale(f Fraction) (Rate, error) {
	if r.Requests == 0 || f.Num == f.Den {
		return r, nil
	}
	part := r
	if part.Burst == 0 {
		part.Burst = r.Requests
	}
	part.Burst = f.AtLeastOne(part.Burst)
	if longer, ok := f.Under(uint64(r.Period)); ok && longer <= uint64(MaxPeriod) {
		part.Period = time.Duration(longer)
		return part, nil
	}
	// Here Period > MaxPeriod * f: the quotient is below Requests / f, at most 2^60.
	hi, lo := bits.Mul64(uint64(r.Requests), uint64(MaxPeriod))
	most, _ := bits.Div64(hi, lo, uint64(r.Period))
	fewer := Tokens(f.Of(most))
	if fewer == 0 {
		return r, &FieldError{"period", fmt.Sprintf("%v of %s is less than 1/%s", f, r.Text(r.Period), PeriodText(MaxPeriod))}
	}
	part.Requests, part.Period = fewer, MaxPeriod
	return part, nil
}

// AtLeastOne is floor(n * f), or 1 where that is 0; for a fraction of at most 1.
func (f Fraction) AtLeastOne(n Tokens) Tokens { return max(1, Tokens(f.Of(uint64(n)))) }
