package agent_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/spillgate/spillgate/agent"
	"github.com/spillgate/spillgate/agent/split"
	"github.com/spillgate/spillgate/batcher"
	"github.com/spillgate/spillgate/internal/window"
	"github.com/spillgate/spillgate/limit"
)

// These tests are about buckets that are divided over several masters.

var dividedRules = parse(
	`name: big, match: [{key: big}], limit: 2000/s, mode: exact, on_store_error: closed`,
	`name: open, match: [{key: open}], limit: 2000/s, mode: exact, on_store_error: open`,
	`name: seven, match: [{key: seven}], limit: 7/m, mode: exact`,
	`name: leased, match: [{key: leased}], limit: 7/m`,
	`name: ten, match: [{key: ten}], limit: 10/h, mode: exact`,
	`name: warm, match: [{key: warm}], limit: 10/h`,
	`name: one, match: [{key: one}], limit: 1/h, mode: exact`,
	`name: many, match: [{key: many}], limit: 997/h, mode: exact`,
	`name: fast, match: [{key: fast}], limit: 4000/s, on_store_error: closed`,
)

var bigLimit = window.Limit{Burst: 2000, Tokens: 2000, Per: time.Second}

// TestViralKey: one key of an exact rule at high load is divided once its entries reach the threshold; then all masters serve it,
// and some seconds after the load has gone it is whole again, with nothing left over. Each agent learns of both once.
func TestViralKey(t *testing.T) {
	inFleet(t, fleetConfig{8, 4, 4, agent.Config{Rules: dividedRules, SplitOps: 2000}}, func(f *fleet) {
		f.store.befalls(distant)
		f.load(4, 20*time.Millisecond, 2*time.Second, 1, d("big", "x"))
		for i := range f.all {
			if got := f.events(i); len(got) > 0 {
				f.Fatalf("agent %d: %v at 1,560 entries per second, want it whole below 2,000", i, got)
			}
		}
		f.load(4, 12*time.Millisecond, 2*time.Second, 1, d("big", "x"))
		for i := range f.all {
			if got := f.events(i); !slices.Equal(got, []split.EventKind{split.EventSplit}) {
				f.Fatalf("agent %d: %v at 2,560 entries per second", i, got)
			}
		}
		f.store.counted()
		checks, admitted := f.load(4, 12*time.Millisecond, 4*time.Second, 1, d("big", "x"))
		if least := int64(4 * 2000 * 99 / 100); admitted < least {
			f.Errorf("%d of %d admitted, want at least %d (G3)", admitted, checks, least)
		}
		by, _ := f.store.counted()
		sum := 0
		for _, n := range by {
			sum += n
		}
		if most := sum / len(by) * 3 / 2; slices.Max(by) > most {
			f.Errorf("entries by master %v, want at most %d", by, most)
		}
		f.pass(8 * time.Second)
		for i, a := range f.all {
			s := a.Stats().Splits
			if got := f.events(i); !slices.Equal(got, []split.EventKind{split.EventSplit, split.EventMerged}) || s.Split != 1 || s.Merged != 1 || s.Active != 0 {
				f.Errorf("agent %d, 8 s after the load: %v, %+v", i, got, s)
			}
			if all := a.Splits(); len(all) > 0 {
				f.Errorf("agent %d knows of %v", i, all)
			}
		}
		f.neverOver("big", bigLimit)
	})
}

// TestIndivisible is fault 6: a limit that the parts do not divide is granted exactly, to a lone agent and to many.
func TestIndivisible(t *testing.T) {
	for _, tt := range []struct {
		key   string
		burst limit.Tokens
		per   time.Duration
		ways  int
	}{{"seven", 7, time.Minute, 8}, {"leased", 7, time.Minute, 8}, {"ten", 10, time.Hour, 8}, {"warm", 10, time.Hour, 8}, {"many", 997, time.Hour, 16}} {
		for _, agents := range []int{1, 16} {
			t.Run(name("%s/agents=%d", tt.key, agents), func(t *testing.T) {
				inFleet(t, fleetConfig{agents, 8, tt.ways, agent.Config{Rules: dividedRules}}, func(f *fleet) {
					b, terms := f.bucket(tt.key, "x"), terms(t, tt.burst, tt.per)
					f.keep(b, terms)
					if s := f.store.now(b, terms); s.Ways != min(tt.ways, int(tt.burst)) {
						f.Fatalf("divided as %+v", s)
					}
					f.store.befalls(distant)
					var wg sync.WaitGroup
					for i := range agents {
						wg.Go(func() {
							for range int(tt.burst)/agents + 3 {
								f.ask(i, 1, d(tt.key, "x"))
							}
						})
					}
					wg.Wait()
					if agents > 1 { // some were too slow for the last ones
						for i := range 8 {
							f.ask(i, 1, d(tt.key, "x"))
						}
					}
					if n := f.admitted(tt.key); n != int64(tt.burst) {
						f.Errorf("%d admitted, want %d", n, tt.burst)
					}
				})
			})
		}
	}
}

// TestLastTokenDivided is fault 14, for a lone agent on a divided bucket. Whoever waits as long as he was told is admitted (G4).
func TestLastTokenDivided(t *testing.T) {
	for _, tt := range []struct {
		key   string
		burst limit.Tokens
		per   time.Duration
		wait  time.Duration // all parts were emptied at about the same time, and each has a token again when it has refilled one
	}{{"seven", 7, time.Minute, time.Minute}, {"leased", 7, time.Minute, time.Minute}, {"ten", 10, time.Hour, 30 * time.Minute}, {"warm", 10, time.Hour, 30 * time.Minute}} {
		t.Run(tt.key, func(t *testing.T) {
			inFleet(t, fleetConfig{1, 8, 8, agent.Config{Rules: dividedRules}}, func(f *fleet) {
				f.keep(f.bucket(tt.key, "x"), terms(t, tt.burst, tt.per))
				for i := range tt.burst + 3 {
					got := f.ask(0, 1, d(tt.key, "x"))
					want := outcome{true, limit.OK, tt.burst, tt.burst - 1 - i, tt.key}
					if i >= tt.burst {
						want = outcome{false, limit.OverLimit, tt.burst, 0, tt.key}
						if got.RetryAfter > tt.wait+time.Microsecond || got.RetryAfter < tt.wait-time.Second {
							f.Errorf("check %d: retry after %v, want about %v", i+1, got.RetryAfter, tt.wait)
						}
					}
					if short(got) != want {
						f.Errorf("check %d: %+v, want %+v", i+1, short(got), want)
					}
					f.pass(time.Millisecond)
				}
				if tt.per > time.Minute {
					return
				}
				f.pass(f.ask(0, 1, d(tt.key, "x")).RetryAfter)
				if got := f.ask(0, 1, d(tt.key, "x")); !got.Admitted {
					f.Errorf("after the wait: %+v", got)
				}
			})
		})
	}
}

// TestLimitOfOneIsNotDivided.
func TestLimitOfOneIsNotDivided(t *testing.T) {
	inFleet(t, fleetConfig{4, 8, 8, agent.Config{Rules: dividedRules, SplitOps: 100}}, func(f *fleet) {
		f.store.befalls(distant)
		if _, admitted := f.load(4, 10*time.Millisecond, 2*time.Second, 1, d("one", "x")); admitted != 1 {
			f.Errorf("%d admitted, want 1", admitted)
		}
		for i := range f.all {
			if got := f.events(i); len(got) > 0 {
				f.Errorf("agent %d: %v", i, got)
			}
		}
	})
}

// TestStaleAgent knows nothing of the division: it goes home, hears of it there, and is not denied what one part has.
func TestStaleAgent(t *testing.T) {
	for has := range 8 {
		inFleet(t, fleetConfig{1, 8, 8, agent.Config{Rules: dividedRules}}, func(f *fleet) {
			b, ten := f.bucket("ten", "x"), terms(t, 10, time.Hour)
			s := f.store.split(b, ten)
			f.store.drain(b, ten, s)
			f.store.run(&batcher.Entry{Bucket: b, Terms: ten, Op: limit.Refund, N: 1, Part: partOf(s, has)})
			f.store.counted()
			home := 0
			f.store.befalls(func(_ int, e *batcher.Entry) fate {
				if e.Part.At() == 0 && e.Op == limit.Take {
					home++
				}
				return fate{}
			})
			if got := f.ask(0, 1, d("ten", "x")); !got.Admitted || got.Reason != limit.OK {
				f.Errorf("part %d has a token: %+v", has, got)
			}
			_, ops := f.store.counted()
			asked := ops[limit.Take]
			if home != 1 || asked > 1+s.Ways {
				f.Errorf("home was asked %d times, want once; %d asked in all", home, asked)
			}
			if all := f.all[0].Splits(); len(all) != 1 || all[0].Ways != s.Ways || !all[0].Since.Equal(time.UnixMicro(s.Start)) {
				f.Errorf("it knows of %+v", all)
			}
			if got := f.all[0].Stats().Splits; got.Overflow != uint64(asked-2) || got.Split != 1 {
				f.Errorf("%+v of %d asked", got, asked)
			}
			if free := f.store.free(b, ten, s); free != 0 {
				f.Errorf("%d free", free)
			}
		})
	}
}

// merge closes all parts of a bucket and brings home what is in them, as an agent does.
func (m *masters) merge(b limit.Bucket, t *limit.Terms, end bool) {
	e := m.run(&batcher.Entry{Bucket: b, Terms: t, Op: limit.Touch, Part: &limit.Part{Home: true, End: true, Threshold: 1}})
	part := limit.Part{Home: true, Split: e.Split.Split, End: end}
	out := limit.Tokens(0)
	for i := range e.Split.Ways {
		p := t.Part(e.Split.Ways, i)
		closed := m.run(&batcher.Entry{Bucket: b, Terms: t, Op: limit.Close, Part: partOf(part.Split, i)})
		part.Free += t.FromPart(&p, closed.Out.Level)
		out += closed.Out.Granted
	}
	m.run(&batcher.Entry{Bucket: b, Terms: t, Op: limit.Merge, N: out, Part: &part})
}

// TestOldSplit: an agent that still asks a part that others have closed is refused there, and admitted at home.
func TestOldSplit(t *testing.T) {
	inFleet(t, fleetConfig{1, 4, 4, agent.Config{Rules: dividedRules}}, func(f *fleet) {
		b, many := f.bucket("many", "x"), terms(t, 997, time.Hour)
		f.store.befalls(distant)
		f.store.split(b, many)
		f.ask(0, 1, d("many", "x")) // and it knows
		f.store.merge(b, many, false)
		f.store.run(&batcher.Entry{Bucket: b, Terms: many, Op: limit.TakePartial, N: 990})
		refused := uint64(0)
		for i := range 6 {
			start := time.Now()
			got := f.ask(0, 1, d("many", "x"))
			if want := (outcome{true, limit.OK, 997, limit.Tokens(5 - i), "many"}); short(got) != want {
				f.Errorf("check %d: %+v, want %+v", i, short(got), want)
			}
			if took := time.Since(start); took > 2*trip {
				f.Errorf("check %d took %v", i, took)
			}
			refused = f.all[0].Stats().Splits.Refused
		}
		if got := f.ask(0, 1, d("many", "x")); got.Admitted {
			f.Errorf("the 998th: %+v", got)
		}
		if refused > 1 {
			f.Errorf("refused %d times, want at most once", refused)
		}
	})
}

// TestBatchOnDividedBucket: the claims of a pipeline take exactly what is there, the first ones first.
func TestBatchOnDividedBucket(t *testing.T) {
	inFleet(t, fleetConfig{1, 8, 8, agent.Config{Rules: dividedRules}}, func(f *fleet) {
		f.store.befalls(distant)
		f.keep(f.bucket("ten", "x"), terms(t, 10, time.Hour))
		b := f.all[0].NewBatch()
		for round, want := range []int{6, 4, 0} {
			b.Begin()
			for range 6 {
				b.Check("api", ds("ten", "x"), 1)
			}
			b.Decide(context.Background())
			for i := range b.Len() {
				got, err := b.Decision(i)
				if err != nil || got.Admitted != (i < want) {
					f.Errorf("round %d, check %d: %+v, %v", round, i, got, err)
				}
			}
			f.pass(time.Second)
		}
	})
}

// TestPipelineOverManyParts: the claims of one pipeline take all of a full bucket of 64 parts, half a millisecond away, each in time.
func TestPipelineOverManyParts(t *testing.T) {
	inFleet(t, fleetConfig{1, 8, 64, agent.Config{Rules: dividedRules}}, func(f *fleet) {
		f.keep(f.bucket("many", "x"), terms(t, 997, time.Hour))
		f.store.befalls(distant)
		b := f.all[0].NewBatch()
		b.Begin()
		for range 997 {
			b.Check("api", ds("many", "x"), 1)
		}
		b.Decide(f.Context())
		denied, told := 0, time.Duration(0)
		for i := range b.Len() {
			if got, _ := b.Decision(i); !got.Admitted {
				denied, told = denied+1, got.RetryAfter
			}
		}
		if denied > 0 {
			f.Errorf("%d of 997 denied, told to wait %v", denied, told)
		}
	})
}

// TestMasterStops: while a master is gone, checks that begin at its part go on to the others if it refuses, and are decided by policy if
// nobody knows what became of them. Everybody else is served.
func TestMasterStops(t *testing.T) {
	for _, key := range []string{"big", "open"} {
		for _, err := range []error{batcher.ErrNotRun, batcher.ErrUnknown} {
			t.Run(name("%s/%v", key, err), func(t *testing.T) {
				inFleet(t, fleetConfig{4, 4, 4, agent.Config{Rules: dividedRules}}, func(f *fleet) {
					b := f.bucket(key, "x")
					f.keep(b, terms(t, 2000, time.Second))
					f.store.befalls(distant)
					f.load(2, 20*time.Millisecond, time.Second, 1, d(key, "x"))
					gone := (f.store.home(&b) + 2) % 4
					f.store.befalls(func(master int, e *batcher.Entry) fate {
						if master == gone {
							return fate{err: err}
						}
						return fate{delay: trip}
					})
					const seconds = 6
					for i := range f.all {
						before := decidedByPolicy(f.all[i])
						f.loadAt(i, 2, 20*time.Millisecond, seconds*time.Second, 1, d(key, "x"))
						n := decidedByPolicy(f.all[i]) - before
						if most := uint64(2 * (seconds + 1)); err == batcher.ErrUnknown && n > most || err == batcher.ErrNotRun && n > 0 {
							f.Errorf("agent %d: %d checks decided by policy in %d s", i, n, seconds)
						}
					}
					f.neverOver(key, bigLimit)
				})
			})
		}
	}
}

// decidedByPolicy is how many checks of an agent a fail policy decided.
func decidedByPolicy(a *agent.Agent) (n uint64) {
	for _, c := range a.Stats().Checks {
		if c.Reason == limit.StoreOpen || c.Reason == limit.StoreClosed {
			n += c.Checks
		}
	}
	return n
}

// TestHomeStops: the parts serve on until the split ends, then the policy decides; and when home is back all is as it was.
func TestHomeStops(t *testing.T) {
	inFleet(t, fleetConfig{2, 4, 4, agent.Config{Rules: dividedRules}}, func(f *fleet) {
		b, big := f.bucket("big", "x"), terms(t, 2000, time.Second)
		stop := f.keep(b, big)
		f.store.befalls(distant)
		f.load(4, 10*time.Millisecond, time.Second, 1, d("big", "x"))
		stop()
		until := time.UnixMicro(f.store.now(b, big).Until).Add(-limit.SplitMargin)
		f.store.befalls(func(master int, e *batcher.Entry) fate {
			if master == f.store.home(&b) {
				return fate{err: batcher.ErrNotRun}
			}
			return fate{delay: trip}
		})
		left := time.Until(until) - 600*time.Millisecond // an agent hears of a later end twice a second
		if left < time.Second {
			f.Fatalf("the split ends in %v", left)
		}
		if checks, admitted := f.load(4, 10*time.Millisecond, left, 1, d("big", "x")); admitted != checks {
			f.Errorf("while the parts live, %d of %d were admitted", admitted, checks)
		}
		f.pass(800 * time.Millisecond)
		if _, admitted := f.load(4, 10*time.Millisecond, time.Second, 1, d("big", "x")); admitted > 0 {
			f.Errorf("%d admitted without home", admitted)
		}
		f.store.befalls(distant)
		f.load(4, 10*time.Millisecond, time.Second, 1, d("big", "x")) // until its breaker has noticed
		if checks, admitted := f.load(4, 10*time.Millisecond, time.Second, 1, d("big", "x")); admitted != checks {
			f.Errorf("with home back, %d of %d were admitted", admitted, checks)
		}
		f.neverOver("big", bigLimit)
	})
}
