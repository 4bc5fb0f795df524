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

// rate is one without debt.
func rate(requests Tokens, period time.Duration, burst Tokens) Rate {
	return Rate{Requests: requests, Period: period, Burst: burst}
}

// mustTerms compiles a rate that is known to be valid.
func mustTerms(t testing.TB, requests Tokens, period time.Duration, burst Tokens) *Terms {
	t.Helper()
	terms, err := rate(requests, period, burst).Terms()
	if err != nil {
		t.Fatal(err)
	}
	return terms
}

// TestTerms has the class table: a class lasts as long as the fill, debt included, and one LeaseTTL.
// So up to 2 s it is the 4 s class, up to 14 s the 16 s class.
func TestTerms(t *testing.T) {
	const day = 24 * time.Hour
	for _, tt := range []struct {
		name     string
		rate     Rate
		class    string
		emission Ticks
		burst    Tokens
		exact    bool // the interval is a whole number of ticks
	}{
		{"doc.go", rate(100, time.Second, 200), "b4s", 81_920_000_000, 200, true},
		{"burst defaults to requests", rate(100, time.Second, 0), "b4s", 81_920_000_000, 100, true},
		{"burst 1", rate(100, time.Second, 1), "b4s", 81_920_000_000, 1, true},
		{"10 per 30 s", rate(10, 30*time.Second, 0), "b64s", 1_536_000_000_000, 10, true},
		{"1 per 10 s", rate(1, 10*time.Second, 0), "b16s", 20_480_000_000_000, 1, true},
		{"100,000/s", rate(100_000, time.Second, 0), "b4s", 81_920_000, 100_000, true},
		{"0.1/s, burst 3", rate(1, 10*time.Second, 3), "b64s", 5_120_000_000_000, 3, true},
		{"1000 a month", rate(1000, 30*day, 0), "b4194304s", 20_736_000_000, 1000, true},
		{"shortest period", rate(1, time.Microsecond, 0), "b4s", 8_192_000, 1, true},
		{"fills in 2 s", rate(4, 2*time.Second, 0), "b4s", 4_096_000_000_000, 4, true},
		{"fills in a nanosecond more", rate(1, 2*time.Second+1, 0), "b16s", 4_096_000_002_048, 1, true},
		{"fills in 14 s", rate(7, 14*time.Second, 0), "b16s", 4_096_000_000_000, 7, true},
		{"fills in a microsecond more", rate(1, 14*time.Second+time.Microsecond, 0), "b64s", 7_168_000_512_000, 1, true},
		{"the largest fill", rate(1, MaxFill-LeaseTTL, 0), "b268435456s", 33_554_431_750_000, 1, true},
		{"debt fills too", Rate{Requests: 100, Period: time.Second, Debt: 100}, "b4s", 81_920_000_000, 100, true},
		{"one more of debt", Rate{Requests: 100, Period: time.Second, Debt: 101}, "b16s", 20_480_000_000, 100, true},
		{"a fleet's debt", Rate{Requests: 1000, Period: time.Minute, Debt: 10 * 1024}, "b1024s", 1_920_000_000, 1000, true},

		{"1/3 s rounds up", rate(3, time.Second, 0), "b4s", 2_730_666_666_667, 3, false},
		{"3/7 s rounds up", rate(7, 3*time.Second, 0), "b16s", 877_714_285_715, 7, false},
		{"rounding up leaves the class", rate(7, 2*time.Second, 0), "b16s", 585_142_857_143, 7, false},
		{"below a tick", rate(MaxTokens, time.Microsecond, 0), "b4s", 1, MaxTokens, false},
		{"many tokens", rate(MaxTokens, time.Second, 0), "b4s", 8, MaxTokens, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := tt.rate.Terms()
			if err != nil {
				t.Fatal(err)
			}
			if got.Class.String() != tt.class || got.Emission != tt.emission || got.Burst != tt.burst {
				t.Errorf("got class %s, emission %d, burst %d; want %s, %d, %d",
					got.Class, got.Emission, got.Burst, tt.class, tt.emission, tt.burst)
			}
			depth := Ticks(tt.burst) * tt.emission
			if ceiling := depth + Ticks(tt.rate.Debt)*tt.emission; got.Depth != depth || got.Ceiling != ceiling {
				t.Errorf("depth %d, ceiling %d, want %d, %d", got.Depth, got.Ceiling, depth, ceiling)
			}
			if exact := emissionError(tt.rate, got).Sign() == 0; exact != tt.exact {
				t.Errorf("the emission is off by %v ticks, want exact: %v", emissionError(tt.rate, got), tt.exact)
			}
		})
	}
}

// emissionError is Emission - Period/Requests in ticks, as an exact fraction.
func emissionError(r Rate, t *Terms) *big.Rat {
	exact := new(big.Rat).Mul(big.NewRat(int64(r.Period), int64(r.Requests)), ticksPerNano(t.Class))
	return exact.Sub(big.NewRat(int64(t.Emission), 1), exact)
}

// drawRate draws a rate over all magnitudes; it can be one that is refused.
func drawRate(t *rapid.T) Rate {
	magnitude := func(label string, most float64) int64 {
		return int64(math.Exp2(rapid.Float64Range(0, math.Log2(most)).Draw(t, label)))
	}
	r := Rate{
		Requests: Tokens(magnitude("requests", float64(MaxTokens))),
		Period:   min(max(time.Microsecond, time.Duration(magnitude("period", float64(MaxPeriod)))), MaxPeriod),
	}
	if rapid.Bool().Draw(t, "with burst") {
		r.Burst = Tokens(magnitude("burst", float64(MaxTokens)))
	}
	return r
}

func TestTermsOfAnyRate(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := drawRate(t)
		if rapid.Bool().Draw(t, "with debt") {
			r.Debt = Tokens(math.Exp2(rapid.Float64Range(0, 40).Draw(t, "debt")))
		}
		terms, err := r.Terms()
		burst := r.Burst
		if burst == 0 {
			burst = r.Requests
		}
		deepest := burst + r.Debt
		// What a class must outlast: the fill from the deepest debt, and an epoch.
		last := new(big.Rat).Mul(big.NewRat(int64(r.Period), int64(r.Requests)), big.NewRat(int64(deepest), 1))
		last.Add(last, big.NewRat(int64(LeaseTTL), 1))
		if err != nil {
			// Refused only for more than the longest class, rounding included.
			most := big.NewRat(int64(MaxFill)-int64(deepest)*8000, 1)
			if last.Cmp(most) < 0 {
				t.Fatalf("%+v fills in %v ns, an epoch included, and is refused: %v", r, last.FloatString(1), err)
			}
			return
		}
		if d := emissionError(r, terms); d.Sign() < 0 || d.Cmp(big.NewRat(1, 1)) >= 0 {
			t.Fatalf("%+v: emission %d is off by %v ticks, want 0 <= off < 1", r, terms.Emission, d)
		}
		if terms.Burst != burst || terms.Depth != Ticks(burst)*terms.Emission || terms.Ceiling != Ticks(deepest)*terms.Emission {
			t.Fatalf("%+v: %+v", r, terms)
		}
		if terms.Emission < 1 || terms.Depth < 0 || terms.Ceiling < terms.Depth || terms.Ceiling > terms.Class.Span()-terms.Class.EpochTicks() {
			t.Fatalf("%+v: depth %d and ceiling %d do not fit a generation of %d less an epoch", r, terms.Depth, terms.Ceiling, terms.Class.Span())
		}
		// A shorter class would not have done.
		for _, c := range classes {
			if c.Length >= terms.Class.Length {
				break
			}
			if last.Cmp(big.NewRat(int64(c.Length), 1)) <= 0 && Ticks(deepest)*r.emission(c)+c.EpochTicks() <= c.Span() {
				t.Fatalf("%+v: class %s would do, got %s", r, c, terms.Class)
			}
		}
	})
}

func TestTermsRefuse(t *testing.T) {
	for _, tt := range []struct {
		name  string
		rate  Rate
		field string
		part  string // of the message
	}{
		{"negative requests", rate(-1, time.Second, 0), "requests", "-1 is not between"},
		{"most negative requests", rate(math.MinInt64, time.Second, 0), "requests", "-9223372036854775808"},
		{"requests over MaxTokens", rate(MaxTokens+1, time.Second, 0), "requests", "1099511627777"},
		{"requests 2^53+1", rate(1<<53+1, time.Second, 0), "requests", "9007199254740993"},
		{"requests 2^63-1", rate(math.MaxInt64, time.Second, 0), "requests", "9223372036854775807"},
		{"negative burst", rate(1, time.Second, -1), "burst", "-1 is not between"},
		{"burst over MaxTokens", rate(1, time.Second, MaxTokens+1), "burst", "1099511627777"},
		{"burst 2^53+1", rate(1, time.Second, 1<<53+1), "burst", "9007199254740993"},
		{"negative debt", Rate{Requests: 1, Period: time.Second, Debt: -1}, "debt", "-1 is not between"},
		{"debt over MaxTokens", Rate{Requests: 1, Period: time.Second, Debt: MaxTokens + 1}, "debt", "1099511627777"},
		{"debt that would never be paid", Rate{Requests: 1, Period: time.Second, Debt: MaxTokens}, "period", "takes more than"},
		{"period 0", rate(1, 0, 0), "period", "0s is not between 1us"},
		{"period negative", rate(1, -time.Second, 0), "period", "-1s"},
		{"period 1 ns", rate(1, 1, 0), "period", "1ns is not between 1us"},
		{"period 999 ns", rate(1, 999, 0), "period", "999ns"},
		{"period over 10 years", rate(1, MaxPeriod+1, 0), "period", "87600h0m0"},
		{"period 2^63-1", rate(1, math.MaxInt64, 0), "period", "is not between"},
		{"10 years to fill", rate(1, MaxPeriod, 0), "period", "takes more than"},
		{"longest fill and a nanosecond", rate(1, MaxFill-LeaseTTL+1, 0), "period", "takes more than"},
		{"huge burst at a slow rate", rate(1, time.Second, MaxTokens), "period", "a bucket of 1099511627776 at 1 per 1s"},
		{"the zero value", Rate{}, "period", "0s"},
		{"a bad burst, even of nothing", rate(0, time.Second, -1), "burst", "-1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			terms, err := tt.rate.Terms()
			var field *FieldError
			if !errors.As(err, &field) || terms != nil {
				t.Fatalf("got %+v, %v; want a FieldError", terms, err)
			}
			if field.Field != tt.field || !strings.Contains(err.Error(), tt.part) {
				t.Errorf("got %q, want field %s and %q", err, tt.field, tt.part)
			}
			if !strings.HasPrefix(err.Error(), "limit: "+tt.field+": ") {
				t.Errorf("%q does not name package and field", err)
			}
		})
	}
}

func TestZeroRequestsHaveNoTerms(t *testing.T) {
	for _, burst := range []Tokens{0, 10} {
		if terms, err := (rate(0, time.Second, burst)).Terms(); terms != nil || err != nil {
			t.Errorf("burst %d: got %+v, %v; want nil, nil", burst, terms, err)
		}
	}
}

func TestPolicyWords(t *testing.T) {
	if Open.String() != "open" || Closed.String() != "closed" {
		t.Errorf("got %q, %q", Open, Closed)
	}
}

func TestModeWords(t *testing.T) {
	// These words are in rules files; a rule without one is leased.
	for mode, want := range map[Mode]string{0: "leased", Exact: "exact", Optimistic: "optimistic"} {
		if mode.String() != want {
			t.Errorf("mode %d is %q, want %q", mode, mode, want)
		}
	}
}
