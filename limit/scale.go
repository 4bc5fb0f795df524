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

// Scale is the rate of which only a portion f, a millionth to 1, is to be enforced. Requests and Burst are rounded down, but stay at least
// 1, and the period of a token bucket makes up for what that changes: it is rounded up to the microsecond, so that never more than the portion is refilled,
// and hardly less. Of three data centers with 0.4 each
//
//	1000/s           becomes 400/s
//	7/m              becomes 2 per 42.857143 s, which is 2.8/m at most 2 at once
//	1/h              becomes 1 per 2.5 h, and not 0
//
// A window keeps its length: its limit is rounded down, to no less than 1, so a limit of few in a window may stay above its portion.
// Bursts of several portions can so add up to more than the whole. Debt stays. The error is a *FieldError where the portion is slower than 1 per MaxPeriod.
func (r Rate) Scale(f Fraction) (Rate, error) {
	if r.Requests == 0 || f.Num == f.Den {
		return r, nil
	}
	part := r
	part.Requests = f.AtLeastOne(r.Requests)
	if r.Algorithm != TokenBucket {
		return part, nil
	}
	if r.Burst > 0 {
		part.Burst = f.AtLeastOne(r.Burst)
	}
	// Period' = Requests' / (f * Requests / Period), beyond 128 bits on the way.
	micros := big.NewRat(int64(r.Period), int64(time.Microsecond))
	micros.Mul(micros, big.NewRat(int64(part.Requests), int64(r.Requests)))
	micros.Mul(micros, new(big.Rat).SetFrac(new(big.Int).SetUint64(f.Den), new(big.Int).SetUint64(f.Num)))
	period := ceil(micros)
	if period.Cmp(big.NewInt(MaxPeriod.Microseconds())) > 0 {
		return r, &FieldError{"period", fmt.Sprintf("%v of %s is less than 1/%s", f, r.Text(r.Period), PeriodText(MaxPeriod))}
	}
	part.Period = time.Duration(period.Int64()) * time.Microsecond
	return part, nil
}

// ceil rounds a number that is not negative up.
func ceil(x *big.Rat) *big.Int {
	whole, rest := new(big.Int).QuoRem(x.Num(), x.Denom(), new(big.Int))
	if rest.Sign() > 0 {
		whole.Add(whole, big.NewInt(1))
	}
	return whole
}
