package main

import (
	"context"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spillgate/spillgate/internal/redistest"
)

// testColdHotCold is fault 22: a bucket is asked for at a steady slow pace, then by all as fast as they can, then slowly again. It is divided
// within seconds, and made whole again when the load has gone, without doing so again and again. What is left of its parts goes with the generations of its class.
func testColdHotCold(t *testing.T, cluster *redistest.Cluster) {
	b := hotBucket{key: "cold hot cold", check: "weather", burst: 1000, count: 1000, period: 1, quantity: 1}
	f := startSplitFleet(t, cluster, 4, rulesFile(exactRule(b)))
	h := f.follow(b.key)
	l := newLedger(b)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	cold := make(chan error, 1)
	go func() {
		cold <- (&stream{agent: f.procs[0], l: l, batch: 1, every: 50 * time.Millisecond}).run(ctx)
	}()
	time.Sleep(1500 * time.Millisecond)
	if splits, _, _ := h.counts(); splits > 0 {
		t.Error("divided at 20 checks a second")
	}
	start := time.Now()
	p := f.press(l, 8)
	by := f.awaitSpread(b.key, 3)
	t.Logf("spread %v after the load began: %v", time.Since(start), by)
	time.Sleep(loadFor(2500 * time.Millisecond))
	p.end()
	start = time.Now()
	f.whole(b.key)
	t.Logf("whole %v after the load ended", time.Since(start))
	start = time.Now()
	for hash := range f.hashes(b.key) {
		for _, m := range cluster.Masters() {
			// Its class is 4 s long: two generations, and a second.
			if left := m.Client().PTTL(t.Context(), hash).Val(); left > 9*time.Second {
				t.Errorf("the bucket is whole, and %q stays for %v", hash, left)
			}
		}
	}
	f.await("nothing is left of the parts", func() bool { return len(f.hashes(b.key)) == 0 })
	t.Logf("nothing left of the parts after %v", time.Since(start))
	cancel()
	must(t, <-cold)
	l.judge(t)
	splits, merged, ended := h.counts()
	t.Logf("%d splits, %d merged, %d ended by time", splits, merged, ended)
	if n := l.byPolicy(0); n > 0 {
		t.Errorf("%d answers by policy", n)
	}
	if splits > 2 { // one more if the machine stood still for a second, and so the load did
		t.Errorf("divided %d times", splits)
	}
}

// testBraces is fault 2 on divided buckets: braces in keys do not say where parts lie.
func testBraces(t *testing.T, cluster *redistest.Cluster) {
	b := hotBucket{check: "braces", burst: 200, count: 200, period: 1, quantity: 1}
	f := startSplitFleet(t, cluster, 3, rulesFile(exactRule(b)), "--split-ops", "100")
	var all []*ledger
	for _, key := range []string{"{t}u1", "{t}u2", "}{", "{}a", "{{x}}"} {
		b.key = key
		l := newLedger(b)
		all = append(all, l)
		f.press(l, 4)
	}
	for _, l := range all {
		f.awaitSpread(l.bucket.key, 3)
		slots := make(map[int]bool)
		hashes := f.hashes(l.bucket.key)
		for hash := range hashes {
			slots[redistest.Slot(hash)] = true
		}
		if len(slots) != 3 {
			t.Errorf("the parts of %q are in %d slots: %q", l.bucket.key, len(slots), slices.Sorted(maps.Keys(hashes)))
		}
	}
	time.Sleep(loadFor(time.Second))
	for _, l := range all {
		l.judge(t)
		if n := l.byPolicy(0); n > 0 {
			t.Errorf("%q: %d answers by policy", l.bucket.key, n)
		}
	}
	for _, p := range f.procs {
		text, err := os.ReadFile(p.log)
		must(t, err)
		if strings.Contains(string(text), "CROSSSLOT") {
			t.Errorf("an agent asked for two slots at once:\n%s", text)
		}
	}
}
