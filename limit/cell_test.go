package limit

import (
	"testing"
	"time"
)

// cell is a bucket on its own: what a store does around Apply, without the guard
// against a clock that is set back (memstore has that).
type cell struct {
	gen   int64
	tat   Ticks
	found bool
}

// apply runs an operation at a place in time.
func (c *cell) apply(t *Terms, op Op, n Tokens, gen int64, now Ticks) (out Outcome, wrote bool) {
	tat := now
	if c.found && gen-c.gen <= 1 {
		tat = c.tat - Ticks(gen-c.gen)*t.Class.Span()
	}
	next, granted, write := t.Apply(op, n, tat, now)
	if write {
		c.gen, c.tat, c.found = gen, next, true
	}
	return Outcome{Granted: granted, Level: max(0, next-now)}, write
}

// at runs an operation at a time in nanoseconds.
func (c *cell) at(t *Terms, op Op, n Tokens, nanos int64) Outcome {
	gen, now := t.Class.At(nanos)
	out, _ := c.apply(t, op, n, gen, now)
	return out
}

// TestApply walks one operation over one cell. Levels and results are in emissions.
func TestApply(t *testing.T) {
	terms := mustTerms(t, 10, time.Second, 0)
	e, now := terms.Emission, 20*terms.Emission
	over := terms.Depth + terms.Class.Step() // the most that a TAT may be ahead without larger terms
	for _, tt := range []struct {
		name    string
		op      Op
		n       Tokens
		level   Ticks // TAT - now before
		after   Ticks
		granted Tokens
		write   bool
	}{
		{"take of a full bucket", Take, 1, 0, e, 1, true},
		{"take long after", Take, 1, -15 * e, e, 1, true},
		{"take all", Take, 10, 0, 10 * e, 10, true},
		{"take the rest", Take, 7, 3 * e, 10 * e, 7, true},
		{"take one more than the rest", Take, 8, 3 * e, 3 * e, 0, false},
		{"take a tick too early", Take, 1, 9*e + 1, 9*e + 1, 0, false},
		{"take on the tick", Take, 1, 9 * e, 10 * e, 1, true},
		{"take above the burst", Take, 11, 0, 0, 0, false},
		{"take of the largest count", Take, MaxTokens, 0, 0, 0, false},
		{"take of 2^63-1", Take, 1<<63 - 1, 0, 0, 0, false},
		{"take nothing", Take, 0, 3 * e, 3 * e, 0, false},
		{"take less than nothing", Take, -1, 3 * e, 3 * e, 0, false},
		{"denied long after", Take, 11, -15 * e, 0, 0, false},

		{"partial take that fits", TakePartial, 3, 0, 3 * e, 3, true},
		{"partial take of what is there", TakePartial, 100, 5 * e, 10 * e, 5, true},
		{"partial take leaves fractions", TakePartial, 100, 5*e + 1, 9*e + 1, 4, true},
		{"partial take of nothing", TakePartial, 100, 10 * e, 10 * e, 0, false},
		{"partial take, a tick short", TakePartial, 100, 9*e + 1, 9*e + 1, 0, false},
		{"partial take above the burst", TakePartial, 1<<63 - 1, 0, 10 * e, 10, true},
		{"partial take in debt", TakePartial, 1, over, over, 0, false},
		{"peek", TakePartial, 0, 4 * e, 4 * e, 0, false},
		{"peek long after", TakePartial, 0, -4 * e, 0, 0, false},
		{"partial take of less than nothing", TakePartial, -5, 4 * e, 4 * e, 0, false},

		{"charge", Charge, 3, 0, 3 * e, 3, true},
		{"charge up to the ceiling", Charge, 30, 4 * e, 10 * e, 6, true},
		{"charge at the ceiling", Charge, 1, 10 * e, 10 * e, 0, false},
		{"charge above the ceiling", Charge, 1, over, over, 0, false},
		{"charge less than nothing", Charge, -3, 4 * e, 4 * e, 0, false},

		{"refund", Refund, 3, 4 * e, e, 3, true},
		{"refund to full", Refund, 4, 4 * e, 0, 4, true},
		{"refund no further than full", Refund, 9, 4 * e, 0, 9, true},
		{"refund of more than the burst", Refund, 1<<63 - 1, 4 * e, 0, 10, true},
		{"refund to a full bucket", Refund, 1, 0, 0, 0, false},
		{"refund long after", Refund, 1, -4 * e, 0, 0, false},
		{"refund nothing", Refund, 0, 4 * e, 4 * e, 0, false},
		{"refund less than nothing", Refund, -1, 4 * e, 4 * e, 0, false},

		{"reset", Reset, 0, 7 * e, 0, 0, true},
		{"reset of a full bucket", Reset, 0, -e, 0, 0, true},

		{"within a step ahead: kept", TakePartial, 0, over, over, 0, false},
		{"further ahead: kept", TakePartial, 0, over + 1, over + 1, 0, false},
		{"further ahead: denied", Take, 1, 25 * e, 25 * e, 0, false},
		{"further ahead: nothing in part", TakePartial, 100, 25 * e, 25 * e, 0, false},
		{"further ahead: no charge", Charge, 1, 25 * e, 25 * e, 0, false},
		{"further ahead: refund", Refund, 2, 25 * e, 23 * e, 2, true},
		{"further ahead: refund of the burst at most", Refund, 1<<63 - 1, 25 * e, 15 * e, 10, true},
		{"further ahead: reset", Reset, 0, MaxTicks, 0, 0, true},
		{"no operation", 0, 1, 3 * e, 3 * e, 0, false},
		{"unknown operation", 200, 1, 3 * e, 3 * e, 0, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			next, granted, write := terms.Apply(tt.op, tt.n, now+tt.level, now)
			if next-now != tt.after || granted != tt.granted || write != tt.write {
				t.Errorf("got level %d, granted %d, write %v; want %d, %d, %v",
					next-now, granted, write, tt.after, tt.granted, tt.write)
			}
		})
	}
}

func TestChargeMayRunIntoDebt(t *testing.T) {
	terms, err := Rate{Requests: 10, Period: time.Second, Debt: 10}.Terms()
	if err != nil {
		t.Fatal(err)
	}
	var c cell
	if out := c.at(terms, Charge, 25, 0); out.Granted != 20 || out.Level != terms.Ceiling {
		t.Fatalf("charge of 25: %+v, want 20 up to the ceiling", out)
	}
	if out := c.at(terms, Take, 1, int64(time.Second)); out.Granted != 0 {
		t.Fatalf("a token out of debt: %+v", out)
	}
	if out := c.at(terms, Take, 1, int64(1100*time.Millisecond)); out.Granted != 1 {
		t.Fatalf("the debt is paid and the token is not there: %+v", out)
	}
}

// TestLastToken is fault 14, and two agents' last 5 tokens, fault 15.
func TestLastToken(t *testing.T) {
	terms := mustTerms(t, 10, time.Hour, 0)
	var c cell
	for want := Tokens(9); want >= 0; want-- {
		if d := terms.Decide(1, c.at(terms, Take, 1, 0)); !d.Admitted || d.Remaining != want {
			t.Fatalf("got %+v, want admitted with %d remaining", d, want)
		}
	}
	for range 3 {
		d := terms.Decide(1, c.at(terms, Take, 1, 0))
		if d.Admitted || d.Reason != OverLimit || d.Remaining != 0 || d.RetryAfter != 6*time.Minute {
			t.Fatalf("the 11th: %+v", d)
		}
	}
}

func TestTwoAgentsLastFive(t *testing.T) {
	terms := mustTerms(t, 10, time.Hour, 0)
	var c cell
	c.at(terms, Take, 5, 0)
	first, second := c.at(terms, TakePartial, 100, 0), c.at(terms, TakePartial, 100, 0)
	if first.Granted+second.Granted != 5 {
		t.Errorf("grants of %d and %d add up to %d, want 5", first.Granted, second.Granted, first.Granted+second.Granted)
	}
	if d := terms.Decide(1, second); d.RetryAfter != 6*time.Minute {
		t.Errorf("the loser is told %v, want 6m", d.RetryAfter)
	}
}

// TestCostAboveBurst is fault 9: denied for ever, and nothing happened to the bucket.
func TestCostAboveBurst(t *testing.T) {
	terms := mustTerms(t, 10, time.Hour, 0)
	var c cell
	d := terms.Decide(11, c.at(terms, Take, 11, 0))
	if d.Admitted || d.Reason != Never || d.RetryAfter != NoRetry || c.found {
		t.Errorf("cost 11 of 10: %+v, cell written: %v", d, c.found)
	}
	if d := terms.Decide(10, c.at(terms, Take, 10, 0)); !d.Admitted || d.Remaining != 0 {
		t.Errorf("cost 10 right after: %+v", d)
	}
}

// TestFractionsAreNeverLost is fault 12: with demand always present, ten periods grant rate * time +
// burst, less at most one token.
func TestFractionsAreNeverLost(t *testing.T) {
	for _, tt := range []struct {
		name     string
		requests Tokens
		period   time.Duration
		burst    Tokens
	}{
		{"100,000/s", 100_000, time.Second, 100},
		{"100,000/s, deep", 100_000, time.Second, 0},
		{"1 per 10 s", 1, 10 * time.Second, 0},
		{"7 per 3 s", 7, 3 * time.Second, 0},
		{"7 per 3 s, burst 1", 7, 3 * time.Second, 1},
		{"0.1/s", 1, 10 * time.Second, 5},
		{"10 per 30 s", 10, 30 * time.Second, 0},
		{"3 per second", 3, time.Second, 0},
		{"1000 a month", 1000, 30 * 24 * time.Hour, 0},
		{"999 a month, burst 10", 999, 30 * 24 * time.Hour, 10},
		{"1 a year", 1, 365 * 24 * time.Hour, 0},
		{"997 per 7 us", 997, 7 * time.Microsecond, 3},
	} {
		t.Run(tt.name, func(t *testing.T) {
			terms := mustTerms(t, tt.requests, tt.period, tt.burst)
			start := int64(1_700_000_000e9) + 12345
			end := start + 10*int64(tt.period)
			// Someone always waits: polls come at uneven steps, before the bucket can be full.
			room := int64(terms.Class.Duration(terms.Depth - terms.Emission))
			var c cell
			var granted Tokens
			for i, now := int64(0), start; ; i++ {
				out := c.at(terms, TakePartial, MaxTokens, now)
				granted += out.Granted
				if now == end {
					break
				}
				step := room/2 - i%7*(room/20)
				if terms.Burst == 1 {
					step = int64(terms.Decide(1, Outcome{Level: out.Level}).RetryAfter)
				}
				now = min(now+max(step, 1), end)
			}
			want := 10*tt.requests + terms.Burst
			if granted > want || granted < want-1 {
				t.Errorf("granted %d in ten periods, want %d or one less", granted, want)
			}
		})
	}
}

// TestTwentyInSixtySeconds: single takes, every second, 10 per 30 s.
func TestTwentyInSixtySeconds(t *testing.T) {
	terms := mustTerms(t, 10, 30*time.Second, 0)
	var c cell
	c.at(terms, Take, 10, 0)
	var granted Tokens
	for s := int64(1); s <= 60; s++ {
		granted += c.at(terms, Take, 1, s*1e9).Granted
	}
	if granted != 20 {
		t.Errorf("granted %d in 60 s, want 20", granted)
	}
}

// TestGenerations: a cell is read across one boundary exactly, and is full after two.
func TestGenerations(t *testing.T) {
	terms := mustTerms(t, 4, 2*time.Second, 0) // fills in a generation less an epoch
	span := terms.Class.Span()
	if terms.Depth+terms.Class.EpochTicks() != span {
		t.Fatalf("a depth of %d, want all of a generation of %d but an epoch", terms.Depth, span)
	}
	for _, tt := range []struct {
		name    string
		gen     int64
		now     Ticks
		granted Tokens
	}{
		{"at once", 0, span - 1, 0},
		{"across the boundary", 1, 0, 0},
		{"a tick before the first token", 1, terms.Emission - 2, 0},
		{"the first token", 1, terms.Emission - 1, 1},
		{"three tokens", 1, terms.Depth - 2, 3},
		{"full", 1, terms.Depth - 1, 4},
		{"an epoch later, full", 1, span - 1, 4},
		{"two generations on, full", 2, 0, 4},
		{"ten generations on, full", 10, 0, 4},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var c cell
			if out, _ := c.apply(terms, Take, 4, 0, span-1); out.Granted != 4 {
				t.Fatalf("drain: %+v", out)
			}
			if out, _ := c.apply(terms, TakePartial, 100, tt.gen, tt.now); out.Granted != tt.granted {
				t.Errorf("granted %d, want %d", out.Granted, tt.granted)
			}
		})
	}
}

// TestBurstChange: the consumed time is kept, all of it, the count never goes below zero, and the
// new burst rules the next check. The retry includes what was consumed beyond the new burst.
func TestBurstChange(t *testing.T) {
	before := mustTerms(t, 10, time.Second, 10)
	for _, tt := range []struct {
		name      string
		taken     Tokens
		burst     Tokens
		remaining Tokens
		retry     time.Duration // of one token; NoRetry if it is admitted
	}{
		{"up, from empty", 10, 20, 10, NoRetry},
		{"up, from full", 0, 20, 20, NoRetry},
		{"down, room is left", 2, 5, 3, NoRetry},
		{"down, just used up", 5, 5, 0, 100 * time.Millisecond},
		{"down below what is used", 10, 5, 0, 600 * time.Millisecond},
		{"down to one", 10, 1, 0, time.Second},
		{"down, from full", 0, 5, 5, NoRetry},
	} {
		t.Run(tt.name, func(t *testing.T) {
			after := mustTerms(t, 10, time.Second, tt.burst)
			var c cell
			c.at(before, Take, tt.taken, 0)
			if got := after.Decide(0, c.at(after, TakePartial, 0, 0)).Remaining; got != tt.remaining {
				t.Errorf("remaining %d, want %d", got, tt.remaining)
			}
			d := after.Decide(1, c.at(after, Take, 1, 0))
			if d.Admitted != (tt.retry == NoRetry) || d.RetryAfter != tt.retry {
				t.Errorf("got %+v, want retry %v", d, tt.retry)
			}
			if d.RetryAfter != NoRetry {
				if d := after.Decide(1, c.at(after, Take, 1, int64(tt.retry-time.Microsecond))); d.Admitted {
					t.Errorf("admitted before %v: %+v", tt.retry, d)
				}
				if d := after.Decide(1, c.at(after, Take, 1, int64(tt.retry))); !d.Admitted {
					t.Errorf("denied after %v: %+v", tt.retry, d)
				}
			}
		})
	}
}

// TestBurstChangeWithinAStep: a burst that shrinks by less than a Class.Step leaves a debt of just
// that, which the retry includes.
func TestBurstChangeWithinAStep(t *testing.T) {
	before, after := mustTerms(t, 100_000, time.Second, 1000), mustTerms(t, 100_000, time.Second, 950)
	step := after.Class.Step() // about 98 tokens
	var c cell
	c.at(before, Take, 1000, 0)
	d := after.Decide(1, c.at(after, Take, 1, 0))
	if d.Admitted || d.Remaining != 0 || d.RetryAfter != 510*time.Microsecond {
		t.Errorf("got %+v, want a retry of 51 tokens", d)
	}
	if most := after.Class.Duration(step + after.Emission); d.RetryAfter > most {
		t.Errorf("retry %v is beyond a step and a token, %v", d.RetryAfter, most)
	}
	if !after.Decide(1, c.at(after, Take, 1, int64(d.RetryAfter))).Admitted {
		t.Errorf("denied after the retry")
	}
}

// TestTwoTermsOnOneCell: whoever looks with smaller terms makes nobody forget what was consumed under larger ones.
// Both together admit no more than the larger terms do alone.
func TestTwoTermsOnOneCell(t *testing.T) {
	large, small := mustTerms(t, 500, time.Second, 1000), mustTerms(t, 500, time.Second, 10)
	if large.Class != small.Class {
		t.Fatalf("cells of %v and %v are not the same", large.Class, small.Class)
	}
	const start, step, steps = int64(1_700_000_000e9), int64(7 * time.Millisecond), 2000 // 14 s, over generations
	var c cell
	var byLarge, bySmall Tokens
	for i := range int64(steps) {
		now := start + i*step
		took := c.at(large, TakePartial, MaxTokens, now)
		byLarge += took.Granted
		before := c
		look, denied := c.at(small, TakePartial, 0, now), c.at(small, Take, 1, now)
		if c != before || look.Level != took.Level || denied != look {
			t.Fatalf("after %d steps: level %d, the small terms saw %+v and %+v; the cell went from %+v to %+v", i, took.Level, look, denied, before, c)
		}
		bySmall += c.at(small, TakePartial, MaxTokens, now).Granted
		if most := 1000 + Tokens(500*i*step/int64(time.Second)); byLarge+bySmall > most {
			t.Fatalf("after %d steps %d and %d were admitted, want %d at most", i, byLarge, bySmall, most)
		}
	}
	if least := Tokens(1000 + 500*(steps-1)*step/int64(time.Second) - 1); byLarge < least || bySmall != 0 {
		t.Errorf("%d and %d were admitted, want %d and none: the large terms left nothing", byLarge, bySmall, least)
	}

	// When nobody takes any more, the small terms get theirs on the tick, and a reset ends the wait.
	now := start + (steps-1)*step
	reset := c
	d := small.Decide(1, c.at(small, Take, 1, now))
	if most := 1982 * time.Millisecond; d.Admitted || d.RetryAfter > most || d.RetryAfter <= most-2*time.Millisecond { // 991 tokens
		t.Errorf("got %+v, want a retry of %v, or less by a part of a token", d, most)
	}
	if c.at(small, Take, 1, now+int64(d.RetryAfter-time.Microsecond)).Granted != 0 {
		t.Errorf("admitted before %v", d.RetryAfter)
	}
	if c.at(small, Take, 1, now+int64(d.RetryAfter)).Granted != 1 {
		t.Errorf("denied after %v", d.RetryAfter)
	}
	reset.at(small, Reset, 0, now)
	if out := reset.at(small, Take, 10, now); out.Granted != 10 {
		t.Errorf("after a reset: %+v", out)
	}
}
