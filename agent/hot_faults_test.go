package agent_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spillgate/spillgate/agent"
	"github.com/spillgate/spillgate/batcher"
	"github.com/spillgate/spillgate/hotkeys"
	"github.com/spillgate/spillgate/limit"
	"github.com/spillgate/spillgate/rules"
)

// These tests are the faults of the field where buckets are hot: answered from leases and from memory.

// hotRules are those of most of them. Names that begin with "slow" are a shard of their own.
var hotRules = parse(
	`name: ten, match: [{key: user}], limit: 10/h`,
	`name: exact, match: [{key: exact}], limit: 10/h, mode: exact`,
	`name: fast, match: [{key: fast}], limit: 1000/s, on_store_error: closed`,
	`name: second, match: [{key: quick}], limit: 10/s`,
	`name: once, match: [{key: once}], limit: 1/h`,
	`name: quiet, match: [{key: quiet}], limit: 10/s, shadow: true`,
	`name: slow, match: [{key: soft}], limit: 100/h, mode: optimistic, allowance: 5, on_store_error: closed`,
)

// warm makes a bucket hot, by looks that take nothing, so that the next check makes a lease.
func (w *world) warm(d rules.Descriptor) {
	w.Helper()
	for range 100 {
		w.ask(0, d)
	}
}

// holds fails unless so many buckets are hot.
func (w *world) holds(n int) {
	w.Helper()
	if got := w.Stats().Leases.Holdings; got != n {
		w.Errorf("%d buckets are hot, want %d", got, n)
	}
}

// free is how many tokens a bucket has in the store, not counting what is out on lease. It asks no agent.
func (w *world) free(rule, value string, t *limit.Terms) limit.Tokens {
	w.Helper()
	e := batcher.Entry{Bucket: w.bucket(rule, value), Terms: t, Op: limit.TakePartial}
	w.cells.ApplyAt(w.cells.Now(), &e)
	return t.Remaining(e.Out.Level)
}

func (w *world) bucket(rule, value string) (b limit.Bucket) {
	secret, _ := w.cells.Secret()
	id := limit.AppendPart(limit.AppendPart(limit.AppendPart(nil, "api"), rule), value)
	secret.Name(&b, id)
	return b
}

// reset orders the agent to fill a bucket.
func (w *world) reset(d rules.Descriptor) {
	w.Helper()
	b := w.NewBatch()
	b.Begin()
	i := b.Reset("api", []rules.Descriptor{d})
	b.Decide(w.Context())
	if _, err := b.Decision(i); err != nil {
		w.Fatal(err)
	}
}

// TestLastTokenOnEachPath is fault 14: 9 to 0 remain, and then the denial, whoever decides it.
func TestLastTokenOnEachPath(t *testing.T) {
	for _, tt := range []struct {
		path string
		d    rules.Descriptor
		hot  bool
	}{{"exact", d("exact", "42"), false}, {"cold, then from memory", d("user", "42"), false}, {"hot", d("user", "42"), true}} {
		t.Run(tt.path, func(t *testing.T) {
			onFake(t, agent.Config{Rules: hotRules}, func(w *world) {
				exact := tt.path == "exact"
				if tt.hot {
					w.warm(tt.d)
				}
				for i := range 15 {
					got := w.ask(1, tt.d)
					want := outcome{true, limit.OK, 10, limit.Tokens(9 - i), got.Rule}
					if i >= 10 {
						if want = (outcome{false, limit.OverLimit, 10, 0, got.Rule}); got.RetryAfter != 6*time.Minute {
							w.Errorf("check %d: retry after %v, want 6m", i+1, got.RetryAfter)
						}
					}
					w.wants(name("check %d", i+1), got, want)
					if !tt.hot && !exact {
						w.pass(0) // what is known is kept by another goroutine
					}
				}
				s := w.Stats()
				switch takes := w.fake.ops[limit.Take].Load() + w.fake.ops[limit.TakePartial].Load(); {
				case tt.hot && (s.Leases.Admitted == 0 || s.Leases.Denied == 0):
					w.Errorf("nothing was decided from leases: %+v", s.Leases)
				case exact && (takes != 15 || s.Leases.Holdings+int(s.Leases.KnownDenied) > 0):
					w.Errorf("the store saw %d of 15 checks; %+v", takes, s.Leases)
				case !exact && !tt.hot && s.Leases.KnownDenied+s.Leases.Denied == 0:
					w.Errorf("no denial came from memory: %+v", s.Leases)
				}
			})
		})
	}
}

// TestCachedDenialEnds is fault 8.
func TestCachedDenialEnds(t *testing.T) {
	raised := parse(`name: ten, match: [{key: user}], limit: {requests: 10, per: 1h, burst: 20}`)
	ten := terms(t, 10, time.Hour)
	user := d("user", "42")
	for _, hot := range []bool{false, true} {
		for what, end := range map[string]func(w *world) (within time.Duration){
			"a reset by this agent": func(w *world) time.Duration { w.reset(user); return 0 },
			"a raised limit":        func(w *world) time.Duration { w.SetRules(raised); return 0 },
			"a reset by another agent": func(w *world) time.Duration {
				e := batcher.Entry{Bucket: w.bucket("ten", "42"), Terms: ten, Op: limit.Reset}
				w.cells.ApplyAt(w.cells.Now(), &e)
				return 250 * time.Millisecond
			},
			"the first token": func(w *world) time.Duration {
				w.pass(6*time.Minute - time.Second)
				for range 4 { // denied, and known again
					if got := w.ask(1, user); got.Admitted {
						w.Errorf("before its time: %+v", got)
					}
					w.pass(250 * time.Millisecond)
				}
				return 250 * time.Millisecond
			},
		} {
			t.Run(name("hot=%v/%s", hot, what), func(t *testing.T) {
				cfg := agent.Config{Rules: hotRules}
				if !hot {
					cfg.Hotkeys.MinRate = 1e6
				}
				onFake(t, cfg, func(w *world) {
					if w.warm(user); !hot {
						w.holds(0)
					}
					for range 20 {
						w.ask(1, user)
						w.pass(0)
					}
					if s := w.Stats().Leases; hot && s.Denied == 0 || !hot && s.KnownDenied == 0 {
						w.Fatalf("nothing is denied here: %+v", s)
					}
					within := end(w)
					for start := time.Now(); ; w.pass(time.Millisecond) {
						got, passed := w.ask(1, user), time.Since(start)
						if got.Admitted {
							break
						}
						if passed >= within {
							w.Fatalf("after %v: %+v", passed, got)
						}
					}
				})
			})
		}
	}
}

// TestRetryIsEnoughWhenHot: whoever waits as long as told by a lease is admitted, if nobody else asks (G4).
func TestRetryIsEnoughWhenHot(t *testing.T) {
	onFake(t, agent.Config{Rules: hotRules}, func(w *world) {
		w.warm(d("quick", "42"))
		for i := range 200 {
			n := limit.Tokens(1 + i%4)
			got := w.ask(n, d("quick", "42"))
			if !got.Admitted {
				w.pass(got.RetryAfter)
				if again := w.ask(n, d("quick", "42")); !again.Admitted {
					w.Fatalf("check %d: told to wait %v, and then %+v", i, got.RetryAfter, again)
				}
			}
			w.pass(time.Millisecond)
		}
		if s := w.Stats().Leases; s.Denied == 0 || s.Holdings != 1 {
			w.Errorf("this was not about leases: %+v", s)
		}
	})
}

// TestCloseReturnsLeases is the orderly part of fault 16: after Close the store has everything that was not admitted.
func TestCloseReturnsLeases(t *testing.T) {
	fast := terms(t, 1000, time.Second)
	for _, inFlight := range []bool{false, true} {
		onFake(t, agent.Config{Rules: hotRules}, func(w *world) {
			w.warm(d("fast", "42"))
			for range 50 {
				w.ask(1, d("fast", "42"))
				w.pass(time.Millisecond)
			}
			if w.Stats().Leases.Held == 0 {
				w.Fatal("nothing is on lease")
			}
			if inFlight { // close while a renewal is on its way
				w.fake.befalls(all(-1, fate{delay: 10 * time.Millisecond}))
				asks := w.Stats().Leases.Asks
				for w.Stats().Leases.Asks == asks {
					w.ask(1, d("fast", "42"))
				}
			}
			if err := w.Close(w.Context()); err != nil {
				w.Error(err)
			}
			s := w.Stats().Leases
			if s.Holdings != 0 || s.Held != 0 || s.Granted != s.Spent+s.Returned+s.Expired {
				w.Errorf("%+v", s)
			}
			// If anything were still out, the bucket could not fill.
			w.pass(time.Second)
			if got := w.free("fast", "42", fast); got != 1000 {
				w.Errorf("%d of 1000 are in the store", got)
			}
		})
	}
}

// TestVanishedAgent is the other part of fault 16: while its leases may be spent their tokens are out, and they are back after
// two TTLs and the time to refill.
func TestVanishedAgent(t *testing.T) {
	fast := terms(t, 1000, time.Second)
	onFake(t, agent.Config{Rules: hotRules}, func(w *world) {
		w.warm(d("fast", "42"))
		for range 100 {
			w.ask(1, d("fast", "42"))
			w.pass(time.Millisecond)
		}
		held := w.Stats().Leases.Held
		w.fake.befalls(all(-1, fate{err: batcher.ErrUnknown}))
		if held < 10 {
			w.Fatalf("%d are on lease", held)
		}
		w.pass(200 * time.Millisecond) // time enough to refill what is not out
		if got := w.free("fast", "42", fast); got > 1000-held {
			w.Errorf("%d are free and %d on lease, of 1000", got, held)
		}
		w.pass(2*limit.LeaseTTL + time.Second)
		if got := w.free("fast", "42", fast); got != 1000 {
			w.Errorf("%d of 1000 came back", got)
		}
	})
}

// TestLongPartition is fault 5: while the store is away leases are spent to their end and no longer; nothing piles up, and
// nothing of that time is charged afterwards.
func TestLongPartition(t *testing.T) {
	fast := terms(t, 1000, time.Second)
	onFake(t, agent.Config{Rules: hotRules}, func(w *world) {
		w.warm(d("fast", "42"))
		for range 200 {
			w.ask(1, d("fast", "42"))
			w.pass(time.Millisecond)
		}
		cut := time.Now()
		w.fake.befalls(all(-1, fate{err: batcher.ErrUnknown}))
		held := w.Stats().Leases.Held
		local, last, closed := limit.Tokens(0), time.Duration(0), 0
		for time.Since(cut) < 25*time.Second {
			switch got := w.ask(1, d("fast", "42")); {
			case got.Admitted && got.Reason == limit.OK:
				local, last = local+1, time.Since(cut)
			case got.Reason == limit.StoreClosed:
				closed++
			case got.Reason != limit.OverLimit:
				w.Fatalf("%+v", got)
			}
			w.ask(1, d("soft", "42"))
			w.pass(10 * time.Millisecond)
			if s := w.Stats(); s.Batcher.Waiting > 10 || s.Leases.Holdings > 2 {
				w.Fatalf("after %v: %+v", time.Since(cut), s)
			}
		}
		if local == 0 || local > held || last >= limit.LeaseTTL || closed < 2000 {
			w.Errorf("%d admitted, of %d on lease, the last after %v; %d by the policy", local, held, last, closed)
		}
		w.fake.befalls(all(-1, fate{}))
		charges := w.fake.ops[limit.Charge].Load()
		w.pass(time.Second)
		if got := w.free("fast", "42", fast); got != 1000 {
			w.Errorf("%d of 1000 are free: the time of the partition was charged", got)
		}
		if got := w.fake.ops[limit.Charge].Load(); got > charges+1 {
			w.Errorf("%d charges after the partition", got-charges)
		}
		if got := w.ask(1, d("fast", "42")); !got.Admitted || got.Reason != limit.OK {
			w.Errorf("afterwards: %+v", got)
		}
	})
}

// TestHerdOnAHotBucket is fault 26: a thousand callers who come when they are told to. Every token is taken once, with a
// handful of entries in the store.
func TestHerdOnAHotBucket(t *testing.T) {
	var calls atomic.Int64
	cfg := agent.Config{Rules: hotRules, OnCall: func(batcher.CallInfo) { calls.Add(1) }}
	onFake(t, cfg, func(w *world) {
		w.fake.befalls(all(-1, fate{delay: 500 * time.Microsecond}))
		w.warm(d("quick", "42"))
		for range 20 {
			w.ask(1, d("quick", "42"))
		}
		w.holds(1)
		const seconds = 3
		end := time.Now().Add(seconds * time.Second)
		before, beforeCalls := w.fake.asked(), calls.Load()
		var admitted, checks atomic.Int64
		var herd sync.WaitGroup
		for range 1000 {
			herd.Go(func() {
				for time.Now().Before(end) {
					got := w.ask(1, d("quick", "42"))
					if checks.Add(1); got.Admitted {
						admitted.Add(1)
						return
					}
					time.Sleep(got.RetryAfter)
				}
			})
		}
		herd.Wait()
		const tokens = 10 * seconds
		if n := admitted.Load(); n > tokens+1 || n < tokens-3 {
			w.Errorf("%d admitted in %d s at 10/s", n, seconds)
		}
		entries, calls := w.fake.asked()-before, calls.Load()-beforeCalls
		if entries > 10*tokens || calls > 10*tokens {
			w.Errorf("%d entries in %d calls for %d tokens and %d checks", entries, calls, tokens, checks.Load())
		}
	})
}

// TestKeyFlood is fault 21: of 25,000 keys, twenty have 5 % of the traffic. They stay hot, and nothing grows with the others.
func TestKeyFlood(t *testing.T) {
	const keys, top, seconds = 25_000, 20, 2
	cfg := agent.Config{Rules: parse(`name: fast, match: [{key: fast}], limit: 1000/s`), Hotkeys: hotkeys.Config{Top: top}}
	onFake(t, cfg, func(w *world) {
		h := w.handle("fast")
		var hot, before uint64
		most := 0
		for i := range keys {
			h.Check(w.Context(), 1, name("flood %d", i))
			if i%19 == 0 {
				h.Check(w.Context(), 1, name("hot %d", i/19%top))
				if i > keys/2 {
					hot++
				}
			}
			if i == keys/2 {
				s := w.Stats().Leases
				before = s.Admitted + s.Denied
			}
			if i%25 == 0 {
				time.Sleep(seconds * time.Second / (keys / 25))
			}
			if i%1000 == 0 {
				most = max(most, w.Stats().Leases.Holdings)
			}
		}
		s := w.Stats().Leases
		if most > 2*top || s.Holdings > 2*top {
			w.Errorf("%d buckets were hot at a time", most)
		}
		if local := s.Admitted + s.Denied - before; local < hot*3/4 {
			w.Errorf("of %d checks on hot keys %d were decided from leases; %+v", hot, local, s)
		}
	})
}

// TestStoppedInABatch: the process stops after checks were added to a batch, for longer than leases last. They are not admitted from what
// has ended: the store decides them, or the policy.
func TestStoppedInABatch(t *testing.T) {
	for _, away := range []bool{false, true} {
		for _, stop := range []time.Duration{time.Second, 3 * time.Second} {
			onFake(t, agent.Config{Rules: hotRules}, func(w *world) {
				w.warm(d("fast", "42"))
				for range 100 {
					w.ask(1, d("fast", "42"))
					w.pass(time.Millisecond)
				}
				w.pass(10 * time.Millisecond)
				before, b := w.Stats(), w.NewBatch()
				b.Begin()
				for range 3 {
					b.Check("api", ds("fast", "42"), 1)
				}
				b.Check("api", []rules.Descriptor{d("fast", "42"), d("user", "42")}, 1)
				if got := w.Stats().Leases; got.Spent != before.Leases.Spent+4 {
					w.Fatalf("%d were decided from the lease, want 4", got.Spent-before.Leases.Spent)
				}
				takes := w.fake.ops[limit.Take].Load() + w.fake.ops[limit.TakePartial].Load()
				if away {
					w.fake.befalls(all(-1, fate{err: batcher.ErrUnknown}))
				}
				time.Sleep(stop)
				b.Decide(w.Context())
				ended := stop > limit.LeaseTTL
				for i := range 3 {
					got, err := b.Decision(i)
					want := limit.OK
					if away && ended {
						want = limit.StoreClosed
					}
					if err != nil || got.Reason != want || got.Admitted != (want == limit.OK) {
						w.Errorf("away %v, stopped for %v: %+v, want %v", away, stop, got, want)
					}
				}
				if asked := w.fake.ops[limit.Take].Load() + w.fake.ops[limit.TakePartial].Load() - takes; (asked > 1) != ended {
					w.Errorf("stopped for %v: %d takes in the store", stop, asked)
				}
				if s := w.Stats(); total(s) != total(before)+4 {
					w.Errorf("%d checks were counted, want 4", total(s)-total(before))
				}
				w.fake.befalls(all(-1, fate{}))
			})
		}
	}
}

// TestStoppedAndDenied: what was redone by the store for a check that is denied all the same is not charged, also if it
// arrives when its caller has given up.
func TestStoppedAndDenied(t *testing.T) {
	ten := terms(t, 10, time.Hour)
	onFake(t, agent.Config{Rules: hotRules, StoreTimeout: time.Second}, func(w *world) {
		w.warm(d("user", "42"))
		w.ask(1, d("user", "42"))
		for range 3 {
			w.ask(1, d("once", "42"))
			w.pass(0)
		}
		held := w.Stats().Leases.Held
		b := w.NewBatch()
		b.Begin()
		b.Check("api", []rules.Descriptor{d("user", "42"), d("once", "42")}, 1)
		if s := w.Stats().Leases; s.Held != held-1 || s.KnownDenied == 0 {
			w.Fatalf("not decided here: %+v", s)
		}
		time.Sleep(6 * time.Second)
		before := w.free("ten", "42", ten)
		w.fake.befalls(all(-1, fate{delay: 100 * time.Millisecond}))
		b.Decide(w.Context())
		if got, _ := b.Decision(0); got.Admitted || got.Rule != "once" {
			w.Errorf("%+v", got)
		}
		w.pass(time.Second)
		if got := w.free("ten", "42", ten); got != before {
			w.Errorf("%d are free, %d before: the denial was charged", got, before)
		}
	})
}

// total is the number of checks that were counted.
func total(s agent.Stats) (n uint64) {
	for _, c := range s.Checks {
		n += c.Checks
	}
	return n
}

// TestSeveralWhenHot: what a denied check took from a lease comes back to it, without the store.
func TestSeveralWhenHot(t *testing.T) {
	onFake(t, agent.Config{Rules: hotRules}, func(w *world) {
		w.ask(1, d("once", "42"))
		w.warm(d("fast", "42"))
		for range 100 {
			w.ask(1, d("fast", "42"))
			w.pass(time.Millisecond)
		}
		before, refunds := w.Stats().Leases, w.fake.ops[limit.Refund].Load()
		for range 5 {
			got := w.ask(1, d("fast", "42"), d("once", "42"))
			w.wants("denied by once", got, outcome{false, limit.OverLimit, 1, 0, "once"})
		}
		after := w.Stats().Leases
		if after.Held != before.Held || after.Spent != before.Spent || after.Admitted != before.Admitted {
			w.Errorf("denials were charged: %+v, before %+v", after, before)
		}
		if got := w.fake.ops[limit.Refund].Load(); got != refunds {
			w.Errorf("%d refunds", got-refunds)
		}
	})
}

// TestUndoneAfterTheAccount: what a denied check took from a lease that was accounted for meanwhile goes back with the account, and by a
// refund once the store was told.
func TestUndoneAfterTheAccount(t *testing.T) {
	ten := terms(t, 10, time.Hour)
	for what, want := range map[string]int64{"taken down": 0, "sent": 1} {
		t.Run(what, func(t *testing.T) {
			onFake(t, agent.Config{Rules: hotRules}, func(w *world) {
				user := d("user", "42")
				w.ask(1, d("once", "42"))
				w.warm(user)
				w.ask(1, user) // makes a lease
				b := w.NewBatch()
				b.Begin()
				b.Check("api", []rules.Descriptor{user, d("once", "42")}, 1)
				w.pass(200 * time.Millisecond) // a look of Tend
				left := limit.Tokens(9)
				for leases := w.fake.ops[limit.Lease].Load(); want > 0 && w.fake.ops[limit.Lease].Load() == leases; left-- {
					w.ask(1, user)
				}
				refunds := w.fake.ops[limit.Refund].Load()
				b.Decide(w.Context())
				if got, _ := b.Decision(0); got.Admitted || got.Rule != "once" {
					w.Errorf("%+v", got)
				}
				w.pass(100 * time.Millisecond)
				if got := w.fake.ops[limit.Refund].Load() - refunds; got != want {
					w.Errorf("%d refunds, want %d", got, want)
				}
				s := w.Stats().Leases
				if s.Granted != s.Spent+s.Returned+s.Expired+uint64(s.Held) {
					w.Errorf("%+v", s)
				}
				if err := w.Close(context.Background()); err != nil {
					w.Error(err)
				}
				if got := w.free("ten", "42", ten); got != left {
					w.Errorf("%d of 10 are in the store, want %d", got, left)
				}
			})
		})
	}
}
