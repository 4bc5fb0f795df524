package limit

import (
	"errors"
	"testing"
	"time"
)

func TestWindowTerms(t *testing.T) {
	const day = 24 * time.Hour
	for _, tt := range []struct {
		rate   Rate
		class  string
		length time.Duration
	}{
		{Rate{Algorithm: FixedWindow, Requests: 1, Period: time.Millisecond}, "f1ms", 4 * time.Second},
		{Rate{Algorithm: FixedWindow, Requests: MaxTokens, Period: 366 * day}, "f31622400s", 366 * day},
		{Rate{Algorithm: SlidingWindow, Requests: 5, Period: 3 * time.Second}, "s3s", 6 * time.Second},
		{Rate{Algorithm: SlidingWindow, Requests: 5, Period: 4 * time.Second}, "s4s", 4 * time.Second},
		{Rate{Algorithm: SlidingWindow, Requests: 5, Period: 1500 * time.Millisecond}, "s1500ms", 4500 * time.Millisecond},
		{Rate{Algorithm: SlidingLog, Requests: MaxLog, Period: 1500500 * time.Microsecond}, "l1500500us", 4501500 * time.Microsecond},
	} {
		terms, err := tt.rate.Terms()
		if err != nil {
			t.Errorf("%+v: %v", tt.rate, err)
			continue
		}
		if c := terms.Class; c.String() != tt.class || c.Length != tt.length || c.Window != tt.rate.Period || c.PerMicro != 1 {
			t.Errorf("%+v: class %v, %+v, want %s of %v", tt.rate, c, c, tt.class, tt.length)
		}
		if terms.Algorithm != tt.rate.Algorithm || terms.Burst != tt.rate.Requests || terms.Remaining(0) != tt.rate.Requests {
			t.Errorf("%+v: %+v", tt.rate, terms)
		}
		if 2*terms.Class.Span() >= MaxTicks {
			t.Errorf("%v: two generations are %d ticks", terms.Class, 2*terms.Class.Span())
		}
	}
	if terms, err := (Rate{Algorithm: SlidingLog, Period: time.Second}).Terms(); terms != nil || err != nil {
		t.Errorf("a limit of 0: %+v, %v", terms, err)
	}
}

func TestWindowTermsRefused(t *testing.T) {
	for _, tt := range []struct {
		rate  Rate
		field string
	}{
		{Rate{Algorithm: FixedWindow, Requests: -1, Period: time.Second}, "requests"},
		{Rate{Algorithm: FixedWindow, Requests: MaxTokens + 1, Period: time.Second}, "requests"},
		{Rate{Algorithm: SlidingLog, Requests: MaxLog + 1, Period: time.Second}, "requests"},
		{Rate{Algorithm: SlidingWindow, Requests: 1, Period: time.Second, Burst: 1}, "burst"},
		{Rate{Algorithm: SlidingWindow, Requests: 1, Period: time.Second, Debt: 1}, "debt"},
		{Rate{Algorithm: SlidingWindow, Requests: 1, Period: 999 * time.Microsecond}, "period"},
		{Rate{Algorithm: SlidingLog, Requests: 1, Period: MaxWindow + 1}, "period"},
		{Rate{Algorithm: FixedWindow, Requests: 1, Period: time.Second + 1}, "period"},
	} {
		var field *FieldError
		if _, err := tt.rate.Terms(); !errors.As(err, &field) || field.Field != tt.field {
			t.Errorf("%+v: %v, want an error of %s", tt.rate, err, tt.field)
		}
	}
}

// windowStep is one operation of a scenario, and what it is answered.
type windowStep struct {
	at            int64 // ms
	op            Op
	n, granted    Tokens
	remaining     Tokens
	retry, resets int64 // ms; -1 is no retry
}

func TestWindowScenarios(t *testing.T) {
	for _, tt := range []struct {
		name      string
		algorithm Algorithm
		requests  Tokens
		steps     []windowStep
	}{
		{"fixed", FixedWindow, 10, []windowStep{
			{1300, TakePartial, 0, 0, 10, -1, 0},
			{1300, Take, 4, 4, 6, -1, 700},
			{1301, Take, 7, 0, 6, 699, 699},
			{1302, Take, 11, 0, 6, -1, 698}, // never
			{1999, Take, 6, 6, 0, -1, 1},
			{1999, Take, 1, 0, 0, 1, 1},
			{2000, Take, 10, 10, 0, -1, 1000},
			{1999, Take, 1, 0, 0, 1001, 1001}, // the clock was set back
			{4000, TakePartial, 12, 10, 0, 1000, 1000},
			{4001, Reset, 0, 0, 10, -1, 0},
			{4002, Take, 10, 10, 0, -1, 998},
		}},
		{"sliding", SlidingWindow, 10, []windowStep{
			{1900, Take, 10, 10, 0, -1, 1100},
			{2000, Take, 1, 0, 0, 100, 1000},
			{2101, Take, 1, 1, 0, -1, 1899},
			{2501, Take, 5, 0, 4, 99, 1499},
			{2601, Take, 5, 5, 0, -1, 1399},
			{2601, Take, 10, 0, 0, 1399, 1399}, // in the window after the next
			{2601, Take, 6, 0, 0, 399 + 333, 1399},
			{3900, TakePartial, 0, 0, 9, -1, 100},
			{4000, Take, 10, 10, 0, -1, 2000},
		}},
		{"log", SlidingLog, 3, []windowStep{
			{1000, Take, 1, 1, 2, -1, 1000},
			{1400, Take, 1, 1, 1, -1, 1000},
			{1400, Take, 1, 1, 0, -1, 1000}, // two in one moment are two
			{1500, Take, 1, 0, 0, 500, 900},
			{1500, Take, 2, 0, 0, 900, 900},
			{1500, Take, 4, 0, 0, -1, 900}, // never
			{1999, Take, 1, 0, 0, 1, 401},
			{2000, Take, 1, 1, 0, -1, 1000},
			{1990, Take, 1, 0, 0, 410, 1010}, // the clock was set back
			{2400, TakePartial, 5, 2, 0, -1, 1000},
			{2401, Reset, 0, 0, 3, -1, 0},
			{2402, Take, 3, 3, 0, -1, 1000},
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			terms := compileWindow(t, tt.algorithm, tt.requests, time.Second)
			var cell Window
			for i, s := range tt.steps {
				const era = 1_700_000_000_000_000 // a whole second
				next, out, write := terms.ApplyWindow(s.op, s.n, &Ask{}, cell, era+1000*s.at)
				if write {
					cell = next
				} else if out.Granted > 0 {
					t.Fatalf("step %d: granted and not written", i)
				}
				n := s.n
				if s.op == TakePartial && out.Granted > 0 {
					n = out.Granted
				}
				d := terms.Decide(n, out)
				if out.Granted != s.granted || d.Remaining != s.remaining || d.Limit != tt.requests {
					t.Errorf("step %d: %+v gives %+v, want %d granted and %d remaining", i, s, out, s.granted, s.remaining)
				}
				retry := time.Duration(s.retry) * time.Millisecond
				if s.retry < 0 || d.Admitted {
					retry = NoRetry
				}
				// A step of a sliding window is 245 us.
				if late := d.RetryAfter - retry; late < 0 || late > 2*245*time.Microsecond {
					t.Errorf("step %d: %+v: retry after %v, want %v", i, s, d.RetryAfter, retry)
				}
				if want := time.Duration(s.resets) * time.Millisecond; d.ResetAfter != want {
					t.Errorf("step %d: %+v: reset after %v, want %v", i, s, d.ResetAfter, want)
				}
				if never := n > tt.requests; never != (d.Reason == Never) {
					t.Errorf("step %d: %+v: %v", i, s, d.Reason)
				}
			}
		})
	}
}

// TestWindowRefund: a refund counts as long as the window in which the tokens were taken.
func TestWindowRefund(t *testing.T) {
	for _, a := range windowKinds {
		terms := compileWindow(t, a, 10, time.Second)
		const start = 1_700_000_000_000_000
		cell, out, _ := terms.ApplyWindow(Take, 6, &Ask{}, Window{}, start)
		epoch := out.Epoch
		cell, out, _ = terms.ApplyWindow(Take, 3, &Ask{}, cell, start+500_000)
		if _, out, write := terms.ApplyWindow(Refund, 2, &Ask{Epoch: epoch - 1}, cell, start+600_000); out.Granted != 0 || write {
			t.Errorf("%v: a refund of what was never taken: %+v", a, out)
		}
		back, out, write := terms.ApplyWindow(Refund, 2, &Ask{Epoch: epoch}, cell, start+999_999)
		if out.Granted != 2 || !write || out.Level != 7 {
			t.Errorf("%v: a refund in its window: %+v", a, out)
		}
		if _, out, write = terms.ApplyWindow(Refund, 2, &Ask{Epoch: epoch}, back, start+1_000_000); out.Granted != 0 || write {
			t.Errorf("%v: a refund after its window: %+v", a, out)
		}
		if a == FixedWindow {
			continue
		}
		if out.Level != map[Algorithm]Ticks{SlidingWindow: 7, SlidingLog: 3}[a] {
			t.Errorf("%v: after its window: %+v", a, out)
		}
	}
}

// TestWindowLowered: a limit that is lowered below what is used denies, and forgets nothing.
func TestWindowLowered(t *testing.T) {
	for _, a := range windowKinds {
		high, low := compileWindow(t, a, 1000, time.Minute), compileWindow(t, a, 10, time.Minute)
		const start = 1_700_000_040_000_000 // a whole minute
		cell, _, _ := high.ApplyWindow(Take, 700, &Ask{}, Window{}, start)
		_, out, write := low.ApplyWindow(Take, 1, &Ask{}, cell, start+1)
		d := low.Decide(1, out)
		if write || d.Admitted || d.Remaining != 0 || d.Reason != OverLimit || d.RetryAfter <= 59*time.Second {
			t.Errorf("%v: 700 are used of 10: %+v of %+v", a, d, out)
		}
		if _, again, _ := low.ApplyWindow(Take, 1, &Ask{}, cell, start+1+d.RetryAfter.Microseconds()); again.Granted != 1 {
			t.Errorf("%v: after %v: %+v", a, d.RetryAfter, again)
		}
		if _, out, _ = high.ApplyWindow(TakePartial, 1000, &Ask{}, cell, start+1); out.Granted != 300 {
			t.Errorf("%v: raised again: %+v", a, out)
		}
	}
}
