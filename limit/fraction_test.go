package limit

import (
	"math"
	"math/big"
	"testing"

	"pgregory.net/rapid"
)

func TestNearestFraction(t *testing.T) {
	for _, tt := range []struct {
		x    float64
		want Fraction
	}{
		{0, Fraction{0, 1}}, {1, Fraction{1, 1}}, {10, Fraction{10, 1}},
		{0.2, Fraction{1, 5}}, {1.0 / 3, Fraction{1, 3}}, {2.0 / 7, Fraction{2, 7}},
		{0.33, Fraction{33, 100}}, {0.333333, Fraction{333_333, 1_000_000}}, {0.123456, Fraction{1929, 15625}},
		{0.000001, Fraction{1, 1_000_000}}, {0.999999, Fraction{999_999, 1_000_000}},
		{0.3333333, Fraction{1, 3}},          // seven digits: no nearer one is short enough
		{0.0000004, Fraction{0, 1}},          // nearer to 0 than to a millionth
		{0.0000006, Fraction{1, MaxDen}},     // and this is not
		{math.Pi, Fraction{3126535, 995207}}, // the best approximation of pi below a million, as is well known
	} {
		got, err := NearestFraction(tt.x)
		if err != nil || got != tt.want {
			t.Errorf("%v: %v (%v), want %v", tt.x, got, err, tt.want)
		}
	}
	for _, x := range []float64{-0.1, 10.1, math.NaN(), math.Inf(1), math.Inf(-1)} {
		if f, err := NearestFraction(x); err == nil {
			t.Errorf("%v became %v", x, f)
		}
	}
}

// TestNearestFractionOfFractions: a fraction that went through a float64 comes back.
func TestNearestFractionOfFractions(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		den := rapid.Uint64Range(1, MaxDen).Draw(t, "den")
		want := Fraction{rapid.Uint64Range(0, 10*den).Draw(t, "num"), den}.lowest()
		got, err := NearestFraction(want.Float())
		if err != nil || got != want {
			t.Errorf("%v became %v (%v)", want, got, err)
		}
	})
}

// TestNearestFractionIsNearest: no fraction is nearer.
func TestNearestFractionIsNearest(t *testing.T) {
	for _, x := range []float64{math.Sqrt2 - 1, math.E - 2, 1 / math.Pi, 0.70710678, 0.0000123456789, 0.99999949} {
		best := math.Inf(1)
		for den := 1.0; den <= MaxDen; den++ {
			best = min(best, math.Abs(math.Round(x*den)/den-x))
		}
		if f, err := NearestFraction(x); err != nil || math.Abs(f.Float()-x) > best {
			t.Errorf("%v: %v is %v off, %v is possible (%v)", x, f, math.Abs(f.Float()-x), best, err)
		}
	}
}

// TestFractionOf holds Of against exact arithmetic.
func TestFractionOf(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		den := rapid.Uint64Range(1, MaxDen*MaxDen).Draw(t, "den")
		f := Fraction{rapid.Uint64Range(1, den).Draw(t, "num"), den}
		n := rapid.Uint64Range(0, 1<<62).Draw(t, "n")
		ratio := new(big.Rat).SetFrac(new(big.Int).SetUint64(f.Num), new(big.Int).SetUint64(f.Den))
		exact := new(big.Rat).SetInt(new(big.Int).SetUint64(n))
		down := new(big.Rat).Mul(exact, ratio)
		if got, want := f.Of(n), new(big.Int).Quo(down.Num(), down.Denom()); want.Cmp(new(big.Int).SetUint64(got)) != 0 {
			t.Errorf("floor(%d * %v) is %d, want %d", n, f, got, want)
		}
		if got := f.AtLeastOne(Tokens(n)); uint64(got) != max(1, f.Of(n)) {
			t.Errorf("%d of %d", got, n)
		}
	})
}

func TestFractionText(t *testing.T) {
	for _, tt := range []struct {
		f    Fraction
		want string
	}{{Fraction{2, 5}, "0.4"}, {Fraction{1, 1}, "1"}, {Fraction{1, 3}, "1/3"}, {Fraction{3333, 10000}, "0.3333"}, {Fraction{1, MaxDen}, "1e-06"}} {
		if got := tt.f.String(); got != tt.want {
			t.Errorf("%q, want %q", got, tt.want)
		}
	}
}
