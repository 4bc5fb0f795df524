package agent_test

import (
	"errors"
	"math"
	"testing"
	"time"

	"github.com/spillgate/spillgate/agent"
	"github.com/spillgate/spillgate/internal/window"
	"github.com/spillgate/spillgate/limit"
	"github.com/spillgate/spillgate/rules"
)

// perHour is an override of a limit.
func perHour(n limit.Tokens) agent.Override {
	return agent.Override{Rate: limit.Rate{Requests: n, Period: time.Hour}}
}

// hits is an override of the cost.
func hits(n limit.Tokens) agent.Override { return agent.Override{HasHits: true, Hits: n} }

// askOver checks a request of descriptors with overrides.
func (w *world) askOver(n limit.Tokens, ds []rules.Descriptor, overrides ...agent.Override) limit.Decision {
	w.Helper()
	got, err := w.Check(w.Context(), agent.Request{Domain: "api", Descriptors: ds, Hits: n, Overrides: overrides})
	if err != nil {
		w.Fatalf("Check: %v", err)
	}
	return got
}

// TestOverrideLimit: a request's own limit counts in the rule's bucket: what was consumed, in time, is consumed for both.
func TestOverrideLimit(t *testing.T) {
	user := ds("user", "42")
	onBoth(t, agent.Config{}, func(w *world) {
		w.wants("the rule", w.ask(3, user[0]), outcome{true, limit.OK, 10, 7, "ten"}) // 18 minutes are consumed
		for _, step := range []struct {
			what string
			o    agent.Override
			n    limit.Tokens
			want outcome
		}{
			{"none", agent.Override{}, 1, outcome{true, limit.OK, 10, 6, "ten"}},           // 24 minutes
			{"larger", perHour(20), 1, outcome{true, limit.OK, 20, 11, "ten"}},             // 27
			{"smaller", perHour(4), 1, outcome{true, limit.OK, 4, 1, "ten"}},               // 42
			{"smaller still", perHour(1), 1, outcome{false, limit.OverLimit, 1, 0, "ten"}}, // 60 would be too much
			{"zero", perHour(0), 1, outcome{false, limit.Never, 0, 0, "ten"}},
			{"above the burst", perHour(4), 5, outcome{false, limit.Never, 4, 1, "ten"}},
			{"with a burst", agent.Override{Rate: limit.Rate{Requests: 20, Period: time.Hour, Burst: 15}}, 1, outcome{true, limit.OK, 15, 0, "ten"}}, // 45
			{"a look", perHour(20), 0, outcome{true, limit.OK, 20, 5, "ten"}},
			{"the rule again", agent.Override{}, 1, outcome{true, limit.OK, 10, 1, "ten"}},
			{"the rule's own limit", perHour(10), 1, outcome{true, limit.OK, 10, 0, "ten"}},
			{"is used up", agent.Override{}, 1, outcome{false, limit.OverLimit, 10, 0, "ten"}},
		} {
			w.wants(step.what, w.askOver(step.n, user, step.o), step.want)
			w.pass(0)
		}
	})
}

// TestOverrideEveryRule: of unlimited rules, of those with limit 0, of none, of shadow rules and of such as are replaced.
func TestOverrideEveryRule(t *testing.T) {
	set := parse(
		`name: free, match: [{key: vip}], unlimited: true`,
		`name: zero, match: [{key: banned}], limit: 0/h`,
		`name: quiet, match: [{key: quiet}], limit: 10/h, shadow: true`,
		`name: exact, match: [{key: exact}], limit: 10/h, mode: exact`,
		`name: soft, match: [{key: soft}], limit: 10/h, mode: optimistic, allowance: 5`,
		`name: wide, match: [{key: wide}], limit: 10/h`,
		`name: vip, match: [{key: deep}, {key: user}], limit: 10/h, replaces: [wide]`,
	)
	onBoth(t, agent.Config{Rules: set}, func(w *world) {
		for key, rule := range map[string]string{"vip": "free", "banned": "zero", "quiet": "quiet", "exact": "exact", "soft": "soft", "nobody": ""} {
			one := ds(key, "42")
			w.wants(key, w.askOver(1, one, perHour(2)), outcome{true, limit.OK, 2, 1, rule})
			w.pass(time.Millisecond)
			w.wants(key, w.askOver(1, one, perHour(2)), outcome{true, limit.OK, 2, 0, rule})
			w.pass(time.Millisecond)
			w.wants(key+", over it", w.askOver(1, one, perHour(2)), outcome{false, limit.OverLimit, 2, 0, rule})
			w.wants(key+", another value", w.askOver(2, ds(key, "43"), perHour(2)), outcome{true, limit.OK, 2, 0, rule})
		}
		w.wants("no rule, other entries", w.askOver(2, ds("nobody", "4", "2", ""), perHour(2)), outcome{true, limit.OK, 2, 0, ""})
		w.wants("no rule, entries that look alike", w.askOver(2, ds("nobody", "42", "", ""), perHour(2)), outcome{true, limit.OK, 2, 0, ""})
		w.wants("no rule and no limit", w.askOver(1, ds("nobody", "42"), agent.Override{}), outcome{true, limit.NoRule, 0, 0, ""})
		w.wants("no rule and limit 0", w.askOver(1, ds("nobody", "42"), perHour(0)), outcome{false, limit.Never, 0, 0, ""})

		both := []rules.Descriptor{d("wide", "x"), d("deep", "x", "user", "x")}
		w.wants("a limit of one's own is not replaced", w.askOver(3, both, perHour(4), agent.Override{}), outcome{true, limit.OK, 4, 1, "wide"})
		w.wants("nor does it replace", w.askOver(1, both, agent.Override{}, perHour(40)), outcome{true, limit.OK, 10, 1, "wide"})
	})
}

// TestOverrideHits: each descriptor has its own cost; 0 peeks, and a peek denies nothing.
func TestOverrideHits(t *testing.T) {
	two := []rules.Descriptor{d("user", "42"), d("a", "x", "b", "y")}
	onBoth(t, agent.Config{}, func(w *world) {
		w.wants("3 and 1", w.askOver(1, two, hits(3), agent.Override{}), outcome{true, limit.OK, 10, 7, "ten"})
		w.wants("0 and 9", w.askOver(5, two, hits(0), hits(9)), outcome{true, limit.OK, 10, 0, "pair"})
		w.wants("7 and 0", w.askOver(1, two, hits(7), hits(0)), outcome{true, limit.OK, 10, 0, "ten"})
		w.wants("looks", w.askOver(1, two, hits(0), hits(0)), outcome{true, limit.OK, 10, 0, "ten"})
		w.wants("one denies", w.askOver(0, two, hits(1), hits(0)), outcome{false, limit.OverLimit, 10, 0, "ten"})
		w.wants("cost and limit", w.askOver(1, ds("user", "43"), agent.Override{HasHits: true, Hits: 11, Rate: perHour(20).Rate}),
			outcome{true, limit.OK, 20, 9, "ten"})
		if got := [2]limit.Tokens{w.left(two[0]), w.left(two[1])}; got != [2]limit.Tokens{0, 0} {
			w.Errorf("%v left", got)
		}
	})
}

// TestOverrideRefunded: what was taken under a limit of the request's own comes back when another descriptor denies.
func TestOverrideRefunded(t *testing.T) {
	two := []rules.Descriptor{d("user", "42"), d("once", "42")}
	onBoth(t, agent.Config{Hotkeys: never}, func(w *world) {
		w.ask(1, d("once", "42"))
		for range 10 {
			w.wants("denied", w.askOver(4, two, perHour(5), hits(1)), outcome{false, limit.OverLimit, 1, 0, "one"})
			w.wants("by a limit of its own", w.askOver(4, two, agent.Override{}, perHour(0)), outcome{false, limit.Never, 0, 0, "one"})
		}
		if n := w.left(two[0]); n != 10 {
			w.Errorf("%d left, want 10", n)
		}
	})
}

// TestOverrideInvalid: the error names the descriptor and the field, and nothing is charged.
func TestOverrideInvalid(t *testing.T) {
	two := []rules.Descriptor{d("user", "42"), d("a", "x", "b", "y")}
	rate := func(r limit.Rate) []agent.Override { return []agent.Override{{}, {Rate: r}} }
	onBoth(t, agent.Config{}, func(w *world) {
		for _, tt := range []struct {
			overrides []agent.Override
			want      string
		}{
			{[]agent.Override{}, "agent: a request has an override for each descriptor, or none at all"},
			{[]agent.Override{{}}, "agent: a request has an override for each descriptor, or none at all"},
			{[]agent.Override{hits(-1), {}}, "agent: override of descriptor 1: hits: -1 is not between 0 and 1099511627776"},
			{[]agent.Override{{}, hits(math.MaxInt64)}, "agent: override of descriptor 2: hits: 9223372036854775807 is not between 0 and 1099511627776"},
			{rate(limit.Rate{Requests: 1}), "agent: override of descriptor 2: period: 0s is not between 1us and 87600h0m0s"},
			{rate(limit.Rate{Period: -1}), "agent: override of descriptor 2: period: -1ns is not between 1us and 87600h0m0s"},
			{rate(limit.Rate{Requests: -5, Period: time.Second}), "agent: override of descriptor 2: requests: -5 is not between 0 and 1099511627776"},
			{rate(limit.Rate{Requests: limit.MaxTokens + 1, Period: time.Second}), "agent: override of descriptor 2: requests: 1099511627777 is not between 0 and 1099511627776"},
			{rate(limit.Rate{Requests: 1, Period: time.Second, Burst: -1}), "agent: override of descriptor 2: burst: -1 is not between 0 and 1099511627776"},
			{rate(limit.Rate{Requests: 1, Period: time.Second, Debt: 1}), "agent: override of descriptor 2: debt: an override has none"},
			{rate(limit.Rate{Requests: 1, Period: time.Second, Algorithm: limit.FixedWindow}), "agent: override of descriptor 2: algorithm: an override is a token bucket, a fixed_window takes a rule"},
			{rate(limit.Rate{Requests: 1, Period: time.Hour, Burst: 1 << 40}), "agent: override of descriptor 2: period: a bucket of 1099511627776 at 1 per 1h0m0s takes more than"},
		} {
			got, err := w.Check(w.Context(), agent.Request{Domain: "api", Descriptors: two, Hits: 1, Overrides: tt.overrides})
			if err == nil || len(err.Error()) < len(tt.want) || err.Error()[:len(tt.want)] != tt.want || got != (limit.Decision{}) {
				w.Errorf("%+v: %v, %+v; want %s", tt.overrides, err, got, tt.want)
			}
			if e := new(agent.OverrideError); len(tt.overrides) == 2 && (!errors.As(err, &e) || e.Field == "" || e.Problem == "") {
				w.Errorf("%v is %T", err, err)
			}
		}
		if got := [2]limit.Tokens{w.left(two[0]), w.left(two[1])}; got != [2]limit.Tokens{10, 10} {
			w.Errorf("%v left, want all", got)
		}
	})
}

// TestOverrideWhenHot: a bucket that is leased under the rule's limit obeys a request's own, and the other way round; never is more
// admitted than the larger of the two allows (G1).
func TestOverrideWhenHot(t *testing.T) {
	set := parse(`name: fast, match: [{key: fast}], limit: 100/s, on_store_error: closed`)
	onFake(t, agent.Config{Rules: set}, func(w *world) {
		w.fake.befalls(all(-1, fate{delay: time.Millisecond}))
		fast := ds("fast", "x")
		w.warm(fast[0])
		var ledger []window.Admission
		begun := time.Now()
		admitted := [3]int{}
		for i := range 6000 {
			sent := time.Since(begun)
			o := []agent.Override{{}, {Rate: limit.Rate{Requests: 50, Period: time.Second}}, {Rate: limit.Rate{Requests: 200, Period: time.Second}}}[i%3]
			got := w.askOver(1, fast, o)
			if got.Admitted {
				admitted[i%3]++
				ledger = append(ledger, window.Admission{Sent: sent, Received: time.Since(begun), Tokens: 1})
			}
			if most := o.Rate.Requests; most > 0 && got.Limit != most || most == 0 && got.Limit != 100 {
				w.Fatalf("%d: %+v", i, got)
			}
			w.pass(time.Millisecond)
		}
		if worst := window.Worst(ledger, window.Limit{Burst: 200, Tokens: 200, Per: time.Second}); worst.Breach() {
			w.Error(worst)
		}
		if admitted[0]+admitted[1]+admitted[2] < 500 {
			w.Errorf("%v were admitted", admitted)
		}
		// One limit of the request's own, always: it is leased like a rule's.
		w.pass(3 * time.Second)
		own, before := agent.Override{Rate: limit.Rate{Requests: 5000, Period: time.Second}}, w.fake.asked()
		for range 2000 {
			if got := w.askOver(1, ds("nobody", "x"), own); !got.Admitted || got.Limit != 5000 {
				w.Fatalf("%+v", got)
			}
			w.pass(time.Millisecond)
		}
		if n := w.fake.asked() - before; n > 500 {
			w.Errorf("2000 checks asked the store %d times: nothing was leased", n)
		}
	})
}

// TestOverrideByPolicy: the rule's policy and deadline stay.
func TestOverrideByPolicy(t *testing.T) {
	onFake(t, agent.Config{}, func(w *world) {
		w.fake.befalls(all(-1, fate{delay: time.Hour}))
		start := time.Now()
		w.wants("policy", w.askOver(1, ds("patient", "42"), perHour(3)), outcome{false, limit.StoreClosed, 3, 0, "slow-patient"})
		if took := time.Since(start); took != 40*time.Millisecond {
			w.Errorf("answered after %v, want the rule's deadline", took)
		}
		w.wants("no rule", w.askOver(1, ds("nobody", "42"), perHour(3)), outcome{true, limit.StoreOpen, 3, 0, ""})
	})
}

// TestNoOverrideAllocatesNothing: a request without overrides costs what it did; one with a limit of its own compiles that.
func TestNoOverrideAllocatesNothing(t *testing.T) {
	a := newAgent(t, agent.Config{Store: newCells(t), Rules: standard})
	b, ctx, one := a.NewBatch(), t.Context(), ds("user", "42")
	none, own := []agent.Override{{}}, []agent.Override{perHour(20)}
	for _, tt := range []struct {
		what string
		most float64
		of   []agent.Override
	}{{"nil", 0, nil}, {"no override", 0, none}, {"a limit", 2, own}} {
		run := func() {
			b.Begin()
			b.CheckWith("api", one, 1, tt.of)
			b.Decide(ctx)
		}
		run()
		if n := testing.AllocsPerRun(100, run); n > tt.most {
			t.Errorf("%s: %v allocations", tt.what, n)
		}
	}
}
