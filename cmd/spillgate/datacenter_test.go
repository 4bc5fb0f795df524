package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillgate/spillgate/agent"
	"github.com/spillgate/spillgate/cmd/spillgate/config"
	"github.com/spillgate/spillgate/internal/redistest"
	"github.com/spillgate/spillgate/internal/window"
	"github.com/spillgate/spillgate/memstore"
	"github.com/spillgate/spillgate/rules"
)

// dcLength is how long the data centers are under load. By hand: go test -run TestDatacentersAtFull ./cmd/spillgate -dc.length=30s
var dcLength = flag.Duration("dc.length", 4*time.Second, "length of the load in TestDatacentersAtFull")

// kinds are rules of several kinds, each with one bucket.
const kinds = `
domain: api
rules:
  - {name: fast,  match: [{key: fast}], limit: 1000/s}
  - {name: sure,  match: [{key: sure}], limit: 1000/s, mode: exact}
  - {name: ahead, match: [{key: ahead}], limit: 1000/s, mode: optimistic, allowance: 50}
  - {name: odd,   match: [{key: odd}], limit: 7/m, mode: exact}
  - {name: rare,  match: [{key: rare}], limit: 1/h, mode: exact}
`

// printed is what rules lint --json prints of kinds, by rule.
func printed(t *testing.T, agents, dcs int) map[string]bound {
	t.Helper()
	set, err := rules.Parse("kinds", []byte(kinds))
	must(t, err)
	var out bytes.Buffer
	must(t, printBounds(&out, &boundOptions{agents: agents, dcs: dcs, headroom: 0.2, json: true}, "kinds", set))
	var b bounds
	must(t, json.Unmarshal(out.Bytes(), &b))
	of := make(map[string]bound)
	for _, r := range b.Rules {
		of[r.Name] = r
	}
	return of
}

// promised is a printed bound for the oracle, of so many data centers. Where there are two clocks it has the room that hotBucket.limit has. Its rate is
// made of what is enforced, since a decimal number would not be exact, and must be the one that is printed.
func promised(t *testing.T, b *bound, dcs int, clocks int64) window.Limit {
	shown := b.Each
	if dcs > 1 {
		shown = b.All
	}
	tokens, per := int64(dcs)*int64(b.Enforced.Requests), b.Enforced.PerSeconds
	if rate := float64(tokens) / per; shown.PerSecond < rate || shown.PerSecond > rate*1.000001 {
		t.Errorf("%s: %v a second are printed, %v enforced by %d data centers", b.Name, shown.PerSecond, rate, dcs)
	}
	l := window.Limit{Burst: int64(shown.Burst + shown.Ahead), Tokens: tokens, Per: time.Duration(math.Round(per*1e6)) * time.Microsecond}
	if clocks > 1 {
		l.Tokens, l.Per, l.Slack = l.Tokens*1001, l.Per*1000, 10*time.Microsecond
	}
	return l
}

// asker asks for one bucket until ctx ends, so many checks at a time, and notes when one was denied last.
type asker struct {
	agent *agentProc
	l     *ledger
	batch int

	denied time.Duration
}

func (a *asker) run(ctx context.Context) error {
	c, err := a.agent.caller(a.l)
	if err != nil {
		return err
	}
	defer c.conn.Close()
	for next := time.Now(); ctx.Err() == nil; next = later(next, 20*time.Millisecond) {
		time.Sleep(time.Until(next))
		at, err := c.send(a.batch)
		if err != nil {
			return err
		}
		admitted, err := c.receive(at, a.batch)
		if err != nil {
			return err
		}
		if admitted < a.batch {
			a.denied = at
		}
	}
	return nil
}

// TestDatacentersAtFull: three data centers with a Redis and two agents each are driven beyond all their limits. In every window what all
// of them admit is within the printed bound, and each is within its own; and each admits what it may, but for what leases hold back.
func TestDatacentersAtFull(t *testing.T) {
	t.Parallel()
	const dcs, agents = 3, 2
	dir := shortDir(t)
	file := filepath.Join(dir, "rules.yaml")
	must(t, os.WriteFile(file, []byte(kinds), 0o600))
	start := time.Now()
	ledgers := make(map[string][]*ledger) // by rule, of each data center
	var askers []*asker
	for dc := range dcs {
		srv := redistest.Start(t)
		var fleet []*agentProc
		for i := range agents {
			fleet = append(fleet, startProc(t, dir, fmt.Sprintf("dc%d-%d", dc, i), srv.URL(),
				"--rules", file, "--datacenter-name", fmt.Sprint("dc", dc), "--datacenter-share", "1/3"))
		}
		for rule := range printed(t, agents, dcs) {
			l := newLedger(hotBucket{key: rule, check: rule, quantity: 1})
			l.start = start
			ledgers[rule] = append(ledgers[rule], l)
			batch := 10 // 500 a second
			if rule == "odd" || rule == "rare" {
				batch = 1
			}
			for _, a := range fleet {
				askers = append(askers, &asker{agent: a, l: l, batch: batch})
			}
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), *dcLength)
	defer cancel()
	var wg sync.WaitGroup
	for _, a := range askers {
		wg.Go(func() {
			if err := a.run(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for rule, b := range printed(t, agents, dcs) {
		var all []window.Admission
		for dc, l := range ledgers[rule] {
			all = append(all, l.admitted...)
			if worst := window.Worst(l.admitted, promised(t, &b, 1, 2)); worst.Breach() {
				t.Errorf("%s: data center %d is over %s: %v", rule, dc, b.Each.Text, worst)
			}
			var denied time.Duration
			for _, a := range askers {
				if a.l == l {
					denied = max(denied, a.denied)
				}
			}
			l.granted(t, fmt.Sprintf("%s, data center %d", rule, dc), &b, denied)
		}
		worst := window.Worst(all, promised(t, &b, dcs, 2))
		if worst.Breach() {
			t.Errorf("%s: all data centers are over %s: %v", rule, b.All.Text, worst)
		}
		t.Logf("%-5s all admit %5d in %v, at most %s; worst of all windows: %v", rule, len(all), *dcLength, b.All.Text, worst)
	}
}

// granted holds a ledger against what could be admitted until a check was denied, at a time: what was refilled by then, but less than a token.
// Agents of a leased rule may deny for 250 ms longer than is true, while an eighth of the burst is on lease elsewhere.
func (l *ledger) granted(t *testing.T, name string, b *bound, denied time.Duration) {
	t.Helper()
	if len(l.admitted) == 0 || denied == 0 {
		t.Errorf("%s: %d admitted, denied last at %v", name, len(l.admitted), denied)
		return
	}
	first := slices.MinFunc(l.admitted, func(x, y window.Admission) int { return int(x.Received - y.Received) }).Received
	held := 1.0
	if b.Mode != "exact" {
		held += 0.25*b.Each.PerSecond + float64(b.Each.Burst)/8
	}
	may := float64(b.Each.Burst) + b.Each.PerSecond*(denied-first).Seconds()
	got := float64(l.tokens(0))
	t.Logf("%s: %.0f of %.1f admitted, %.2f %%", name, got, may, 100*got/may)
	if n := l.byPolicy(0); n > 0 {
		t.Logf("%s: %d answers by policy: the machine is too busy to say what could be admitted", name, n)
		return
	}
	if got < 0.99*may-held {
		t.Errorf("%s: %.0f admitted, it may be %.1f", name, got, may)
	}
}

// TestDatacentersForHours: the same over hours of virtual time, in which slow limits refill: on memory stores, asked at random moments
// and far too often.
func TestDatacentersForHours(t *testing.T) {
	const dcs = 3
	for _, tt := range []struct {
		rule string
		long time.Duration
		asks float64 // for each token that is refilled; of a burst of 1 what comes until the next one asks is lost
	}{{"sure", 20 * time.Second, 10}, {"odd", 5 * time.Hour, 20}, {"rare", 200 * time.Hour, 200}} {
		rule, long := tt.rule, tt.long
		t.Run(rule, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := printed(t, 1, dcs)[rule]
				start, every := time.Now(), time.Duration(float64(time.Second)/b.Each.PerSecond/tt.asks)
				var all []window.Admission
				var mu sync.Mutex
				var wg sync.WaitGroup
				for dc := range dcs {
					a := memoryAgent(t, "1/3")
					r := rand.New(rand.NewPCG(1, uint64(dc)))
					wg.Go(func() {
						var own []window.Admission
						for time.Since(start) < long {
							time.Sleep(time.Duration(r.Int64N(int64(2 * every))))
							d, err := a.Check(t.Context(), agent.Request{Domain: "api", Descriptors: []rules.Descriptor{{{Key: rule, Value: "x"}}}, Hits: 1})
							if err != nil {
								t.Error(err)
								return
							}
							if now := time.Since(start); d.Admitted {
								own = append(own, window.Admission{Sent: now, Received: now, Tokens: 1})
							}
						}
						may := float64(b.Each.Burst) + b.Each.PerSecond*time.Since(start).Seconds()
						if worst := window.Worst(own, promised(t, &b, 1, 1)); worst.Breach() || float64(len(own)) < 0.99*may-1 {
							t.Errorf("data center %d: %d admitted, it may be %.1f; worst of all windows: %v", dc, len(own), may, worst)
						}
						mu.Lock()
						defer mu.Unlock()
						all = append(all, own...)
					})
				}
				wg.Wait()
				worst := window.Worst(all, promised(t, &b, dcs, 1))
				if worst.Breach() {
					t.Errorf("all data centers are over %s: %v", b.All.Text, worst)
				}
				t.Logf("all admit %d in %v, at most %s; worst of all windows: %v", len(all), long, b.All.Text, worst)
			})
		})
	}
}

// memoryAgent is an agent on kinds with a store in memory, in a data center with that share.
func memoryAgent(t *testing.T, share string) *agent.Agent {
	t.Helper()
	cfg := config.Default("")
	must(t, cfg.Parse("config", fmt.Appendf(nil, "datacenter: {share: %s}", share)))
	set, err := rules.Parse("kinds", []byte(kinds))
	must(t, err)
	set, err = inDatacenter(&cfg.Datacenter, set)
	must(t, err)
	store, err := memstore.New(memstore.Config{})
	must(t, err)
	a, err := agent.New(agent.Config{Store: store, Rules: set})
	must(t, err)
	t.Cleanup(func() { must(t, a.Close(context.Background())) })
	return a
}
