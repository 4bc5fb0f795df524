package agent_test

import (
	"testing"
	"time"

	"github.com/spillgate/spillgate/agent"
	"github.com/spillgate/spillgate/limit"
	"github.com/spillgate/spillgate/rules"
)

// These tests hold what rules without a bucket answer, and what becomes of buckets whose rules change, on every path.

// onEachPath asks for one token of a rule with one entry, on each path: the answers must be the same.
func (w *world) onEachPath(rule, key, value string, want outcome) {
	w.Helper()
	w.wants("Check", w.ask(1, d(key, value)), want)
	w.wants("Handle", w.handle(rule).Check(w.Context(), 1, value), want)
	w.wants("beside no rule", w.ask(1, d(key, value), d("nobody", "knows")), want)
	w.wants("a look", w.ask(0, d(key, value)), want)
	b := w.NewBatch()
	b.Begin()
	check, peek, reset := b.Check("api", ds(key, value), 1), b.Check("api", ds(key, value), 0), b.Reset("api", ds(key, value))
	b.Decide(w.Context())
	for _, i := range []int{check, peek, reset} {
		got, err := b.Decision(i)
		if err != nil {
			w.Fatal(err)
		}
		w.wants(name("batch %d", i), got, want)
	}
}

// TestZeroAndUnlimited on each path, for a bucket that nobody knows, one that is hot, and one that is hot again: the store is not asked.
func TestZeroAndUnlimited(t *testing.T) {
	limited := parse(`name: r, match: [{key: k}], limit: 1000/s`)
	for rule, want := range map[string]outcome{
		`name: r, match: [{key: k}], unlimited: true`: {true, limit.Unlimited, 0, 0, "r"},
		`name: r, match: [{key: k}], limit: 0/s`:      {false, limit.Never, 0, 0, "r"},
	} {
		onBoth(t, agent.Config{Rules: limited}, func(w *world) {
			other := parse(rule)
			for range 2 {
				w.SetRules(limited)
				w.warm(d("k", "hot"))
				for range 50 {
					if got := w.ask(1, d("k", "hot")); !got.Admitted || got.Limit != 1000 {
						w.Fatalf("limited: %+v", got)
					}
					w.pass(time.Millisecond)
				}
				w.SetRules(other)
				asked := w.asked()
				for _, value := range []string{"hot", "cold"} {
					w.onEachPath("r", "k", value, want)
				}
				if n := w.asked() - asked; n != 0 {
					w.Errorf("%s: the store was asked %d times", rule, n)
				}
				w.pass(5 * time.Second) // what was on lease goes back
				if n := w.Stats().Leases.Held; n != 0 {
					w.Errorf("%s: %d tokens are held", rule, n)
				}
			}
		})
	}
}

// asked is how many entries the store has seen; 0 on a direct store.
func (w *world) asked() int64 {
	if w.fake == nil {
		return 0
	}
	return w.fake.asked()
}

// TestZeroAndUnlimitedWhileDivided: so it is for a bucket that is divided.
func TestZeroAndUnlimitedWhileDivided(t *testing.T) {
	inFleet(t, fleetConfig{2, 4, 4, agent.Config{Rules: dividedRules, SplitOps: 500}}, func(f *fleet) {
		f.store.befalls(distant)
		f.load(4, 10*time.Millisecond, time.Second, 1, d("big", "x"))
		if len(f.all[0].Splits()) != 1 {
			f.Fatal("nothing is divided")
		}
		for _, tt := range []struct {
			rule string
			want outcome
		}{
			{`name: big, match: [{key: big}], limit: 0/s`, outcome{false, limit.Never, 0, 0, "big"}},
			{`name: big, match: [{key: big}], unlimited: true`, outcome{true, limit.Unlimited, 0, 0, "big"}},
		} {
			f.setRules(parse(tt.rule))
			for i := range f.all {
				if got := short(f.ask(i, 1, d("big", "x"))); got != tt.want {
					f.Errorf("%s: %+v", tt.rule, got)
				}
			}
		}
		f.pass(12 * time.Second) // the division ends, since nobody reports load
		for i, a := range f.all {
			if n := len(a.Splits()); n != 0 {
				f.Errorf("agent %d: %d buckets are divided", i, n)
			}
		}
	})
}

// TestLoweredAndRaised: a limit that is lowered below what is used denies until the bucket has come down to it, and raised again it grants what
// was left; on a bucket that is hot, too.
func TestLoweredAndRaised(t *testing.T) {
	const high, low = `name: r, match: [{key: k}], limit: 100/h`, `name: r, match: [{key: k}], limit: {requests: 100, per: 1h, burst: 30}`
	for _, hot := range []bool{false, true} {
		onBoth(t, agent.Config{Rules: parse(high)}, func(w *world) {
			if hot {
				w.warm(d("k", "x"))
			}
			for range 60 {
				if got := w.ask(1, d("k", "x")); !got.Admitted {
					w.Fatalf("%+v", got)
				}
			}
			w.pass(3 * time.Second) // leases end
			w.SetRules(parse(low))
			for range 3 {
				got := w.ask(1, d("k", "x"))
				w.wants("lowered", got, outcome{false, limit.OverLimit, 30, 0, "r"})
				if wait := 31 * 36 * time.Second; got.RetryAfter < wait-10*time.Second || got.RetryAfter > wait {
					w.Errorf("retry after %v, want some %v: 60 tokens' time is consumed, and 29 are too many", got.RetryAfter, wait)
				}
				w.pass(time.Second)
			}
			w.SetRules(parse(high))
			w.pass(5 * time.Second)
			if n := w.left(d("k", "x")); n != 40 {
				w.Errorf("raised again: %d left, want 40", n)
			}
		})
	}
}

// TestRuleGoneInUse: a rule that is deleted while its bucket is hot and its checks wait ends there: no rule, nothing is held, and its bucket is as it was when
// the rule comes back.
func TestRuleGoneInUse(t *testing.T) {
	set := parse(`name: r, match: [{key: k}], limit: 1000/h`, `name: exact, match: [{key: e}], limit: 10/h, mode: exact`)
	onFake(t, agent.Config{Rules: set}, func(w *world) {
		w.fake.befalls(all(-1, fate{delay: 10 * time.Millisecond}))
		w.warm(d("k", "x"))
		h := w.handle("r")
		for range 100 {
			h.Check(w.Context(), 1, "x")
		}
		done := make(chan limit.Decision)
		go func() { done <- w.ask(1, d("e", "x")) }()
		w.pass(time.Millisecond)
		w.SetRules(&rules.Set{})
		w.wants("what was asked before", <-done, outcome{true, limit.OK, 10, 9, "exact"})
		w.wants("afterwards", w.ask(1, d("k", "x")), outcome{true, limit.NoRule, 0, 0, ""})
		w.wants("by handle", h.Check(w.Context(), 1, "x"), outcome{true, limit.NoRule, 0, 0, ""})
		for range 100 {
			w.pass(100 * time.Millisecond)
		}
		w.holds(0)
		if n := len(w.Active()); n != 0 {
			w.Errorf("the buckets of %d rules that are gone are counted", n)
		}
		w.SetRules(set)
		// 100 were spent, and in 11 seconds 3 have come back.
		if n := w.left(d("k", "x")); n < 900 || n > 904 {
			w.Errorf("%d left, want 900 and what has refilled", n)
		}
	})
}

// TestOddNames: names and values with braces, blanks and emoji have buckets of their own, and come back as they are.
func TestOddNames(t *testing.T) {
	odd := []string{"{t}", "}{", "{}", "{}a", "{{x}}", "a b", "😀", "😀{t}", "日本", "a\u2028b", "%2C", "a,b=c", "'\"\\"}
	var lines []string
	for i, o := range odd {
		lines = append(lines, name(`name: %q, match: [{key: %q, value: %q}, {key: user}], limit: 2/h`, o, o, odd[len(odd)-1-i]))
	}
	set := parse(lines...)
	again, err := rules.Parse("", []byte(set.Native()))
	if err != nil {
		t.Fatal(err)
	}
	onBoth(t, agent.Config{Rules: again}, func(w *world) {
		for i, o := range odd {
			for j, user := range odd[:5] {
				got := w.ask(1, d(o, odd[len(odd)-1-i], "user", user))
				w.wants(name("%q of %q, bucket %d", user, o, j), got, outcome{true, limit.OK, 2, 1, o})
			}
		}
	})
}
