package agent_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spillgate/spillgate/agent"
	"github.com/spillgate/spillgate/limit"
	"github.com/spillgate/spillgate/rules"
)

// TestSetRules: a new limit counts from the next check on, and what was consumed, in time, stays consumed.
func TestSetRules(t *testing.T) {
	onBoth(t, agent.Config{}, func(w *world) {
		user, h := d("user", "42"), w.handle("ten")
		steps := []struct {
			rule string
			want outcome // of a take of 1
		}{
			{"", outcome{true, limit.OK, 10, 9, "ten"}},
			{"", outcome{true, limit.OK, 10, 8, "ten"}},
			// 12 minutes are consumed, which are 4 tokens of 20 an hour.
			{`name: ten, match: [{key: user}], limit: 20/h`, outcome{true, limit.OK, 20, 15, "ten"}},
			{`name: ten, match: [{key: user}], limit: {requests: 20, per: 1h, burst: 7}`, outcome{true, limit.OK, 7, 1, "ten"}},
			{"", outcome{true, limit.OK, 7, 0, "ten"}},
			{"", outcome{false, limit.OverLimit, 7, 0, "ten"}},
			{`name: ten, match: [{key: user}], limit: 1/h`, outcome{false, limit.OverLimit, 1, 0, "ten"}},
			// The denials charged nothing: 21 minutes, which are 350 tokens.
			{`name: ten, match: [{key: user}], limit: 1000/h`, outcome{true, limit.OK, 1000, 649, "ten"}},
			{`name: ten, match: [{key: user}], limit: 0/h`, outcome{false, limit.Never, 0, 0, "ten"}},
			{`name: ten, match: [{key: user}], unlimited: true`, outcome{true, limit.Unlimited, 0, 0, "ten"}},
			// Another name, another bucket.
			{`name: other, match: [{key: user}], limit: 10/h`, outcome{true, limit.OK, 10, 9, "other"}},
			{`name: ten, match: [{key: user}, {key: device}], limit: 10/h`, outcome{true, limit.NoRule, 0, 0, ""}},
			// A bucket that takes 2 hours to fill is of another time class, and begins full.
			{`name: ten, match: [{key: user}], limit: {requests: 10, per: 1h, burst: 20}`, outcome{true, limit.OK, 20, 19, "ten"}},
		}
		for i, step := range steps {
			if step.rule != "" {
				w.SetRules(parse(step.rule))
			}
			w.wants(name("step %d: %s", i, step.rule), w.ask(1, user), step.want)
		}
		if w.Rules().Len() != 1 {
			w.Errorf("%d rules in force", w.Rules().Len())
		}

		// The handle has followed.
		w.wants("handle", h.Check(w.Context(), 1, "42"), outcome{true, limit.OK, 20, 18, "ten"})
		w.SetRules(parse(`name: ten, match: [{key: user}, {key: device}], limit: 10/h`))
		w.wants("handle of a rule that takes two values now", h.Check(w.Context(), 1, "42"), outcome{reason: limit.Never})
		w.SetRules(parse(`name: other, match: [{key: user}], limit: 10/h`))
		w.wants("handle of a rule that is gone", h.Check(w.Context(), 1, "42"), outcome{true, limit.NoRule, 0, 0, ""})
		w.SetRules(nil)
		w.wants("no rules", w.ask(1, user), outcome{true, limit.NoRule, 0, 0, ""})
		w.wants("no rules, handle", h.Check(w.Context(), 1, "42"), outcome{true, limit.NoRule, 0, 0, ""})
		w.SetRules(standard)
		w.wants("the rule is back", h.Check(w.Context(), 1, "never seen"), outcome{true, limit.OK, 10, 9, "ten"})
	})
}

// TestSetRulesUnderLoad: who checks while rules change gets the answer of the set before or after; a check that begins
// after SetRules returned gets that of the new one.
func TestSetRulesUnderLoad(t *testing.T) {
	onBoth(t, agent.Config{Deadline: time.Hour, StoreTimeout: time.Hour}, func(w *world) {
		sets := []*rules.Set{nil}
		for i := 1; i <= 5; i++ {
			sets = append(sets, parse(fmt.Sprintf("name: ten, match: [{key: user}], limit: %d00/h", i)))
		}
		w.SetRules(sets[1])
		h := w.handle("ten")
		var version atomic.Int64 // of a set that is in force for certain
		var stop atomic.Bool
		var wg sync.WaitGroup
		for g := range 4 {
			user := d("user", name("user-%d", g))
			wg.Go(func() {
				for !stop.Load() {
					for _, ask := range []func() limit.Decision{
						func() limit.Decision { return w.ask(0, user) },
						func() limit.Decision { return h.Check(w.Context(), 0, user[0].Value) },
					} {
						before := version.Load()
						got := ask()
						// The next set may be in force before its version says so.
						if next := version.Load() + 1; !w.isOfOne(got, before, next) {
							w.Errorf("between versions %d and %d: %+v", before, next, got)
							return
						}
					}
				}
			})
		}
		for v := range int64(200) {
			w.SetRules(sets[v%int64(len(sets))])
			version.Store(v)
			w.ask(0, d("user", "x"))
			if got := w.ask(0, d("user", "x")); !w.isOf(got, v) {
				w.Errorf("version %d: %+v", v, got)
			}
		}
		stop.Store(true)
		wg.Wait()
	})
}

// isOfOne reports whether a decision is of one of the versions first to last.
func (w *world) isOfOne(got limit.Decision, first, last int64) bool {
	for v := first; v <= last; v++ {
		if w.isOf(got, v) {
			return true
		}
	}
	return false
}

// isOf reports whether a decision is of that version of TestSetRulesUnderLoad.
func (w *world) isOf(got limit.Decision, version int64) bool {
	v := version % 6
	return got.Admitted && got.Limit == limit.Tokens(100*v) && (got.Reason == limit.NoRule) == (v == 0)
}

// TestThousandRules: with a large set each descriptor gets the rule that the set itself finds, also right after
// the set was replaced by one with the same patterns and other limits.
func TestThousandRules(t *testing.T) {
	onBoth(t, agent.Config{Rules: routes(1000, "100/h")}, func(w *world) {
		sets := map[limit.Tokens]*rules.Set{100: w.Rules(), 200: routes(1000, "200/h")}
		for _, most := range []limit.Tokens{100, 200, 100} {
			w.SetRules(sets[most])
			for i := range 1100 {
				of := route(i)
				want := outcome{true, limit.NoRule, 0, 0, ""}
				if r := sets[most].Match("api", of); r != nil {
					want = outcome{true, limit.OK, most, most, r.Name}
				}
				w.wants(name("%v", of), w.ask(0, of), want)
			}
		}
	})
}

// routes is a set of n rules as people write them: most for a route and each user, some for all that begins alike.
func routes(n int, rate string) *rules.Set {
	lines := []string{fmt.Sprintf("name: any, match: [{key: route}, {key: user}], limit: %s", rate)}
	for i := 1; i < n; i++ {
		value := fmt.Sprintf("/v1/orders/%d", i)
		if i%10 == 0 {
			value = fmt.Sprintf("/v%d/*", i)
		}
		lines = append(lines, fmt.Sprintf("name: rule-%d, match: [{key: route, value: %s}, {key: user}], limit: %s", i, value, rate))
	}
	return parse(lines...)
}

// route is a descriptor for the i-th of them.
func route(i int) rules.Descriptor {
	value := fmt.Sprintf("/v1/orders/%d", i)
	switch {
	case i%10 == 0:
		value = fmt.Sprintf("/v%d/things", i)
	case i%99 == 0:
		return d("client", "unknown")
	}
	return d("route", value, "user", fmt.Sprint(i))
}
