package agent_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillgate/spillgate/agent"
	"github.com/spillgate/spillgate/batcher"
	"github.com/spillgate/spillgate/limit"
	"github.com/spillgate/spillgate/rules"
)

// TestSeveral: a request with several descriptors is admitted only if all their rules admit, and then charges each.
func TestSeveral(t *testing.T) {
	onBoth(t, agent.Config{}, func(w *world) {
		user, pair, once, vip := d("user", "42"), d("a", "x", "b", "y"), d("once", "42"), d("vip", "42")
		w.wants("all admit", w.ask(3, user, pair), outcome{true, limit.OK, 10, 7, "ten"})
		w.wants("again", w.ask(3, pair, user), outcome{true, limit.OK, 10, 4, "pair"})
		if got := [2]limit.Tokens{w.left(user), w.left(pair)}; got != [2]limit.Tokens{4, 4} {
			w.Errorf("charged to %v, want 4 left in each", got)
		}
		// Rules that need no store, in each place.
		w.wants("unlimited first", w.ask(1, vip, user), outcome{true, limit.OK, 10, 3, "ten"})
		w.wants("no rule first", w.ask(1, d("nobody", "x"), d("nobody", "y"), user), outcome{true, limit.OK, 10, 2, "ten"})
		w.wants("in the middle", w.ask(1, once, vip, user), outcome{true, limit.OK, 1, 0, "one"})
		w.wants("denied behind it", w.ask(1, vip, user, vip, once), outcome{false, limit.OverLimit, 1, 0, "one"})
		if n := w.left(user); n != 1 {
			w.Errorf("%d left, want 1: the denial is free", n)
		}
	})
}

// TestDenialIsFree: a denial by any descriptor, in any place, charges none of the others (G5).
func TestDenialIsFree(t *testing.T) {
	deniers := []struct {
		d    rules.Descriptor
		want outcome
	}{
		{d("once", "42"), outcome{false, limit.OverLimit, 1, 0, "one"}},
		{d("once", "fresh"), outcome{false, limit.Never, 1, 1, "one"}}, // a cost of 2
		{d("banned", "42"), outcome{false, limit.Never, 0, 0, "zero"}},
	}
	user, pair := d("user", "42"), d("a", "x", "b", "y")
	onBoth(t, agent.Config{}, func(w *world) {
		w.ask(1, d("once", "42"))
		for _, by := range deniers {
			cost := limit.Tokens(1)
			if by.want.remaining > 0 {
				cost = 2
			}
			for _, ds := range [][]rules.Descriptor{{by.d, user, pair}, {user, by.d, pair}, {user, pair, by.d}, {user, by.d, user}} {
				for range 12 { // more often than there are tokens
					w.wants(name("%v", ds), w.ask(cost, ds...), by.want)
				}
				if got := [2]limit.Tokens{w.left(user), w.left(pair)}; got != [2]limit.Tokens{10, 10} {
					w.Fatalf("%v: a denial was charged: %v left", ds, got)
				}
			}
		}
	})
}

// TestSameBucketTwice: descriptors of one bucket are each charged, or none is.
func TestSameBucketTwice(t *testing.T) {
	onBoth(t, agent.Config{}, func(w *world) {
		user := d("user", "42")
		w.wants("both fit", w.ask(4, user, user), outcome{true, limit.OK, 10, 2, "ten"})
		w.wants("one fits", w.ask(2, user, user), outcome{false, limit.OverLimit, 10, 0, "ten"})
		if n := w.left(user); n != 2 {
			w.Errorf("%d left, want 2", n)
		}
		w.wants("after the refund", w.ask(1, user, user), outcome{true, limit.OK, 10, 0, "ten"})
	})
}

// TestWhoSpeaks: of the denials the one with the longest wait, so that waiting it out is enough (G4); of the admissions the
// one with the fewest tokens left. The order of the descriptors does not matter.
func TestWhoSpeaks(t *testing.T) {
	user, quick, once := d("user", "42"), d("quick", "42"), d("once", "42")
	overQuick, overOnce := outcome{false, limit.OverLimit, 1, 0, "second"}, outcome{false, limit.OverLimit, 1, 0, "one"}
	never := outcome{false, limit.Never, 0, 0, "zero"}
	onBoth(t, agent.Config{}, func(w *world) {
		w.ask(1, quick)
		w.ask(1, once)
		w.ask(4, user)
		for _, tt := range []struct {
			ds   []rules.Descriptor
			want outcome
			wait time.Duration
		}{
			{[]rules.Descriptor{quick, once}, overOnce, time.Hour},
			{[]rules.Descriptor{user, quick}, overQuick, time.Second},
			{[]rules.Descriptor{quick, once, d("banned", "x")}, never, limit.NoRetry},
			{[]rules.Descriptor{quick, d("vip", "x"), d("nobody", "x")}, overQuick, time.Second},
		} {
			for range len(tt.ds) {
				got := w.ask(1, tt.ds...)
				w.wants(name("%v", tt.ds), got, tt.want)
				if got.RetryAfter != tt.wait {
					w.Errorf("%v: retry after %v, want %v", tt.ds, got.RetryAfter, tt.wait)
				}
				tt.ds = append(tt.ds[1:], tt.ds[0])
			}
		}
		told := w.ask(1, quick, once, user)
		w.pass(told.RetryAfter)
		w.wants("after the wait", w.ask(1, quick, once, user), outcome{true, limit.OK, 1, 0, "second"})

		w.wants("fewest left", w.ask(1, d("user", "a"), d("user", "b"), d("vip", "x"), d("once", "b")), outcome{true, limit.OK, 1, 0, "one"})
		w.ask(3, d("user", "b"))
		w.wants("fewest left", w.ask(1, d("user", "a"), d("user", "b")), outcome{true, limit.OK, 10, 5, "ten"})
		w.wants("fewest left", w.ask(0, d("user", "b"), d("user", "a")), outcome{true, limit.OK, 10, 5, "ten"})
		w.wants("nobody counts", w.ask(1, d("vip", "x"), d("nobody", "x")), outcome{true, limit.Unlimited, 0, 0, "free"})
	})
}

// TestRefundBeforeAnswer: who is denied finds the other buckets as they were, whichever agent he asks next.
func TestRefundBeforeAnswer(t *testing.T) {
	onFake(t, agent.Config{}, func(w *world) {
		w.ask(10, d("user", "empty"))
		w.fake.befalls(all(-1, fate{delay: 5 * time.Millisecond}))
		start := time.Now()
		w.wants("check", w.ask(4, d("user", "42"), d("user", "empty")), outcome{false, limit.OverLimit, 10, 0, "ten"})
		if took := time.Since(start); took != 10*time.Millisecond {
			w.Errorf("answered after %v, want the takes' 5 ms and the refund's 5 ms", took)
		}
	})
}

// TestDenialByPolicyIsFree: so is a denial by the fail policy of one descriptor, however its store failed.
func TestDenialByPolicyIsFree(t *testing.T) {
	for what, ft := range failures {
		t.Run(what, func(t *testing.T) {
			onFake(t, agent.Config{}, func(w *world) {
				w.fake.befalls(all(slow, ft))
				start := time.Now()
				got := w.ask(4, d("user", "42"), d("closed", "42"))
				w.wants("check", got, outcome{false, limit.StoreClosed, 10, 0, "slow-closed"})
				if took := time.Since(start); took > 25*time.Millisecond {
					w.Errorf("answered after %v: the refund must not cost the caller another deadline", took)
				}
				if n := w.left(d("user", "42")); n != 10 {
					w.Errorf("the other bucket has %d left, want 10", n)
				}
			})
		})
	}
}

// TestDenialAfterLateGrant: a descriptor that failed open takes nothing if another one denies, when its grant comes late.
func TestDenialAfterLateGrant(t *testing.T) {
	onFake(t, agent.Config{}, func(w *world) {
		w.ask(10, d("user", "empty"))
		w.fake.befalls(all(slow, fate{delay: 45 * time.Millisecond}))
		w.wants("check", w.ask(4, d("open", "42"), d("user", "empty")), outcome{false, limit.OverLimit, 10, 0, "ten"})
		if n := w.left(d("open", "42")); n != 10 {
			w.Errorf("%d left, want 10", n)
		}
	})
}

// TestDenialInCancelledContext: nor does it matter that the caller has gone.
func TestDenialInCancelledContext(t *testing.T) {
	onFake(t, agent.Config{}, func(w *world) {
		w.fake.befalls(all(slow, fate{delay: time.Hour}))
		ctx, cancel := context.WithCancel(w.Context())
		done := make(chan limit.Decision)
		go func() { done <- w.askWith(ctx, 4, d("user", "42"), d("closed", "42")) }()
		synctest.Wait()
		cancel()
		w.wants("check", <-done, outcome{false, limit.StoreClosed, 10, 0, "slow-closed"})
		if n := w.left(d("user", "42")); n != 10 {
			w.Errorf("%d left, want 10", n)
		}
	})
}

// TestRefundBehindBusyShard: a refund that has to wait longer than the check had is not given up.
func TestRefundBehindBusyShard(t *testing.T) {
	onFake(t, agent.Config{}, func(w *world) {
		w.fake.befalls(func(shard int, e *batcher.Entry) fate {
			if shard == slow {
				return fate{delay: 45 * time.Millisecond}
			}
			return fate{delay: 20 * time.Millisecond}
		})
		var busy []chan limit.Decision
		ask := func(ds ...rules.Descriptor) {
			c := make(chan limit.Decision, 1)
			busy = append(busy, c)
			go func() { c <- w.ask(1, ds...) }()
			synctest.Wait()
		}
		ask(d("user", "42"), d("closed", "42")) // denied at 25 ms; its refund goes out when the second call is back, at 40 ms
		ask(d("user", "other"))
		w.wants("check", <-busy[0], outcome{false, limit.StoreClosed, 10, 0, "slow-closed"})
		if n := w.fake.ops[limit.Refund].Load(); n != 0 {
			w.Fatalf("the refund did not have to wait")
		}
		if n := w.left(d("user", "42")); n != 10 {
			w.Errorf("%d left, want 10", n)
		}
		<-busy[1]
	})
}

// TestLostRefund: a refund whose reply is lost is not sent again, whether it ran or not: twice would mint tokens.
func TestLostRefund(t *testing.T) {
	for ran, want := range map[bool]limit.Tokens{true: 10, false: 6} {
		t.Run(fmt.Sprint("ran=", ran), func(t *testing.T) {
			onFake(t, agent.Config{}, func(w *world) {
				w.ask(10, d("user", "empty"))
				w.fake.befalls(func(_ int, e *batcher.Entry) fate {
					if e.Op == limit.Refund {
						return fate{err: errLost, runs: ran}
					}
					return fate{}
				})
				w.wants("check", w.ask(4, d("user", "42"), d("user", "empty")), outcome{false, limit.OverLimit, 10, 0, "ten"})
				synctest.Wait()
				if n := w.left(d("user", "42")); n != want {
					w.Errorf("%d left, want %d", n, want)
				}
				if n := w.fake.ops[limit.Refund].Load(); n != 1 {
					w.Errorf("the refund was sent %d times", n)
				}
				if n := w.Stats().Batcher.Unknown; n != 1 {
					w.Errorf("%d unknown outcomes metered, want 1", n)
				}
			})
		})
	}
}

// TestLostReplyIsSpent: a take whose reply was lost is not given back, since it may never have run.
func TestLostReplyIsSpent(t *testing.T) {
	onFake(t, agent.Config{}, func(w *world) {
		w.ask(10, d("user", "empty"))
		w.fake.befalls(all(slow, fate{err: errLost}))
		w.wants("check", w.ask(4, d("open", "42"), d("user", "empty")), outcome{false, limit.OverLimit, 10, 0, "ten"})
		w.left(d("open", "42"))
		if n := w.fake.ops[limit.Refund].Load(); n != 0 {
			w.Errorf("%d refunds of tokens that may not have been taken", n)
		}
	})
}
