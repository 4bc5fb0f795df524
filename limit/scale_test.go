package limit

import (
	"errors"
	"fmt"
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

// aligned and logs are the window kinds by what a portion below 1 does to their windows.
var aligned, logs = []Algorithm{FixedWindow, SlidingWindow}, []Algorithm{SlidingLog}

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

func TestScaleWindows(t *testing.T) {
	const day = 24 * time.Hour
	third, few := Fraction{2, 5}, Fraction{1, 100}
	for _, tt := range []struct {
		name     string
		f        Fraction
		of       []Algorithm
		requests Tokens
		period   time.Duration
		want     Tokens
		in       time.Duration // 0 for an error
	}{
		{"the whole", Fraction{1, 1}, windowKinds, 1, time.Hour, 1, time.Hour},
		{"even", third, windowKinds, 10, time.Minute, 4, time.Minute},
		{"keeps its length", third, windowKinds, 7, time.Minute, 2, time.Minute},
		{"for as long as 1 is left", third, windowKinds, 3, time.Minute, 1, time.Minute},
		{"exactly 1", few, windowKinds, 100, time.Minute, 1, time.Minute},
		{"all of a log", third, windowKinds, MaxLog, time.Second, 400, time.Second},
		{"nothing", third, windowKinds, 0, time.Hour, 0, time.Hour},
		{"less than 1, in whole windows", third, aligned, 1, time.Hour, 1, 3 * time.Hour},
		{"of a log to the microsecond", third, logs, 1, time.Hour, 1, 150 * time.Minute},
		{"two of them", third, aligned, 2, time.Hour, 1, 2 * time.Hour},
		{"two of a log", third, logs, 2, time.Hour, 1, 75 * time.Minute},
		{"a third", Fraction{1, 3}, windowKinds, 1, time.Hour, 1, 3 * time.Hour},
		{"nearly 1", few, aligned, 99, time.Millisecond, 1, 2 * time.Millisecond},
		{"nearly 1 of a log", few, logs, 99, time.Millisecond, 1, 1011 * time.Microsecond},
		{"the longest", few, windowKinds, 1, MaxWindow / 100, 1, MaxWindow},
		{"and beyond", few, windowKinds, 1, MaxWindow/100 + time.Microsecond, 0, 0},
		{"whole windows are beyond sooner", third, aligned, 1, 123 * day, 0, 0},
		{"than a log", third, logs, 1, 123 * day, 1, 123 * day * 5 / 2},
		{"a window of the longest keeps it", third, windowKinds, 3, MaxWindow, 1, MaxWindow},
		{"or is beyond", third, windowKinds, 2, MaxWindow, 0, 0},
		{"far beyond", Fraction{1, MaxDen * MaxDen}, windowKinds, 1, MaxWindow, 0, 0},
	} {
		for _, a := range tt.of {
			rate := Rate{Algorithm: a, Requests: tt.requests, Period: tt.period}
			got, err := rate.Scale(tt.f)
			if tt.in == 0 {
				var e *FieldError
				problem := fmt.Sprintf("%v of %s is 1 only in a %v of more than 366d, the longest; a token_bucket may be slower", tt.f, rate.Text(tt.period), a)
				if !errors.As(err, &e) || e.Field != "period" || e.Problem != problem || got != rate {
					t.Errorf("%s: %+v, %v, want the error %q", tt.name, got, err, problem)
				}
				continue
			}
			if want := (Rate{Algorithm: a, Requests: tt.want, Period: tt.in}); err != nil || got != want {
				t.Errorf("%s: %+v (%v), want %+v", tt.name, got, err, want)
			}
			if _, err := got.Terms(); err != nil {
				t.Errorf("%s: %+v cannot be counted: %v", tt.name, got, err)
			}
		}
	}
}

// TestScaledWindowsAddUp: whatever the limit of a window kind, and however it is shared among data centers, a portion of 1 or more keeps its window, and of less
// is 1 in the shortest window that may be had. Together they admit, over time, no more than the limit with its headroom.
func TestScaledWindowsAddUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		whole := Rate{
			Algorithm: rapid.SampledFrom(windowKinds).Draw(t, "algorithm"),
			Requests:  Tokens(rapid.OneOf(rapid.Int64Range(1, 9), rapid.Int64Range(1, int64(MaxLog))).Draw(t, "requests")),
			Period:    time.Duration(rapid.Int64Range(1000, 1e9).Draw(t, "micros")) * time.Microsecond,
		}
		headroom := float64(rapid.IntRange(0, 300).Draw(t, "headroom")) / 100
		var bound Bound
		for _, share := range drawShares(t) {
			f, err := Portion(share, headroom)
			if err != nil {
				t.Fatal(err)
			}
			here, err := whole.Scale(f)
			if err != nil {
				t.Fatal(err)
			}
			terms, err := here.Terms()
			if err != nil {
				t.Fatal(err)
			}
			b, _ := (&Rule{Rate: here, Terms: terms}).Bound(1)
			bound = bound.Plus(b)
			portion := new(big.Rat).SetFrac(new(big.Int).SetUint64(f.Num), new(big.Int).SetUint64(f.Den))
			portion.Mul(portion, big.NewRat(int64(whole.Requests), 1))
			if portion.Cmp(big.NewRat(1, 1)) >= 0 {
				if want := (Rate{Algorithm: whole.Algorithm, Requests: Tokens(f.Of(uint64(whole.Requests))), Period: whole.Period}); here != want {
					t.Errorf("%v of %+v is %+v, want %+v", f, whole, here, want)
				}
				continue
			}
			step := time.Microsecond
			if whole.Algorithm != SlidingLog {
				step = whole.Period
			}
			windows := func(d time.Duration) *big.Rat { return big.NewRat(int64(d), int64(whole.Period)) }
			enough, less := windows(here.Period), windows(here.Period-step)
			one := big.NewRat(1, 1)
			if here.Requests != 1 || here.Period%step != 0 || enough.Mul(enough, portion).Cmp(one) < 0 || less.Mul(less, portion).Cmp(one) >= 0 {
				t.Errorf("%v of %+v is %+v, want 1 in the fewest steps of %v that have it", f, whole, here, step)
			}
		}
		most := big.NewRat(100+int64(math.Round(headroom*100)), 100) // at most two digits behind the point
		terms, err := whole.Terms()
		if err != nil {
			t.Fatal(err)
		}
		limit, _ := (&Rule{Rate: whole, Terms: terms}).Bound(1)
		if most.Mul(most, limit.Rate); bound.Rate.Cmp(most) > 0 {
			t.Errorf("the bound's rate %v is above the limit's with its headroom, %v", bound.Rate, most)
		}
	})
}

// drawShares are the shares of up to eight data centers, which add up to 1.
func drawShares(t *rapid.T) (shares []float64) {
	weights := rapid.SliceOfN(rapid.Int64Range(1, 1000), 1, 8).Draw(t, "weights")
	all := int64(0)
	for _, w := range weights {
		all += w
	}
	for _, w := range weights {
		shares = append(shares, float64(w)/float64(all))
	}
	return shares
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
		shares := drawShares(t)
		headroom := float64(rapid.IntRange(0, 300).Draw(t, "headroom")) / 100
		var sum, bound Bound
		capped, below, shortest, briefest := false, Tokens(0), terms.Emission, whole.Period
		sum.Rate = new(big.Rat)
		for _, share := range shares {
			f, err := Portion(share, headroom)
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
		if covers := headroom*float64(limit.Burst) >= float64(len(shares)); (covers || capped) && sum.Burst < limit.Burst {
			t.Errorf("bursts add up to %d, the limit's is %d", sum.Burst, limit.Burst)
		}
	})
}
