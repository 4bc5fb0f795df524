package agent_test

import (
	"testing"
	"time"

	"github.com/spillgate/spillgate/agent"
	"github.com/spillgate/spillgate/hotkeys"
	"github.com/spillgate/spillgate/limit"
)

// again are hotRules once more, as a push of the same rules makes them; and one that is another.
func again(other string) []string {
	return []string{
		`name: exact, match: [{key: exact}], limit: 10/h, mode: exact`,
		`name: fast, match: [{key: fast}], limit: 1000/s, on_store_error: closed`,
		`name: ten, match: [{key: user}], limit: 10/h`,
		`name: once, match: [{key: once}], limit: 1/h`,
		`name: slow, match: [{key: soft}], limit: 100/h, mode: optimistic, allowance: 5, on_store_error: closed`,
		`name: second, match: [{key: quick}], limit: ` + other,
	}
}

// TestSwapLeavesLeases: a new set changes nothing for a hot bucket whose rule did not change. What is on lease goes on being spent, and the store hears nothing of it.
func TestSwapLeavesLeases(t *testing.T) {
	onFake(t, agent.Config{Rules: hotRules}, func(w *world) {
		h := w.handle("fast")
		w.warm(d("fast", "42"))
		for range 200 { // until enough is on lease
			w.ask(1, d("fast", "42"))
			w.pass(time.Millisecond)
		}
		before, asked := w.Stats().Leases, w.fake.asked()
		if before.Held < 10 {
			w.Fatalf("%d tokens are on lease, want some", before.Held)
		}
		for i, other := range []string{"20/s", "30/s", "40/s"} {
			w.SetRules(parse(again(other)...))
			for _, got := range []limit.Decision{w.ask(1, d("fast", "42")), h.Check(w.Context(), 1, "42")} {
				if !got.Admitted || got.Reason != limit.OK || got.Rule != "fast" {
					w.Errorf("swap %d: %+v", i, got)
				}
			}
		}
		after := w.Stats().Leases
		if after.Held != before.Held-6 || after.Spent != before.Spent+6 || after.Granted != before.Granted || after.Promoted != before.Promoted ||
			after.Demoted != before.Demoted || w.fake.asked() != asked {
			w.Errorf("6 checks took %d entries, from %+v to %+v", w.fake.asked()-asked, before, after)
		}
	})
}

// TestSwapLeavesDenials: nor for one that is known to be empty, hot or cold.
func TestSwapLeavesDenials(t *testing.T) {
	for name, of := range map[string]struct {
		cfg hotkeys.Config
		key string
	}{"cold": {never, "user"}, "hot": {hotkeys.Config{}, "user"}, "cold, too small to be leased": {hotkeys.Config{}, "once"}} {
		t.Run(name, func(t *testing.T) {
			onFake(t, agent.Config{Rules: hotRules, Hotkeys: of.cfg}, func(w *world) {
				for range 100 {
					w.ask(1, d(of.key, "42"))
				}
				for i, other := range []string{"20/s", "30/s", "40/s"} {
					w.ask(1, d(of.key, "42")) // a pause that has begun, and is remembered
					w.pass(time.Millisecond)
					asked := w.fake.asked()
					w.SetRules(parse(again(other)...))
					if got := w.ask(1, d(of.key, "42")); got.Admitted || got.Reason != limit.OverLimit {
						w.Errorf("swap %d: %+v", i, got)
					}
					if n := w.fake.asked() - asked; n != 0 {
						w.Errorf("swap %d: a denial that was known took %d entries", i, n)
					}
				}
			})
		})
	}
}

// TestSwapLeavesAccounts: nor for what an optimistic rule knows of a bucket: what remains goes on from there.
func TestSwapLeavesAccounts(t *testing.T) {
	onFake(t, agent.Config{Rules: hotRules, Hotkeys: never}, func(w *world) {
		for i := range 20 {
			if got, want := w.ask(1, d("soft", "42")), limit.Tokens(99-i); !got.Admitted || got.Remaining != want {
				w.Errorf("check %d: %+v, want %d left", i, got, want)
			}
			w.pass(time.Second) // the charge is heard of
			w.SetRules(parse(again("20/s")...))
		}
	})
}
