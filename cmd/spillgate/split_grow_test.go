package main

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/spillgate/spillgate/dashboard"
	"github.com/spillgate/spillgate/internal/redistest"
)

// TestSplitMasterAdded: a master joins a cluster under load and takes slots over. The split goes on where it is, the next
// one has a part for each master, and no window is over the bound.
func TestSplitMasterAdded(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, redistest.WithShards(3, 0), redistest.WithNodeTimeout(busyTimeout))
	masters := cluster.Masters()
	first, added := masters[0], masters[2]
	slots := slotsOf(cluster, added)
	handOver(t, cluster, slots, added, first)

	b := hotBucket{key: "grown", check: "grown", burst: 1000, count: 1000, period: 1, quantity: 1}
	f := startSplitFleet(t, cluster, 4, rulesFile(exactRule(b), exactRule(hotBucket{check: "any", burst: 100, count: 100, period: 1})))
	h := f.follow(b.key)
	f.others("any")
	l := newLedger(b)
	p := f.press(l, 8)
	t.Logf("two masters: %v", f.awaitSpread(b.key, 2))
	if s := f.divided(f.procs[0], b.key); s.Ways != 2 {
		t.Errorf("divided into %d on two masters", s.Ways)
	}
	// The slots of the bucket move with their keys; for the others it is enough to say so.
	empty := slices.DeleteFunc(slices.Clone(slots), func(slot int) bool {
		n, err := first.Client().ClusterCountKeysInSlot(t.Context(), slot).Result()
		must(t, err)
		if n > 0 {
			must(t, cluster.MigrateSlot(t.Context(), slot, added))
		}
		return n > 0
	})
	handOver(t, cluster, empty, first, added)
	t.Logf("%d slots moved with keys, %d without", len(slots)-len(empty), len(empty))

	// An agent that nothing told yet of what moved last may divide the bucket once more as before.
	start := time.Now()
	var s dashboard.Split
	for rounds := 1; s.Ways != 3; rounds++ {
		p.shift(slow)
		f.whole(b.key)
		p.shift(full)
		if s = f.divided(f.procs[0], b.key); s.Ways != 3 && time.Since(start) > 2*scriptPatience {
			t.Fatalf("divided into %d on three masters, after %d rounds in %v", s.Ways, rounds, time.Since(start))
		}
	}
	t.Logf("three masters: %v after %v", f.awaitSpread(b.key, 3), time.Since(start))
	if !slices.ContainsFunc(s.Masters, func(m dashboard.Master) bool { return m.Master == added.Addr() }) {
		t.Errorf("%s, which is new, has no part: %+v", added.Addr(), s.Masters)
	}
	time.Sleep(loadFor(500 * time.Millisecond))
	p.end()
	l.judge(t)
	splits, merged, ended := h.counts()
	t.Logf("%d tokens; %d splits, %d merged, %d ended by time; %d answers by policy", l.tokens(0), splits, merged, ended, l.byPolicy(0))
}

// others has each agent ask for many other buckets, a hundred a second, so that there is something in every slot that matters and every agent
// hears of it when one moves.
func (f *splitFleet) others(check string) {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	f.Cleanup(func() {
		cancel()
		wg.Wait()
	})
	for _, p := range f.procs {
		c := p.client(f.T)
		wg.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				c.Do(ctx, "SG.CHECK", "api", 1, check, i%100) // whatever the answer is
				time.Sleep(10 * time.Millisecond)
			}
		})
	}
}

// slotsOf are the slots that a server owns.
func slotsOf(c *redistest.Cluster, s *redistest.Server) (slots []int) {
	const all = 16384
	for slot := range all {
		if c.MasterOfSlot(slot) == s {
			slots = append(slots, slot)
		}
	}
	return slots
}

// handOver gives slots without keys to another master.
func handOver(t *testing.T, c *redistest.Cluster, slots []int, from, to *redistest.Server) {
	t.Helper()
	ctx := context.Background()
	id, err := to.Client().ClusterMyID(ctx).Result()
	must(t, err)
	must(t, to.Client().Do(ctx, "CLUSTER", "BUMPEPOCH").Err()) // so that no old claim wins
	// First the old owner, so that nobody claims them when the new one does.
	nodes := append([]*redistest.Server{from}, slices.DeleteFunc(c.Nodes(), func(s *redistest.Server) bool { return s == from })...)
	for _, s := range nodes {
		pipe := s.Client().Pipeline()
		for _, slot := range slots {
			pipe.Do(ctx, "CLUSTER", "SETSLOT", slot, "NODE", id)
		}
		_, err := pipe.Exec(ctx)
		must(t, err)
	}
	must(t, c.WaitStable(ctx))
}
