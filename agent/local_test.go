package agent_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillgate/spillgate/agent"
	"github.com/spillgate/spillgate/batcher"
	"github.com/spillgate/spillgate/limit"
	"github.com/spillgate/spillgate/memstore"
	"github.com/spillgate/spillgate/rules"
)

// counting is a fake that counts the agents of a fleet: as many as members says.
type counting struct {
	*fake
	members atomic.Int64
	beats   atomic.Int64
	silent  atomic.Bool // beats get no answer
}

func (c *counting) Beat(ctx context.Context, fleet, member string, life time.Duration) (int, error) {
	c.beats.Add(1)
	if c.silent.Load() {
		return 0, errors.New("no answer")
	}
	return int(c.members.Load()), nil
}

// localRules fail to the agent's share; those that begin with "slow" are in a shard of their own.
var localRules = parse(
	`name: slow-local, match: [{key: local}], limit: 100/s, on_store_error: local`,
	`name: slow-exact, match: [{key: exact}], limit: 100/s, mode: exact, on_store_error: local`,
	`name: slow-closed, match: [{key: closed}], limit: 100/s, on_store_error: closed`,
	`name: slow-open, match: [{key: open}], limit: 100/s, on_store_error: open`,
	`name: slow-window, match: [{key: window}], limit: 100/s, algorithm: fixed_window`,
	`name: slow-shadow, match: [{key: shadow}], limit: 100/s, on_store_error: local, shadow: true`,
	`name: fast-local, match: [{key: fast}], limit: 100/s, on_store_error: local`,
)

// onCounting runs a test with an agent of a fleet, which it has had the time to count.
func onCounting(t *testing.T, members int, cfg agent.Config, test func(w *world, c *counting)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{T: t, cells: newCells(t)}
		w.fake = &fake{cells: w.cells}
		c := &counting{fake: w.fake}
		c.members.Store(int64(members))
		cfg.Store, cfg.Rules = c, localRules
		w.Agent = newAgent(t, cfg)
		t.Cleanup(func() { w.Close(context.Background()) })
		w.pass(5 * time.Second)
		test(w, c)
		if err := w.Close(t.Context()); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
}

// goes has the slow shard gone, and noticed.
func (w *world) goes() {
	w.Helper()
	w.fake.befalls(all(slow, fate{delay: time.Hour}))
	for range 3 {
		w.ask(0, d("closed", "42"))
		w.pass(time.Second)
	}
	if s := w.Stats().Batcher; s.Down != 1 {
		w.Fatalf("the shard is not found down: %+v", s)
	}
}

// comes has it back, and noticed.
func (w *world) comes() {
	w.Helper()
	w.fake.befalls(all(-1, fate{}))
	for range 100 {
		if w.pass(10 * time.Millisecond); w.Stats().Batcher.Down == 0 {
			return
		}
	}
	w.Fatal("a second after its return the shard is not asked")
}

// admitted is how many of so many checks of one token pass at once.
func (w *world) admitted(of int, ds rules.Descriptor) (n int, reasons map[limit.Reason]int) {
	w.Helper()
	reasons = make(map[limit.Reason]int)
	for range of {
		got := w.ask(1, ds)
		if reasons[got.Reason]++; got.Admitted {
			n++
		}
	}
	return n, reasons
}

// TestLocal: an agent of four enforces a quarter, from nothing at the moment at which the shard went, says so, and answers at
// once. The other shard is asked as ever.
func TestLocal(t *testing.T) {
	for _, key := range []string{"local", "exact"} {
		t.Run(key, func(t *testing.T) {
			onCounting(t, 4, agent.Config{}, func(w *world, c *counting) {
				w.goes()
				w.pass(time.Hour)
				start := time.Now()
				if n, reasons := w.admitted(100, d(key, "42")); n != 25 || reasons[limit.StoreLocal] != 100 {
					w.Errorf("%d of 100 admitted, %v; want a quarter of the burst", n, reasons)
				}
				w.pass(400 * time.Millisecond)
				if n, _ := w.admitted(100, d(key, "42")); n != 10 {
					w.Errorf("%d admitted after 400 ms, want a quarter of the rate", n)
				}
				if took := time.Since(start); took != 400*time.Millisecond {
					w.Errorf("answers took %v", took-400*time.Millisecond)
				}
				if n, reasons := w.admitted(100, d("fast", "42")); n != 100 || reasons[limit.OK] != 100 {
					w.Errorf("on the other shard %d admitted, %v", n, reasons)
				}
				got := w.ask(1, d(key, "42"))
				if got.Admitted || got.RetryAfter <= 0 || got.RetryAfter > 40*time.Millisecond {
					w.Errorf("denied by the share: %+v", got)
				}
				w.pass(got.RetryAfter)
				if got := w.ask(1, d(key, "42")); !got.Admitted {
					w.Errorf("after the wait: %+v", got)
				}
			})
		})
	}
}

// TestLocalIsForTokenBuckets: where it is the agent's policy, windows are closed.
func TestLocalIsForTokenBuckets(t *testing.T) {
	onCounting(t, 4, agent.Config{OnStoreError: limit.Local}, func(w *world, c *counting) {
		w.goes()
		w.pass(time.Hour)
		if n, reasons := w.admitted(10, d("window", "42")); n != 0 || reasons[limit.StoreClosed] != 10 {
			w.Errorf("%d of 10 admitted, %v; want none, by policy closed", n, reasons)
		}
	})
}

// TestLocalShadow: a shadow rule admits what its share has not, and does not say that the rule would have denied it.
func TestLocalShadow(t *testing.T) {
	onCounting(t, 4, agent.Config{}, func(w *world, c *counting) {
		w.goes()
		w.pass(time.Hour)
		if n, reasons := w.admitted(100, d("shadow", "42")); n != 100 || reasons[limit.StoreLocal] != 25 || reasons[limit.StoreOpen] != 75 {
			w.Errorf("%d of 100 admitted, %v; want 25 by the share, and the others by policy", n, reasons)
		}
		if shadow := w.Stats().Shadow; len(shadow) != 0 {
			w.Errorf("counted as denied: %+v", shadow)
		}
	})
}

// TestDownIsCheap: however many check while a shard is down, nothing gathers: no claim, no goroutine, and of shares no more than admit.
func TestDownIsCheap(t *testing.T) {
	onCounting(t, 4, agent.Config{}, func(w *world, c *counting) {
		w.goes()
		asked, before := w.fake.asked(), runtime.NumGoroutine()
		for i := range 10_000 {
			key := []string{"local", "exact", "closed", "open"}[i%4]
			w.ask(1, d(key, fmt.Sprint(i)))
		}
		s := w.Stats()
		if s.Batcher.Waiting != 0 || s.Batcher.Refused < 10_000 || w.fake.asked() != asked {
			w.Errorf("%d claims wait, %d refused, %d entries sent", s.Batcher.Waiting, s.Batcher.Refused, w.fake.asked()-asked)
		}
		if n := runtime.NumGoroutine() - before; n > 1 { // a probe
			w.Errorf("%d goroutines more than before", n)
		}
		if s.Shares > 5000 {
			w.Errorf("%d shares of 5,000 buckets", s.Shares)
		}
		w.comes()
		w.pass(5 * time.Second)
		if n := w.Stats().Shares; n != 0 {
			w.Errorf("%d shares are kept", n)
		}
	})
}

// TestLocalBeginsEmpty: what the store gave before counts.
func TestLocalBeginsEmpty(t *testing.T) {
	onCounting(t, 1, agent.Config{}, func(w *world, c *counting) {
		if n, _ := w.admitted(100, d("exact", "42")); n != 100 {
			w.Fatalf("%d of 100 admitted", n)
		}
		w.fake.befalls(all(slow, fate{err: errDown}))
		for range 3 {
			w.ask(0, d("closed", "42"))
		}
		if n, _ := w.admitted(50, d("exact", "42")); n != 0 {
			w.Errorf("%d more admitted at once", n)
		}
		w.pass(100 * time.Millisecond)
		if n, _ := w.admitted(50, d("exact", "42")); n != 10 {
			w.Errorf("%d admitted after 100 ms, want 10", n)
		}
	})
}

// TestLocalIsCharged: when the store is back, it is told of what has not refilled; for a second the share goes on to bind.
func TestLocalIsCharged(t *testing.T) {
	onCounting(t, 4, agent.Config{}, func(w *world, c *counting) {
		w.goes()
		w.pass(time.Minute)
		if n, _ := w.admitted(100, d("exact", "42")); n != 25 {
			w.Fatalf("%d admitted", n)
		}
		w.comes()
		if n, reasons := w.admitted(100, d("exact", "42")); n > 20 || reasons[limit.OK] != n || reasons[limit.StoreLocal] != 100-n {
			w.Errorf("at once after the return %d admitted, %v: more than the share", n, reasons)
		}
		w.pass(200 * time.Millisecond)
		if n := w.fake.ops[limit.Charge].Load(); n != 1 {
			w.Errorf("%d charges, want 1", n)
		}
		w.pass(2 * time.Second)
		if n, reasons := w.admitted(100, d("exact", "42")); n != 100 || reasons[limit.OK] != 100 {
			w.Errorf("later %d admitted, %v", n, reasons)
		}
	})
}

// TestOldHitsAreNotCharged is fault 5 for a share: sixty hits, the store away for 25 s, a bucket that fills in 1 s.
func TestOldHitsAreNotCharged(t *testing.T) {
	onCounting(t, 1, agent.Config{}, func(w *world, c *counting) {
		w.goes()
		w.admitted(60, d("exact", "42"))
		w.pass(25 * time.Second)
		w.comes()
		w.pass(2 * time.Second)
		if n := w.fake.ops[limit.Charge].Load(); n != 0 {
			w.Errorf("%d charges of old hits", n)
		}
		if n, _ := w.admitted(101, d("exact", "42")); n != 100 {
			w.Errorf("%d of the new window admitted, want 100", n)
		}
	})
}

// TestOldChargesAreDropped is fault 5 for optimistic rules: sixty hits that the store has not heard of when it goes, for 25 s. They block their
// allowance meanwhile, and none is charged to the window after.
func TestOldChargesAreDropped(t *testing.T) {
	set := parse(`name: slow, match: [{key: soft}], limit: 60/10s, mode: optimistic, allowance: 60, on_store_error: closed`)
	onFake(t, agent.Config{Rules: set, Hotkeys: never}, func(w *world) {
		w.fake.befalls(all(slow, fate{err: errLost}))
		for range 60 {
			if got := w.ask(1, d("soft", "42")); !got.Admitted {
				w.Fatalf("%+v", got)
			}
		}
		w.pass(25 * time.Second)
		w.fake.befalls(all(-1, fate{}))
		w.pass(time.Second)
		if n := w.left(d("soft", "42")); n != 60 {
			w.Errorf("%d of 60 left in the new window", n)
		}
		if s := w.Stats(); s.Leases.ChargesLost == 0 || s.Batcher.Waiting != 0 {
			w.Errorf("%+v", s.Leases)
		}
	})
}

// TestLocalWithoutANumber: an agent that cannot know how many there are denies, unless it was told.
func TestLocalWithoutANumber(t *testing.T) {
	for _, size := range []int{0, 10} {
		t.Run(fmt.Sprint("size=", size), func(t *testing.T) {
			onCounting(t, 4, agent.Config{FleetSize: size}, func(w *world, c *counting) {
				c.silent.Store(true)
				other := newAgent(t, agent.Config{Store: c, Rules: localRules, FleetSize: size})
				defer other.Close(context.Background())
				first := w.Agent
				w.Agent = other
				w.goes()
				w.pass(time.Minute)
				n, reasons := w.admitted(100, d("exact", "42"))
				if want := size; n != want || reasons[limit.StoreLocal] != 100 {
					w.Errorf("%d of 100 admitted, %v; want %d", n, reasons, want)
				}
				if agents, known := other.Fleet(); agents != size || known != (size > 0) {
					w.Errorf("a fleet of %d, %v", agents, known)
				}
				if agents, known := first.Fleet(); agents != 4 || !known {
					w.Errorf("whoever knew, knows %d, %v", agents, known)
				}
				w.Agent = first
			})
		})
	}
}

// TestLocalBeforeTheStoreWasReached: empty as of the start, by the size that was told.
func TestLocalBeforeTheStoreWasReached(t *testing.T) {
	for size, want := range map[int]int{0: 0, 10: 10} {
		onFake(t, agent.Config{Rules: localRules, FleetSize: size}, func(w *world) {
			w.fake.away.Store(true)
			if n, _ := w.admitted(10, d("local", "42")); n != 0 {
				w.Errorf("%d admitted at the start", n)
			}
			w.pass(time.Minute)
			if n, reasons := w.admitted(100, d("local", "42")); n != want || reasons[limit.StoreLocal] != 100 {
				w.Errorf("size %d: %d admitted, %v", size, n, reasons)
			}
			w.fake.away.Store(false)
			if n, _ := w.admitted(100, d("local", "42")); n != 100 {
				w.Errorf("by the store %d admitted", n)
			}
		})
	}
}

// TestLocalOverload: a full queue is answered by the share as well.
func TestLocalOverload(t *testing.T) {
	onCounting(t, 1, agent.Config{MaxPending: 1, Deadline: time.Second}, func(w *world, c *counting) {
		w.fake.befalls(all(slow, fate{delay: 500 * time.Millisecond}))
		waits := make(chan limit.Decision)
		go func() { waits <- w.ask(1, d("exact", "1")) }()
		synctest.Wait()
		if n, reasons := w.admitted(5, d("exact", "42")); n != 0 || reasons[limit.Overloaded] != 5 {
			w.Errorf("%d admitted, %v", n, reasons)
		}
		w.pass(100 * time.Millisecond)
		if n, reasons := w.admitted(20, d("exact", "42")); n != 10 || reasons[limit.Overloaded] != 20 {
			w.Errorf("100 ms later %d admitted, %v", n, reasons)
		}
		if got := <-waits; got.Reason != limit.OK {
			w.Errorf("who waited: %+v", got)
		}
		w.fake.befalls(all(-1, fate{}))
		w.pass(3 * time.Second)
		if n := w.fake.ops[limit.Charge].Load(); n == 0 {
			w.Error("what the share admitted was not charged")
		}
	})
}

// TestLocalAndAnother: a denial by another descriptor gives the share its token back.
func TestLocalAndAnother(t *testing.T) {
	onCounting(t, 4, agent.Config{}, func(w *world, c *counting) {
		w.goes()
		w.pass(time.Minute)
		for range 50 {
			if got := w.ask(1, d("exact", "42"), d("closed", "42")); got.Admitted || got.Reason != limit.StoreClosed || !got.Unavailable() {
				w.Fatalf("%+v", got)
			}
		}
		if n, _ := w.admitted(100, d("exact", "42")); n != 25 {
			w.Errorf("%d of 25 are left", n)
		}
	})
}

// TestLeasesServeOn: tokens that are on lease when the shard goes are spent until their lease ends, then the share decides; and what
// all of it admits, one bucket has.
func TestLeasesServeOn(t *testing.T) {
	onCounting(t, 1, agent.Config{}, func(w *world, c *counting) {
		w.warm(d("local", "42"))
		for range 100 {
			w.ask(1, d("local", "42"))
			w.pass(20 * time.Millisecond)
		}
		held := int(w.Stats().Leases.Held)
		if held == 0 {
			w.Fatal("nothing is on lease")
		}
		w.fake.befalls(all(slow, fate{err: errDown}))
		if n, reasons := w.admitted(held, d("local", "42")); n != held || reasons[limit.OK] != held {
			w.Errorf("%d of %d on lease admitted, %v", n, held, reasons)
		}
	})
}

// TestLocalInMemory: the store is the agent's own, and what does not fit in it is denied.
func TestLocalInMemory(t *testing.T) {
	cells, err := memstore.New(memstore.Config{MaxCells: 64})
	if err != nil {
		t.Fatal(err)
	}
	a := newAgent(t, agent.Config{Store: cells, Rules: localRules})
	reasons := make(map[limit.Reason]int)
	for i := range 1000 {
		got, err := a.Check(t.Context(), agent.Request{Domain: "api", Descriptors: []rules.Descriptor{d("local", fmt.Sprint(i))}, Hits: 1})
		if err != nil || got.Admitted != (got.Reason == limit.OK) {
			t.Fatalf("%+v, %v", got, err)
		}
		reasons[got.Reason]++
	}
	if reasons[limit.OK] != 64 || reasons[limit.StoreLocal] != 936 {
		t.Errorf("%v", reasons)
	}
}

// TestPolicyCounts: every answer by policy is counted for its rule.
func TestPolicyCounts(t *testing.T) {
	onCounting(t, 1, agent.Config{}, func(w *world, c *counting) {
		w.goes() // three looks at closed
		w.admitted(2, d("open", "42"))
		w.pass(time.Hour)
		w.admitted(101, d("exact", "42"))
		w.ask(1000, d("open", "42")) // never: needs no store
		want := []agent.ByPolicy{
			{Domain: "api", Rule: "slow-closed", Reason: limit.StoreClosed, Answers: 3},
			{Domain: "api", Rule: "slow-exact", Admitted: true, Reason: limit.StoreLocal, Answers: 100},
			{Domain: "api", Rule: "slow-exact", Reason: limit.StoreLocal, Answers: 1},
			{Domain: "api", Rule: "slow-open", Admitted: true, Reason: limit.StoreOpen, Answers: 2},
		}
		if got := fmt.Sprint(w.ByPolicy()); got != fmt.Sprint(want) {
			w.Errorf("counted\n%v, want\n%v", got, want)
		}
		w.SetRules(parse(`name: slow-open, match: [{key: open}], limit: 100/s, on_store_error: open`))
		if got := w.ByPolicy(); len(got) != 1 || got[0].Rule != "slow-open" {
			w.Errorf("after a change of rules: %v", got)
		}
	})
}

// TestFleetShrinks: while a shard is away, agents that leave take their part of its limits along: they may have used it up just before. Until
// the shard has been back for a while, nobody else has it.
func TestFleetShrinks(t *testing.T) {
	onCounting(t, 4, agent.Config{}, func(w *world, c *counting) {
		w.goes()
		w.pass(time.Hour)
		for _, step := range []struct{ members, agents, admitted int }{{1, 4, 25}, {5, 5, 20}, {2, 5, 20}} {
			c.members.Store(int64(step.members))
			w.pass(30 * time.Second)
			if n, _ := w.Fleet(); n != step.agents {
				w.Errorf("%+v: %d agents", step, n)
			}
			if n, _ := w.admitted(100, d("local", "42")); n != step.admitted {
				w.Errorf("%+v: %d of 100 admitted", step, n)
			}
		}
		w.comes()
		w.pass(30 * time.Second)
		if n, _ := w.Fleet(); n != 2 {
			w.Errorf("after its return: %d agents", n)
		}
	})
}

// TestFleetCount: the most of the last beats counts, from the third on; a beat without an answer changes nothing.
func TestFleetCount(t *testing.T) {
	onFake(t, agent.Config{}, func(w *world) {
		if n, known := w.Fleet(); known {
			w.Errorf("a store that does not count tells %d", n)
		}
	})
	inBubble(t, agent.Config{}, false, func(w *world) {
		if n, known := w.Fleet(); n != 1 || !known {
			w.Errorf("a memory store: %d, %v", n, known)
		}
	})
	onCounting(t, 4, agent.Config{}, func(w *world, c *counting) {
		young := newAgent(t, agent.Config{Store: c, FleetSize: 9})
		defer young.Close(context.Background())
		w.pass(3 * time.Second)
		if n, known := young.Fleet(); n != 9 || !known {
			w.Errorf("before the third beat: %d, %v", n, known)
		}
		w.pass(2 * time.Second)
		for _, step := range []struct {
			members int
			after   time.Duration
			want    int
		}{{4, 0, 4}, {7, 3 * time.Second, 7}, {2, 3 * time.Second, 7}, {2, 8 * time.Second, 2}, {0, time.Hour, 2}} {
			c.members.Store(int64(step.members))
			w.pass(step.after)
			if n, known := young.Fleet(); n != step.want || !known {
				w.Errorf("%+v: %d, %v", step, n, known)
			}
		}
		c.silent.Store(true)
		w.pass(time.Hour)
		if n, known := young.Fleet(); n != 2 || !known {
			w.Errorf("without beats: %d, %v", n, known)
		}
	})
}

// TestLocalFleet is G1 while the store is away, of whole agents on virtual time: the shard goes and comes as it likes, the agents ask
// for one bucket at more than its rate, and one bucket would have admitted all of it.
func TestLocalFleet(t *testing.T) {
	for seed := range uint64(6) {
		synctest.Test(t, func(t *testing.T) { localFleet(t, seed) })
	}
}

func localFleet(t *testing.T, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 3))
	c := &counting{fake: &fake{cells: newCells(t)}}
	size := 1 + r.IntN(5)
	c.members.Store(int64(size))
	var agents []*agent.Agent
	for range size {
		a := newAgent(t, agent.Config{Store: c, Rules: localRules})
		defer a.Close(context.Background())
		agents = append(agents, a)
	}
	time.Sleep(5 * time.Second)
	truth := struct{ tat, emission, depth time.Duration }{0, 10 * time.Millisecond, time.Second}
	start := time.Now()
	key := []string{"local", "exact"}[seed%2]
	byShare := 0
	ask := func(a *agent.Agent) {
		got, err := a.Check(t.Context(), agent.Request{Domain: "api", Descriptors: []rules.Descriptor{d(key, "42")}, Hits: 1})
		if err != nil || !got.Admitted {
			return
		}
		if got.Reason == limit.StoreLocal {
			byShare++
		}
		now := time.Since(start)
		truth.tat = max(truth.tat, now) + truth.emission
		if truth.tat > now+truth.depth {
			t.Fatalf("seed %d, %d agents: after %v more is admitted than one bucket has", seed, size, now)
		}
	}
	for phase := range 8 {
		if phase%2 == 1 {
			c.befalls(all(slow, []fate{{err: errDown}, {delay: time.Hour}}[r.IntN(2)]))
		} else {
			c.befalls(all(slow, fate{}))
		}
		for end := time.Now().Add(time.Second + time.Duration(r.Int64N(int64(4*time.Second)))); time.Now().Before(end); {
			for _, a := range agents {
				// A look at another bucket of the shard: everybody notices how it is.
				a.Check(t.Context(), agent.Request{Domain: "api", Descriptors: []rules.Descriptor{d("closed", "42")}, Hits: 0})
				for range r.IntN(4) {
					ask(a)
				}
			}
			time.Sleep(time.Duration(r.IntN(20)) * time.Millisecond)
		}
	}
	if byShare == 0 {
		t.Errorf("seed %d: no share has admitted anything", seed)
	}
}

var _ batcher.Countable = (*counting)(nil)

// TestLocalChargesADividedBucket: what a share admitted is charged to the parts, all of it, also where the agent learns only then that the bucket is
// divided.
func TestLocalChargesADividedBucket(t *testing.T) {
	set := parse(`name: big, match: [{key: big}], limit: 400/h, on_store_error: local, mode: exact`)
	inFleet(t, fleetConfig{1, 4, 4, agent.Config{Rules: set, FleetSize: 1}}, func(f *fleet) {
		b, big := f.bucket("big", "x"), terms(t, 400, time.Hour)
		f.store.befalls(func(int, *batcher.Entry) fate { return fate{err: errDown} })
		for range 3 {
			f.ask(0, 0, d("big", "x"))
		}
		f.pass(time.Hour)
		for i := range 50 {
			if got := f.ask(0, 1, d("big", "x")); !got.Admitted || got.Reason != limit.StoreLocal {
				f.Fatalf("check %d: %+v", i, got)
			}
		}
		s := f.store.split(b, big)
		if n := f.store.free(b, big, s); n != 400 {
			f.Fatalf("the parts begin with %d", n)
		}
		f.store.befalls(distant)
		f.pass(1500 * time.Millisecond)
		if n := f.store.free(b, big, s); n != 350 {
			f.Errorf("after the return the parts have %d, want 350", n)
		}
		for i := range s.Ways {
			if n := f.store.at(b, big, s, i); n < 86 || n > 88 {
				f.Errorf("part %d has %d of 100", i, n)
			}
		}
	})
}
