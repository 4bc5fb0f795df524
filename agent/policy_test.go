package agent_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillgate/spillgate/agent"
	"github.com/spillgate/spillgate/batcher"
	"github.com/spillgate/spillgate/limit"
)

// What a store says of its failures, with a cause.
var (
	errDown = fmt.Errorf("%w: connection refused", batcher.ErrNotRun)
	errLost = fmt.Errorf("%w: connection reset", batcher.ErrUnknown)
)

// failures are the ways in which a store gives no outcome.
var failures = map[string]fate{
	"hangs":                    {delay: time.Hour},
	"late":                     {delay: 26 * time.Millisecond},
	"down":                     {err: errDown},
	"reply lost":               {err: errLost, runs: true},
	"lost before it ran":       {err: errLost},
	"damaged":                  {err: batcher.ErrDamaged},
	"an error of another kind": {err: errors.New("surprise")},
}

// byPolicy is what a rule of limit 10 answers when the store does not.
func byPolicy(p limit.Policy, rule string) outcome {
	if p == limit.Open {
		return outcome{true, limit.StoreOpen, 10, 0, rule}
	}
	return outcome{false, limit.StoreClosed, 10, 0, rule}
}

// TestPolicies: without an outcome the rule's policy answers, or else the agent's, with a reason and within
// the deadline (G6); on every path.
func TestPolicies(t *testing.T) {
	ten := terms(t, 10, time.Hour)
	for what, ft := range failures {
		for _, byDefault := range []limit.Policy{limit.Open, limit.Closed} {
			t.Run(fmt.Sprintf("%s/default=%s", what, byDefault), func(t *testing.T) {
				onFake(t, agent.Config{OnStoreError: byDefault}, func(w *world) {
					w.fake.befalls(all(-1, ft))
					for _, tt := range []struct {
						path string
						ask  func() limit.Decision
						want outcome
					}{
						{"default", func() limit.Decision { return w.ask(1, d("user", "42")) }, byPolicy(byDefault, "ten")},
						{"open", func() limit.Decision { return w.ask(1, d("open", "42")) }, byPolicy(limit.Open, "slow-open")},
						{"closed", func() limit.Decision { return w.ask(1, d("closed", "42")) }, byPolicy(limit.Closed, "slow-closed")},
						{"peek", func() limit.Decision { return w.ask(0, d("closed", "42")) }, byPolicy(limit.Closed, "slow-closed")},
						{"handle", func() limit.Decision { return w.handle("slow-closed").Check(w.Context(), 1, "42") }, byPolicy(limit.Closed, "slow-closed")},
						{"throttle", func() limit.Decision { return w.throttle("42", ten, 1) }, byPolicy(byDefault, "")},
						{"above the burst", func() limit.Decision { return w.ask(11, d("open", "42")) }, outcome{false, limit.Never, 10, 0, "slow-open"}},
					} {
						start := time.Now()
						got := tt.ask()
						w.wants(tt.path, got, tt.want)
						if took := time.Since(start); took > 25*time.Millisecond {
							w.Errorf("%s: answered after %v", tt.path, took)
						}
						if wait := map[limit.Reason]time.Duration{limit.StoreClosed: time.Second}[got.Reason]; wait != 0 && got.RetryAfter != wait {
							w.Errorf("%s: retry after %v, want %v", tt.path, got.RetryAfter, wait)
						}
						w.pass(time.Second)
					}
				})
			})
		}
	}
}

// TestDeadlines: each rule has its own, to the microsecond, and a batch waits for the longest.
func TestDeadlines(t *testing.T) {
	onFake(t, agent.Config{Deadline: 30 * time.Millisecond}, func(w *world) {
		ten := terms(t, 10, time.Hour)
		for _, tt := range []struct {
			what string
			ask  func()
			want time.Duration
		}{
			{"default", func() { w.ask(1, d("user", "42")) }, 30 * time.Millisecond},
			{"throttle", func() { w.throttle("42", ten, 1) }, 30 * time.Millisecond},
			{"hasty rule", func() { w.ask(1, d("hasty", "42")) }, 10 * time.Millisecond},
			{"patient rule", func() { w.ask(1, d("patient", "42")) }, 40 * time.Millisecond},
			{"patient handle", func() { w.handle("slow-patient").Check(w.Context(), 1, "42") }, 40 * time.Millisecond},
			{"both in one check", func() { w.ask(1, d("hasty", "42"), d("patient", "42")) }, 40 * time.Millisecond},
		} {
			w.fake.befalls(all(-1, fate{delay: time.Hour}))
			start := time.Now()
			tt.ask()
			if took := time.Since(start); took != tt.want {
				w.Errorf("%s: answered after %v, want %v", tt.what, took, tt.want)
			}
			w.fake.befalls(all(-1, fate{})) // or the third would find the shard down
			w.pass(time.Second)
			w.ask(1, d("open", "42"), d("closed", "42"))
		}
	})
}

// TestAnswerBeforeDeadline: nobody waits for longer than the store takes.
func TestAnswerBeforeDeadline(t *testing.T) {
	onFake(t, agent.Config{}, func(w *world) {
		w.fake.befalls(all(-1, fate{delay: 3 * time.Millisecond}))
		start := time.Now()
		w.wants("check", w.ask(1, d("user", "42")), outcome{true, limit.OK, 10, 9, "ten"})
		if took := time.Since(start); took != 3*time.Millisecond {
			w.Errorf("answered after %v", took)
		}
	})
}

// TestStoreTimeout ends a call before a long deadline does.
func TestStoreTimeout(t *testing.T) {
	var calls []batcher.CallInfo
	onFake(t, agent.Config{Deadline: time.Minute, StoreTimeout: 10 * time.Millisecond,
		OnCall: func(i batcher.CallInfo) { calls = append(calls, i) }}, func(w *world) {
		w.fake.befalls(all(-1, fate{delay: time.Hour}))
		start := time.Now()
		w.wants("check", w.ask(1, d("user", "42")), byPolicy(limit.Open, "ten"))
		if took := time.Since(start); took != 10*time.Millisecond {
			w.Errorf("answered after %v", took)
		}
		synctest.Wait()
		if len(calls) != 1 || calls[0].Unknown != 1 || calls[0].Claims != 1 {
			w.Errorf("hook was told %+v", calls)
		}
	})
}

// TestStoreNotReached: until the store's first word the policy answers at once, and nothing is sent.
func TestStoreNotReached(t *testing.T) {
	onFake(t, agent.Config{}, func(w *world) {
		w.fake.away.Store(true)
		if w.Ready() {
			w.Error("ready")
		}
		start := time.Now()
		w.wants("open", w.ask(1, d("open", "42")), byPolicy(limit.Open, "slow-open"))
		w.wants("closed", w.ask(1, d("closed", "42")), byPolicy(limit.Closed, "slow-closed"))
		w.wants("several", w.ask(1, d("vip", "x"), d("open", "42"), d("closed", "42")), byPolicy(limit.Closed, "slow-closed"))
		w.wants("above the burst", w.ask(11, d("open", "42")), outcome{false, limit.Never, 10, 0, "slow-open"})
		if took := time.Since(start); took != 0 || w.fake.asked() != 0 {
			w.Errorf("took %v, %d entries sent", took, w.fake.asked())
		}
		w.fake.away.Store(false)
		if !w.Ready() {
			w.Error("not ready")
		}
		w.wants("reached", w.ask(1, d("closed", "42")), outcome{true, limit.OK, 10, 9, "slow-closed"})
	})
}

// TestOverload: with MaxPending claims waiting, the policy answers at once and says why; afterwards all is well.
func TestOverload(t *testing.T) {
	onFake(t, agent.Config{MaxPending: 2}, func(w *world) {
		w.fake.befalls(all(-1, fate{delay: 10 * time.Millisecond}))
		waiting := make(chan limit.Decision, 2)
		for range 2 {
			go func() { waiting <- w.ask(1, d("user", "42")) }()
		}
		synctest.Wait()
		start := time.Now()
		w.wants("open", w.ask(1, d("open", "42")), outcome{true, limit.Overloaded, 10, 0, "slow-open"})
		closed := w.ask(1, d("closed", "42"))
		w.wants("closed", closed, outcome{false, limit.Overloaded, 10, 0, "slow-closed"})
		w.wants("above the burst", w.ask(11, d("open", "42")), outcome{false, limit.Never, 10, 0, "slow-open"})
		if took := time.Since(start); took != 0 || closed.RetryAfter != time.Second {
			w.Errorf("took %v, retry after %v", took, closed.RetryAfter)
		}
		left := []limit.Tokens{(<-waiting).Remaining, (<-waiting).Remaining}
		if slices.Sort(left); !slices.Equal(left, []limit.Tokens{8, 9}) {
			w.Errorf("those who waited have %v remaining", left)
		}
		if n := w.Stats().Batcher.Overloaded; n != 3 {
			w.Errorf("%d overloads metered, want 3", n)
		}
		if n := w.left(d("closed", "42")); n != 10 {
			w.Errorf("a refused claim was charged: %d left", n)
		}
	})
}

// TestLateGrant: tokens that arrive after the policy has answered stay debited if it admitted, and go back if it denied.
func TestLateGrant(t *testing.T) {
	onFake(t, agent.Config{}, func(w *world) {
		w.fake.befalls(all(-1, fate{delay: 45 * time.Millisecond}))
		w.wants("open", w.ask(4, d("open", "42")), byPolicy(limit.Open, "slow-open"))
		w.wants("closed", w.ask(4, d("closed", "42")), byPolicy(limit.Closed, "slow-closed"))
		if n := w.left(d("open", "42")); n != 6 {
			w.Errorf("admitted: %d left, want 6", n)
		}
		if n := w.left(d("closed", "42")); n != 10 {
			w.Errorf("denied: %d left, want 10", n)
		}
		if s := w.Stats().Batcher; s.GivenUp != 2 || s.Refunded != 4 {
			w.Errorf("%d given up, %d tokens refunded; want 2 and 4", s.GivenUp, s.Refunded)
		}
	})
}

// TestContextEnds: a caller who goes is answered by the policy at once, and one who is gone already, too.
func TestContextEnds(t *testing.T) {
	onFake(t, agent.Config{Deadline: time.Minute}, func(w *world) {
		w.fake.befalls(all(-1, fate{delay: time.Second}))
		ctx, cancel := context.WithTimeout(w.Context(), time.Millisecond)
		defer cancel()
		start := time.Now()
		w.wants("closed", w.askWith(ctx, 4, d("closed", "42")), byPolicy(limit.Closed, "slow-closed"))
		w.wants("open", w.askWith(ctx, 4, d("open", "42")), byPolicy(limit.Open, "slow-open"))
		w.wants("handle", w.handle("slow-closed").Check(ctx, 4, "42"), byPolicy(limit.Closed, "slow-closed"))
		if took := time.Since(start); took != time.Millisecond {
			w.Errorf("took %v", took)
		}
		if n := w.left(d("closed", "42")); n != 10 {
			w.Errorf("%d left, want 10", n)
		}
	})
}

// TestClosed: a closed agent charges nothing. Check says so; a handle answers by the agent's policy.
func TestClosed(t *testing.T) {
	for _, p := range []limit.Policy{limit.Open, limit.Closed} {
		t.Run(p.String(), func(t *testing.T) {
			onBoth(t, agent.Config{OnStoreError: p}, func(w *world) {
				h, ten := w.handle("ten"), terms(t, 10, time.Hour)
				for range 2 {
					if err := w.Close(w.Context()); err != nil {
						w.Errorf("Close: %v", err)
					}
				}
				if _, err := w.Check(w.Context(), agent.Request{Domain: "api", Descriptors: ds("user", "42"), Hits: 1}); !errors.Is(err, agent.ErrClosed) {
					w.Errorf("Check: %v", err)
				}
				if _, err := w.Throttle(w.Context(), "42", ten, 1); !errors.Is(err, agent.ErrClosed) {
					w.Errorf("Throttle: %v", err)
				}
				if got := h.Check(w.Context(), 1, "42"); got.Admitted != (p == limit.Open) {
					w.Errorf("Handle: %+v", got)
				}
				if n := w.cells.Cells(); n != 0 {
					w.Errorf("%d cells were made", n)
				}
			})
		})
	}
}

// TestCloseWaits: Close lets what is under way arrive, and is cut short by its context.
func TestCloseWaits(t *testing.T) {
	onFake(t, agent.Config{Deadline: 10 * time.Millisecond, StoreTimeout: time.Minute}, func(w *world) {
		w.fake.befalls(all(-1, fate{delay: time.Second}))
		w.ask(4, d("closed", "42")) // denied, while its grant is under way
		if err := w.Close(w.Context()); err != nil {
			w.Errorf("Close: %v", err)
		}
		if n := w.fake.ops[limit.Refund].Load(); n != 1 {
			w.Errorf("%d refunds before Close returned, want 1", n)
		}
	})
	onFake(t, agent.Config{StoreTimeout: time.Hour}, func(w *world) {
		w.fake.befalls(all(-1, fate{delay: time.Minute}))
		w.ask(1, d("open", "42"))
		ctx, cancel := context.WithTimeout(w.Context(), time.Second)
		defer cancel()
		if err := w.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
			w.Errorf("Close: %v", err)
		}
	})
}

// TestReasons: every reason that this version can give is given, and counted, once.
func TestReasons(t *testing.T) {
	onFake(t, agent.Config{MaxPending: 1}, func(w *world) {
		w.ask(1, d("user", "42"))      // ok
		w.ask(10, d("user", "42"))     // over_limit
		w.ask(11, d("user", "42"))     // never
		w.ask(1, d("banned", "42"))    // never
		w.ask(1, d("nobody", "knows")) // no_rule
		w.ask(1, d("vip", "42"))       // unlimited
		w.fake.befalls(all(-1, fate{err: errDown}))
		w.ask(1, d("open", "42"))   // store_open
		w.ask(1, d("closed", "42")) // store_closed
		w.fake.befalls(all(-1, fate{delay: time.Second}))
		hung := make(chan limit.Decision)
		go func() { hung <- w.ask(1, d("open", "42")) }() // store_open
		synctest.Wait()
		w.ask(1, d("open", "42"))   // overloaded
		w.ask(1, d("closed", "42")) // overloaded
		<-hung
		want := []agent.Count{
			{Admitted: true, Reason: limit.OK, Checks: 1},
			{Admitted: false, Reason: limit.OverLimit, Checks: 1},
			{Admitted: false, Reason: limit.Never, Checks: 2},
			{Admitted: true, Reason: limit.NoRule, Checks: 1},
			{Admitted: true, Reason: limit.Unlimited, Checks: 1},
			{Admitted: true, Reason: limit.StoreOpen, Checks: 2},
			{Admitted: false, Reason: limit.StoreClosed, Checks: 1},
			{Admitted: true, Reason: limit.Overloaded, Checks: 1},
			{Admitted: false, Reason: limit.Overloaded, Checks: 1},
		}
		if got := w.Stats().Checks; !slices.Equal(got, want) {
			w.Errorf("counted\n%+v, want\n%+v", got, want)
		}
		given := map[limit.Reason]bool{limit.ShadowOver: true, limit.StoreLocal: true} // of later versions
		for _, c := range want {
			given[c.Reason] = true
		}
		for _, r := range limit.Reasons() {
			if !given[r] {
				w.Errorf("reason %s is not tested", r)
			}
		}
	})
}

// TestHugeWaits: a year's wait is told exactly.
func TestHugeWaits(t *testing.T) {
	onBoth(t, agent.Config{}, func(w *world) {
		yearly := terms(t, 1, 365*24*time.Hour)
		w.throttle("42", yearly, 1)
		got := w.throttle("42", yearly, 1)
		if got.Admitted || math.Abs(float64(got.RetryAfter-365*24*time.Hour)) > float64(10*time.Microsecond) {
			w.Errorf("%+v", got)
		}
	})
}
