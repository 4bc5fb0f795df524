package sim

import (
	"testing"

	"github.com/spillgate/spillgate/limit"
)

// TestWindows runs fleets whose buckets count in windows.
func TestWindows(t *testing.T) {
	testSeeds(t, 3000, DrawWindows, func(c *Counts) []*int {
		return []*int{&c.Windows, &c.Dropped, &c.Admitted, &c.Denied, &c.Refunded, &c.Unknown, &c.GivenUp, &c.Steps, &c.Changes, &c.Resets, &c.Waits, &c.Several,
			&c.LocalAdmitted, &c.LocalDenied, &c.Rode, &c.Undone, &c.Voided}
	})
}

// TestMistakesInWindowsAreCaught is TestMutationsAreCaught for them.
func TestMistakesInWindowsAreCaught(t *testing.T) {
	for _, m := range []struct {
		name    string
		seeds   int
		promise string
		window  func(*limit.Terms, limit.Op, limit.Tokens, *limit.Ask, limit.Window, int64) (limit.Window, limit.Outcome, bool)
	}{
		{"a refund to whatever window there is", 300, "G1", func(t *limit.Terms, op limit.Op, n limit.Tokens, ask *limit.Ask, c limit.Window, micros int64) (limit.Window, limit.Outcome, bool) {
			if op != limit.Refund || t.Algorithm == limit.SlidingLog {
				return t.ApplyWindow(op, n, ask, c, micros)
			}
			_, now, _ := t.ApplyWindow(limit.TakePartial, 0, ask, c, micros)
			return t.ApplyWindow(op, n, &limit.Ask{Epoch: now.Epoch}, c, micros)
		}},
		{"the window before is forgotten", 300, "G1", func(t *limit.Terms, op limit.Op, n limit.Tokens, ask *limit.Ask, c limit.Window, micros int64) (limit.Window, limit.Outcome, bool) {
			if t.Algorithm == limit.SlidingWindow && c.Index != micros/t.Class.Window.Microseconds() {
				c.Count = 0
			}
			return t.ApplyWindow(op, n, ask, c, micros)
		}},
		{"a log forgets a hit too early", 300, "G1", func(t *limit.Terms, op limit.Op, n limit.Tokens, ask *limit.Ask, c limit.Window, micros int64) (limit.Window, limit.Outcome, bool) {
			if t.Algorithm == limit.SlidingLog {
				for len(c.Hits) > 0 && c.Hits[0] <= micros-t.Class.Window.Microseconds()*9/10 {
					c.Hits = c.Hits[1:]
				}
			}
			return t.ApplyWindow(op, n, ask, c, micros)
		}},
		{"a lease that outlives its window", 300, "G1", func(t *limit.Terms, op limit.Op, n limit.Tokens, ask *limit.Ask, c limit.Window, micros int64) (limit.Window, limit.Outcome, bool) {
			next, out, write := t.ApplyWindow(op, n, ask, c, micros)
			out.Term = 0
			return next, out, write
		}},
		{"what is leased is not counted", 300, "G1", func(t *limit.Terms, op limit.Op, n limit.Tokens, ask *limit.Ask, c limit.Window, micros int64) (limit.Window, limit.Outcome, bool) {
			next, out, write := t.ApplyWindow(op, n, ask, c, micros)
			if op == limit.Lease {
				next.Count -= out.Granted
			}
			return next, out, write
		}},
		{"a wait that is too short", 300, "G4", func(t *limit.Terms, op limit.Op, n limit.Tokens, ask *limit.Ask, c limit.Window, micros int64) (limit.Window, limit.Outcome, bool) {
			next, out, write := t.ApplyWindow(op, n, ask, c, micros)
			out.Left, out.Wait = out.Left/2, out.Wait/2
			return next, out, write
		}},
	} {
		t.Run(m.name, func(t *testing.T) {
			failed, ran, _ := search(1, m.seeds, func(seed uint64) Result {
				r := Run(DrawWindows(seed), Options{Wires: Wires{Window: m.window}})
				if r.Breach != nil && r.Breach.Promise != m.promise {
					r.Breach = nil
				}
				return r
			})
			if failed == nil {
				t.Fatalf("not found in %d runs", ran)
			}
			t.Logf("run %d: %v", failed.Plan.Seed, failed.Breach)
		})
	}
}
