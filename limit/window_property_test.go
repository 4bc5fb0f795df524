package limit

import (
	"math/big"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var windowKinds = []Algorithm{SlidingWindow, FixedWindow, SlidingLog}

// hit is a number of tokens that were admitted at a time, in microseconds.
type hit struct {
	at int64
	n  Tokens
}

// recount is the oracle of the window kinds: all that was admitted and not refunded, looked through from the start each time.
type recount struct {
	terms  *Terms
	window int64
	hits   []hit
}

// between is what was admitted from a time on, and before another.
func (r *recount) between(from, to int64) (sum Tokens) {
	for _, h := range r.hits {
		if h.at >= from && h.at < to {
			sum += h.n
		}
	}
	return sum
}

// used is what counts at a time: at least, and at most. The two differ for sliding windows alone, which round up.
func (r *recount) used(at int64) (least, most *big.Rat) {
	start := at - at%r.window
	switch r.terms.Algorithm {
	case SlidingLog:
		least = big.NewRat(int64(r.between(at-r.window+1, at+1)), 1)
	case FixedWindow:
		least = big.NewRat(int64(r.between(start, start+r.window)), 1)
	default:
		before := big.NewRat(int64(r.between(start-r.window, start)), 1)
		least = new(big.Rat).Mul(before, big.NewRat(start+r.window-at, r.window))
		least.Add(least, big.NewRat(int64(r.between(start, start+r.window)), 1))
		// Two steps and a token.
		most = new(big.Rat).Mul(before, big.NewRat(2*stepOf(r.window), r.window))
		return least, most.Add(most, least).Add(most, big.NewRat(1, 1))
	}
	return least, least
}

func stepOf(window int64) int64 { return (window + stepsPerWindow - 1) / stepsPerWindow }

// refund takes back n tokens of those of a time, or of its window.
func (r *recount) refund(from, to int64, n Tokens) {
	for i := range r.hits {
		if h := &r.hits[i]; h.at >= from && h.at < to {
			back := min(n, h.n)
			h.n, n = h.n-back, n-back
		}
	}
}

func drawWindow(t *rapid.T) *Terms {
	r := Rate{Algorithm: rapid.SampledFrom(windowKinds).Draw(t, "algorithm")}
	most := int64(MaxTokens)
	if r.Algorithm == SlidingLog {
		most = int64(MaxLog)
	}
	r.Requests = Tokens(rapid.OneOf(rapid.Int64Range(1, 20), rapid.Int64Range(1, most)).Draw(t, "requests"))
	r.Period = time.Microsecond * time.Duration(rapid.OneOf(rapid.Int64Range(1000, 1e7), rapid.SampledFrom([]int64{1000, 1e6, 60e6, 86400e6}),
		rapid.Int64Range(1000, MaxWindow.Microseconds())).Draw(t, "period"))
	terms, err := r.Terms()
	if err != nil {
		t.Fatal(err)
	}
	return terms
}

// history applies random operations at times that go on, but for steps back of at most back microseconds.
func history(t *rapid.T, terms *Terms, back int64, each func(op Op, n Tokens, ask *Ask, micros int64, before, after *Window, out Outcome, write bool)) {
	window := terms.Class.Window.Microseconds()
	cell, written := Window{}, int64(0)
	var taken []Outcome
	now := rapid.Int64Range(0, 1<<50).Draw(t, "start")
	for range rapid.IntRange(1, 60).Draw(t, "operations") {
		now = max(0, now+rapid.OneOf(
			rapid.Int64Range(0, 3),
			rapid.Int64Range(0, window/3),
			rapid.Int64Range(0, 3*window),
			rapid.Int64Range(-back, 0),
			rapid.SampledFrom([]int64{window, window - 1, window - now%window, window - now%window - 1, 2*window - now%window}),
		).Draw(t, "move"))
		length := terms.Class.Length.Microseconds()
		before := cell
		if now/length > written/length+1 {
			before = Window{} // the store has forgotten it
		}
		op := rapid.SampledFrom([]Op{Take, Take, TakePartial, Charge, Refund}).Draw(t, "op")
		n, ask := drawTokens(t, terms.Burst), &Ask{}
		if rapid.IntRange(0, 15).Draw(t, "negative") == 0 {
			n = -n // worth nothing
		}
		if op == Refund && len(taken) > 0 {
			of := taken[rapid.IntRange(max(0, len(taken)-4), len(taken)-1).Draw(t, "of")]
			ask.Epoch, n = of.Epoch, min(n, of.Granted)
		}
		next, out, write := terms.ApplyWindow(op, n, ask, before, now)
		if write {
			cell, written = next, max(written, now)
		}
		if out.Granted > 0 && op != Refund {
			taken = append(taken, out)
		}
		each(op, n, ask, now, &before, &next, out, write)
	}
}

// TestWindowRecount: each kind admits what its oracle does, neither more nor less, at times that go on.
func TestWindowRecount(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		terms := drawWindow(t)
		r := &recount{terms: terms, window: terms.Class.Window.Microseconds()}
		history(t, terms, 0, func(op Op, n Tokens, ask *Ask, now int64, _, _ *Window, out Outcome, write bool) {
			if write != (out.Granted > 0) || out.Granted < 0 || out.Granted > max(0, n) {
				t.Fatalf("op %d of %d granted %d, write is %v", op, n, out.Granted, write)
			}
			least, most := r.used(now)
			if op == Refund {
				from, to := ask.Epoch*r.window, (ask.Epoch+1)*r.window
				if terms.Algorithm == SlidingLog {
					from, to = ask.Epoch, ask.Epoch+1
				}
				want := max(0, min(n, r.between(from, to)))
				if over := from + r.window; now >= over {
					want = 0
				}
				if out.Granted != want {
					t.Fatalf("at %d a refund of %d taken at %d gave back %d, want %d", now, n, ask.Epoch, out.Granted, want)
				}
				r.refund(from, to, out.Granted)
				return
			}
			limit := big.NewRat(int64(terms.Burst), 1)
			if with := least.Add(least, big.NewRat(int64(out.Granted), 1)); out.Granted > 0 && with.Cmp(limit) > 0 {
				t.Fatalf("at %d op %d of %d was granted %d: now %v of %d are used", now, op, n, out.Granted, with, terms.Burst)
			}
			asked := n
			if op != Take {
				asked = min(n, out.Granted+1)
			}
			if with := most.Add(most, big.NewRat(int64(asked), 1)); out.Granted < asked && terms.Algorithm == SlidingWindow && with.Cmp(limit) <= 0 {
				t.Fatalf("at %d op %d of %d was granted %d, with %d it were at most %v of %d", now, op, n, out.Granted, asked, with, terms.Burst)
			}
			if terms.Algorithm != SlidingWindow && out.Granted < asked {
				if with := least.Sub(least, big.NewRat(int64(out.Granted-asked), 1)); with.Cmp(limit) <= 0 {
					t.Fatalf("at %d op %d of %d was granted %d, with %d it were %v of %d", now, op, n, out.Granted, asked, with, terms.Burst)
				}
			}
			if out.Granted > 0 {
				r.hits = append(r.hits, hit{now, out.Granted})
			}
		})
	})
}

// TestWindowNeverOver: whatever a clock does that a store can show, no aligned window, and of a log no window at all, has
// more than the limit. Time is that of the newest write before, where the clock is behind.
func TestWindowNeverOver(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		terms := drawWindow(t)
		r := &recount{terms: terms, window: terms.Class.Window.Microseconds()}
		seen := int64(0)
		history(t, terms, int64(terms.Class.Step()), func(op Op, n Tokens, ask *Ask, now int64, _, _ *Window, out Outcome, write bool) {
			if out.Granted == 0 {
				return
			}
			seen = max(seen, now)
			if op == Refund {
				from, to := ask.Epoch*r.window, (ask.Epoch+1)*r.window
				if terms.Algorithm == SlidingLog {
					from, to = ask.Epoch, ask.Epoch+1
				}
				r.refund(from, to, out.Granted)
				return
			}
			r.hits = append(r.hits, hit{seen, out.Granted})
			start := seen - seen%r.window
			if sum := r.between(start, start+r.window); sum > terms.Burst {
				t.Fatalf("%d of %d in the window from %d", sum, terms.Burst, start)
			}
			if sum := r.between(seen-r.window+1, seen+1); terms.Algorithm == SlidingLog && sum > terms.Burst {
				t.Fatalf("%d of %d in the window up to %d", sum, terms.Burst, seen)
			}
		})
	})
}

// TestWindowEdge: a sliding window admits, in any window, at most the limit and as much of what the window before had as has faded.
func TestWindowEdge(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		terms := drawWindow(t)
		if terms.Algorithm != SlidingWindow {
			t.Skip()
		}
		r := &recount{terms: terms, window: terms.Class.Window.Microseconds()}
		history(t, terms, 0, func(op Op, n Tokens, ask *Ask, now int64, _, _ *Window, out Outcome, write bool) {
			if op == Refund {
				r.refund(ask.Epoch*r.window, (ask.Epoch+1)*r.window, out.Granted)
			}
			if op == Refund || out.Granted == 0 {
				return
			}
			r.hits = append(r.hits, hit{now, out.Granted})
			start := now - now%r.window
			bound := big.NewRat(now-start, r.window)
			bound.Mul(bound, big.NewRat(int64(r.between(start-r.window, start)), 1))
			bound.Add(bound, big.NewRat(int64(terms.Burst), 1))
			if sum := r.between(now-r.window+1, now+1); big.NewRat(int64(sum), 1).Cmp(bound) > 0 {
				t.Fatalf("%d in the window up to %d; the bound is %v", sum, now, bound)
			}
		})
	})
}

// TestWindowRetry is G4: who waits retry_after and has no rival is admitted, and a microsecond earlier is not. After
// reset_after the bucket is full.
func TestWindowRetry(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		terms := drawWindow(t)
		var cell Window
		history(t, terms, int64(terms.Class.Step()), func(_ Op, _ Tokens, _ *Ask, now int64, before, after *Window, _ Outcome, write bool) {
			if cell = *before; write {
				cell = *after
			}
			n := Tokens(rapid.Int64Range(1, int64(terms.Burst)).Draw(t, "then"))
			_, out, _ := terms.ApplyWindow(Take, n, &Ask{}, cell, now)
			if d := terms.Decide(n, out); !d.Admitted {
				if d.RetryAfter <= 0 || d.RetryAfter%time.Microsecond != 0 {
					t.Fatalf("%+v", d)
				}
				at := now + d.RetryAfter.Microseconds()
				if _, early, _ := terms.ApplyWindow(Take, n, &Ask{}, cell, at-1); early.Granted != 0 {
					t.Fatalf("at %d a take of %d was told %v, but a microsecond less would do", now, n, d.RetryAfter)
				}
				if _, then, _ := terms.ApplyWindow(Take, n, &Ask{}, cell, at); then.Granted != n {
					t.Fatalf("at %d a take of %d was told %v, and then denied: %+v", now, n, d.RetryAfter, then)
				}
			}
			_, out, _ = terms.ApplyWindow(TakePartial, 0, &Ask{}, cell, now)
			d := terms.Decide(0, out)
			if d.Remaining != max(0, terms.Burst-Tokens(out.Level)) || !d.Admitted {
				t.Fatalf("%+v of %+v", d, out)
			}
			full := now + d.ResetAfter.Microseconds()
			if _, then, _ := terms.ApplyWindow(Take, terms.Burst, &Ask{}, cell, full); then.Granted != terms.Burst {
				t.Fatalf("at %d, reset after %v, it is not full: %+v", now, d.ResetAfter, then)
			}
			if _, early, _ := terms.ApplyWindow(TakePartial, 0, &Ask{}, cell, full-1); d.ResetAfter > 0 && early.Level == 0 {
				t.Fatalf("at %d, reset after %v, it was full before", now, d.ResetAfter)
			}
		})
	})
}
