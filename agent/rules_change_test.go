package agent_test

import (
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/spillgate/spillgate/agent"
	"github.com/spillgate/spillgate/internal/window"
	"github.com/spillgate/spillgate/limit"
	"github.com/spillgate/spillgate/rules"
)

// changing are versions of one rule, which differ in all that a push may change. Each has a limit of its own, by which its answers are told
// apart. The token buckets fill in a second, and so are of one class.
var changing = []string{
	`limit: 1000/s`,
	`limit: 300/s`,
	`limit: 301/s, mode: exact`,
	`limit: 100/s, split: off`,
	`limit: 8/s`,
	`limit: 2/s`,
	`limit: 400/s, algorithm: fixed_window`,
	`limit: 40/s, algorithm: fixed_window`,
	`limit: 401/s, algorithm: fixed_window, mode: exact`,
	`limit: 200/s, algorithm: sliding_window`,
	`limit: 20/s, algorithm: sliding_window`,
	`limit: 150/s, algorithm: sliding_log`,
	`limit: 15/s, algorithm: sliding_log`,
	`limit: 0/s`,
	`unlimited: true`,
	``, // the rule is gone
}

// TestRulesChangeUnderLoad: agents of a fleet change their rule's limit, mode and algorithm under load, each at moments of its own, while its bucket is hot, leased
// and divided. Of all versions of an algorithm that are in force somewhere the largest is kept, in every window.
func TestRulesChangeUnderLoad(t *testing.T) {
	sets := make([]*rules.Set, len(changing))
	of := map[limit.Tokens]limit.Algorithm{}
	for i, version := range changing {
		if version == "" {
			sets[i] = parse(`name: other, match: [{key: other}], limit: 1/s`)
			continue
		}
		sets[i] = parse(`name: big, match: [{key: big}], ` + version)
		if r := sets[i].Rule("api", "big"); r.Terms != nil {
			of[r.Terms.Burst] = r.Rate.Algorithm
		}
	}
	seen, splits := map[limit.Algorithm]int{}, 0
	for seed := range uint64(3) {
		t.Run(name("seed=%d", seed), func(t *testing.T) {
			inFleet(t, fleetConfig{3, 4, 4, agent.Config{Rules: sets[0], SplitOps: 400}}, func(f *fleet) {
				f.store.befalls(distant)
				r := rand.New(rand.NewPCG(seed, 5))
				var mu sync.Mutex
				ledger := map[limit.Algorithm][]window.Admission{}
				var load sync.WaitGroup
				for i := range 12 {
					pause := time.Duration(1000+r.IntN(4000)) * time.Microsecond
					costs := rand.New(rand.NewPCG(seed, uint64(i)))
					load.Go(func() {
						for f.since() < 20*time.Second {
							time.Sleep(pause)
							n := limit.Tokens(1)
							if costs.IntN(10) == 0 {
								n += limit.Tokens(costs.IntN(4))
							}
							sent := f.since()
							got, err := f.all[i%3].Check(f.Context(), agent.Request{Domain: "api", Descriptors: ds("big", "x"), Hits: n})
							if err != nil {
								f.Errorf("%v", err)
								return
							}
							if got.Admitted && got.Reason == limit.OK {
								mu.Lock()
								ledger[of[got.Limit]] = append(ledger[of[got.Limit]], window.Admission{Sent: sent, Received: f.since(), Tokens: int64(n)})
								mu.Unlock()
							}
						}
					})
				}
				for f.since() < 20*time.Second {
					f.pass(time.Duration(r.IntN(900)) * time.Millisecond)
					set := sets[r.IntN(len(sets))]
					if r.IntN(2) == 0 {
						set = sets[r.IntN(4)] // where it is divided
					}
					if r.IntN(3) == 0 {
						f.setRules(set)
					} else {
						f.all[r.IntN(3)].SetRules(set)
					}
				}
				load.Wait()
				for algorithm, all := range ledger {
					switch algorithm {
					case limit.TokenBucket:
						if w := window.Worst(all, window.Limit{Burst: 1000, Tokens: 1000, Per: time.Second}); w.Breach() {
							f.Errorf("%v: %v", algorithm, w)
						}
					case limit.SlidingLog:
						if w := window.Most(all, window.Limit{Burst: 150, Tokens: 1, Per: time.Hour}, time.Second-time.Millisecond); w.Admitted > 150 {
							f.Errorf("%v: %v", algorithm, w)
						}
					default:
						most := map[limit.Algorithm]int64{limit.FixedWindow: 401, limit.SlidingWindow: 200}[algorithm]
						aligned := map[int64]int64{}
						for _, a := range all {
							from, to := f.begun.Add(a.Sent).Unix(), f.begun.Add(a.Received).Unix()
							if from == to {
								if aligned[from] += a.Tokens; aligned[from] > most {
									f.Errorf("%v: %d admitted in one window of %d", algorithm, aligned[from], most)
								}
							}
						}
					}
				}
				for algorithm, all := range ledger {
					seen[algorithm] += len(all)
				}
				splits += len(f.events(0))
			})
		})
	}
	if len(seen) != 4 || seen[limit.TokenBucket] < 1000 || splits == 0 {
		t.Errorf("the load did not reach everything: admitted %v, %d events of splits", seen, splits)
	}
}
