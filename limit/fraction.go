package limit

import (
	"fmt"
	"math"
	"math/bits"
)

// Fraction is Num/Den, exactly; from 0 to 11, in lowest terms if a function of this package made it. The zero value is not valid, it
// lacks a Den.
type Fraction struct{ Num, Den uint64 }

// MaxDen bounds the denominators of NearestFraction, so that the product of two fractions, and that with a
// number of 64 bits, can be had exactly.
const MaxDen = 1_000_000

// NearestFraction is a fraction with a denominator of at most MaxDen that is as close to x as one can be: 1.0/3 is 1/3, and a decimal number
// with up to six digits behind the point is itself. x is from 0 to 10; for others, and for NaN, the error says so.
func NearestFraction(x float64) (Fraction, error) {
	if !(x >= 0 && x <= 10) { // NaN is neither
		return Fraction{}, fmt.Errorf("limit: %v is not between 0 and 10", x)
	}
	// The convergents of the continued fraction of x, until one is x or the next one is too long.
	before, f := Fraction{0, 1}, Fraction{1, 0}
	for rest := x; ; {
		whole := math.Floor(rest)
		if whole > MaxDen {
			break
		}
		next := Fraction{uint64(whole)*f.Num + before.Num, uint64(whole)*f.Den + before.Den}
		if next.Den > MaxDen {
			break
		}
		before, f = f, next
		if rest == whole || f.Float() == x {
			return f, nil
		}
		rest = 1 / (rest - whole)
	}
	return f.closer(before, x), nil
}

// closer is f, the last convergent, or the best of the fractions between it and the next one.
func (f Fraction) closer(before Fraction, x float64) Fraction {
	k := (MaxDen - before.Den) / f.Den
	between := Fraction{k*f.Num + before.Num, k*f.Den + before.Den}
	if math.Abs(between.Float()-x) < math.Abs(f.Float()-x) {
		return between
	}
	return f
}

// Float is the fraction as a number.
func (f Fraction) Float() float64 { return float64(f.Num) / float64(f.Den) }

// String is the fraction as a number, such as 0.4, or, where that would be long, as 1/3.
func (f Fraction) String() string {
	if short := fmt.Sprint(f.Float()); len(short) <= 8 {
		return short
	}
	return fmt.Sprintf("%d/%d", f.Num, f.Den)
}

// Of is floor(n * f), for a fraction of at most 1.
func (f Fraction) Of(n uint64) uint64 {
	hi, lo := bits.Mul64(n, f.Num)
	quotient, _ := bits.Div64(hi, lo, f.Den)
	return quotient
}

// AtLeastOne is Of, or 1 where that is 0.
func (f Fraction) AtLeastOne(n Tokens) Tokens { return max(1, Tokens(f.Of(uint64(n)))) }

// lowest puts the fraction in lowest terms.
func (f Fraction) lowest() Fraction {
	a, b := f.Num, f.Den
	for b > 0 {
		a, b = b, a%b
	}
	return Fraction{f.Num / a, f.Den / a}
}
