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

// windows are more of them, which take hours. Of those that end in 1, a data center has less than 1 in a window.
const windows = kinds + `
  - {name: fixed,    match: [{key: fixed}], limit: 70/m, algorithm: fixed_window}
  - {name: fixed 1,  match: [{key: fixed 1}], limit: 1/h, algorithm: fixed_window}
  - {name: slides,   match: [{key: slides}], limit: 70/m, algorithm: sliding_window}
  - {name: slides 1, match: [{key: slides 1}], limit: 1/h, algorithm: sliding_window}
  - {name: log,      match: [{key: log}], limit: 7/m, algorithm: sliding_log}
  - {name: log 1,    match: [{key: log 1}], limit: 1/h, algorithm: sliding_log}
`

// printed is what rules lint --json prints of rules, by name.
func printed(t *testing.T, text string, agents, dcs int) map[string]bound {
	t.Helper()
	set, err := rules.Parse("kinds", []byte(text))
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

// asker asks for one bucket until ctx ends, so many checks ten times a second, and notes when one was denied. It begins with ten times as
// many, which no burst has.
type asker struct {
	agent *agentProc
	l     *ledger
	batch int

	denied []denial
}

// denial is a time at which a bucket was empty, which was somewhere between two that are known.
type denial struct{ sent, received time.Duration }

func (a *asker) run(ctx context.Context) error {
	c, err := a.agent.caller(a.l)
	if err != nil {
		return err
	}
	defer c.conn.Close()
	n := 10 * a.batch
	for next := time.Now(); ctx.Err() == nil; next = later(next, 100*time.Millisecond) {
		time.Sleep(time.Until(next))
		at, err := c.send(n)
		if err != nil {
			return err
		}
		admitted, err := c.receive(at, n)
		if err != nil {
			return err
		}
		if admitted < n {
			a.denied = append(a.denied, denial{at, a.l.now()})
		}
		n = a.batch
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
		for rule := range printed(t, kinds, agents, dcs) {
			l := newLedger(hotBucket{key: rule, check: rule, quantity: 1})
			l.start = start
			ledgers[rule] = append(ledgers[rule], l)
			batch := 50 // 500 a second, of each of two agents
			if rule == "odd" || rule == "rare" {
				batch = 1
			}
			for _, a := range fleet {
				askers = append(askers, &asker{agent: a, l: l, batch: batch})
			}
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var wg sync.WaitGroup
	for _, a := range askers {
		wg.Go(func() {
			if err := a.run(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	loaded := time.Now()
	for time.Since(loaded) < *dcLength || time.Since(loaded) < scriptPatience && !allDenied(ledgers) {
		time.Sleep(10 * time.Millisecond)
	}
	cancel()
	wg.Wait()
	for rule, b := range printed(t, kinds, agents, dcs) {
		var all []window.Admission
		for dc, l := range ledgers[rule] {
			all = append(all, l.admitted...)
			if worst := window.Worst(l.admitted, promised(t, &b, 1, 2)); worst.Breach() {
				t.Errorf("%s: data center %d is over %s: %v", rule, dc, b.Each.Text, worst)
			}
			var denied []denial
			for _, a := range askers {
				if a.l == l {
					denied = append(denied, a.denied...)
				}
			}
			l.granted(t, fmt.Sprintf("%s, data center %d", rule, dc), &b, denied)
		}
		worst := window.Worst(all, promised(t, &b, dcs, 2))
		if worst.Breach() {
			t.Errorf("%s: all data centers are over %s: %v", rule, b.All.Text, worst)
		}
		t.Logf("%-5s all admit %5d in %v, at most %s; worst of all windows: %v", rule, len(all), time.Since(loaded), b.All.Text, worst)
	}
}

// allDenied reports whether every bucket was found empty.
func allDenied(ledgers map[string][]*ledger) bool {
	for _, of := range ledgers {
		for _, l := range of {
			l.mu.Lock()
			denied := l.denied
			l.mu.Unlock()
			if denied == 0 {
				return false
			}
		}
	}
	return true
}

// granted holds a ledger against what could be admitted. At each denial the bucket had less than a token, or, where leases hold tokens back, what they
// hold: agents may deny for 250 ms longer than is true, while an eighth of the burst is on lease elsewhere. So the burst was
// admitted before the first one, and from then on all that was refilled, while the bucket had no time to fill between two of them.
func (l *ledger) granted(t *testing.T, name string, b *bound, denied []denial) {
	t.Helper()
	if len(denied) == 0 {
		t.Errorf("%s: %d admitted, and none denied in %v: it was not at full", name, len(l.admitted), scriptPatience)
		return
	}
	held := 1.0
	if b.Mode != "exact" {
		held += 0.25*b.Each.PerSecond + float64(b.Each.Burst)/8
	}
	fills := (float64(b.Each.Burst) - held) / b.Each.PerSecond
	may := float64(b.Each.Burst)
	slices.SortFunc(denied, func(x, y denial) int { return int(x.sent - y.sent) })
	for from := 0; from < len(denied); {
		to := from
		for to+1 < len(denied) && (denied[to+1].received-denied[to].sent).Seconds() < fills {
			to++
		}
		may += b.Each.PerSecond * max(0, (denied[to].sent-denied[from].received).Seconds())
		from = to + 1
	}
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
		gets float64 // of what it may; the count of a sliding window is rounded up, by one token: of 28, or of the only one in every other window
	}{
		{"sure", 20 * time.Second, 10, 0.99}, {"odd", 5 * time.Hour, 20, 0.99}, {"rare", 200 * time.Hour, 200, 0.99},
		{"fixed", 5 * time.Hour, 20, 0.99}, {"slides", 5 * time.Hour, 20, 0.99 * 27 / 28}, {"log", 5 * time.Hour, 200, 0.99},
		{"fixed 1", 900 * time.Hour, 200, 0.99}, {"slides 1", 900 * time.Hour, 200, 0.99 / 2}, {"log 1", 900 * time.Hour, 200, 0.99},
	} {
		rule, long := tt.rule, tt.long
		t.Run(rule, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := printed(t, windows, 1, dcs)[rule]
				if most := 1.2 * float64(b.Written.Requests) / b.Written.PerSeconds; b.All.PerSecond > most*1.000001 {
					t.Errorf("all data centers admit %v a second, the limit and its headroom is %v", b.All.PerSecond, most)
				}
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
						if worst := window.Worst(own, promised(t, &b, 1, 1)); worst.Breach() || float64(len(own)) < tt.gets*may-1 {
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

// memoryAgent is an agent on windows with a store in memory, in a data center with that share.
func memoryAgent(t *testing.T, share string) *agent.Agent {
	t.Helper()
	cfg := config.Default("")
	must(t, cfg.Parse("config", fmt.Appendf(nil, "datacenter: {share: %s}", share)))
	set, err := rules.Parse("kinds", []byte(windows))
	must(t, err)
	set, err = set.ForDatacenter(cfg.Datacenter.Share, cfg.Datacenter.Headroom)
	must(t, err)
	store, err := memstore.New(memstore.Config{})
	must(t, err)
	a, err := agent.New(agent.Config{Store: store, Rules: set})
	must(t, err)
	t.Cleanup(func() { must(t, a.Close(context.Background())) })
	return a
}
