package agent_test

import (
	"slices"
	"testing"
	"time"

	"github.com/spillgate/spillgate/agent"
	"github.com/spillgate/spillgate/agent/split"
	"github.com/spillgate/spillgate/batcher"
	"github.com/spillgate/spillgate/internal/window"
	"github.com/spillgate/spillgate/limit"
)

// These tests are about what a caller of a divided bucket is told who has to wait, or needs more than a part holds.

// TestTokensThatCameBack: an agent that found all parts empty finds what another's reset filled, within the 250 ms for which it believes that a
// part is empty.
func TestTokensThatCameBack(t *testing.T) {
	rules := parse(`name: r, match: [{key: r}], limit: 100/h, mode: exact`)
	inFleet(t, fleetConfig{2, 8, 8, agent.Config{Rules: rules}}, func(f *fleet) {
		f.keep(f.bucket("r", "x"), terms(t, 100, time.Hour))
		f.store.befalls(distant)
		for range 300 {
			f.ask(0, 1, d("r", "x"))
			f.pass(5 * time.Millisecond)
		}
		if n := f.admitted("r"); n != 100 {
			f.Fatalf("%d of 100 admitted before the reset", n)
		}
		if err := f.reset(1, d("r", "x")); err != nil {
			f.Fatal(err)
		}
		f.forget()
		f.pass(250 * time.Millisecond)
		for range 150 {
			f.ask(0, 1, d("r", "x"))
			f.pass(5 * time.Millisecond)
		}
		if n := f.admitted("r"); n != 100 {
			f.Errorf("%d of 100 admitted after the reset", n)
		}
	})
}

// TestLoneLeasedAgent gets all that is there at once, as it does of a whole bucket: no pause for rivals who are not there denies it what other
// parts have.
func TestLoneLeasedAgent(t *testing.T) {
	inFleet(t, fleetConfig{1, 8, 8, agent.Config{Rules: parse(`name: r, match: [{key: r}], limit: 100/h`)}}, func(f *fleet) {
		f.keep(f.bucket("r", "x"), terms(t, 100, time.Hour))
		f.store.befalls(distant)
		for i := range 100 {
			if got := f.ask(0, 1, d("r", "x")); !got.Admitted {
				f.Fatalf("check %d: %+v", i+1, got)
			}
			f.pass(5 * time.Millisecond)
		}
		if got := f.ask(0, 1, d("r", "x")); got.Admitted {
			f.Errorf("the 101st: %+v", got)
		}
	})
}

// TestRetryOfLargeCost: who asks for more than a part holds, and waits as long as told, is admitted (G4): the bucket is made whole meanwhile.
func TestRetryOfLargeCost(t *testing.T) {
	for off := range 20 {
		inFleet(t, fleetConfig{1, 8, 8, agent.Config{Rules: dividedRules}}, func(f *fleet) {
			f.keep(f.bucket("many", "x"), terms(t, 997, time.Hour))
			f.store.befalls(func(int, *batcher.Entry) fate { return fate{delay: 5 * time.Millisecond} })
			f.pass(time.Duration(off) * 10 * time.Millisecond)
			got := f.ask(0, 500, d("many", "x"))
			if got.Admitted || got.RetryAfter > 250*time.Millisecond {
				f.Errorf("of a divided bucket: %+v", got)
			}
			f.pass(got.RetryAfter)
			if again := f.ask(0, 500, d("many", "x")); !again.Admitted {
				f.Errorf("told to wait %v, and then %+v", got.RetryAfter, again)
			}
		})
	}
}

// TestNoSplitAfterLargeCost: a bucket that was made whole for a cost which no part could hold stays whole for ten seconds, whatever agents
// want that do not know of the cost; and for a minute if all know it.
func TestNoSplitAfterLargeCost(t *testing.T) {
	for _, agents := range []int{1, 2} {
		inFleet(t, fleetConfig{agents, 4, 4, agent.Config{Rules: dividedRules, SplitOps: 100}}, func(f *fleet) {
			f.store.befalls(distant)
			last := agents - 1 // it knows nothing of the cost, if there are two
			load := func(d0 time.Duration) { f.load(2/agents, 5*time.Millisecond, d0, 1, d("big", "x")) }
			load(2 * time.Second)
			got := f.ask(0, 1500, d("big", "x"))
			if got.Admitted {
				f.Fatalf("%+v while the bucket is divided", got)
			}
			load(got.RetryAfter)
			want := []split.EventKind{split.EventSplit, split.EventMerged}
			pause := 9 * time.Second
			if agents == 1 {
				pause = 59 * time.Second
			}
			load(pause)
			if got := f.events(0); !slices.Equal(got, want) {
				f.Errorf("%d agents, %v later: %v", agents, pause, got)
			}
			load(3 * time.Second)
			if got := f.events(last); len(got) < 3 || got[2] != split.EventSplit {
				f.Errorf("%d agents, %v later: %v", agents, pause+3*time.Second, got)
			}
			f.neverOver("big", bigLimit)
		})
	}
}

// TestImpossibleCost: a check that can never be admitted, for it wants more than the burst, says nothing of the parts: the bucket stays divided.
func TestImpossibleCost(t *testing.T) {
	inFleet(t, fleetConfig{2, 4, 4, agent.Config{Rules: dividedRules, SplitOps: 500}}, func(f *fleet) {
		f.load(4, 8*time.Millisecond, 2*time.Second, 1, d("big", "x"))
		if got := f.ask(0, 2001, d("big", "x")); got.Reason != limit.Never {
			f.Fatalf("%+v", got)
		}
		f.load(4, 8*time.Millisecond, 2*time.Second, 1, d("big", "x"))
		for i := range f.all {
			if got := f.events(i); !slices.Equal(got, []split.EventKind{split.EventSplit}) {
				f.Errorf("agent %d: %v, want it divided still", i, got)
			}
		}
	})
}

// soft is an optimistic rule of so many tokens per period, and an allowance of ten for each agent.
func soft(t testing.TB, requests limit.Tokens, period time.Duration) *limit.Terms {
	t.Helper()
	terms, err := limit.Rate{Requests: requests, Period: period, Debt: 10 * limit.MaxAgents}.Terms()
	if err != nil {
		t.Fatal(err)
	}
	return terms
}

// TestOptimisticDivided: what agents admit of a divided bucket ahead of the store is at most their allowances above the limit, in every window
// (G2): the debt of a part is not hidden by what other parts have.
func TestOptimisticDivided(t *testing.T) {
	for _, tt := range []struct {
		limit  string
		tokens limit.Tokens
		per    time.Duration
		agents int
		ways   int
	}{{"100/h", 100, time.Hour, 1, 8}, {"100/h", 100, time.Hour, 6, 8}, {"100/s", 100, time.Second, 6, 4}, {"1000/s", 1000, time.Second, 3, 64}} {
		t.Run(name("%s/agents=%d/ways=%d", tt.limit, tt.agents, tt.ways), func(t *testing.T) {
			rules := parse(`name: soft, match: [{key: soft}], limit: ` + tt.limit + `, mode: optimistic, allowance: 10, on_store_error: closed`)
			inFleet(t, fleetConfig{tt.agents, 8, tt.ways, agent.Config{Rules: rules}}, func(f *fleet) {
				f.keep(f.bucket("soft", "x"), soft(t, tt.tokens, tt.per))
				f.store.befalls(distant)
				f.load(20, 3*time.Millisecond*time.Duration(tt.agents), 3*time.Second, 1, d("soft", "x"))
				f.neverOver("soft", window.Limit{Burst: int64(tt.tokens) + 10*int64(tt.agents), Tokens: int64(tt.tokens), Per: tt.per})
				least := int64(tt.tokens) + int64(3*time.Second*time.Duration(tt.tokens)/tt.per)*95/100
				if n := f.admitted("soft"); n < min(least, 3*6600) {
					f.Errorf("%d admitted, want at least %d", n, least)
				}
			})
		})
	}
}

// TestOptimisticWhenDivided: charges that are on their way when the bucket is divided, or made whole, are charged where it is now.
func TestOptimisticWhenDivided(t *testing.T) {
	rules := parse(`name: soft, match: [{key: soft}], limit: 2000/h, mode: optimistic, allowance: 10, on_store_error: closed`)
	inFleet(t, fleetConfig{2, 4, 4, agent.Config{Rules: rules}}, func(f *fleet) {
		b, terms := f.bucket("soft", "x"), soft(t, 2000, time.Hour)
		f.store.befalls(distant)
		done := make(chan struct{})
		go func() {
			defer close(done)
			f.load(1, 12*time.Millisecond, 10*time.Second, 1, d("soft", "x"))
		}()
		for range 2 {
			time.Sleep(800 * time.Millisecond)
			f.store.split(b, terms)
			time.Sleep(800 * time.Millisecond)
			f.store.merge(b, terms, false)
			time.Sleep(limit.SplitTTL) // not divided again before the end that it had
		}
		<-done
		f.close()
		admitted, s := f.admitted("soft"), f.store.now(b, terms)
		lost := uint64(0)
		for _, a := range f.all {
			lost += a.Stats().Leases.ChargesLost
		}
		free := int64(f.store.free(b, terms, s))
		if refilled := int64(7); free > 2000-admitted+int64(lost)+refilled || s.Ways != 0 {
			f.Errorf("%d admitted, %d free of 2000, %d lost, divided as %+v", admitted, free, lost, s)
		}
		if lost > 0 {
			f.Errorf("%d charges were lost", lost)
		}
	})
}
