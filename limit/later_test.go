package limit

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestLater: what an outcome says of later is what a look at that time sees, and Wait and Full are when it says so.
func TestLater(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		terms := drawWindow(t)
		history(t, terms, 0, func(_ Op, _ Tokens, _ *Ask, now int64, before, after *Window, out Outcome, write bool) {
			cell := *before
			if write {
				cell = *after
			}
			d := rapid.Int64Range(0, 2*terms.Class.Window.Microseconds()).Draw(t, "passed")
			out.Granted = 0
			then := terms.Later(out, time.Duration(d)*time.Microsecond)
			_, seen, _ := terms.ApplyWindow(TakePartial, 0, &Ask{}, cell, now+d)
			if terms.Algorithm == SlidingLog {
				if then.Level < seen.Level || (then.Level == 0) != (seen.Level == 0) {
					t.Fatalf("%d us after %+v: %+v, seen is %+v", d, out, then, seen)
				}
				return
			}
			if then.Level != seen.Level || then.Left != seen.Left || then.Epoch != seen.Epoch {
				t.Fatalf("%d us after %+v: %+v, seen is %+v", d, out, then, seen)
			}
			n := Tokens(rapid.Int64Range(1, int64(terms.Burst)).Draw(t, "then"))
			if wait := terms.Wait(n, out); wait > 0 && terms.Later(out, wait-time.Microsecond).Level+Ticks(n) <= terms.Depth ||
				terms.Later(out, wait).Level+Ticks(n) > terms.Depth {
				t.Fatalf("%d of %+v are said to be there after %v", n, out, wait)
			}
			if full := terms.Full(out); terms.Later(out, full).Level != 0 || full > 0 && terms.Later(out, full-time.Microsecond).Level == 0 {
				t.Fatalf("%+v is said to be full after %v", out, full)
			}
		})
	})
}

// TestWindowLease: leases and what comes back of them keep what is admitted and out at or below the limit.
func TestWindowLease(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		terms := drawWindow(t)
		if terms.Algorithm == SlidingLog {
			t.Skip()
		}
		var cell Window
		given, leased := map[int64]Tokens{}, map[int64]Tokens{} // by epoch
		window := terms.Class.Window.Microseconds()
		now := rapid.Int64Range(0, 1<<50).Draw(t, "start")
		epoch := int64(0)
		for range rapid.IntRange(1, 40).Draw(t, "operations") {
			now += rapid.OneOf(rapid.Int64Range(0, window/3), rapid.Int64Range(0, 3*window)).Draw(t, "move")
			op := rapid.SampledFrom([]Op{Take, Lease, Lease}).Draw(t, "op")
			n, ask := drawTokens(t, terms.Burst), &Ask{Epoch: epoch, Presence: rapid.Int64Range(1, Presence).Draw(t, "presence")}
			if op == Lease {
				ask.Returned = Tokens(rapid.Int64Range(0, int64(leased[epoch])).Draw(t, "returned"))
				ask.Settled, ask.Take = leased[epoch], Tokens(rapid.Int64Range(0, 3).Draw(t, "take"))
				leased[epoch] = 0
			}
			next, out, write := terms.ApplyWindow(op, n, ask, cell, now)
			if op == Lease && ask.Epoch == out.Epoch {
				given[out.Epoch] -= ask.Returned
			}
			if given[out.Epoch] += out.Granted + out.Taken; given[out.Epoch] > terms.Burst {
				t.Fatalf("op %d of %d, %+v: %+v, so %d of %d", op, n, ask, out, given[out.Epoch], terms.Burst)
			}
			if op == Lease {
				if !write || out.Term <= 0 || now*1000+out.Term > (out.Epoch+1)*window*1000 || out.Contenders < 1 || out.Granted > n || out.Taken > ask.Take {
					t.Fatalf("a lease of %d, %+v: %+v", n, ask, out)
				}
				epoch = out.Epoch
				leased[epoch] += out.Granted
			}
			if write {
				cell = next
			}
		}
	})
}
