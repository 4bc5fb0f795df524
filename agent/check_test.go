package agent_test

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/spillgate/spillgate/agent"
	"github.com/spillgate/spillgate/limit"
	"github.com/spillgate/spillgate/memstore"
	"github.com/spillgate/spillgate/rules"
)

func TestConfig(t *testing.T) {
	cells := newCells(t)
	for _, tt := range []struct {
		cfg  agent.Config
		want string
	}{
		{agent.Config{}, "agent: Store is missing: open one with memstore.New or redisshard.Open"},
		{agent.Config{Store: cells, Deadline: -1}, "agent: Deadline is -1ns, it must be positive"},
		{agent.Config{Store: cells, StoreTimeout: -1}, "agent: StoreTimeout is -1ns, it must be positive"},
		{agent.Config{Store: &fake{cells: cells}, MaxPending: -1}, "agent: batcher: MaxPending is -1, it must be at least 1"},
	} {
		if a, err := agent.New(tt.cfg); err == nil || err.Error() != tt.want || a != nil {
			t.Errorf("%+v: %v, want %q", tt.cfg, err, tt.want)
		}
	}
}

// TestLastToken takes 11 times one of 10 tokens on each path: 9 to 0 remain, and the last is denied
// until the first of them is back.
func TestLastToken(t *testing.T) {
	ten := terms(t, 10, time.Hour)
	paths := map[string]func(w *world) []limit.Decision{
		"Check": func(w *world) []limit.Decision {
			return times(11, func() limit.Decision { return w.ask(1, d("user", "42")) })
		},
		"Handle": func(w *world) []limit.Decision {
			h := w.handle("route")
			return times(11, func() limit.Decision { return h.Check(w.Context(), 1, "/pay", "42") })
		},
		"Throttle": func(w *world) []limit.Decision {
			return times(11, func() limit.Decision { return w.throttle("42", ten, 1) })
		},
		"Batch of Throttle": func(w *world) []limit.Decision {
			return oneBatch(w, func(b *agent.Batch) int { return b.Throttle([]byte("42"), ten, 1) })
		},
		"Batch of Check": func(w *world) []limit.Decision {
			return oneBatch(w, func(b *agent.Batch) int { return b.Check("api", []rules.Descriptor{d("user", "42")}, 1) })
		},
	}
	for path, run := range paths {
		t.Run(path, func(t *testing.T) {
			onBoth(t, agent.Config{}, func(w *world) {
				for i, got := range run(w) {
					if strings.HasPrefix(path, "Batch") && w.fake != nil {
						// Within one batch on a hot bucket, what is left to the store and what is not do not see each other:
						// who is admitted is exact, what remains is near.
						if got.Admitted != (i < 10) || got.Remaining < 0 || got.Remaining > 9 {
							w.Errorf("take %d: %+v", i+1, got)
						}
						continue
					}
					want := outcome{true, limit.OK, 10, limit.Tokens(9 - i), got.Rule}
					if i == 10 {
						want = outcome{false, limit.OverLimit, 10, 0, got.Rule}
						if got.RetryAfter != 6*time.Minute {
							w.Errorf("retry after %v, want 6m", got.RetryAfter)
						}
					}
					w.wants(name("take %d", i+1), got, want)
					if full := min(time.Duration(i+1), 10) * 6 * time.Minute; got.ResetAfter != full {
						w.Errorf("take %d: full after %v, want %v", i+1, got.ResetAfter, full)
					}
					if named := got.Rule != ""; named == strings.Contains(path, "Throttle") {
						w.Errorf("take %d: rule %q", i+1, got.Rule)
					}
				}
			})
		})
	}
}

func times(n int, ask func() limit.Decision) (all []limit.Decision) {
	for range n {
		all = append(all, ask())
	}
	return all
}

// oneBatch adds a check 11 times to one batch.
func oneBatch(w *world, add func(b *agent.Batch) int) (all []limit.Decision) {
	w.Helper()
	b := w.NewBatch()
	b.Begin()
	for i := range 11 {
		if n := add(b); n != i {
			w.Errorf("check %d has the number %d", i, n)
		}
	}
	b.Decide(w.Context())
	if b.Len() != 11 {
		w.Errorf("%d checks", b.Len())
	}
	for i := range 11 {
		got, err := b.Decision(i)
		if err != nil {
			w.Fatal(err)
		}
		all = append(all, got)
	}
	return all
}

// TestRetryIsEnough: who waits as long as told is admitted (G4), and not a nanosecond sooner.
func TestRetryIsEnough(t *testing.T) {
	onBoth(t, agent.Config{}, func(w *world) {
		w.ask(10, d("user", "42"))
		told := w.ask(3, d("user", "42"))
		w.pass(told.RetryAfter - time.Microsecond)
		if early := w.ask(3, d("user", "42")); early.Admitted {
			w.Errorf("admitted early: %+v", early)
		}
		w.pass(time.Microsecond)
		w.wants("in time", w.ask(3, d("user", "42")), outcome{true, limit.OK, 10, 0, "ten"})
	})
}

// TestPeek: a cost of 0 charges nothing and creates nothing (fault 10).
func TestPeek(t *testing.T) {
	onBoth(t, agent.Config{}, func(w *world) {
		ten := terms(t, 10, time.Hour)
		h := w.handle("ten")
		peeks := map[string]func() limit.Decision{
			"Check":    func() limit.Decision { return w.ask(0, d("user", "42")) },
			"Handle":   func() limit.Decision { return h.Check(w.Context(), 0, "42") },
			"Throttle": func() limit.Decision { return w.throttle("42", ten, 0) },
		}
		for path, peek := range peeks {
			got := peek()
			w.wants(path, got, outcome{true, limit.OK, 10, 10, got.Rule})
			if got.ResetAfter != 0 {
				w.Errorf("%s: a full bucket is full after %v", path, got.ResetAfter)
			}
		}
		if n := w.cells.Cells(); n != 0 {
			w.Errorf("peeks have made %d cells", n)
		}
		w.ask(10, d("user", "42"))
		w.throttle("42", ten, 10)
		for path, peek := range peeks {
			got := peek()
			w.wants(path+" at an empty bucket", got, outcome{true, limit.OK, 10, 0, got.Rule})
			if got.ResetAfter != time.Hour {
				w.Errorf("%s: full after %v, want 1h", path, got.ResetAfter)
			}
		}
	})
}

// TestCostAboveBurst can never be admitted; it is told so, with what really remains, and leaves the bucket
// alone (fault 9).
func TestCostAboveBurst(t *testing.T) {
	onBoth(t, agent.Config{}, func(w *world) {
		ten, h := terms(t, 10, time.Hour), w.handle("ten")
		for path, take := range map[string]func(n limit.Tokens) limit.Decision{
			"Check":    func(n limit.Tokens) limit.Decision { return w.ask(n, d("user", "check")) },
			"Handle":   func(n limit.Tokens) limit.Decision { return h.Check(w.Context(), n, "handle") },
			"Throttle": func(n limit.Tokens) limit.Decision { return w.throttle("throttle", ten, n) },
		} {
			for _, remaining := range []limit.Tokens{10, 7} {
				for _, cost := range []limit.Tokens{11, 1000, limit.MaxTokens} {
					got := take(cost)
					w.wants(name("%s of %d", path, cost), got, outcome{false, limit.Never, 10, remaining, got.Rule})
					if got.RetryAfter != limit.NoRetry {
						w.Errorf("%s of %d: retry after %v", path, cost, got.RetryAfter)
					}
				}
				if remaining == 10 {
					take(3)
				}
			}
			if got := take(7); !got.Admitted || got.Remaining != 0 {
				w.Errorf("%s of what remains: %+v", path, got)
			}
		}
		w.ask(11, d("user", "fresh"))
		w.wants("the burst, after more", w.ask(10, d("user", "fresh")), outcome{true, limit.OK, 10, 0, "ten"})
	})
}

// TestNoStoreNeeded: what is decided without a store is decided before the store is reached, too.
func TestNoStoreNeeded(t *testing.T) {
	onFake(t, agent.Config{}, func(w *world) {
		w.fake.away.Store(true)
		for _, tt := range []struct {
			d    rules.Descriptor
			want outcome
		}{
			{d("vip", "42"), outcome{true, limit.Unlimited, 0, 0, "free"}},
			{d("banned", "42"), outcome{false, limit.Never, 0, 0, "zero"}},
			{d("nobody", "knows"), outcome{true, limit.NoRule, 0, 0, ""}},
			{d("user", "42", "more", "entries"), outcome{true, limit.NoRule, 0, 0, ""}},
		} {
			for _, n := range []limit.Tokens{0, 1, limit.MaxTokens} {
				got := w.ask(n, tt.d)
				w.wants(name("%d of %v", n, tt.d), got, tt.want)
				if got.RetryAfter != limit.NoRetry || got.ResetAfter != 0 {
					w.Errorf("%v: retry after %v, full after %v", tt.d, got.RetryAfter, got.ResetAfter)
				}
			}
		}
		w.wants("a handle of an unlimited rule", w.handle("free").Check(w.Context(), 1, "42"), outcome{true, limit.Unlimited, 0, 0, "free"})
		w.wants("a handle of limit 0", w.handle("zero").Check(w.Context(), 1, "42"), outcome{false, limit.Never, 0, 0, "zero"})
		if n := w.fake.asked(); n != 0 {
			w.Errorf("the store was asked %d times", n)
		}
	})
}

// TestInvalid: requests that cannot be decided are errors that name what is wrong; nothing is charged (fault 11).
func TestInvalid(t *testing.T) {
	onBoth(t, agent.Config{}, func(w *world) {
		user := []rules.Descriptor{d("user", "42")}
		ten := terms(t, 10, time.Hour)
		for _, tt := range []struct {
			r    agent.Request
			want error
		}{
			{agent.Request{Descriptors: user, Hits: 1}, agent.ErrNoDomain},
			{agent.Request{Domain: "api", Hits: 1}, agent.ErrNoDescriptors},
			{agent.Request{Domain: "api", Descriptors: []rules.Descriptor{user[0], {}}, Hits: 1}, agent.ErrNoDescriptors},
			{agent.Request{Domain: "api", Descriptors: user, Hits: -1}, agent.ErrHits},
			{agent.Request{Domain: "api", Descriptors: user, Hits: math.MinInt64}, agent.ErrHits},
			{agent.Request{Domain: "api", Descriptors: user, Hits: math.MaxInt64}, agent.ErrHits},
			{agent.Request{Domain: "api", Descriptors: user, Hits: limit.MaxTokens + 1}, agent.ErrHits},
		} {
			if got, err := w.Check(w.Context(), tt.r); !errors.Is(err, tt.want) || got != (limit.Decision{}) {
				w.Errorf("%+v: %+v, %v; want %v", tt.r, got, err, tt.want)
			}
		}
		for _, n := range []limit.Tokens{-1, math.MinInt64, math.MaxInt64, limit.MaxTokens + 1} {
			if _, err := w.Throttle(w.Context(), "42", ten, n); !errors.Is(err, agent.ErrHits) {
				w.Errorf("Throttle of %d: %v", n, err)
			}
			w.wants(name("handle of %d", n), w.handle("ten").Check(w.Context(), n, "42"), outcome{reason: limit.Never})
		}
		if _, err := w.Throttle(w.Context(), "", ten, 1); !errors.Is(err, agent.ErrNoKey) {
			w.Errorf("Throttle without a key: %v", err)
		}
		for _, values := range [][]string{{}, {"/pay"}, {"/pay", "42", "more"}} {
			w.wants(name("handle with %q", values), w.handle("route").Check(w.Context(), 1, values...), outcome{reason: limit.Never})
		}
		if _, err := w.Handle("api", "nobody"); err == nil || err.Error() != `agent: no rule "nobody" in domain "api"` {
			w.Errorf("Handle: %v", err)
		}
		if _, err := w.Handle("other", "ten"); err == nil {
			w.Error("Handle: a rule of another domain")
		}
		if n := w.cells.Cells(); n != 0 {
			w.Errorf("%d cells were made", n)
		}
		if got := w.Stats().Checks; len(got) != 0 {
			w.Errorf("counted as checks: %+v", got)
		}
	})
}

// TestInvalidInBatch: a bad check in a batch leaves those around it alone.
func TestInvalidInBatch(t *testing.T) {
	onBoth(t, agent.Config{}, func(w *world) {
		b, ten := w.NewBatch(), terms(t, 10, time.Hour)
		b.Begin()
		b.Throttle([]byte("42"), ten, 1)
		b.Throttle(nil, ten, 1)
		b.Check("", nil, 1)
		b.Throttle([]byte("42"), ten, 1)
		b.Decide(w.Context())
		for i, want := range []error{nil, agent.ErrNoKey, agent.ErrNoDomain, nil} {
			got, err := b.Decision(i)
			if !errors.Is(err, want) || got.Admitted != (want == nil) {
				w.Errorf("check %d: %+v, %v; want %v", i, got, err, want)
			}
		}
		if got, _ := b.Decision(3); got.Remaining != 8 {
			w.Errorf("after two takes, %d remain", got.Remaining)
		}
	})
}

// TestBeginForgets: checks that were added and not decided are forgotten.
func TestBeginForgets(t *testing.T) {
	onFake(t, agent.Config{}, func(w *world) {
		b, ten := w.NewBatch(), terms(t, 10, time.Hour)
		b.Begin()
		b.Throttle([]byte("42"), ten, 5)
		b.Begin()
		b.Throttle([]byte("42"), ten, 1)
		b.Decide(w.Context())
		if got, err := b.Decision(0); err != nil || got.Remaining != 9 {
			w.Errorf("%+v, %v; want 9 remaining", got, err)
		}
	})
}

// TestEmptyValues: a caller who leaves out a value falls under no rule, on every path, and so shares no
// bucket with others who do (fault 24); unless a rule says what to do with them.
func TestEmptyValues(t *testing.T) {
	onBoth(t, agent.Config{}, func(w *world) {
		none := outcome{true, limit.NoRule, 0, 0, ""}
		for _, of := range []rules.Descriptor{d("user", ""), d("a", "x", "b", ""), d("a", "", "b", "x"), d("a", "", "b", ""), d("route", "/pay", "user", "")} {
			for range 11 {
				w.wants(name("%v", of), w.ask(1, of), none)
			}
		}
		w.wants("handle", w.handle("ten").Check(w.Context(), 1, ""), none)
		w.wants("handle", w.handle("pair").Check(w.Context(), 1, "", "x"), none)
		w.wants("handle", w.handle("pair").Check(w.Context(), 1, "x", ""), none)
		if n := w.cells.Cells(); n != 0 {
			w.Errorf("%d cells were made", n)
		}

		w.SetRules(parse(`name: ten, match: [{key: user}], limit: 10/h`, `name: anonymous, match: [{key: user, value: ""}], limit: 3/h`))
		w.wants("a rule for them", w.ask(1, d("user", "")), outcome{true, limit.OK, 3, 2, "anonymous"})
		w.wants("one bucket for all of them", w.handle("anonymous").Check(w.Context(), 1, ""), outcome{true, limit.OK, 3, 1, "anonymous"})
		w.wants("others", w.ask(1, d("user", "42")), outcome{true, limit.OK, 10, 9, "ten"})
	})
}

// TestKeyJoining: each pair of values has its own bucket, however its text might be joined (fault 1).
func TestKeyJoining(t *testing.T) {
	pairs := [][2]string{
		{"a", "b_c"}, {"a_b", "c"}, {"a:b", "c"}, {"a", "b:c"}, {"a|b", "c"}, {"a", "b|c"}, {"a\x00b", "c"}, {"a", "b\x00c"},
		{"a b", "c"}, {"a", "b c"}, {"é", "ü"}, {"éü", "é"}, {"\x01", "x"}, {"\x01x", "\x01x"}, {"{a}", "b"}, {"{a", "}b"},
		{strings.Repeat("x", 40), strings.Repeat("x", 41)}, {strings.Repeat("x", 41), strings.Repeat("x", 40)}, {"\xff", "\xfe"},
	}
	onBoth(t, agent.Config{}, func(w *world) {
		h, ten := w.handle("pair"), terms(t, 10, time.Hour)
		for _, p := range pairs {
			w.wants(name("Check %q", p), w.ask(1, d("a", p[0], "b", p[1])), outcome{true, limit.OK, 10, 9, "pair"})
		}
		for _, p := range pairs {
			w.wants(name("Handle %q", p), h.Check(w.Context(), 1, p[0], p[1]), outcome{true, limit.OK, 10, 8, "pair"})
		}
		seen := map[string]bool{}
		for _, p := range pairs {
			for _, join := range []string{"", ":", "_", "|", "\x00"} {
				key := p[0] + join + p[1]
				if !seen[key] {
					w.wants(name("Throttle %q", key), w.throttle(key, ten, 1), outcome{true, limit.OK, 10, 9, ""})
				}
				seen[key] = true
			}
		}
	})
}

// TestBucketsApart: for any two descriptors and keys that differ, what one takes the other does not miss.
func TestBucketsApart(t *testing.T) {
	set := parse(`name: x, match: [{key: a}], limit: 10/h`, `name: xx, match: [{key: b}], limit: 10/h`,
		`name: pair, match: [{key: a}, {key: b}], limit: 10/h`, `name: p, match: [{key: a, value: "p*"}, {key: c}], limit: 10/h`)
	ten := terms(t, 10, time.Hour)
	value := rapid.StringOfN(rapid.RuneFrom([]rune("px:|\x00\x01\x02é{}")), 1, 5, -1)
	rapid.Check(t, func(t *rapid.T) {
		cells, _ := memstore.New(memstore.Config{})
		a, err := agent.New(agent.Config{Store: cells, Rules: set})
		if err != nil {
			t.Fatal(err)
		}
		draw := func(label string) (id string, take func() limit.Decision) {
			x, y := value.Draw(t, label+" x"), value.Draw(t, label+" y")
			check := func(ds rules.Descriptor) func() limit.Decision {
				return func() limit.Decision {
					got, err := a.Check(t.Context(), agent.Request{Domain: "api", Descriptors: []rules.Descriptor{ds}, Hits: 1})
					if err != nil || got.Reason != limit.OK {
						t.Fatalf("%v: %+v, %v", ds, got, err)
					}
					return got
				}
			}
			switch rapid.IntRange(0, 4).Draw(t, label+" kind") {
			case 0:
				return name("x%q", x), check(d("a", x))
			case 1:
				return name("xx%q", x), check(d("b", x))
			case 2:
				return name("pair%q%q", x, y), check(d("a", x, "b", y))
			case 3:
				return name("p%q%q", "p"+x, y), check(d("a", "p"+x, "c", y))
			}
			return name("key%q", x), func() limit.Decision {
				got, err := a.Throttle(t.Context(), x, ten, 1)
				if err != nil {
					t.Fatal(err)
				}
				return got
			}
		}
		id1, one := draw("one")
		id2, two := draw("two")
		one()
		if want := map[bool]limit.Tokens{true: 8, false: 9}[id1 == id2]; two().Remaining != want {
			t.Fatalf("%s and %s: want %d remaining", id1, id2, want)
		}
	})
}

// TestThrottleNeverMeetsRule: a key that spells the id of a rule's bucket is another bucket.
func TestThrottleNeverMeetsRule(t *testing.T) {
	onBoth(t, agent.Config{}, func(w *world) {
		w.ask(10, d("user", "42"))
		ten := terms(t, 10, time.Hour)
		id := limit.AppendPart(limit.AppendPart(limit.AppendPart(nil, "api"), "ten"), "42")
		for _, key := range []string{string(id), "\x00" + string(id), string(id[1:]), "api", "42", "ten", "api/ten/42"} {
			w.wants(name("%q", key), w.throttle(key, ten, 1), outcome{true, limit.OK, 10, 9, ""})
		}
	})
}

// TestReset fills the buckets of all descriptors, and reports a store that did not.
func TestReset(t *testing.T) {
	onBoth(t, agent.Config{OnStoreError: limit.Closed}, func(w *world) {
		w.ask(10, d("user", "42"))
		w.ask(1, d("once", "42"))
		reset := func(ds ...rules.Descriptor) (limit.Decision, error) {
			b := w.NewBatch()
			b.Begin()
			i := b.Reset("api", ds)
			b.Decide(w.Context())
			return b.Decision(i)
		}
		counted := w.Stats().Checks
		if got, err := reset(d("user", "42"), d("vip", "x"), d("once", "42")); err != nil || got.Limit == 0 {
			w.Errorf("Reset: %+v, %v", got, err)
		}
		if got, err := reset(d("nobody", "knows")); err != nil || got.Reason != limit.NoRule {
			w.Errorf("Reset of no rule: %+v, %v", got, err)
		}
		if got := w.Stats().Checks; len(got) != len(counted) {
			w.Errorf("resets were counted as checks: %+v", got)
		}
		if user, once := w.left(d("user", "42")), w.left(d("once", "42")); user != 10 || once != 1 {
			w.Errorf("after the reset %d and %d remain", user, once)
		}
		if w.fake != nil {
			// Denied by policy, a reset must not be taken for a check whose takes are to be refunded.
			w.ask(5, d("user", "42"))
			w.fake.befalls(all(slow, fate{err: errDown}))
			if _, err := reset(d("user", "42"), d("closed", "42")); !errors.Is(err, errDown) {
				w.Errorf("Reset while a shard is down: %v", err)
			}
			if n := w.left(d("user", "42")); n != 10 {
				w.Errorf("the other shard's bucket has %d", n)
			}
		}
	})
}
