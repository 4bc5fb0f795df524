package limit

import (
	"testing"
	"time"
)

func TestReasonWords(t *testing.T) {
	// These words are on every wire: a change here breaks callers.
	want := map[Reason]string{OK: "ok", OverLimit: "over_limit", Never: "never", ShadowOver: "shadow", NoRule: "no_rule",
		Unlimited: "unlimited", StoreOpen: "store_open", StoreClosed: "store_closed", StoreLocal: "store_local",
		Overloaded: "overloaded"}
	all := Reasons()
	if len(all) != len(want) {
		t.Errorf("%d reasons, want %d", len(all), len(want))
	}
	seen := map[string]bool{}
	for _, r := range all {
		if word := r.String(); word != want[r] || word == "" || seen[word] {
			t.Errorf("reason %d is %q, want %q, once", r, word, want[r])
		}
		seen[r.String()] = true
	}
	for _, r := range []Reason{0, reasons, 255} {
		if r.String() != "" {
			t.Errorf("reason %d is %q, want no word", r, r)
		}
	}
}

func TestDecide(t *testing.T) {
	terms := mustTerms(t, 10, time.Second, 0) // a token per 100 ms
	e := terms.Emission
	for _, tt := range []struct {
		name string
		n    Tokens
		out  Outcome
		want Decision
	}{
		{"first of a full bucket", 1, Outcome{Granted: 1, Level: e},
			Decision{true, OK, 10, 9, NoRetry, 100 * time.Millisecond, ""}},
		{"last token", 1, Outcome{Granted: 1, Level: 10 * e},
			Decision{true, OK, 10, 0, NoRetry, time.Second, ""}},
		{"one too many", 1, Outcome{Level: 10 * e},
			Decision{false, OverLimit, 10, 0, 100 * time.Millisecond, time.Second, ""}},
		{"half a token short", 1, Outcome{Level: 10*e - e/2},
			Decision{false, OverLimit, 10, 0, 50 * time.Millisecond, 950 * time.Millisecond, ""}},
		{"a tick short rounds up to a nanosecond", 1, Outcome{Level: 9*e + 1},
			Decision{false, OverLimit, 10, 0, 1, 900*time.Millisecond + 1, ""}},
		{"5 of 3", 5, Outcome{Level: 7 * e},
			Decision{false, OverLimit, 10, 3, 200 * time.Millisecond, 700 * time.Millisecond, ""}},
		{"all at once", 10, Outcome{Granted: 10, Level: 10 * e},
			Decision{true, OK, 10, 0, NoRetry, time.Second, ""}},
		{"above the burst", 11, Outcome{},
			Decision{false, Never, 10, 10, NoRetry, 0, ""}},
		{"far above the burst", MaxTokens, Outcome{Level: 3 * e},
			Decision{false, Never, 10, 7, NoRetry, 300 * time.Millisecond, ""}},
		{"peek at a full bucket", 0, Outcome{},
			Decision{true, OK, 10, 10, NoRetry, 0, ""}},
		{"peek at an empty bucket", 0, Outcome{Level: 10 * e},
			Decision{true, OK, 10, 0, NoRetry, time.Second, ""}},
		{"in debt", 1, Outcome{Level: 12 * e},
			Decision{false, OverLimit, 10, 0, 300 * time.Millisecond, 1200 * time.Millisecond, ""}},
		{"the store's clock stands still for 2 s", 1, Outcome{Level: 10 * e, Lag: 2e9},
			Decision{false, OverLimit, 10, 0, 2100 * time.Millisecond, 3 * time.Second, ""}},
		{"admitted while it stands still", 1, Outcome{Granted: 1, Level: e, Lag: 2e9},
			Decision{true, OK, 10, 9, NoRetry, 2100 * time.Millisecond, ""}},
		{"a full bucket is full at any time", 0, Outcome{Lag: 2e9},
			Decision{true, OK, 10, 10, NoRetry, 0, ""}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := terms.Decide(tt.n, tt.out); got != tt.want {
				t.Errorf("\n got %+v\nwant %+v", got, tt.want)
			}
		})
	}
}

func TestRemaining(t *testing.T) {
	terms := mustTerms(t, 10, time.Second, 0)
	e := terms.Emission
	for _, tt := range []struct {
		level Ticks
		want  Tokens
	}{
		{0, 10}, {1, 9}, {e, 9}, {e + 1, 8}, {9 * e, 1}, {9*e + 1, 0}, {10 * e, 0}, {10*e + 1, 0}, {20 * e, 0}, {MaxTicks, 0},
	} {
		if got := terms.Remaining(tt.level); got != tt.want {
			t.Errorf("Remaining(%d) = %d, want %d", tt.level, got, tt.want)
		}
	}
}
