package agent_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/spillgate/spillgate/agent"
	"github.com/spillgate/spillgate/batcher"
	"github.com/spillgate/spillgate/hotkeys"
	"github.com/spillgate/spillgate/limit"
	"github.com/spillgate/spillgate/rules"
)

// never keeps every bucket cold.
var never = hotkeys.Config{MinRate: 1e6}

// timed is a check, and how long it took.
func (w *world) timed(d rules.Descriptor) (limit.Decision, time.Duration) {
	w.Helper()
	start := time.Now()
	got := w.ask(1, d)
	return got, time.Since(start)
}

// TestExactAsksTheStore at every check, however hot the bucket is.
func TestExactAsksTheStore(t *testing.T) {
	onFake(t, agent.Config{Rules: hotRules}, func(w *world) {
		h := w.handle("exact")
		for i := range 200 {
			var got limit.Decision
			switch i % 3 {
			case 0:
				got = w.ask(1, d("exact", "42"))
			case 1:
				got = h.Check(w.Context(), 1, "42")
			case 2:
				got = w.ask(1, d("exact", "42"), d("nobody", "knows"))
			}
			if got.Admitted != (i < 10) {
				w.Fatalf("check %d: %+v", i, got)
			}
			w.pass(time.Millisecond)
			if n := w.fake.asked(); n != int64(i+1) {
				w.Fatalf("after %d checks the store has seen %d", i+1, n)
			}
		}
		if s := w.Stats().Leases; s.Holdings+int(s.KnownDenied+s.Promoted+s.Charged) != 0 {
			w.Errorf("%+v", s)
		}
	})
}

// TestLeasedAsksSeldom: a hot bucket far from its limit needs few entries, and each check is decided without waiting.
func TestLeasedAsksSeldom(t *testing.T) {
	onFake(t, agent.Config{Rules: hotRules}, func(w *world) {
		w.fake.befalls(all(-1, fate{delay: time.Millisecond}))
		w.warm(d("fast", "42"))
		before, waited := w.fake.asked(), 0
		for range 2000 {
			got, took := w.timed(d("fast", "42"))
			if !got.Admitted {
				w.Fatalf("%+v", got)
			}
			if took > 0 {
				waited++
			}
			w.pass(10 * time.Millisecond)
		}
		if n := w.fake.asked() - before; n > 200 || waited > 50 {
			w.Errorf("2000 checks at 100/s: %d entries, %d waited", n, waited)
		}
	})
}

// TestOptimisticAnswersAtOnce within the allowance, while the store hangs; beyond it a check waits. Never is more than the allowance open.
func TestOptimisticAnswersAtOnce(t *testing.T) {
	for _, hot := range []bool{false, true} {
		t.Run(name("hot=%v", hot), func(t *testing.T) {
			cfg := agent.Config{Rules: hotRules, StoreTimeout: time.Minute, Hotkeys: never}
			if hot {
				cfg.Hotkeys = hotkeys.Config{}
			}
			onFake(t, cfg, func(w *world) {
				w.fake.befalls(all(-1, fate{delay: 10 * time.Second}))
				for i := range 5 {
					got, took := w.timed(d("soft", "42"))
					if !got.Admitted || got.Reason != limit.OK || took != 0 {
						w.Errorf("check %d: %+v after %v", i+1, got, took)
					}
				}
				for range 3 {
					got, took := w.timed(d("soft", "42"))
					if got.Admitted || got.Reason != limit.StoreClosed || took != 25*time.Millisecond {
						w.Errorf("beyond the allowance: %+v after %v", got, took)
					}
				}
				if s := w.Stats().Leases; s.Charged != 5 {
					w.Errorf("%+v", s)
				}
				if got, took := w.timed(d("soft", "another")); !got.Admitted || took != 0 {
					w.Errorf("another bucket: %+v after %v", got, took)
				}
				// When the store has heard, the allowance is free again.
				w.fake.befalls(all(-1, fate{}))
				w.pass(25 * time.Second)
				if got, took := w.timed(d("soft", "42")); !got.Admitted || took != 0 {
					w.Errorf("afterwards: %+v after %v", got, took)
				}
				n, ended := w.left(d("soft", "42")), limit.Tokens(w.Stats().Leases.Expired) // before the reply came
				if n != 100-6-ended || !hot && ended > 0 {
					w.Errorf("%d left of 100, want 94 less %d: the takes that were given up came back", n, ended)
				}
			})
		})
	}
}

// TestChargesArriveSoon, in few calls, and no more is ever open than the allowance.
func TestChargesArriveSoon(t *testing.T) {
	set := parse(`name: slow, match: [{key: soft}], limit: 10000/h, mode: optimistic, allowance: 40`)
	onFake(t, agent.Config{Rules: set, Hotkeys: never}, func(w *world) {
		for i := range 1000 {
			got, took := w.timed(d("soft", "42"))
			if !got.Admitted || took != 0 {
				w.Fatalf("check %d: %+v after %v", i, got, took)
			}
			w.pass(time.Millisecond)
			e := batcher.Entry{Bucket: w.bucket("slow", "42"), Terms: set.Rule("api", "slow").Terms, Op: limit.TakePartial}
			w.cells.ApplyAt(w.cells.Now(), &e)
			heard := limit.Tokens((e.Out.Level + e.Terms.Emission - 1) / e.Terms.Emission)
			if open := limit.Tokens(i+1) - heard; open > 40 {
				w.Fatalf("check %d: the store has not heard of %d", i, open)
			}
		}
		w.pass(50 * time.Millisecond)
		if n := w.fake.ops[limit.Charge].Load(); n < 30 || n > 60 {
			w.Errorf("%d charges in a second, want about one every 25 ms", n)
		}
		if calls := w.Stats().Batcher.Calls; calls > 60 {
			w.Errorf("%d calls", calls)
		}
		if n := w.left(d("soft", "42")); n < 9000 || n > 9010 {
			w.Errorf("%d left of 10,000, want 9,000 and what has refilled", n)
		}
	})
}

// TestLostChargesBlock the allowance, until their tokens would have refilled.
func TestLostChargesBlock(t *testing.T) {
	set := parse(`name: slow, match: [{key: soft}], limit: 100/m, mode: optimistic, allowance: 5, on_store_error: closed`)
	onFake(t, agent.Config{Rules: set, Hotkeys: never}, func(w *world) {
		w.fake.befalls(all(-1, fate{err: batcher.ErrUnknown}))
		for range 5 {
			if got, _ := w.timed(d("soft", "42")); !got.Admitted {
				w.Errorf("%+v", got)
			}
		}
		w.pass(time.Second)
		for range 3 {
			if got := w.ask(1, d("soft", "42")); got.Reason != limit.StoreClosed {
				w.Errorf("%+v", got)
			}
		}
		if s := w.Stats().Leases; s.Charged != 5 || s.ChargesLost != 5 {
			w.Errorf("%+v", s)
		}
		if n := w.fake.ops[limit.Charge].Load(); n != 1 {
			w.Errorf("%d charges, want 1: what may have run is not sent again", n)
		}
		w.pass(58 * time.Second)
		if got := w.ask(1, d("soft", "42")); got.Admitted {
			w.Errorf("before a minute is over: %+v", got)
		}
		w.fake.befalls(all(-1, fate{}))
		w.pass(2 * time.Second)
		if got, took := w.timed(d("soft", "42")); !got.Admitted || took != 0 {
			w.Errorf("after it: %+v, %v", got, took)
		}
	})
}

// TestOptimisticBound is G2 for one agent: no window admits more than the bucket and the allowance. Charges that are lost, and did
// not run, add their tokens.
func TestOptimisticBound(t *testing.T) {
	// A check that waited is admitted when its token leaves the bucket, and seen here up to 25 ms later.
	const allowance, burst, travel = 5, 20, 0.25
	set := parse(`name: slow, match: [{key: soft}], limit: {requests: 10, per: 1s, burst: 20}, mode: optimistic, allowance: 5, on_store_error: closed`)
	for seed := range uint64(10) {
		onFake(t, agent.Config{Rules: set}, func(w *world) {
			r := rand.New(rand.NewPCG(seed, 0))
			var mu sync.Mutex
			lost := 0.0
			w.fake.befalls(func(_ int, e *batcher.Entry) fate {
				mu.Lock()
				defer mu.Unlock()
				ft := fate{delay: time.Duration(r.IntN(20)) * time.Millisecond}
				switch luck := r.IntN(10); {
				case luck == 0 && seed%2 == 0:
					ft.err = batcher.ErrUnknown
					if e.Op == limit.Charge {
						lost += float64(e.N)
					}
				case luck == 1:
					ft.err, ft.runs = batcher.ErrUnknown, true
				}
				return ft
			})
			level, last := 0.0, time.Now() // of a bucket that is as much larger
			for range 2000 {
				if got := w.ask(1, d("soft", "42")); got.Admitted {
					now := time.Now()
					level = max(0, level-10*now.Sub(last).Seconds()) + 1
					mu.Lock()
					if last = now; level > burst+allowance+travel+lost {
						w.Errorf("seed %d: %.2f tokens over the bound", seed, level-burst-allowance-lost)
					}
					mu.Unlock()
				}
				mu.Lock()
				pause := time.Duration(r.IntN(20)) * time.Millisecond
				mu.Unlock()
				w.pass(pause)
			}
		})
	}
}

// TestModeChange: a rule that becomes exact asks the store from the next check on, and back.
func TestModeChange(t *testing.T) {
	leased := parse(`name: fast, match: [{key: fast}], limit: 1000/s`)
	exact := parse(`name: fast, match: [{key: fast}], limit: 1000/s, mode: exact`)
	onFake(t, agent.Config{Rules: leased}, func(w *world) {
		h := w.handle("fast")
		w.warm(d("fast", "42"))
		for range 100 {
			h.Check(w.Context(), 1, "42")
			w.pass(time.Millisecond)
		}
		w.SetRules(exact)
		takes := w.fake.ops[limit.Take].Load()
		for range 10 {
			h.Check(w.Context(), 1, "42")
			w.ask(1, d("fast", "42"))
		}
		if n := w.fake.ops[limit.Take].Load() - takes; n != 20 {
			w.Errorf("the store has seen %d of 20 exact checks", n)
		}
		for range 100 {
			w.pass(100 * time.Millisecond)
		}
		w.holds(0)
		if got := w.left(d("fast", "42")); got != 1000 {
			w.Errorf("%d left of 1000", got)
		}
	})
}

// TestCountsAddUp: every check is counted once, by what its caller was told: on every path, in every mode, with several
// descriptors, and while the store fails.
func TestCountsAddUp(t *testing.T) {
	for seed := range uint64(4) {
		onFake(t, agent.Config{Rules: hotRules}, func(w *world) {
			var wg sync.WaitGroup
			var mu sync.Mutex
			told := map[agent.Count]uint64{}
			w.fake.befalls(all(-1, fate{delay: 300 * time.Microsecond}))
			for g := range uint64(8) {
				wg.Go(func() {
					r := rand.New(rand.NewPCG(seed, g))
					own := map[agent.Count]uint64{}
					h := map[string]*agent.Handle{}
					keys := [...]string{"user", "exact", "fast", "quick", "once", "soft", "quiet"}
					names := [...]string{"ten", "exact", "fast", "second", "once", "slow", "quiet"}
					for _, n := range names {
						h[n] = w.handle(n)
					}
					for range 400 {
						i := r.IntN(len(keys))
						n := limit.Tokens([...]int{1, 1, 1, 1, 0, 2, 3, 2000}[r.IntN(8)])
						value := fmt.Sprint(r.IntN(2))
						var got limit.Decision
						switch r.IntN(4) {
						case 0:
							got = w.ask(n, d(keys[i], value))
						case 1, 2:
							got = h[names[i]].Check(w.Context(), n, value)
						case 3:
							got = w.ask(n, d(keys[i], value), d(keys[r.IntN(len(keys))], value), d("quick", "0"))
						}
						own[agent.Count{Admitted: got.Admitted, Reason: got.Reason}]++
						time.Sleep(time.Duration(r.IntN(8)) * time.Millisecond)
					}
					mu.Lock()
					defer mu.Unlock()
					for k, n := range own {
						told[k] += n
					}
				})
			}
			time.Sleep(500 * time.Millisecond)
			w.fake.befalls(all(-1, fate{err: batcher.ErrUnknown}))
			time.Sleep(500 * time.Millisecond)
			w.fake.befalls(all(-1, fate{delay: 300 * time.Microsecond}))
			wg.Wait()
			w.pass(time.Second)
			got := map[agent.Count]uint64{}
			for _, c := range w.Stats().Checks {
				got[agent.Count{Admitted: c.Admitted, Reason: c.Reason}] = c.Checks
			}
			if fmt.Sprint(got) != fmt.Sprint(told) {
				w.Errorf("seed %d: counted\n%v, callers were told\n%v", seed, got, told)
			}
			s := w.Stats().Leases
			if s.Admitted == 0 || s.Denied == 0 || s.Charged == 0 || s.Granted != s.Spent+s.Returned+s.Expired+uint64(s.Held) {
				w.Errorf("%+v", s)
			}
		})
	}
}

// TestHandleWhenHot: a check on a hot bucket needs no store, and after Close there is none.
func TestHandleWhenHot(t *testing.T) {
	onFake(t, agent.Config{Rules: hotRules}, func(w *world) {
		h := w.handle("fast")
		w.warm(d("fast", "42"))
		for range 100 {
			h.Check(w.Context(), 1, "42")
			w.pass(time.Millisecond)
		}
		w.fake.away.Store(true) // not even its secret
		got := h.Check(w.Context(), 1, "42")
		w.wants("from the lease", got, outcome{true, limit.OK, 1000, got.Remaining, "fast"})
		w.fake.away.Store(false)
		if err := w.Close(context.Background()); err != nil {
			w.Error(err)
		}
		if got := h.Check(w.Context(), 1, "42"); got.Reason != limit.StoreOpen && got.Reason != limit.StoreClosed {
			w.Errorf("after Close: %+v", got)
		}
		if _, err := w.Check(w.Context(), agent.Request{Domain: "api", Descriptors: ds("fast", "42"), Hits: 1}); !errors.Is(err, agent.ErrClosed) {
			w.Errorf("after Close: %v", err)
		}
	})
}

// TestFloodIsForgotten: when the traffic is gone, nothing is on lease any more, and the store has all tokens.
func TestFloodIsForgotten(t *testing.T) {
	onFake(t, agent.Config{Rules: hotRules, Hotkeys: hotkeys.Config{Top: 5}}, func(w *world) {
		fast := terms(w, 1000, time.Second)
		for range 50 {
			for k := range 20 {
				w.ask(1, d("fast", fmt.Sprint(k)))
			}
			w.pass(10 * time.Millisecond)
		}
		if n := w.Stats().Leases.Holdings; n == 0 || n > 10 {
			w.Errorf("%d are hot", n)
		}
		w.pass(15 * time.Second)
		if s := w.Stats().Leases; s.Holdings != 0 || s.Held != 0 || s.Promoted != s.Demoted {
			w.Errorf("%+v", s)
		}
		calls := w.fake.asked()
		w.pass(time.Minute)
		if got := w.fake.asked(); got != calls {
			w.Errorf("%d entries of an idle agent", got-calls)
		}
		for k := range 20 {
			if got := w.free("fast", fmt.Sprint(k), fast); got != 1000 {
				w.Errorf("%d: %d of 1000", k, got)
			}
		}
	})
}

// TestCountsOfARuleChange: a check is counted once, also if its bucket is taken from its leases before it is decided.
func TestCountsOfARuleChange(t *testing.T) {
	raised := parse(`name: fast, match: [{key: fast}], limit: 2000/s`, `name: second, match: [{key: quick}], limit: 10/s`)
	onFake(t, agent.Config{Rules: hotRules}, func(w *world) {
		w.warm(d("fast", "42"))
		for range 100 {
			w.ask(1, d("fast", "42"))
			w.pass(time.Millisecond)
		}
		before, b := total(w.Stats()), w.NewBatch()
		b.Begin()
		b.Check("api", []rules.Descriptor{d("fast", "42"), d("quick", "42")}, 1)
		w.SetRules(raised)
		b.Check("api", ds("fast", "42"), 1)
		b.Decide(w.Context())
		if got := total(w.Stats()) - before; got != 2 {
			w.Errorf("%d checks were counted, want 2", got)
		}
		w.pass(time.Minute)
		if got := total(w.Stats()) - before; got != 2 {
			w.Errorf("%d checks were counted after a minute, want 2", got)
		}
	})
}
