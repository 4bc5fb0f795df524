package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spillgate/spillgate/internal/redistest"
)

// leasedOps is the threshold of splits where checks are answered from leases: the store hears of few.
const leasedOps = "40"

// leasedRule is the rule of a bucket in mode leased.
func leasedRule(b hotBucket) splitRule {
	r := exactRule(b)
	r.mode = "leased"
	return r
}

// testLeased: leases from the parts of a divided bucket, to eight agents of which one after the other is killed; then the load
// stops, the bucket is made whole, and all begins again. No window is over the bound (G1), and what is refilled is granted but for
// what the dead held (G3).
func testLeased(t *testing.T, cluster *redistest.Cluster) {
	b := hotBucket{key: "leased", check: "leased", burst: 300, count: 1000, period: 1, quantity: 1}
	f := startSplitFleet(t, cluster, 8, rulesFile(leasedRule(b)), "--split-ops", leasedOps)
	h := f.follow(b.key)
	l := newLedger(b)
	kills, there := 0, 0.0
	start := time.Now()
	for rounds := 0; rounds < 2 || time.Since(start) < *splitLength; rounds++ {
		n, took := f.leasedLoad(l, 2*time.Second)
		kills, there = kills+n, there+float64(b.burst)+b.refill(took)
		ended := time.Now()
		f.whole(b.key)
		t.Logf("divided for %v, and whole %v after the load ended", took, time.Since(ended))
	}

	l.judge(t)
	splits, merged, ended := h.counts()
	granted := float64(l.tokens(0))
	t.Logf("%d agents killed: %.0f of %.0f tokens granted, %.2f %%; %d splits, %d merged, %d ended by time",
		kills, granted, there, 100*granted/there, splits, merged, ended)
	if least := 0.88; granted < least*there {
		t.Errorf("%.2f %% of the tokens granted, want %.0f %%", 100*granted/there, 100*least)
	}
	if kills == 0 {
		t.Error("no agent was killed")
	}
	if n := l.byPolicy(0); n > 0 {
		t.Errorf("%d answers by policy", n)
	}
}

// leasedLoad divides a bucket and keeps it so for a while, in which agents are killed. It returns for how long the bucket could give
// tokens.
func (f *splitFleet) leasedLoad(l *ledger, length time.Duration) (kills int, took time.Duration) {
	f.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	start := l.now()
	var wg sync.WaitGroup
	for _, p := range f.procs {
		// 8 agents * 8 commands every 10 ms: 6,400 checks a second.
		wg.Go(func() {
			if err := (&stream{agent: p, l: l, batch: 8, every: 10 * time.Millisecond}).run(ctx); err != nil {
				f.Error(err)
			}
		})
	}
	stalled := make(chan time.Duration, 1)
	go func() { stalled <- stalls(ctx, f.cluster.Masters(), 200*time.Millisecond) }()
	f.divided(f.procs[0], l.bucket.key)
	limited, stop := context.WithTimeout(ctx, length)
	defer stop()
	kills = killAtRandom(limited, f.T, f.procs)
	took = l.now() - start
	cancel()
	wg.Wait()
	return kills, took - <-stalled
}

// testLeasedTerminate: what an agent held from the parts of a divided bucket is there for the others when it was ended by
// SIGTERM (fault 16).
func testLeasedTerminate(t *testing.T, cluster *redistest.Cluster) {
	b := hotBucket{key: "terminated", check: "terminated", burst: 6000, count: 1, period: 10, quantity: 1}
	f := startSplitFleet(t, cluster, 2, rulesFile(leasedRule(b)), "--split-ops", aloneOps)
	gone, other := f.procs[0], f.procs[1]
	l := newLedger(b)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	load := make(chan error, 1)
	// 500 tokens a second, far from the limit, so that much is held. What divides the bucket are looks, which take nothing.
	go func() { load <- (&stream{agent: gone, l: l, batch: 5, every: 10 * time.Millisecond}).run(ctx) }()
	f.of(t, 1).press(newLedger(b.looks()), 4)
	f.divided(gone, b.key)
	time.Sleep(2200 * time.Millisecond) // leases from before the split have ended
	var s struct {
		Leases struct{ Held int64 }
	}
	show(t, gone, "stats", &s)
	admitted := l.tokens(0)
	must(t, gone.terminate())
	cancel()
	must(t, <-load)
	c := other.mustCall(t, l)
	must(t, drain(c, time.Second))
	granted, expired := l.tokens(0), gone.expired(t)
	t.Logf("%d admitted and %d held before SIGTERM; %d of %d tokens in the end, %d expired", admitted, s.Leases.Held, granted, b.burst, expired)
	if granted+expired < b.burst {
		t.Errorf("%d of %d tokens were granted, and %d expired since the machine is slow: what the agent held is missing", granted, b.burst, expired)
	}
	if s.Leases.Held < 10 {
		t.Errorf("the agent held %d tokens: too few to tell whether they come back", s.Leases.Held)
	}
	l.judge(t)
}

// expired is how many tokens of leases ended unspent, as an agent that has stopped says in its log.
func (p *agentProc) expired(t *testing.T) int64 {
	t.Helper()
	log, err := os.ReadFile(p.log)
	must(t, err)
	_, last, _ := strings.Cut(string(log), `"msg":"leases are given back"`)
	_, last, ok := strings.Cut(last, `"expired":`)
	if !ok {
		t.Fatalf("the agent says nothing of its leases:\n%s", log)
	}
	var n int64
	_, err = fmt.Sscanf(last, "%d", &n)
	must(t, err)
	return n
}
