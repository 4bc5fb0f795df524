package limit

import (
	"fmt"
	"math/big"
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

// Scale is the rate, a valid one, of which only a portion f, a millionth to 1, is to be enforced. Requests and Burst are rounded down, but
// stay at least 1, and the period makes up for what that changes, where it may: it is rounded up, so that never more than the portion comes back. Of
// three data centers with 0.4 each
//
//	          token_bucket           sliding_log   fixed_window, sliding_window
//	1000/s    400/s                  400/s         400/s
//	7/m       2 per 42.857143 s      2/m           2/m
//	1/h       1 per 2.5 h            1 per 2.5 h   1 per 3 h
//
// The period of a token bucket is rounded up to the microsecond: it is 2.8/m of 7/m, at most 2 at once. A window keeps its length while at least
// 1 is left of its limit, since it is windows of that length of which it promises something. Where less than 1 is left, 1 is, in a
// longer window: of a log rounded up to the microsecond, of the aligned kinds to whole windows as written, so that none of those
// has more than 1.
//
// Bursts of several portions can so add up to more than the whole. Debt stays. The error is a *FieldError where the portion is slower than 1 per
// MaxPeriod, or needs a window longer than MaxWindow.
func (r Rate) Scale(f Fraction) (Rate, error) {
	if r.Requests == 0 || f.Num == f.Den {
		return r, nil
	}
	part := r
	part.Requests = f.AtLeastOne(r.Requests)
	if r.Burst > 0 {
		part.Burst = f.AtLeastOne(r.Burst)
	}
	if r.Algorithm != TokenBucket && f.Of(uint64(r.Requests)) > 0 {
		return part, nil
	}
	unit, longest := time.Microsecond, MaxPeriod
	switch r.Algorithm {
	case SlidingLog:
		longest = MaxWindow
	case FixedWindow, SlidingWindow:
		unit, longest = r.Period, MaxWindow
	}
	// Period' = Requests' / (f * Requests / Period), beyond 128 bits on the way.
	units := big.NewRat(int64(r.Period), int64(unit))
	units.Mul(units, big.NewRat(int64(part.Requests), int64(r.Requests)))
	units.Mul(units, new(big.Rat).SetFrac(new(big.Int).SetUint64(f.Den), new(big.Int).SetUint64(f.Num)))
	whole := ceil(units)
	if whole.Cmp(big.NewInt(int64(longest/unit))) > 0 {
		return r, r.tooLong(f)
	}
	part.Period = time.Duration(whole.Int64()) * unit
	return part, nil
}

// tooLong is the error of a portion whose period would be.
func (r Rate) tooLong(f Fraction) error {
	written := r.Text(r.Period)
	if r.Algorithm == TokenBucket {
		return &FieldError{"period", fmt.Sprintf("%v of %s is less than 1/%s", f, written, PeriodText(MaxPeriod))}
	}
	return &FieldError{"period", fmt.Sprintf("%v of %s is 1 only in a %v of more than %s, the longest; a token_bucket may be slower",
		f, written, r.Algorithm, PeriodText(MaxWindow))}
}

// ceil rounds a number that is not negative up.
func ceil(x *big.Rat) *big.Int {
	whole, rest := new(big.Int).QuoRem(x.Num(), x.Denom(), new(big.Int))
	if rest.Sign() > 0 {
		whole.Add(whole, big.NewInt(1))
	}
	return whole
}
