package limit

import (
	"errors"
	"math"
	"math/big"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestPortion(t *testing.T) {
	for _, tt := range []struct {
		share, headroom float64
		want            Fraction
	}{
		{1, 0.2, Fraction{1, 1}}, {1, 0, Fraction{1, 1}}, {0.9, 0.2, Fraction{1, 1}}, {0.5, 1, Fraction{1, 1}},
		{1.0 / 3, 0.2, Fraction{2, 5}}, {0.5, 0.2, Fraction{3, 5}}, {0.3333, 0.2, Fraction{9999, 25000}},
		{0.25, 0, Fraction{1, 4}}, {0.000001, 0, Fraction{1, MaxDen}}, {0.01, 10, Fraction{11, 100}},
	} {
		if got, err := Portion(tt.share, tt.headroom); err != nil || got != tt.want {
			t.Errorf("%v, %v: %v (%v), want %v", tt.share, tt.headroom, got, err, tt.want)
		}
	}
	for _, tt := range []struct {
		share, headroom float64
		field           string
	}{
		{0, 0, "share"}, {-0.5, 0, "share"}, {1.000001, 0, "share"}, {2, 0, "share"}, {1e-9, 0, "share"}, {math.NaN(), 0, "share"}, {math.Inf(1), 0, "share"},
		{1, -0.1, "headroom"}, {1, 10.1, "headroom"}, {1, math.NaN(), "headroom"}, {0.5, math.Inf(1), "headroom"},
	} {
		var e *FieldError
		if f, err := Portion(tt.share, tt.headroom); !errors.As(err, &e) || e.Field != tt.field {
			t.Errorf("%v, %v: %v, %v, want an error of %s", tt.share, tt.headroom, f, err, tt.field)
		}
	}
}

func TestScale(t *testing.T) {
	const year = 365 * 24 * time.Hour
	third := Fraction{2, 5} // of three, with headroom 0.2
	for _, tt := range []struct {
		name string
		f    Fraction
		rate Rate
		want Rate
	}{
		{"the whole", Fraction{1, 1}, rate(100, time.Second, 0), rate(100, time.Second, 0)},
		{"even", third, rate(1000, time.Second, 0), rate(400, time.Second, 0)},
		{"a burst of its own", third, rate(100, time.Second, 250), rate(40, time.Second, 100)},
		{"no part of a token", third, rate(7, time.Minute, 0), rate(2, 42_857_143*time.Microsecond, 0)},
		{"nor of a burst", third, rate(10, time.Minute, 7), rate(4, time.Minute, 2)},
		{"not to zero", third, rate(1, time.Hour, 0), rate(1, 150*time.Minute, 0)},
		{"nor the burst", third, rate(60, time.Hour, 2), rate(24, time.Hour, 1)},
		{"two", third, rate(2, time.Hour, 0), rate(1, 75*time.Minute, 0)},
		{"a third", Fraction{1, 3}, rate(10, time.Millisecond, 0), rate(3, 900*time.Microsecond, 0)},
		{"rounded up", Fraction{3, 7}, rate(10, time.Millisecond, 0), rate(4, 934*time.Microsecond, 0)},
		{"a window keeps its length", third, Rate{Algorithm: FixedWindow, Requests: 7, Period: time.Minute}, Rate{Algorithm: FixedWindow, Requests: 2, Period: time.Minute}},
		{"and something of its limit", third, Rate{Algorithm: SlidingLog, Requests: 1, Period: time.Hour}, Rate{Algorithm: SlidingLog, Requests: 1, Period: time.Hour}},
		{"nothing", third, rate(0, time.Second, 0), rate(0, time.Second, 0)},
		{"debt stays", third, Rate{Requests: 100, Period: time.Second, Debt: 77}, Rate{Requests: 40, Period: time.Second, Debt: 77}},
		{"slow", Fraction{1, 100}, rate(1000, year, 0), rate(10, year, 0)},
		{"large numbers", Fraction{1, MaxDen}, rate(MaxTokens, MaxPeriod, 0), rate(1_099_511, MaxPeriod-180057613*time.Microsecond, 0)},
		{"the slowest", Fraction{1, 10}, rate(1, year, 0), rate(1, MaxPeriod, 0)},
		{"beyond", Fraction{999_999, 10_000_000}, rate(1, year, 0), Rate{}},
	} {
		got, err := tt.rate.Scale(tt.f)
		if tt.want == (Rate{}) {
			var e *FieldError
			if !errors.As(err, &e) || e.Field != "period" || !strings.Contains(e.Problem, "999999/10000000 of 1/365d is less than 1/3650d") {
				t.Errorf("%s: %+v, %v, want an error of the period", tt.name, got, err)
			}
			continue
		}
		if err != nil || got != tt.want {
			t.Errorf("%s: %+v (%v), want %+v", tt.name, got, err, tt.want)
		}
	}
}

// TestScaledAddUp: whatever the limit, and however it is shared among data centers, what they enforce together is at most the
// bound that is printed, at most the limit with its headroom (and one token of burst for each share that has none), and at least the
// limit, where the headroom covers what is rounded.
func TestScaledAddUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		whole := Rate{
			Requests: Tokens(rapid.Int64Range(1, 1<<20).Draw(t, "requests")),
			Period:   time.Duration(rapid.Int64Range(int64(time.Millisecond), int64(time.Hour)).Draw(t, "period")),
			Burst:    Tokens(rapid.Int64Range(0, 1<<20).Draw(t, "burst")),
		}
		if rapid.Bool().Draw(t, "slow") {
			whole.Requests = Tokens(rapid.Int64Range(1, 9).Draw(t, "few"))
		}
		terms, err := whole.Terms()
		if err != nil {
			t.Skip(err)
		}
		weights := rapid.SliceOfN(rapid.Int64Range(1, 1000), 1, 8).Draw(t, "weights")
		headroom := float64(rapid.IntRange(0, 300).Draw(t, "headroom")) / 100
		all := int64(0)
		for _, w := range weights {
			all += w
		}
		var sum, bound Bound
		capped, below, shortest, briefest := false, Tokens(0), terms.Emission, whole.Period
		sum.Rate = new(big.Rat)
		for _, w := range weights {
			f, err := Portion(float64(w)/float64(all), headroom)
			if err != nil {
				t.Fatal(err)
			}
			capped = capped || f.Num == f.Den
			here, err := whole.Scale(f)
			if err != nil {
				t.Fatal(err)
			}
			enforced, err := here.Terms()
			if err != nil {
				t.Fatal(err)
			}
			if f.Of(uint64(terms.Burst)) == 0 {
				below++
			}
			// What is enforced: one token in an emission, of the class.
			perSecond := big.NewRat(int64(time.Second), int64(enforced.Emission))
			sum.Rate.Add(sum.Rate, perSecond.Mul(perSecond, ticksPerNano(enforced.Class)))
			sum.Burst += enforced.Burst
			shortest, briefest = min(shortest, enforced.Emission), min(briefest, here.Period)
			b, _ := (&Rule{Rate: here, Terms: enforced}).Bound(1)
			bound = bound.Plus(b)
		}
		if bound.Burst != sum.Burst || bound.Rate.Cmp(sum.Rate) < 0 {
			t.Errorf("enforced are %v, the bound is %v", sum, bound)
		}
		limit, _ := (&Rule{Rate: whole, Terms: terms}).Bound(1)
		// As decimals these have at most two digits behind the point.
		roomy := big.NewRat(100+int64(math.Round(headroom*100)), 100)
		most := new(big.Rat).Mul(limit.Rate, roomy)
		if bound.Rate.Cmp(most) > 0 {
			t.Errorf("the bound's rate %v is above the limit's with its headroom, %v", bound.Rate, most)
		}
		mostBurst := new(big.Rat).Mul(roomy, new(big.Rat).SetInt64(int64(limit.Burst)))
		if new(big.Rat).SetInt64(int64(bound.Burst-below)).Cmp(mostBurst) > 0 {
			t.Errorf("the bound's burst %d is above %v and %d", bound.Burst, mostBurst, below)
		}
		// Rounded are a microsecond of each period and a tick of an emission.
		lost := new(big.Rat).Add(big.NewRat(int64(time.Microsecond), int64(briefest)), big.NewRat(1, int64(shortest)))
		if least := new(big.Rat).Sub(limit.Rate, lost.Mul(lost, limit.Rate)); sum.Rate.Cmp(least) < 0 {
			t.Errorf("the rate %v is below the limit's %v", sum.Rate, limit.Rate)
		}
		if covers := headroom*float64(limit.Burst) >= float64(len(weights)); (covers || capped) && sum.Burst < limit.Burst {
			t.Errorf("bursts add up to %d, the limit's is %d", sum.Burst, limit.Burst)
		}
	})
}
