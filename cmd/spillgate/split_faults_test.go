package main

import (
	"context"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/spillgate/spillgate/dashboard"
	"github.com/spillgate/spillgate/internal/redistest"
	"github.com/spillgate/spillgate/limit"
)

// TestSplitMasterKilled: masters without a replica are killed under load. Without that of a part, the others go on with their shares, and who
// asks the dead one is answered by policy, seldom. Without that of home, the parts go on until the split ends; then all is left to
// policy. No window is over the bound.
func TestSplitMasterKilled(t *testing.T) {
	t.Parallel()
	// Five, of which three are a majority when two are dead.
	cluster := redistest.StartCluster(t, redistest.WithShards(5, 0), redistest.WithNodeTimeout(busyTimeout), redistest.WithConfig("cluster-require-full-coverage no"))
	b := hotBucket{key: "killed", check: "killed", burst: 500, count: 500, period: 1, quantity: 1}
	f := startSplitFleet(t, cluster, 4, rulesFile(exactRule(b)))
	l := newLedger(b)
	p := f.press(l, 8)
	f.awaitSpread(b.key, 5)
	s := f.divided(f.procs[0], b.key)
	other := (slices.IndexFunc(s.Parts, func(p dashboard.Part) bool { return p.Master == s.Home }) + 1) % len(s.Parts)
	if s.Ways != 5 || s.Parts[other].Master == s.Home {
		t.Fatalf("divided into %d, and part %d is on %s as home is: %+v", s.Ways, other, s.Home, s.Parts)
	}
	must(t, f.master(s.Parts[other].Master).Kill())
	time.Sleep(300 * time.Millisecond) // for what was under way
	from := l.now()
	time.Sleep(loadFor(3 * time.Second))
	took := l.now() - from
	granted, policy := l.tokens(from), l.byPolicy(from)
	t.Logf("without the master of a part: %d tokens in %v; %d answers by policy", granted, took, policy)
	if least := 0.6 * b.refill(took); float64(granted) < least {
		t.Errorf("%d tokens in %v from the parts that live, want %.0f", granted, took, least)
	}
	// One check a second, of each agent: others that ask at that moment may share its call.
	if most := int(float64(len(f.procs))*(took.Seconds()+1)) * p.batch; policy > most {
		t.Errorf("%d answers by policy in %v, want at most %d", policy, took, most)
	}

	must(t, f.master(s.Home).Kill())
	from = l.now()
	time.Sleep(4 * time.Second) // 3 s of the split at most, and a margin for the machine
	ended := l.now()
	granted = l.tokens(from)
	time.Sleep(time.Second)
	late, policy := l.tokens(ended), l.byPolicy(ended)
	t.Logf("without the master of home: %d tokens until the split had ended, %d afterwards; %d answers by policy afterwards", granted, late, policy)
	if granted == 0 {
		t.Error("the parts stopped at once when home's master was killed")
	}
	if late > 0 || policy == 0 {
		t.Errorf("long after home's master was killed: %d tokens, %d answers by policy", late, policy)
	}
	p.end()
	l.judge(t)
}

// testMigration: the slot of a part moves to another master and back under load. While it moves, Redis refuses calls for it, in every way
// it has; the other parts go on. No window is over the bound, and in the end all is as before (fault 19).
func testMigration(t *testing.T, cluster *redistest.Cluster) {
	b := hotBucket{key: "moved", check: "moved", burst: 1000, count: 1000, period: 1, quantity: 1}
	f := startSplitFleet(t, cluster, 4, rulesFile(exactRule(b)))
	l := newLedger(b)
	p := f.press(l, 8)
	f.awaitSpread(b.key, 3)
	// Of home's slot home and part 0 move; of another one, one part.
	hashes := slices.Sorted(maps.Keys(f.hashes(b.key)))
	if len(hashes) < 3 {
		t.Fatalf("parts in %q", hashes)
	}
	moves := 0
	for start := time.Now(); moves == 0 || time.Since(start) < loadFor(3*time.Second); moves++ {
		for _, hash := range []string{hashes[0], hashes[len(hashes)-1]} {
			slot := redistest.Slot(hash)
			from := cluster.MasterOfSlot(slot)
			to := cluster.Masters()[(slices.Index(cluster.Masters(), from)+1)%3]
			f.move(slot, to)
			f.move(slot, from)
		}
	}
	// Where refusals were many a shard was taken for down: it is asked again within a second.
	var from time.Duration
	await(t, "the store decides again", func() bool {
		from = l.now()
		time.Sleep(500 * time.Millisecond)
		return l.byPolicy(from) == 0
	})
	time.Sleep(2 * time.Second)
	granted, policy := l.tokens(from), l.byPolicy(from)
	p.end()
	l.judge(t)
	t.Logf("%d times; %d answers by policy meanwhile, %d in the 2 s afterwards; %d tokens in these", 4*moves, l.byPolicy(0)-policy, policy, granted)
	if policy > 0 {
		t.Errorf("%d answers by policy when all was over", policy)
	}
	if least := 0.8 * b.refill(2*time.Second); float64(granted) < least {
		t.Errorf("%d tokens in 2 s, want %.0f", granted, least)
	}
}

// move moves a slot in small steps, so that there is load on each of them.
func (f *splitFleet) move(slot int, to *redistest.Server) {
	f.Helper()
	ctx := context.Background()
	m, err := f.cluster.BeginMigration(ctx, slot, to)
	must(f.T, err)
	time.Sleep(100 * time.Millisecond) // TRYAGAIN
	keys, err := m.From.Client().ClusterGetKeysInSlot(ctx, slot, 1).Result()
	must(f.T, err)
	must(f.T, m.MoveKeys(ctx, keys...))
	time.Sleep(100 * time.Millisecond)
	must(f.T, m.MoveKeys(ctx))
	time.Sleep(100 * time.Millisecond) // ASK
	must(f.T, m.Finish(ctx))
}

// testHomeFailover: the master of a divided bucket's home is killed under load, and its replica is promoted. But for the time from the kill to
// a second after the promotion, no window is over the bound; then all is as before.
func testHomeFailover(t *testing.T, cluster *redistest.Cluster) {
	b := hotBucket{key: "failover", check: "failover", burst: 1000, count: 1000, period: 1, quantity: 1}
	f := startSplitFleet(t, cluster, 4, rulesFile(exactRule(b)))
	h := f.follow(b.key)
	l := newLedger(b)
	p := f.press(l, 8)
	f.awaitSpread(b.key, 3)
	time.Sleep(loadFor(time.Second))
	home := f.master(f.divided(f.procs[0], b.key).Home)
	killed := l.now()
	must(t, home.Kill())
	_, err := cluster.WaitFailover(t.Context(), home)
	must(t, err)
	promoted := l.now()
	time.Sleep(time.Second)
	from := l.now()
	time.Sleep(loadFor(2 * time.Second))
	upTo := l.now()
	f.divided(f.procs[0], b.key)
	p.end()
	l.between(0, killed, b).judge(t)
	after := l.between(from, upTo, b)
	after.judge(t)
	splits, merged, ended := h.counts()
	t.Logf("promoted %v after the kill; %d answers by policy until then, %d in the next second, %d later; %d splits, %d merged, %d ended by time",
		promoted-killed, l.byPolicy(0)-l.byPolicy(promoted), l.byPolicy(promoted)-l.byPolicy(from), l.byPolicy(from), splits, merged, ended)
	if n := after.tokens(0); float64(n) < 0.6*b.refill(upTo-from) {
		t.Errorf("%d tokens in %v when all was over", n, upTo-from)
	}
	must(t, home.Restart(t.Context()))
	must(t, cluster.WaitStable(t.Context()))
}

// testHomeForgotten: the store loses home's record while a bucket is divided. Home takes the division up again from what agents know, within a
// second; until then it gives out what it has no more.
func testHomeForgotten(t *testing.T, cluster *redistest.Cluster) {
	b := hotBucket{key: "forgotten", check: "forgotten", burst: 300, count: 300, period: 1, quantity: 1}
	f := startSplitFleet(t, cluster, 4, rulesFile(exactRule(b)))
	h := f.follow(b.key)
	l := newLedger(b)
	p := f.press(l, 8)
	f.awaitSpread(b.key, 3)
	for start := time.Now(); time.Since(start) < loadFor(time.Second); {
		s := f.divided(f.procs[0], b.key)
		lost := l.now()
		for hash := range f.fields(func(field string) bool { return field == f.id(b) }) {
			must(t, f.cluster.Client().HDel(t.Context(), hash, f.id(b)).Err())
		}
		time.Sleep(1500 * time.Millisecond)
		from := l.now()
		time.Sleep(time.Second)
		l.between(from, l.now(), b).judge(t)
		// Home began full, and each second of ignorance adds the rate.
		if n := l.tokens(lost); float64(n) > 2*float64(b.burst)+2*b.refill(l.now()-lost) {
			t.Errorf("%d tokens since home was lost", n)
		}
		if now := f.divided(f.procs[0], b.key); !now.Since.Equal(s.Since) {
			t.Errorf("home did not take up the division of %v again; there is one of %v", s.Since, now.Since)
		}
	}
	p.end()
	splits, merged, ended := h.counts()
	t.Logf("%d tokens; %d splits, %d merged, %d ended by time; %d answers by policy", l.tokens(0), splits, merged, ended, l.byPolicy(0))
}

// id is the field of a bucket's home.
func (f *splitFleet) id(b hotBucket) string {
	id := limit.AppendPart(nil, "api")
	id = limit.AppendPart(id, b.check)
	return string(limit.AppendPart(id, b.key))
}
