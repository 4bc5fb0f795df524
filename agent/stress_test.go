package agent_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/spillgate/spillgate/agent"
	"github.com/spillgate/spillgate/batcher"
	"github.com/spillgate/spillgate/limit"
	"github.com/spillgate/spillgate/rules"
)

// TestStress checks from many goroutines, on all paths, with costs, peeks, several descriptors and waits, and
// recounts: no bucket has given more than burst + rate * time (G1), nor, with the demand there was, noticeably
// less (G3); and the statistics are those of the answers.
func TestStress(t *testing.T) {
	onBoth(t, agent.Config{Rules: stressRules}, func(w *world) {
		if w.fake != nil {
			w.fake.befalls(all(-1, fate{delay: 300 * time.Microsecond}))
		}
		const goroutines, checks = 32, 300
		start := time.Now()
		var books [goroutines]book
		var wg sync.WaitGroup
		for g := range goroutines {
			wg.Go(func() { books[g].run(w, uint64(g), checks) })
		}
		wg.Wait()
		elapsed := time.Since(start)

		total := book{}
		for i := range books {
			total.add(&books[i])
		}
		if len(total.taken) != 3 {
			w.Errorf("buckets %v", total.taken)
		}
		for bucket, taken := range total.taken {
			most := 50 + 400*elapsed.Seconds()
			if float64(taken) > most || float64(taken) < 0.95*most {
				w.Errorf("%s: %d admitted in %v; at most %.1f are there", bucket, taken, elapsed, most)
			}
		}
		counted := map[agent.Count]bool{}
		for _, c := range w.Stats().Checks {
			counted[c] = true
		}
		for reason, n := range total.answers {
			if !counted[agent.Count{Admitted: reason == limit.OK, Reason: reason, Checks: n}] {
				w.Errorf("%d answers were %s; counted: %+v", n, reason, w.Stats().Checks)
			}
		}
		if len(counted) != len(total.answers) {
			w.Errorf("counted %+v, answers %v", w.Stats().Checks, total.answers)
		}
	})
}

var stressRules = parse(`name: per-user, match: [{key: user}], limit: {requests: 400, per: 1s, burst: 50}, deadline: 1m`)

// book is what a goroutine was given.
type book struct {
	taken   map[string]limit.Tokens
	answers map[limit.Reason]uint64
}

func (b *book) add(o *book) {
	if b.taken == nil {
		b.taken, b.answers = map[string]limit.Tokens{}, map[limit.Reason]uint64{}
	}
	for k, n := range o.taken {
		b.taken[k] += n
	}
	for r, n := range o.answers {
		b.answers[r] += n
	}
}

func (b *book) run(w *world, seed uint64, checks int) {
	b.add(&book{})
	h, _ := w.Handle("api", "per-user")
	terms, _ := limit.Rate{Requests: 400, Period: time.Second, Burst: 50}.Terms()
	r := rand.New(rand.NewPCG(seed, 1))
	for range checks {
		n := limit.Tokens(r.IntN(4))
		if r.IntN(20) == 0 {
			n = 51
		}
		var got limit.Decision
		var from []string
		switch r.IntN(4) {
		case 0:
			from, got = []string{"a"}, w.ask(n, d("user", "a"))
		case 1:
			from, got = []string{"b"}, h.Check(w.Context(), n, "b")
		case 2:
			from, got = []string{"a", "b"}, w.ask(n, d("user", "a"), d("user", "b"))
		case 3:
			from, got = []string{"key"}, w.throttle("key", terms, n)
		}
		b.answers[got.Reason]++
		if got.Admitted {
			for _, f := range from {
				b.taken[f] += n
			}
		}
		time.Sleep(time.Duration(r.IntN(30)) * time.Millisecond) // virtual
	}
}

// TestStressFailures: with a store that is slow, refuses and loses replies, nobody waits for longer than the deadline, a closed
// rule never admits more than its cells gave, and at rest nothing is left over.
func TestStressFailures(t *testing.T) {
	for seed := range uint64(3) {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			onFake(t, agent.Config{MaxPending: 25, StoreTimeout: 30 * time.Millisecond}, func(w *world) {
				var mu sync.Mutex
				luck := rand.New(rand.NewPCG(seed, 2))
				w.fake.befalls(func(int, *batcher.Entry) fate {
					mu.Lock()
					defer mu.Unlock()
					ft := fate{delay: time.Duration(luck.IntN(4)) * time.Millisecond}
					switch luck.IntN(20) {
					case 2:
						ft.delay = 28 * time.Millisecond
					case 0:
						ft.err = errDown
					case 1:
						ft.err, ft.runs = errLost, luck.IntN(2) == 0
					}
					return ft
				})
				var books [24]book
				var wg sync.WaitGroup
				for g := range books {
					wg.Go(func() { books[g].fail(w, rand.New(rand.NewPCG(seed, uint64(g)+10))) })
				}
				wg.Wait()
				total := book{}
				for i := range books {
					total.add(&books[i])
				}
				for bucket, n := range total.taken {
					if n > 10 {
						w.Errorf("%s: a closed rule of 10 admitted %d", bucket, n)
					}
				}
				for _, r := range []limit.Reason{limit.OK, limit.StoreOpen, limit.StoreClosed, limit.Overloaded} {
					if total.answers[r] == 0 {
						w.Errorf("nobody was answered %s: %v", r, total.answers)
					}
				}
			})
		})
	}
}

// fail asks rules of both policies, each bucket of ten tokens that do not come back, with and without a hurry.
func (b *book) fail(w *world, r *rand.Rand) {
	b.add(&book{})
	for range 60 {
		bucket := fmt.Sprint(r.IntN(20))
		of := []rules.Descriptor{d("closed", bucket)}
		if r.IntN(2) == 0 {
			of = append(of, d("open", bucket))
		}
		if r.IntN(4) == 0 {
			of = of[len(of)-1:]
		}
		ctx, cancel := w.Context(), context.CancelFunc(func() {})
		if r.IntN(4) == 0 {
			ctx, cancel = context.WithTimeout(ctx, time.Duration(r.IntN(20))*time.Millisecond)
		}
		start := time.Now()
		got := w.askWith(ctx, 1, of...)
		cancel()
		if took := time.Since(start); took > 25*time.Millisecond {
			w.Errorf("answered after %v", took)
		}
		b.answers[got.Reason]++
		if got.Admitted && of[0][0].Key == "closed" {
			b.taken[bucket]++
		}
		time.Sleep(time.Duration(r.IntN(10)) * time.Millisecond) // virtual
	}
}

// TestCloseDuringChecks: whoever checks while the agent closes gets an answer, or ErrClosed.
func TestCloseDuringChecks(t *testing.T) {
	onBoth(t, agent.Config{Rules: routes(300, "100/h")}, func(w *world) {
		var wg sync.WaitGroup
		for g := range 4 {
			wg.Go(func() {
				for i := 0; ; i++ {
					_, err := w.Check(w.Context(), agent.Request{Domain: "api", Hits: 1,
						Descriptors: []rules.Descriptor{route(i), route(i + g)}})
					if err == agent.ErrClosed {
						return
					}
					if err != nil {
						w.Errorf("Check: %v", err)
						return
					}
				}
			})
		}
		w.ask(1, route(1))
		if err := w.Close(w.Context()); err != nil {
			w.Errorf("Close: %v", err)
		}
		wg.Wait()
	})
}
