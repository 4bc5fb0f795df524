package main

import (
	"context"
	"testing"
	"time"

	"github.com/spillgate/spillgate/internal/redistest"
)

// TestSplit runs, one after the other, the tests that leave a cluster as they found it. It has three masters with a
// replica each.
func TestSplit(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, redistest.WithNodeTimeout(busyTimeout), redistest.WithConfig("cluster-require-full-coverage no"))
	for _, tt := range []struct {
		name string
		test func(*testing.T, *redistest.Cluster)
	}{
		{"viral", testViral},
		{"few", testFew},
		{"leased", testLeased},
		{"terminate", testLeasedTerminate},
		{"migration", testMigration},
		{"rules", testRules},
		{"reset", testReset},
		{"restart", testRestart},
		{"cold_hot_cold", testColdHotCold},
		{"braces", testBraces},
		{"home_forgotten", testHomeForgotten},
		{"home_failover", testHomeFailover},
	} {
		t.Run(tt.name, func(t *testing.T) { tt.test(t, cluster) })
	}
}

// testViral: one bucket, in mode exact, and eight agents that ask for it as fast as they can, while it is divided and made whole
// in turn, and the master of its home hands over to its replica. No window is over the bound (G1), and what is refilled is granted but
// for 2 % (G3).
func testViral(t *testing.T, cluster *redistest.Cluster) {
	b := hotBucket{key: "viral", check: "viral", burst: 1000, count: 1000, period: 1, quantity: 1}
	f := startSplitFleet(t, cluster, 8, rulesFile(exactRule(b)))
	h := f.follow(b.key)
	l := newLedger(b)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stalled := make(chan time.Duration, 1)
	go func() { stalled <- stalls(ctx, cluster.Masters(), 800*time.Millisecond) }()

	start := l.now()
	p := f.press(l, 16)
	crossed := time.Now()
	by := f.awaitSpread(b.key, 3)
	t.Logf("%v from the first check until all masters served: %v", time.Since(crossed), by)
	home := f.divided(f.procs[0], b.key).Home
	t.Logf("home on %s fails over", home)
	f.failOver(home)
	f.alternate(p, b, loadFor(12*time.Second))
	took := l.now() - start
	p.end()
	cancel()

	still := <-stalled
	l.judge(t)
	splits, merged, ended := h.counts()
	granted, there := float64(l.tokens(0)), float64(b.burst)+b.refill(took-still)
	t.Logf("%v, of which a master or this test stood still for %v: %.0f of %.0f tokens granted, %.2f %%; %d splits, %d merged, %d ended by time; %+v; %d answers by policy",
		took, still, granted, there, 100*granted/there, splits, merged, ended, f.totals(), l.byPolicy(0))
	// A short run has relatively more of what costs tokens: the start, the failover, the last tokens of each part.
	least := 0.93
	if took >= 30*time.Second {
		least = 0.98
	}
	if granted < least*there {
		t.Errorf("%.2f %% of the tokens granted, want %.0f %%", 100*granted/there, 100*least)
	}
	if splits < 2 || merged == 0 {
		t.Errorf("%d splits and %d merges; want two and one at least", splits, merged)
	}
}

// failOver has the replica of a master take its place, in the way that loses nothing.
func (f *splitFleet) failOver(addr string) {
	f.Helper()
	must(f.T, f.cluster.Failover(f.Context(), f.cluster.Replicas(f.master(addr))[0]))
}

// master is the one of an address.
func (f *splitFleet) master(addr string) *redistest.Server {
	f.Helper()
	for _, m := range f.cluster.Masters() {
		if m.Addr() == addr {
			return m
		}
	}
	f.Fatalf("%s is no master of %v", addr, f.cluster.Masters())
	return nil
}

// alternate has a bucket divided and made whole in turn for a while: by load that goes, and every third time by order.
func (f *splitFleet) alternate(p *load, b hotBucket, length time.Duration) {
	f.Helper()
	whole := exactRule(b)
	whole.split = "off"
	start := time.Now()
	for round := 1; round == 1 || time.Since(start) < length; round++ {
		if round%3 == 0 {
			f.reload(rulesFile(whole))
			f.whole(b.key)
			time.Sleep(time.Second)
			f.reload(rulesFile(exactRule(b)))
		} else {
			p.shift(slow)
			f.whole(b.key)
			p.shift(full)
		}
		f.divided(f.procs[0], b.key)
		time.Sleep(time.Second)
	}
}
