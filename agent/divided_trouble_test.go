package agent_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spillgate/spillgate/agent"
	"github.com/spillgate/spillgate/batcher"
	"github.com/spillgate/spillgate/limit"
)

// These tests are about checks on divided buckets that cannot come to their end as they began.

// TestHangingMaster: of a master that hangs, one check in a second finds out, besides those that are under way when it begins.
func TestHangingMaster(t *testing.T) {
	inFleet(t, fleetConfig{1, 4, 4, agent.Config{Rules: dividedRules}}, func(f *fleet) {
		b := f.bucket("big", "x")
		f.keep(b, terms(t, 2000, time.Second))
		f.store.befalls(distant)
		f.load(20, 20*time.Millisecond, time.Second, 1, d("big", "x"))
		f.store.befalls(func(master int, e *batcher.Entry) fate {
			if master == (f.store.home(&b)+2)%4 {
				return fate{delay: time.Hour}
			}
			return fate{delay: trip}
		})
		f.load(20, 20*time.Millisecond, 10*time.Second, 1, d("big", "x"))
		if n := decidedByPolicy(f.all[0]); n > 25+10 { // those of one deadline, and one a second
			f.Errorf("%d checks were decided by policy in 10 s", n)
		}
	})
}

// TestPeekWithoutAPart: a look shows what the parts that answer have, whichever does not.
func TestPeekWithoutAPart(t *testing.T) {
	for k := range 8 {
		inFleet(t, fleetConfig{1, 8, 8, agent.Config{Rules: dividedRules}}, func(f *fleet) {
			b := f.bucket("many", "x")
			f.keep(b, terms(t, 997, time.Hour))
			f.store.befalls(func(m int, e *batcher.Entry) fate {
				if e.Part.At() == k+1 {
					return fate{err: batcher.ErrNotRun}
				}
				return fate{}
			})
			if got := f.ask(0, 0, d("many", "x")); got.Remaining < 870 || got.Remaining > 997 {
				f.Errorf("without part %d: %+v", k, got)
			}
		})
	}
}

// TestResetHalfDone: a reset that does not come to all parts within its time is not reported as done. The agent does not know at first that the
// bucket is divided.
func TestResetHalfDone(t *testing.T) {
	for _, delay := range []time.Duration{time.Millisecond, 2 * time.Millisecond, 3 * time.Millisecond, 5 * time.Millisecond, 20 * time.Millisecond} {
		inFleet(t, fleetConfig{1, 8, 8, agent.Config{Rules: dividedRules}}, func(f *fleet) {
			b, many := f.bucket("many", "x"), terms(t, 997, time.Hour)
			f.keep(b, many)
			f.store.drain(b, many, f.store.now(b, many))
			f.store.befalls(func(int, *batcher.Entry) fate { return fate{delay: delay} })
			err := f.reset(0, d("many", "x"))
			f.pass(time.Second)
			if free := f.store.free(b, many, f.store.now(b, many)); err == nil && free != 997 {
				f.Errorf("%v away: reset, and %d of 997 are free", delay, free)
			}
			if 9*delay < 20*time.Millisecond && err != nil || delay > 4*time.Millisecond && err == nil {
				f.Errorf("%v away: %v", delay, err)
			}
		})
	}
}

// TestGivenUpWhileOverflowing: a caller who goes away while a check goes from part to part gets an answer at once, and is charged for what he was
// told that he has, and for nothing else (G5, G6).
func TestGivenUpWhileOverflowing(t *testing.T) {
	for _, key := range []string{"shut", "open"} {
		rules := parse(`name: shut, match: [{key: shut}], limit: 80/h, mode: exact, on_store_error: closed`,
			`name: open, match: [{key: open}], limit: 80/h, mode: exact, on_store_error: open`)
		t.Run(key, func(t *testing.T) {
			inFleet(t, fleetConfig{1, 8, 8, agent.Config{Rules: rules}}, func(f *fleet) {
				b, eighty := f.bucket(key, "x"), terms(t, 80, time.Hour)
				f.keep(b, eighty)
				f.store.befalls(distant)
				byStore, byPolicy, gone := 0, 0, 0
				for i := range 120 {
					if i%40 == 0 { // all but one part have nothing, and the agent knows of none
						s := f.store.now(b, eighty)
						f.store.drain(b, eighty, s)
						f.store.run(&batcher.Entry{Bucket: b, Terms: eighty, Op: limit.Refund, N: 10, Part: partOf(s, i/40)})
						f.pass(300 * time.Millisecond)
						byStore, byPolicy = 0, 0
					}
					after := time.Duration(i%40) * 150 * time.Microsecond
					ctx, cancel := context.WithTimeout(f.Context(), after)
					begun := time.Now()
					got, err := f.all[0].Check(ctx, agent.Request{Domain: "api", Descriptors: ds(key, "x"), Hits: 1})
					cancel()
					if err != nil || time.Since(begun) > after {
						f.Fatalf("given up after %v: answered after %v: %+v, %v", after, time.Since(begun), got, err)
					}
					if got.Reason != limit.OK {
						gone++
					}
					switch {
					case got.Admitted && got.Reason == limit.OK:
						byStore++
					case got.Admitted:
						byPolicy++
					}
					f.pass(300 * time.Millisecond) // and what the agent knows is old
					free := f.store.free(b, eighty, f.store.now(b, eighty))
					if most, least := 10-byStore, 10-byStore-byPolicy; int(free) > most || int(free) < least {
						f.Fatalf("given up after %v: %d admitted by the store, %d by policy, and %d of 10 are left", after, byStore, byPolicy, free)
					}
				}
				if gone < 20 {
					f.Errorf("%d checks had no word of the store", gone)
				}
			})
		})
	}
}

// TestLateGrantOfAPart: where a part has denied a check, that is the answer if the next one is too late, also of a rule that is open without the
// store; and what comes too late goes back. Where no part has answered, the policy decides, and what comes is kept.
func TestLateGrantOfAPart(t *testing.T) {
	rules := parse(`name: r, match: [{key: r}], limit: 80/h, mode: exact, on_store_error: open, deadline: 5ms`)
	inFleet(t, fleetConfig{1, 8, 8, agent.Config{Rules: rules}}, func(f *fleet) {
		b, eighty := f.bucket("r", "x"), terms(t, 80, time.Hour)
		f.keep(b, eighty)
		s := f.store.now(b, eighty)
		f.store.drain(b, eighty, s)
		f.store.run(&batcher.Entry{Bucket: b, Terms: eighty, Op: limit.Refund, N: 10, Part: partOf(s, 5)})
		var sent atomic.Int64
		f.store.befalls(func(_ int, e *batcher.Entry) fate {
			if e.Part.At() == 6 && e.Op == limit.Take {
				sent.Add(1)
				return fate{delay: 20 * time.Millisecond}
			}
			return fate{delay: trip}
		})
		denied, open := 0, 0
		for range 40 {
			before := sent.Load()
			switch got := f.ask(0, 1, d("r", "x")); {
			case sent.Load() == before:
				f.Fatalf("the part that has tokens was not asked: %+v", got)
			case got.Reason == limit.StoreOpen:
				open++
			case got.Admitted:
				f.Fatalf("too late, and yet %+v", got)
			default:
				denied++
			}
			f.pass(1130 * time.Millisecond) // it is asked again
			if free := f.store.free(b, eighty, f.store.now(b, eighty)); int(free) != 10-open {
				f.Fatalf("%d denied, %d admitted by policy: %d of 10 are left", denied, open, free)
			}
		}
		if denied < 20 || open == 0 {
			f.Errorf("%d denied, %d admitted by policy", denied, open)
		}
	})
}

// TestRefundOfLeased: what a denied check of two descriptors took from the lease of a part comes back to that part, though its lease is gone
// too (G5).
func TestRefundOfLeased(t *testing.T) {
	rules := parse(`name: slow, match: [{key: slow}], limit: 4000/h`, `name: one, match: [{key: one}], limit: 1/h, mode: exact`)
	inFleet(t, fleetConfig{1, 4, 4, agent.Config{Rules: rules}}, func(f *fleet) {
		b, slow := f.bucket("slow", "x"), terms(t, 4000, time.Hour)
		f.keep(b, slow)
		f.ask(0, 1, d("one", "x"))
		f.store.befalls(distant)
		f.load(2, 10*time.Millisecond, time.Second, 1, d("slow", "x"))
		admitted := f.admitted("slow")
		for range 300 {
			f.ask(0, 1, d("slow", "x"), d("one", "x"))
			f.pass(37 * time.Millisecond)
		}
		f.close()
		if free := f.store.free(b, slow, f.store.now(b, slow)); int64(free+1) < 4000-admitted {
			f.Errorf("%d admitted, %d free of 4000", admitted, free)
		}
	})
}

// TestRefundAfterMerge: what comes back to a part that was closed while the check was under way goes home; and what comes back to a home that
// was divided meanwhile goes to a part.
func TestRefundAfterMerge(t *testing.T) {
	for _, divided := range []bool{true, false} {
		inFleet(t, fleetConfig{1, 4, 4, agent.Config{Rules: dividedRules}}, func(f *fleet) {
			b, many := f.bucket("many", "x"), terms(t, 997, time.Hour)
			f.ask(0, 1, d("one", "x"))
			turn := func() { f.store.split(b, many) }
			if divided {
				turn()
				turn = func() { f.store.merge(b, many, false) }
			}
			for range 4 { // so that every part has room
				f.ask(0, 100, d("many", "x"))
			}
			once := sync.OnceFunc(turn)
			one := f.bucket("one", "x")
			f.store.befalls(func(_ int, e *batcher.Entry) fate {
				if e.Bucket.Sum() == one.Sum() {
					return fate{delay: 5 * time.Millisecond} // the other descriptor's word comes late
				}
				return fate{}
			})
			go func() {
				time.Sleep(2 * time.Millisecond)
				once()
			}()
			if got := f.ask(0, 90, d("many", "x"), d("one", "x")); got.Admitted || got.Rule != "one" {
				f.Fatalf("%+v", got)
			}
			f.pass(time.Second)
			s := f.store.now(b, many)
			if (s.Ways > 0) == divided {
				f.Fatalf("divided as %+v", s)
			}
			free := limit.Tokens(0)
			if divided {
				free = f.store.at(b, many, limit.Split{}, 0)
			} else {
				free = f.store.free(b, many, s)
			}
			if free < 596 || free > 597 { // of what is brought home a fraction is lost
				f.Errorf("was divided: %v: %d free, want 597", divided, free)
			}
			if refunds := f.all[0].Stats().Batcher.NotRun; refunds == 0 {
				f.Errorf("was divided: %v: nothing was refused, so nothing was tested", divided)
			}
		})
	}
}

// TestGoneBeforeItBegan: a caller who is gone already takes nothing, of no part.
func TestGoneBeforeItBegan(t *testing.T) {
	inFleet(t, fleetConfig{1, 4, 4, agent.Config{Rules: dividedRules}}, func(f *fleet) {
		b, many := f.bucket("many", "x"), terms(t, 997, time.Hour)
		f.keep(b, many)
		f.store.befalls(distant)
		f.ask(0, 1, d("many", "x"))
		ctx, cancel := context.WithCancelCause(f.Context())
		cancel(errors.New("gone"))
		for range 20 {
			begun := time.Now()
			if _, err := f.all[0].Check(ctx, agent.Request{Domain: "api", Descriptors: ds("many", "x"), Hits: 1}); err != nil || time.Since(begun) > 0 {
				f.Fatalf("after %v: %v", time.Since(begun), err)
			}
		}
		f.pass(time.Second)
		if free := f.store.free(b, many, f.store.now(b, many)); free != 996 {
			f.Errorf("%d free, want 996", free)
		}
	})
}
