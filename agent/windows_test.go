package agent_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillgate/spillgate/agent"
	"github.com/spillgate/spillgate/batcher"
	"github.com/spillgate/spillgate/limit"
	"github.com/spillgate/spillgate/rules"
)

// windowed are the rules of these tests. Virtual time begins with a whole minute.
var windowed = parse(
	`name: fixed, match: [{key: fixed}], limit: 10/m, algorithm: fixed_window`,
	`name: sliding, match: [{key: sliding}], limit: 10/m, algorithm: sliding_window`,
	`name: log, match: [{key: log}], limit: 10/m, algorithm: sliding_log`,
	`name: one, match: [{key: once}], limit: 1/h`,
	`name: busy-fixed, match: [{key: busy, value: fixed}], limit: 40/s, algorithm: fixed_window`,
	`name: busy-sliding, match: [{key: busy, value: sliding}], limit: 40/s, algorithm: sliding_window`,
	`name: busy-log, match: [{key: busy, value: log}], limit: 40/s, algorithm: sliding_log`,
)

var windowNames = []string{"fixed", "sliding", "log"}

// TestWindowLastToken: of 10 in a minute the 11th is denied, and admitted when it was told.
func TestWindowLastToken(t *testing.T) {
	for _, rule := range windowNames {
		for path, ask := range map[string]func(w *world) limit.Decision{
			"Check":  func(w *world) limit.Decision { return w.ask(1, d(rule, "42")) },
			"Handle": func(w *world) limit.Decision { return w.handle(rule).Check(w.Context(), 1, "42") },
			"Throttle": func(w *world) limit.Decision {
				got := w.throttle("42", w.Rules().Rule("api", rule).Terms, 1)
				got.Rule = rule
				return got
			},
		} {
			t.Run(rule+"/"+path, func(t *testing.T) {
				onBoth(t, agent.Config{Rules: windowed}, func(w *world) {
					w.pass(10 * time.Second)
					for i := range limit.Tokens(10) {
						w.wants(name("take %d", i+1), ask(w), outcome{true, limit.OK, 10, 9 - i, rule})
						w.pass(10 * time.Millisecond)
					}
					got := ask(w)
					w.wants("one more", got, outcome{false, limit.OverLimit, 10, 0, rule})
					w.pass(got.RetryAfter - time.Microsecond)
					w.wants("just before it may come back", ask(w), outcome{false, limit.OverLimit, 10, 0, rule})
					w.pass(time.Microsecond)
					if got = ask(w); !got.Admitted {
						w.Errorf("when it was told: %+v", got)
					}
				})
			})
		}
	}
}

// TestWindowBatch: checks of one batch see each other as if they had come one by one.
func TestWindowBatch(t *testing.T) {
	onBoth(t, agent.Config{Rules: windowed}, func(w *world) {
		w.pass(10 * time.Second)
		for _, rule := range windowNames {
			for i, got := range oneBatch(w, func(b *agent.Batch) int { return b.Check("api", ds(rule, "42"), 1) }) {
				if i < 10 {
					w.wants(name("take %d", i+1), got, outcome{true, limit.OK, 10, limit.Tokens(9 - i), rule})
					continue
				}
				w.wants("one more", got, outcome{false, limit.OverLimit, 10, 0, rule})
				w.pass(got.RetryAfter)
				if got = w.ask(1, d(rule, "42")); !got.Admitted {
					w.Errorf("%s: when it was told: %+v", rule, got)
				}
			}
		}
	})
}

// TestWindowCosts are faults 9, 10 and 13 on buckets that count in windows.
func TestWindowCosts(t *testing.T) {
	onBoth(t, agent.Config{Rules: windowed}, func(w *world) {
		for _, rule := range windowNames {
			w.wants("a peek", w.ask(0, d(rule, "x")), outcome{true, limit.OK, 10, 10, rule})
			got := w.ask(11, d(rule, "x"))
			w.wants("above the limit", got, outcome{false, limit.Never, 10, 10, rule})
			if got.RetryAfter != limit.NoRetry {
				w.Errorf("%s: may come back after %v", rule, got.RetryAfter)
			}
			w.wants("the limit", w.ask(10, d(rule, "x")), outcome{true, limit.OK, 10, 0, rule})
			b := w.NewBatch()
			b.Begin()
			i := b.Reset("api", ds(rule, "x"))
			b.Decide(w.Context())
			if _, err := b.Decision(i); err != nil {
				w.Errorf("reset: %v", err)
			}
			w.wants("after a reset", w.ask(0, d(rule, "x")), outcome{true, limit.OK, 10, 10, rule})
		}
	})
}

// TestWindowDenialIsFree: what a check took from windows before another descriptor denied it comes back to them (G5); once
// their window is over it does not come back to the next.
func TestWindowDenialIsFree(t *testing.T) {
	onBoth(t, agent.Config{Rules: windowed}, func(w *world) {
		w.ask(1, d("once", "42"))
		for _, rule := range windowNames {
			for range 12 {
				w.wants(rule, w.ask(2, d(rule, "42"), d("once", "fresh")), outcome{false, limit.Never, 1, 1, "one"})
				w.wants(rule, w.ask(1, d("once", "42"), d(rule, "42")), outcome{false, limit.OverLimit, 1, 0, "one"})
			}
			if n := w.left(d(rule, "42")); n != 10 {
				w.Errorf("%s: %d left, want 10", rule, n)
			}
		}
	})
	onFake(t, agent.Config{Rules: windowed}, func(w *world) {
		w.ask(1, d("once", "42"))
		for _, rule := range windowNames {
			w.pass(time.Minute - time.Duration(time.Now().UnixNano())%time.Minute - time.Second)
			w.fake.befalls(func(_ int, e *batcher.Entry) fate {
				if e.Op == limit.Refund {
					return fate{delay: 50 * time.Millisecond, err: batcher.ErrNotRun}
				}
				return fate{}
			})
			w.wants(rule, w.ask(4, d(rule, "late"), d("once", "42")), outcome{false, limit.Never, 1, 0, "one"})
			w.pass(2 * time.Second) // the refund is lost; the minute is over
			w.fake.befalls(all(-1, fate{}))
			w.wants(rule, w.ask(3, d(rule, "late"), d("once", "42")), outcome{false, limit.Never, 1, 0, "one"})
			want := map[string]limit.Tokens{"fixed": 10, "sliding": 6, "log": 6}[rule]
			if n := w.left(d(rule, "late")); n != want {
				w.Errorf("%s: %d left in the next minute, want %d", rule, n, want)
			}
		}
	})
}

// TestWindowAfterPartition is fault 5: what was asked while the store was away is not charged to the window in which it comes back.
func TestWindowAfterPartition(t *testing.T) {
	onFake(t, agent.Config{Rules: windowed}, func(w *world) {
		for _, rule := range windowNames {
			w.pass(time.Minute - time.Duration(time.Now().UnixNano())%time.Minute + time.Second)
			w.ask(1, d(rule, "42"))
			w.fake.befalls(all(-1, fate{delay: 40 * time.Millisecond, err: batcher.ErrNotRun}))
			for range 60 {
				if got := w.ask(1, d(rule, "42")); got.Reason != limit.StoreOpen {
					w.Fatalf("%s: %+v", rule, got)
				}
				w.pass(time.Second)
			}
			w.fake.befalls(all(-1, fate{}))
			w.pass(time.Minute)
			w.wants(rule, w.ask(1, d(rule, "42")), outcome{true, limit.OK, 10, 9, rule})
			if n := w.Stats().Batcher.Waiting; n != 0 {
				w.Errorf("%s: %d claims wait", rule, n)
			}
		}
	})
}

// TestWindowsOfAFleet: agents share a store, their buckets are hot and leased, and no window has more than its limit (G1). Logs are not
// leased.
func TestWindowsOfAFleet(t *testing.T) {
	const limitPerSecond = 40
	synctest.Test(t, func(t *testing.T) {
		f := &fake{cells: newCells(t)}
		var fleet []*agent.Agent
		for range 3 {
			fleet = append(fleet, newAgent(t, agent.Config{Store: f, Rules: windowed}))
		}
		r := rand.New(rand.NewPCG(6, 1))
		admitted := map[string][]time.Time{}
		for range 2000 {
			time.Sleep(time.Duration(r.IntN(6_000)) * time.Microsecond)
			a := fleet[r.IntN(len(fleet))]
			for _, rule := range windowNames {
				n := 1 + r.IntN(3)
				got, err := a.Check(t.Context(), agent.Request{Domain: "api", Descriptors: []rules.Descriptor{d("busy", rule)}, Hits: limit.Tokens(n)})
				if err != nil {
					t.Fatal(err)
				}
				for range n {
					if got.Admitted {
						admitted[rule] = append(admitted[rule], time.Now())
					}
				}
			}
		}
		for rule, all := range admitted {
			windows := map[int64]int{}
			for _, at := range all {
				windows[at.Unix()]++
			}
			most, full := 0, 0
			for _, n := range windows {
				if most = max(most, n); n == limitPerSecond {
					full++
				}
			}
			if most > limitPerSecond || rule == "log" && full == 0 || len(all) < 3*limitPerSecond {
				t.Errorf("%s: %d admitted, %d in a second, %d seconds of %d had all", rule, len(all), most, full, len(windows))
			}
			for i, at := range all {
				if j := i + limitPerSecond; rule == "log" && j < len(all) && all[j].Sub(at) < time.Second {
					t.Errorf("log: %d admitted within %v", limitPerSecond+1, all[j].Sub(at))
				}
			}
		}
		for i, a := range fleet {
			if s := a.Stats(); s.Leases.Holdings != 2 || s.Leases.Admitted == 0 || s.Leases.Denied == 0 {
				t.Errorf("agent %d: %+v", i, s.Leases)
			}
			if err := a.Close(context.Background()); err != nil {
				t.Error(err)
			}
		}
	})
}

// TestWindowRuleChanges: a rule that changes its algorithm starts with full buckets, and back again finds what it left.
func TestWindowRuleChanges(t *testing.T) {
	all := map[string]*rules.Set{}
	for _, a := range []string{"token_bucket", "fixed_window", "sliding_window", "sliding_log"} {
		all[a] = parse(fmt.Sprintf(`name: r, match: [{key: user}], limit: 10/h, algorithm: %s`, a))
	}
	onBoth(t, agent.Config{Rules: all["token_bucket"]}, func(w *world) {
		for _, left := range []limit.Tokens{6, 2} {
			for _, a := range []string{"token_bucket", "fixed_window", "sliding_window", "sliding_log"} {
				w.SetRules(all[a])
				w.wants(a, w.ask(4, d("user", "x")), outcome{true, limit.OK, 10, left, "r"})
			}
		}
	})
}
