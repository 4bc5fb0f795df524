package agent_test

import (
	"testing"
	"time"

	"github.com/spillgate/spillgate/agent"
	"github.com/spillgate/spillgate/limit"
	"github.com/spillgate/spillgate/rules"
)

// replaceRules: vip replaces what is called wide, and the rule user; chain replaces vip.
var replaceRules = parse(
	`name: user, match: [{key: user}], limit: 1/h`,
	`name: path, match: [{key: path}], limit: 1/h, label: wide`,
	`name: host, match: [{key: host}], limit: 2/h, label: wide`,
	`name: vip, match: [{key: vip}], limit: 10/h, mode: exact, replaces: [wide, user], label: special`,
	`name: chain, match: [{key: chain}], unlimited: true, replaces: [special]`,
	`name: other, match: [{key: other}], limit: 5/h`,
)

// TestReplaces: a rule that is replaced does not count for that request and is not charged; for others it does.
func TestReplaces(t *testing.T) {
	onBoth(t, agent.Config{Rules: replaceRules}, func(w *world) {
		user, path, host, vip, chain, other := d("user", "x"), d("path", "x"), d("host", "x"), d("vip", "x"), d("chain", "x"), d("other", "x")
		for i := range 4 {
			ds := []rules.Descriptor{user, path, host, vip}
			if i%2 == 1 {
				ds = []rules.Descriptor{vip, host, path, user}
			}
			w.wants("replaced", w.ask(1, ds...), outcome{true, limit.OK, 10, limit.Tokens(9 - i), "vip"})
		}
		if got := [3]limit.Tokens{w.left(user), w.left(path), w.left(host)}; got != [3]limit.Tokens{1, 1, 2} {
			w.Errorf("%v left of what is replaced, want all", got)
		}
		w.reset(vip)
		w.wants("alone it counts", w.ask(1, user), outcome{true, limit.OK, 1, 0, "user"})
		w.wants("and denies", w.ask(1, user, other), outcome{false, limit.OverLimit, 1, 0, "user"})
		w.wants("but not beside vip", w.ask(1, user, other, vip), outcome{true, limit.OK, 5, 4, "other"})
		w.wants("what is replaced still replaces", w.ask(1, user, vip, chain, other), outcome{true, limit.OK, 5, 3, "other"})
		if n := w.left(vip); n != 9 {
			w.Errorf("%d left of vip, want 9: it was replaced once", n)
		}
		w.wants("a denial of the rest", w.ask(1, path, vip, other, d("other", "y")), outcome{true, limit.OK, 5, 2, "other"})
		w.wants("all replaced", w.ask(1, chain, vip), outcome{true, limit.Unlimited, 0, 0, "chain"})
	})
}

// TestShadowReplacesNothing: a shadow rule that names a rule in replaces hides none of its denials, and charges it as ever (fault 25); one that
// denies and is replaced is replaced.
func TestShadowReplacesNothing(t *testing.T) {
	set := parse(
		`name: user, match: [{key: user}], limit: 2/h`,
		`name: tried, match: [{key: vip}], limit: 1/h, replaces: [user], shadow: true`,
		`name: vip, match: [{key: gold}], limit: 10/h, replaces: [tried]`,
	)
	onBoth(t, agent.Config{Rules: set}, func(w *world) {
		user, tried, gold := d("user", "x"), d("vip", "x"), d("gold", "x")
		w.wants("beside a shadow", w.ask(1, user, tried), outcome{true, limit.OK, 2, 1, "user"})
		w.pass(time.Second)
		w.wants("over the shadow's limit", w.ask(1, tried, user), outcome{true, limit.OK, 2, 0, "user"})
		w.pass(time.Second)
		w.wants("denied", w.ask(1, user, tried), outcome{false, limit.OverLimit, 2, 0, "user"})
		if n := w.shadowDenied("tried"); n != 2 {
			w.Errorf("the shadow would have denied %d times, want 2", n)
		}
		w.wants("a shadow that is replaced", w.ask(1, tried, gold), outcome{true, limit.OK, 10, 9, "vip"})
		if n := w.shadowDenied("tried"); n != 2 {
			w.Errorf("it counted %d denials, want 2 still", n)
		}
	})
}

// TestResetIgnoresReplaces: an order to fill fills the buckets of all rules that match.
func TestResetIgnoresReplaces(t *testing.T) {
	onBoth(t, agent.Config{Rules: replaceRules}, func(w *world) {
		user, vip := d("user", "x"), d("vip", "x")
		w.ask(1, user)
		b := w.NewBatch()
		b.Begin()
		i := b.Reset("api", []rules.Descriptor{user, vip})
		b.Decide(w.Context())
		if _, err := b.Decision(i); err != nil {
			w.Fatal(err)
		}
		if n := w.left(user); n != 1 {
			w.Errorf("%d left, want 1", n)
		}
	})
}

// TestReplacesAllocatesNothing, once the batch is warm.
func TestReplacesAllocatesNothing(t *testing.T) {
	a := newAgent(t, agent.Config{Store: newCells(t), Rules: replaceRules})
	b, ctx, two := a.NewBatch(), t.Context(), []rules.Descriptor{d("user", "x"), d("vip", "x")}
	run := func() {
		b.Begin()
		b.Check("api", two, 1)
		b.Decide(ctx)
	}
	run()
	if n := testing.AllocsPerRun(100, run); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestEnvoyEmptyValue: where domains match as envoyproxy/ratelimit does, callers without a value share a bucket; elsewhere no rule applies to them.
func TestEnvoyEmptyValue(t *testing.T) {
	set, err := rules.Parse("", []byte("domain: api\ndescriptors: [{key: user, rate_limit: {unit: hour, requests_per_unit: 2}}]"))
	if err != nil {
		t.Fatal(err)
	}
	onBoth(t, agent.Config{Rules: set}, func(w *world) {
		h := w.handle("user")
		w.wants("first", w.ask(1, d("user", "")), outcome{true, limit.OK, 2, 1, "user"})
		w.wants("second", h.Check(w.Context(), 1, ""), outcome{true, limit.OK, 2, 0, "user"})
		w.wants("third", w.ask(1, d("user", "")), outcome{false, limit.OverLimit, 2, 0, "user"})
		w.wants("a value", h.Check(w.Context(), 1, "x"), outcome{true, limit.OK, 2, 1, "user"})
		w.SetRules(parse(`name: user, match: [{key: user}], limit: 2/h`))
		w.wants("elsewhere", w.ask(1, d("user", "")), outcome{true, limit.NoRule, 0, 0, ""})
		w.wants("elsewhere", h.Check(w.Context(), 1, ""), outcome{true, limit.NoRule, 0, 0, ""})
	})
}
