package limit

import (
	"math/big"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// boundOf is the bound of a rule with that rate.
func boundOf(t *testing.T, r Rate, agents int, allowance Tokens) Bound {
	t.Helper()
	terms, err := r.Terms()
	if err != nil {
		t.Fatal(err)
	}
	b, limited := (&Rule{Rate: r, Terms: terms, Allowance: allowance}).Bound(agents)
	if !limited {
		t.Fatal("no bound")
	}
	return b
}

func TestBound(t *testing.T) {
	perUser := boundOf(t, rate(100, time.Second, 200), 20, 0)
	views := boundOf(t, rate(5000, time.Second, 0), 20, 100)
	otp := boundOf(t, rate(1, 150*time.Minute, 1), 1, 0) // a third of 1/h with its headroom
	signups := boundOf(t, Rate{Algorithm: FixedWindow, Requests: 1, Period: 3 * time.Hour}, 20, 0)
	window := func(a Algorithm) Bound {
		return boundOf(t, Rate{Algorithm: a, Requests: 10, Period: time.Minute}, 20, 0)
	}
	for _, tt := range []struct {
		name string
		b    Bound
		per  time.Duration
		want string
		in   time.Duration
		most *big.Rat
	}{
		{"agents do not matter", perUser, time.Second, "200 + 100/s*w", 1500 * time.Millisecond, big.NewRat(350, 1)},
		{"in another unit", perUser, time.Minute, "200 + 6000/m*w", 0, big.NewRat(200, 1)},
		{"optimistic", views, time.Second, "5000 + 2000 + 5000/s*w", time.Millisecond, big.NewRat(7005, 1)},
		{"slow", otp, time.Hour, "1 + 0.4/h*w", time.Hour, big.NewRat(14, 10)},
		{"three of a kind", otp.Times(3), time.Hour, "3 + 1.2/h*w", 10 * time.Hour, big.NewRat(15, 1)},
		{"unlike ones", perUser.Plus(views).Plus(otp), time.Second, "5201 + 2000 + 5100.01/s*w", time.Hour, big.NewRat((5201+2000+5100*3600)*10+4, 10)},
		{"two aligned windows meet", window(FixedWindow), time.Minute, "20 + 10/m*w", time.Second, big.NewRat(121, 6)},
		{"the same where they slide", window(SlidingWindow), time.Minute, "20 + 10/m*w", 0, big.NewRat(20, 1)},
		{"a third of 1/h, thrice", signups.Times(3), time.Hour, "6 + 1/h*w", time.Hour, big.NewRat(7, 1)},
		{"a log", window(SlidingLog), time.Minute, "10 + 10/m*w", 0, big.NewRat(10, 1)},
		{"nothing", Bound{}, time.Second, "0", time.Hour, new(big.Rat)},
		{"nothing, thrice", Bound{}.Times(3), time.Second, "0", time.Hour, new(big.Rat)},
	} {
		if got := tt.b.Text(tt.per); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
		if got := tt.b.In(tt.in); got.Cmp(tt.most) != 0 {
			t.Errorf("%s: %v in %v, want %v", tt.name, got, tt.in, tt.most)
		}
	}
	if b, limited := (&Rule{Unlimited: true}).Bound(1); limited {
		t.Errorf("an unlimited rule has the bound %v", b)
	}
	if b, limited := (&Rule{Rate: rate(1, time.Second, 0), Terms: new(Terms), Shadow: true}).Bound(1); limited {
		t.Errorf("a shadow has the bound %v", b)
	}
	if b, limited := (&Rule{Rate: rate(0, time.Second, 0)}).Bound(1); !limited || b.In(time.Hour).Sign() != 0 {
		t.Errorf("a limit of 0 has the bound %v (%v)", b, limited)
	}
}

func TestRateText(t *testing.T) {
	for _, tt := range []struct {
		rate Rate
		per  time.Duration
		want string
	}{
		{rate(100, time.Second, 0), time.Second, "100/s"},
		{rate(100, time.Second, 100), time.Second, "100/s"},
		{rate(100, time.Second, 200), time.Second, "100/s burst 200"},
		{rate(100, 30*time.Second, 0), 30 * time.Second, "100/30s"},
		{rate(0, time.Hour, 0), time.Hour, "0/h"},
		{rate(1000, 2500*time.Millisecond, 400), time.Second, "400/s"},
		{rate(7, 150*time.Second, 2), time.Minute, "2.8/m burst 2"},
		{rate(1, 150*time.Minute, 1), time.Hour, "0.4/h burst 1"},
		{Rate{Algorithm: FixedWindow, Requests: 7, Period: time.Minute}, time.Minute, "7/m"},
		{Rate{Algorithm: SlidingWindow, Requests: 1, Period: 3 * time.Hour}, time.Hour, "1/3h"},
		{Rate{Algorithm: SlidingLog, Requests: 0, Period: time.Hour}, time.Hour, "0/h"},
		{rate(MaxTokens, time.Millisecond, 0), time.Millisecond, "1099511627776/ms"},
		{rate(1, 3*time.Second, 1), time.Second, "0.333334/s burst 1"},
		{rate(1, MaxPeriod, 1), time.Millisecond, "0.00000000000317098/ms burst 1"},
	} {
		if got := tt.rate.Text(tt.per); got != tt.want {
			t.Errorf("%+v: %q, want %q", tt.rate, got, tt.want)
		}
	}
}

func TestPeriodText(t *testing.T) {
	for d, want := range map[time.Duration]string{
		24 * time.Hour: "d", 30 * 24 * time.Hour: "30d", time.Hour: "h", 90 * time.Minute: "90m", time.Minute: "m", 90 * time.Second: "90s",
		time.Second: "s", time.Millisecond: "ms", 1500 * time.Millisecond: "1500ms", time.Microsecond: "1µs", 1_500_001: "1.500001ms",
	} {
		if got := PeriodText(d); got != want {
			t.Errorf("%d is %q, want %q", d, got, want)
		}
	}
}

// TestRoundUp: what is printed is never below the number, and above it by less than one in the last of the digits.
func TestRoundUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x := big.NewRat(rapid.Int64Range(1, 1<<50).Draw(t, "num"), rapid.Int64Range(1, 1<<50).Draw(t, "den"))
		text := roundUp(x, 6)
		printed, ok := new(big.Rat).SetString(text)
		if !ok || printed.Cmp(x) < 0 {
			t.Fatalf("%v is printed as %q", x, text)
		}
		if off := new(big.Rat).Sub(printed, x); off.Mul(off, big.NewRat(100_000, 1)).Cmp(x) >= 0 && printed.Cmp(big.NewRat(100_000, 1)) < 0 {
			t.Errorf("%v is printed as %q", x, text)
		}
	})
}
