package agent_test

import (
	"slices"
	"testing"
	"time"

	"github.com/spillgate/spillgate/agent"
	"github.com/spillgate/spillgate/limit"
	"github.com/spillgate/spillgate/rules"
)

// shadowRules are shadow rules of each mode beside such as deny. Names that begin with "slow" are a shard of their own.
var shadowRules = parse(
	`name: leased, match: [{key: leased}], limit: 10/h, shadow: true`,
	`name: exact, match: [{key: exact}], limit: 10/h, mode: exact, shadow: true`,
	`name: optimistic, match: [{key: optimistic}], limit: 10/h, mode: optimistic, allowance: 2, shadow: true`,
	`name: zero, match: [{key: zero}], limit: 0/h, shadow: true`,
	`name: all, match: [{key: all}], unlimited: true, shadow: true`,
	`name: slow-closed, match: [{key: closed}], limit: 10/h, on_store_error: closed, shadow: true`,
	`name: user, match: [{key: user}], limit: 20/h`,
	`name: once, match: [{key: once}], limit: 1/h`,
	`name: free, match: [{key: vip}], unlimited: true`,
)

var shadowModes = []string{"leased", "exact", "optimistic"}

func (w *world) shadowDenied(rule string) (n uint64) {
	for _, s := range w.Stats().Shadow {
		if s.Domain == "api" && s.Rule == rule {
			n = s.Denied
		}
	}
	return n
}

// counted is how many checks had that outcome.
func (w *world) counted(admitted bool, reason limit.Reason) uint64 {
	all := w.Stats().Checks
	i := slices.IndexFunc(all, func(c agent.Count) bool { return c.Admitted == admitted && c.Reason == reason })
	if i < 0 {
		return 0
	}
	return all[i].Checks
}

// TestShadow: a shadow rule counts as any other, on each path; over its limit it admits, and says so (fault 25).
func TestShadow(t *testing.T) {
	for _, mode := range shadowModes {
		for _, path := range []string{"Check", "Handle", "Batch", "hot"} {
			t.Run(mode+"/"+path, func(t *testing.T) {
				onBoth(t, agent.Config{Rules: shadowRules}, func(w *world) {
					h, b := w.handle(mode), w.NewBatch()
					if path == "hot" {
						w.warm(d(mode, "42"))
					}
					ask := func() limit.Decision {
						switch path {
						case "Handle":
							return h.Check(w.Context(), 1, "42")
						case "Batch":
							b.Begin()
							i := b.Check("api", ds(mode, "42"), 1)
							b.Decide(w.Context())
							got, err := b.Decision(i)
							if err != nil {
								w.Fatal(err)
							}
							return got
						}
						return w.ask(1, d(mode, "42"))
					}
					before := w.Stats()
					for i := range 30 {
						want := outcome{true, limit.OK, 10, limit.Tokens(9 - i), mode}
						if i >= 10 {
							want = outcome{true, limit.ShadowOver, 10, 0, mode}
						}
						got := ask()
						w.pass(time.Millisecond) // what is admitted ahead of the store is charged meanwhile
						if mode == "optimistic" && w.fake != nil {
							// What remains is known once the store has been heard of; who is admitted is exact here.
							want.remaining = got.Remaining
						}
						w.wants(name("take %d", i+1), got, want)
						if i >= 10 && got.ResetAfter == 0 {
							w.Errorf("take %d: an empty bucket is full at once", i+1)
						}
					}
					if n := w.shadowDenied(mode); n != 20 {
						w.Errorf("%d would have been denied, want 20", n)
					}
					if n := w.counted(true, limit.ShadowOver); n != 20 {
						w.Errorf("%d counted as shadow, want 20", n)
					}
					if n := w.counted(false, limit.OverLimit); n != 0 {
						w.Errorf("%d counted as denied", n)
					}
					if got, want := total(w.Stats())-total(before), uint64(30); got != want {
						w.Errorf("%d checks counted, want %d", got, want)
					}
				})
			})
		}
	}
}

// TestShadowNeverHides: a shadow rule that is over its limit hides no denial, refunds nothing that it did not take, and
// does not speak for rules that count.
func TestShadowNeverHides(t *testing.T) {
	for _, mode := range shadowModes {
		t.Run(mode, func(t *testing.T) {
			onBoth(t, agent.Config{Rules: shadowRules}, func(w *world) {
				shadow, user, once, vip := d(mode, "42"), d("user", "42"), d("once", "42"), d("vip", "x")
				w.ask(1, once)
				for range 10 {
					w.ask(1, shadow)
					w.pass(time.Millisecond)
				}
				w.wants("over alone", w.ask(1, shadow), outcome{true, limit.ShadowOver, 10, 0, mode})
				w.wants("beside what does not count", w.ask(1, vip, shadow, d("nobody", "x")), outcome{true, limit.ShadowOver, 10, 0, mode})
				for i, ds := range [][]rules.Descriptor{{shadow, once}, {once, shadow}, {vip, shadow, once, user}} {
					w.wants(name("denied by another, %d", i), w.ask(1, ds...), outcome{false, limit.OverLimit, 1, 0, "once"})
				}
				w.pass(time.Millisecond)
				w.wants("still over: nothing was refunded", w.ask(1, shadow), outcome{true, limit.ShadowOver, 10, 0, mode})
				w.wants("another speaks", w.ask(1, shadow, user), outcome{true, limit.OK, 20, 19, "user"})
				w.wants("another speaks", w.ask(1, user, shadow), outcome{true, limit.OK, 20, 18, "user"})
				if n := w.left(user); n != 18 {
					w.Errorf("%d left, want 18", n)
				}
				if n := w.shadowDenied(mode); n != 8 {
					w.Errorf("%d would have been denied, want 8", n)
				}
			})
		})
	}
}

// TestShadowIsRefunded: what a shadow rule took for a check that another denies comes back (G5), and within its limit it does not
// speak either.
func TestShadowIsRefunded(t *testing.T) {
	for _, mode := range shadowModes {
		t.Run(mode, func(t *testing.T) {
			onBoth(t, agent.Config{Rules: shadowRules}, func(w *world) {
				shadow, user, once := d(mode, "42"), d("user", "42"), d("once", "42")
				w.ask(1, once)
				for range 15 {
					w.wants("denied", w.ask(3, shadow, once), outcome{false, limit.Never, 1, 0, "once"})
				}
				if n := w.left(shadow); n != 10 {
					w.Errorf("%d left, want 10", n)
				}
				w.wants("within the limit", w.ask(4, shadow, user), outcome{true, limit.OK, 20, 16, "user"})
				if n := w.left(shadow); n != 6 {
					w.Errorf("%d left, want 6", n)
				}
				if n := w.shadowDenied(mode); n != 0 {
					w.Errorf("%d would have been denied", n)
				}
			})
		})
	}
}

// TestShadowNeverDenies: not at limit 0, at a cost above the burst, nor when the store does not answer.
func TestShadowNeverDenies(t *testing.T) {
	onBoth(t, agent.Config{Rules: shadowRules}, func(w *world) {
		w.wants("limit 0", w.ask(1, d("zero", "42")), outcome{true, limit.ShadowOver, 0, 0, "zero"})
		w.wants("limit 0, handle", w.handle("zero").Check(w.Context(), 1, "42"), outcome{true, limit.ShadowOver, 0, 0, "zero"})
		w.wants("above the burst", w.ask(11, d("leased", "42")), outcome{true, limit.ShadowOver, 10, 0, "leased"})
		w.wants("and nothing was taken", w.ask(10, d("leased", "42")), outcome{true, limit.OK, 10, 0, "leased"})
		w.wants("unlimited", w.ask(1, d("all", "42")), outcome{true, limit.Unlimited, 0, 0, "all"})
		w.wants("a look", w.ask(0, d("leased", "42")), outcome{true, limit.OK, 10, 0, "leased"})
		w.reset(d("leased", "42"))
		w.wants("after a reset", w.ask(1, d("leased", "42")), outcome{true, limit.OK, 10, 9, "leased"})
		if n := w.shadowDenied("zero") + w.shadowDenied("leased"); n != 3 {
			w.Errorf("%d would have been denied, want 3", n)
		}
	})
	for what, ft := range failures {
		t.Run(what, func(t *testing.T) {
			onFake(t, agent.Config{Rules: shadowRules}, func(w *world) {
				w.fake.befalls(all(-1, ft))
				w.wants("store away", w.ask(1, d("closed", "42")), outcome{true, limit.StoreOpen, 10, 0, "slow-closed"})
				if n := w.shadowDenied("slow-closed"); n != 0 {
					w.Errorf("%d would have been denied: nobody knows", n)
				}
				want := []agent.ByPolicy{{Domain: "api", Rule: "slow-closed", Admitted: true, Reason: limit.StoreOpen, Answers: 1}}
				if got := w.ByPolicy(); !slices.Equal(got, want) {
					w.Errorf("counted by policy: %+v, want what was answered", got)
				}
				w.pass(time.Second)
			})
		})
	}
	onFake(t, agent.Config{Rules: shadowRules, MaxPending: 1}, func(w *world) {
		w.fake.befalls(all(-1, fate{delay: 10 * time.Millisecond}))
		done := make(chan limit.Decision)
		go func() { done <- w.ask(1, d("closed", "1")) }()
		w.pass(time.Millisecond)
		w.wants("overloaded", w.ask(1, d("closed", "2")), outcome{true, limit.Overloaded, 10, 0, "slow-closed"})
		<-done
	})
}

// TestShadowCounts follow the rules: those of a rule that is gone are dropped, those of one that stays go on, whether it denies meanwhile or not.
func TestShadowCounts(t *testing.T) {
	onBoth(t, agent.Config{Rules: shadowRules}, func(w *world) {
		over := func() { w.ask(11, d("leased", "42")) }
		over()
		w.SetRules(parse(`name: leased, match: [{key: leased}], limit: 10/h`))
		w.wants("it denies now", w.ask(11, d("leased", "42")), outcome{false, limit.Never, 10, 10, "leased"})
		w.SetRules(shadowRules)
		over()
		if n := w.shadowDenied("leased"); n != 2 {
			w.Errorf("%d would have been denied, want 2", n)
		}
		w.SetRules(nil)
		if all := w.Stats().Shadow; len(all) != 0 {
			w.Errorf("%v", all)
		}
	})
}

// TestShadowDivided: a shadow rule's bucket may be divided; all its parts are asked before it is over.
func TestShadowDivided(t *testing.T) {
	set := parse(`name: big, match: [{key: big}], limit: 4000/h, shadow: true, mode: exact`)
	inFleet(t, fleetConfig{2, 4, 4, agent.Config{Rules: set}}, func(f *fleet) {
		b, big := f.bucket("big", "x"), terms(t, 4000, time.Hour)
		f.keep(b, big)
		ok, over := 0, 0
		for range 2300 {
			for i := range f.all {
				switch got := f.ask(i, 1, d("big", "x")); {
				case got.Admitted && got.Reason == limit.OK:
					ok++
				case got.Admitted && got.Reason == limit.ShadowOver && got.RetryAfter == limit.NoRetry:
					over++
				default:
					f.Fatalf("%+v", got)
				}
			}
		}
		if ok < 4000-50 || ok > 4010 || ok+over != 4600 {
			f.Errorf("%d within the limit and %d over it, want about 4000 and 600", ok, over)
		}
		n := uint64(0)
		for _, a := range f.all {
			for _, s := range a.Stats().Shadow {
				n += s.Denied
			}
		}
		if n != uint64(over) {
			f.Errorf("%d would have been denied, want %d", n, over)
		}
	})
}
