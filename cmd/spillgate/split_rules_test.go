package main

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/spillgate/spillgate/internal/redistest"
)

// testRules: the rule of a divided bucket changes under load: a lower limit, none, one of another class, and after each the first one
// again. From each change on no window is over the limit that holds then, and tokens are granted by it.
func testRules(t *testing.T, cluster *redistest.Cluster) {
	b := hotBucket{key: "changing", check: "changing", burst: 1000, count: 1000, period: 1, quantity: 1}
	f := startSplitFleet(t, cluster, 4, rulesFile(exactRule(b)))
	l := newLedger(b)
	p := f.press(l, 8)
	f.awaitSpread(b.key, 3)

	lower := b
	lower.burst, lower.count = 100, 100
	f.changeTo(lower, l)
	f.changeTo(b, l)

	f.divided(f.procs[0], b.key)
	// Back before the split has ended, while it ends, and in a long run long after.
	for _, away := range []time.Duration{time.Second, loadFor(2500 * time.Millisecond)} {
		f.reload(rulesFile())
		from := l.now()
		time.Sleep(away)
		if n, free := l.tokens(from), l.forWant(); n > 0 || free == 0 {
			t.Errorf("without a rule %d checks are admitted by it, and %d for want of it", n, free)
		}
		f.reload(rulesFile(exactRule(b)))
		back := l.now()
		f.divided(f.procs[0], b.key)
		time.Sleep(time.Second)
		l.between(from, l.now(), b).judge(t)
		if n := l.tokens(back); float64(n) < 0.7*b.refill(time.Second) {
			t.Errorf("with the rule back %d tokens in a second", n)
		}
	}
	wider := b
	wider.burst = 5000 // it fills in 5 s: a class of its own
	f.changeTo(wider, l)
	f.divided(f.procs[0], b.key)
	f.changeTo(b, l) // whose split of before has nearly ended
	f.divided(f.procs[0], b.key)
	p.end()
	t.Log(f.totals())
	if n := l.byPolicy(0); n > 0 {
		t.Errorf("%d answers by policy", n)
	}
}

// changeTo changes the limit of a bucket under load and looks what comes of it.
func (f *splitFleet) changeTo(b hotBucket, l *ledger) {
	f.Helper()
	f.reload(rulesFile(exactRule(b)))
	from := l.now()
	time.Sleep(loadFor(6*time.Second) / 4)
	upTo := l.now()
	part := l.between(from, upTo, b)
	part.judge(f.T)
	// A split that ends by time leaves the bucket empty, and for a second without tokens.
	if least := 0.7 * b.refill(max(0, upTo-from-time.Second)); float64(part.tokens(0)) < least {
		f.Errorf("burst %d and %d/s: %d tokens in %v, want %.0f", b.burst, b.count, part.tokens(0), upTo-from, least)
	}
}

// testReset: a divided bucket that is empty is filled by an agent that knows how it is divided, and by one that does not. All its
// tokens are there again, once.
func testReset(t *testing.T, cluster *redistest.Cluster) {
	b := hotBucket{key: "reset", check: "reset", burst: 300, count: 1, period: 60, quantity: 1}
	f := startSplitFleet(t, cluster, 3, rulesFile(exactRule(b)))
	knows, stranger := f.procs[0], f.procs[2]
	l := newLedger(b)
	p := f.of(t, 2).press(l, 8)
	f.divided(knows, b.key)
	taken := func(from time.Duration) int64 {
		f.await("all tokens are taken", func() bool { return l.tokens(from) >= b.burst })
		time.Sleep(300 * time.Millisecond)
		return l.tokens(from)
	}
	taken(0)
	for range int(1 + *splitLength/(5*time.Second)) {
		for _, by := range []*agentProc{knows, stranger} {
			f.divided(knows, b.key)
			from := l.now()
			f.reset(by, b)
			if n, most := taken(from), b.burst+1; n > most { // one may have come in between
				t.Errorf("%d tokens after a reset, want %d", n, b.burst)
			}
		}
		f.restart(stranger)
	}
	p.end()
	if l.byPolicy(0) > 0 {
		t.Errorf("%d answers by policy", l.byPolicy(0))
	}
}

// testRestart: all agents are killed while a bucket is divided, and one comes back when nobody has told home of any load for about as long
// as a split lasts. It decides nothing by policy, for the store is well, and no window is over the bound.
func testRestart(t *testing.T, cluster *redistest.Cluster) {
	b := hotBucket{key: "restart", check: "restart", burst: 1000, count: 1000, period: 1, quantity: 1}
	f := startSplitFleet(t, cluster, 3, rulesFile(exactRule(b)))
	l := newLedger(b)
	for start := time.Now(); ; {
		p := f.press(l, 8)
		f.divided(f.procs[0], b.key)
		time.Sleep(time.Second)
		for _, a := range f.procs {
			a.kill()
		}
		p.end()
		time.Sleep(1200*time.Millisecond + rand.N(1200*time.Millisecond))
		must(t, f.procs[0].start())
		p = f.of(t, 1).press(l, 1)
		from := l.now()
		f.await("there are tokens after a restart", func() bool { return l.tokens(from) > 0 })
		time.Sleep(time.Second)
		p.end()
		t.Logf("%d tokens in %v after the restart", l.tokens(from), l.now()-from)
		if time.Since(start) >= *splitLength {
			break
		}
		for _, a := range f.procs[1:] {
			must(t, a.start())
		}
	}
	l.judge(t)
	if n := l.byPolicy(0); n > 0 {
		t.Errorf("%d answers by policy", n)
	}
}

// restart has an agent forget what it knows.
func (f *splitFleet) restart(p *agentProc) {
	f.Helper()
	p.kill()
	must(f.T, p.start())
}
