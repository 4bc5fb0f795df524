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

// TestDividedLeases: leases come from the parts and go back to them. What is admitted is never more than the limit (G1) and
// hardly less (G3), and after Close the parts have them back.
func TestDividedLeases(t *testing.T) {
	for _, agents := range []int{1, 8} {
		t.Run(name("agents=%d", agents), func(t *testing.T) {
			inFleet(t, fleetConfig{agents, 4, 4, agent.Config{Rules: dividedRules}}, func(f *fleet) {
				b, fast := f.bucket("fast", "x"), terms(t, 4000, time.Second)
				f.keep(b, fast)
				f.store.befalls(distant)
				_, admitted := f.load(4, time.Duration(agents)*time.Millisecond*2/3, 2*time.Second, 1, d("fast", "x")) // 6,000 a second
				if least := int64(2 * 4000 * 99 / 100); admitted < least {
					f.Errorf("%d admitted, want at least %d", admitted, least)
				}
				f.load(4, 8*time.Millisecond, 2*time.Second, 1, d("fast", "x"))
				f.neverOver("fast", window.Limit{Burst: 4000, Tokens: 4000, Per: time.Second})
				granted := uint64(0)
				for _, a := range f.all {
					granted += a.Stats().Leases.Granted
				}
				f.close()
				// Of a lease that has just ended the last tokens may not have been told: they are in the record for one epoch more.
				out := limit.Tokens(0)
				for i := range 4 {
					out += f.store.out(b, fast, f.store.now(b, fast), i)
				}
				if granted < 2000 || out > 2*limit.Tokens(agents) {
					f.Errorf("%d were leased, and %d are out after Close", granted, out)
				}
			})
		})
	}
}

// out is what a part of a bucket has out on lease, seen by emptying it after a reset: a reset leaves out what is leased.
func (m *masters) out(b limit.Bucket, t *limit.Terms, s limit.Split, index int) limit.Tokens {
	m.run(&batcher.Entry{Bucket: b, Terms: t, Op: limit.Reset, Part: partOf(s, index)})
	return limit.Share(t.Burst, s.Ways, index) - m.at(b, t, s, index)
}

// TestNoFlapping is fault 22: around the threshold a bucket is divided at most once, and around a quarter of it made whole at most once, in a
// minute.
func TestNoFlapping(t *testing.T) {
	const threshold = 100
	for _, tt := range []struct{ first, then int }{{90, 90}, {100, 100}, {110, 110}, {200, 15}, {200, 25}, {200, 35}} {
		t.Run(name("%d%% then %d%%", tt.first, tt.then), func(t *testing.T) {
			inFleet(t, fleetConfig{2, 4, 4, agent.Config{Rules: dividedRules, SplitOps: threshold}}, func(f *fleet) {
				f.store.befalls(distant)
				pause := func(percent int) time.Duration { return 2 * 100 * time.Second / time.Duration(threshold*percent) }
				f.load(1, pause(tt.first), 2*time.Second, 1, d("big", "x"))
				f.load(1, pause(tt.then), time.Minute, 1, d("big", "x"))
				for i := range f.all {
					got := f.events(i)
					if len(got) > 2 || tt.first > 100 && len(got) == 0 || tt.then > 30 && len(got) > 1 || tt.then < 20 && len(got) != 2 {
						f.Errorf("agent %d: %v", i, got)
					}
				}
				f.neverOver("big", bigLimit)
			})
		})
	}
}

// TestRuleChangesWhileDivided: other limits of the class hold at once, in all parts together; a rule that is not to be split makes its
// bucket whole, for ten seconds at least; and of a rule that is gone the division ends by itself.
func TestRuleChangesWhileDivided(t *testing.T) {
	inFleet(t, fleetConfig{2, 4, 4, agent.Config{Rules: dividedRules, SplitOps: 500}}, func(f *fleet) {
		f.store.befalls(distant)
		events := func(want ...split.EventKind) {
			f.Helper()
			for i := range f.all {
				if got := f.events(i); !slices.Equal(got, want) {
					f.Errorf("agent %d: %v, want %v", i, got, want)
				}
			}
		}
		load := func(d0 time.Duration) (admitted int64) {
			_, admitted = f.load(4, 10*time.Millisecond, d0, 1, d("big", "x"))
			return admitted
		}
		load(time.Second)
		events("split")
		for _, n := range []limit.Tokens{300, 3, 2000} {
			f.setRules(parse(name("name: big, match: [{key: big}], limit: {requests: %d, per: 1s, burst: %d}, mode: exact", n, n)))
			f.forget()
			got := load(2 * time.Second)
			f.neverOver("big", window.Limit{Burst: int64(n), Tokens: int64(n), Per: time.Second})
			if want := min(2*int64(n), 1600) * 9 / 10; got < want-3 {
				f.Errorf("limit %d: %d admitted in 2 s, want at least %d", n, got, want-3)
			}
			events("split")
		}
		f.setRules(parse(`name: big, match: [{key: big}], limit: 2000/s, mode: exact, split: off`))
		load(time.Second)
		events("split", "merged")
		f.setRules(dividedRules)
		load(8 * time.Second)
		events("split", "merged")
		load(3 * time.Second)
		events("split", "merged", "split")
		f.setRules(parse(`name: other, match: [{key: other}], limit: 1/s`))
		f.pass(12 * time.Second)
		for i, a := range f.all {
			if all, s := a.Splits(), a.Stats().Splits; len(all) > 0 || s.Split != s.Merged+s.Ended {
				f.Errorf("agent %d: %v, %+v", i, all, s)
			}
		}
	})
}

// TestOtherClassIsToldOf: terms of another class make another cell, and the division of the old one is over for an agent that has them: it says so.
func TestOtherClassIsToldOf(t *testing.T) {
	inFleet(t, fleetConfig{2, 4, 4, agent.Config{Rules: dividedRules, SplitOps: 500}}, func(f *fleet) {
		f.load(4, 8*time.Millisecond, 2*time.Second, 1, d("big", "x"))
		f.setRules(parse(`name: big, match: [{key: big}], limit: {requests: 2000, per: 1s, burst: 40000}, mode: exact`))
		f.load(4, 8*time.Millisecond, 4*time.Second, 1, d("big", "x"))
		for i := range f.all {
			got := f.events(i)
			splits := slices.DeleteFunc(slices.Clone(got), func(e split.EventKind) bool { return e != split.EventSplit })
			if len(splits) != 2 || len(got) != 3 {
				f.Errorf("agent %d: %v, want two splits and the end of the first", i, got)
			}
		}
		f.pass(15 * time.Second)
		for i, a := range f.all {
			if s := a.Stats().Splits; s.Split != s.Merged+s.Ended || s.Active != 0 {
				f.Errorf("agent %d, with nothing divided any more: %v, %+v", i, f.events(i), s)
			}
		}
	})
}

// TestPeekWhileDivided: a look shows what all parts have, and takes nothing; the agent may know of the division or not.
func TestPeekWhileDivided(t *testing.T) {
	inFleet(t, fleetConfig{2, 8, 8, agent.Config{Rules: dividedRules}}, func(f *fleet) {
		b, many := f.bucket("many", "x"), terms(t, 997, time.Hour)
		f.keep(b, many)
		for i := range 400 {
			f.ask(0, limit.Tokens(i%3), d("many", "x")) // 399 in all
		}
		for i := range f.all {
			for range 3 {
				if got, want := short(f.ask(i, 0, d("many", "x"))), (outcome{true, limit.OK, 997, 598, "many"}); got != want {
					f.Errorf("agent %d: %+v, want %+v", i, got, want)
				}
			}
		}
		if free := f.store.free(b, many, f.store.now(b, many)); free != 598 {
			f.Errorf("%d free, want 598", free)
		}
	})
}

// TestResetWhileDivided: all parts are full afterwards, whether the agent knew of them or not.
func TestResetWhileDivided(t *testing.T) {
	for _, knows := range []bool{true, false} {
		inFleet(t, fleetConfig{1, 8, 8, agent.Config{Rules: dividedRules}}, func(f *fleet) {
			b, many := f.bucket("many", "x"), terms(t, 997, time.Hour)
			f.keep(b, many)
			f.store.befalls(distant)
			if knows {
				f.ask(0, 1, d("many", "x"))
			}
			f.store.drain(b, many, f.store.now(b, many))
			if err := f.reset(0, d("many", "x")); err != nil {
				f.Fatal(err)
			}
			if free := f.store.free(b, many, f.store.now(b, many)); free != 997 {
				f.Errorf("%d free, want 997", free)
			}
			for range 1000 {
				f.ask(0, 1, d("many", "x"))
			}
			if n := f.admitted("many"); n < 997 {
				f.Errorf("%d admitted, want 997", n)
			}
		})
	}
}

// TestRefundToPart: what a check of two descriptors took from a part comes back to it when the other one denies.
func TestRefundToPart(t *testing.T) {
	inFleet(t, fleetConfig{1, 8, 8, agent.Config{Rules: dividedRules}}, func(f *fleet) {
		b, many := f.bucket("many", "x"), terms(t, 997, time.Hour)
		f.keep(b, many)
		f.store.befalls(distant)
		f.ask(0, 1, d("one", "x"))
		for range 40 {
			if got := f.ask(0, 60, d("many", "x"), d("one", "x")); got.Admitted {
				f.Fatalf("%+v", got)
			}
			f.pass(130 * time.Millisecond)
		}
		if free := f.store.free(b, many, f.store.now(b, many)); free != 997 {
			f.Errorf("%d free, want 997", free)
		}
	})
}
