package lease

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/spillgate/spillgate/limit"
)

func rate(t testing.TB, requests limit.Tokens, period time.Duration, burst limit.Tokens) *limit.Terms {
	t.Helper()
	terms, err := limit.Rate{Requests: requests, Period: period, Burst: burst}.Terms()
	if err != nil {
		t.Fatal(err)
	}
	return terms
}

const ms = int64(time.Millisecond)

// TestKnownDenies until the token is there, to the nanosecond, and never longer than it is believed.
func TestKnownDenies(t *testing.T) {
	const asOf = 1000
	fast, slow := rate(t, 10, time.Second, 5), rate(t, 10, time.Hour, 5)
	for _, tt := range []struct {
		what  string
		terms *limit.Terms
		level limit.Tokens // how many are missing
		lag   int64
		n     limit.Tokens
		until int64 // denied before it, from asOf; 0: not at all
		retry int64 // told at asOf
	}{
		{"an empty bucket", fast, 5, 0, 1, 100 * ms, 100 * ms},
		{"two of none", fast, 5, 0, 2, 200 * ms, 200 * ms},
		{"two of one", fast, 4, 0, 2, 100 * ms, 100 * ms},
		{"one of one", fast, 4, 0, 1, 0, 0},
		{"a full one", fast, 0, 0, 5, 0, 0},
		{"a clock that lags", fast, 5, 50 * ms, 1, 150 * ms, 150 * ms},
		{"all of none", fast, 5, 0, 5, 250 * ms, 500 * ms},
		{"in debt", fast, 7, 0, 1, 250 * ms, 300 * ms},
		{"a slow one", slow, 5, 0, 1, 250 * ms, 360_000 * ms},
		{"a look", fast, 5, 0, 0, 0, 0},
		{"more than the burst", fast, 5, 0, 6, 0, 0},
	} {
		k := Known{Terms: tt.terms, Out: limit.Outcome{Level: limit.Ticks(tt.level) * tt.terms.Emission, Lag: tt.lag}, AsOf: asOf}
		for _, passed := range []int64{0, 1, tt.until / 2, tt.until - 1, tt.until, tt.until + 1, tt.until + 10_000*ms} {
			var d limit.Decision
			denied := passed >= 0 && k.denies(asOf+passed, tt.n, &d)
			if want := passed >= 0 && passed < tt.until; denied != want {
				t.Errorf("%s, after %d ns: denied %v, want %v", tt.what, passed, denied, want)
			}
			if want := time.Duration(tt.retry - passed); denied && (d.Admitted || d.Reason != limit.OverLimit || d.RetryAfter != want || d.Limit != 5) {
				t.Errorf("%s, after %d ns: %+v, want a retry after %v", tt.what, passed, d, want)
			} else if !denied && d != (limit.Decision{}) {
				t.Errorf("%s, after %d ns: not denied, and yet %+v", tt.what, passed, d)
			}
		}
	}
}

// TestKnownIsRight: whatever a lone bucket holds, what is denied from memory the store would deny at that moment,
// and with the same answer.
func TestKnownIsRight(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		terms, err := limit.Rate{Requests: limit.Tokens(rapid.IntRange(1, 1000).Draw(rt, "requests")), Burst: limit.Tokens(rapid.IntRange(1, 20).Draw(rt, "burst")),
			Period: time.Duration(rapid.Int64Range(1, 100).Draw(rt, "period")) * 10 * time.Millisecond}.Terms()
		if err != nil {
			rt.Skip()
		}
		asOf := rapid.Int64Range(0, 1<<40).Draw(rt, "as of")
		_, ticks := terms.Class.At(asOf)
		taken := limit.Ticks(rapid.IntRange(0, int(terms.Burst)).Draw(rt, "taken"))
		tat := ticks + taken*terms.Emission
		k := Known{Terms: terms, Out: limit.Outcome{Level: tat - ticks}, AsOf: asOf}
		now := asOf + rapid.Int64Range(0, 300*ms).Draw(rt, "passed")
		n := limit.Tokens(rapid.IntRange(1, int(terms.Burst)).Draw(rt, "n"))
		var d limit.Decision
		if !k.denies(now, n, &d) {
			return
		}
		later := ticks + terms.Class.Ticks(now-asOf)
		next, granted, _ := terms.Apply(limit.Take, n, tat, later)
		if granted != 0 {
			rt.Fatalf("denied %d when the store has them, %d ns after", n, now-asOf)
		}
		want := terms.Decide(n, limit.Outcome{Level: max(0, next-later)})
		if diff := d.RetryAfter - want.RetryAfter; d.Remaining != want.Remaining || diff < -1 || diff > 1 || d.Admitted {
			rt.Fatalf("%+v, the store says %+v", d, want)
		}
		// Enough is enough (G4).
		at := ticks + terms.Class.Ticks(now-asOf+int64(d.RetryAfter))
		if _, granted, _ := terms.Apply(limit.Take, n, tat, at); granted != n {
			rt.Fatalf("told to wait %v, and then there are none", d.RetryAfter)
		}
	})
}
