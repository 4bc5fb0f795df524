package main

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/spillgate/spillgate/internal/redistest"
)

// aloneOps is a threshold of splits that one agent reaches, with one client, on a busy machine too.
const aloneOps = "60"

// testFew: fewer tokens than a busy bucket has, over about as many parts. All of them can be had, by one agent and by
// sixteen, whether the bucket is divided before the first is taken or in the middle, and not one more (fault 6). A bucket of one token is
// never divided.
func testFew(t *testing.T, cluster *redistest.Cluster) {
	for _, tt := range []struct {
		tokens, perMinute int64
		ways, parts       int
		before            map[int][]int64 // tokens taken before, by number of agents
	}{
		{7, 7, 8, 7, map[int][]int64{1: {0, 3}, 16: {0, 3}}}, // no part without a token
		{997, 1, 16, 16, map[int][]int64{1: {0}, 16: {3}}},
	} {
		t.Run(fmt.Sprint("tokens=", tt.tokens), func(t *testing.T) {
			name := fmt.Sprint("few", tt.tokens)
			b := hotBucket{check: name, burst: tt.tokens, count: tt.perMinute, period: 60, quantity: 1}
			one := hotBucket{key: fmt.Sprint("one of ", tt.ways), check: "one", burst: 1, count: 1, period: 60, quantity: 1}
			f := startSplitFleet(t, cluster, 16, rulesFile(exactRule(b), exactRule(one)), "--split-ops", aloneOps, "--split-ways", fmt.Sprint(tt.ways))
			for agents, all := range tt.before {
				for _, before := range all {
					t.Run(fmt.Sprintf("agents=%d/before=%d", agents, before), func(t *testing.T) {
						t.Parallel()
						b := b
						b.key = fmt.Sprintf("%s %d %d", name, agents, before)
						f.of(t, agents).few(b, before, tt.parts)
					})
				}
			}
			t.Run("limit=1", func(t *testing.T) {
				t.Parallel()
				f.of(t, 16).one(one)
			})
		})
	}
}

// of is a part of the fleet for a subtest.
func (f *splitFleet) of(t *testing.T, agents int) *splitFleet {
	g := *f
	g.T, g.procs = t, f.procs[:agents]
	return &g
}

// few takes some tokens, has the bucket divided without taking any, and takes the rest.
func (f *splitFleet) few(b hotBucket, before int64, parts int) {
	f.warm(b)
	l := newLedger(b)
	c := f.procs[0].mustCall(f.T, l)
	if n, err := c.ask(int(before)); int64(n) != before || err != nil {
		f.Fatalf("%d of the first %d tokens, %v", n, before, err)
	}
	first := l.now()
	p := f.of(f.T, 1).press(newLedger(b.looks()), 4)
	if s := f.divided(f.procs[0], b.key); s.Ways != parts {
		f.Errorf("divided into %d, want %d", s.Ways, parts)
	}
	p.end()

	q := f.press(l, 8)
	for end := time.Now().Add(loadFor(1500 * time.Millisecond)); time.Now().Before(end) || l.tokens(0) < b.burst; time.Sleep(20 * time.Millisecond) {
		if time.Since(end) > scriptPatience {
			break
		}
	}
	q.end()
	l.judge(f.T)
	took := l.now() - first
	n, most := l.tokens(0), b.burst+int64(math.Floor(b.refill(took)))
	f.Logf("%d tokens in %v", n, took)
	if p := l.byPolicy(0); p > 0 {
		f.Errorf("%d answers by policy", p)
	}
	if n < b.burst || n > most {
		f.Errorf("%d tokens, want %d, and %d at most with what has refilled since", n, b.burst, most)
	}
}

// warm makes a bucket hot at the first agent, by fewer entries than divide it, and fills it again.
func (f *splitFleet) warm(b hotBucket) {
	f.Helper()
	l := newLedger(b)
	c := f.procs[0].mustCall(f.T, l)
	for end := time.Now().Add(1200 * time.Millisecond); time.Now().Before(end); time.Sleep(40 * time.Millisecond) {
		_, err := c.ask(int(b.burst/20 + 1))
		must(f.T, err)
	}
	f.reset(f.procs[0], b)
}

// reset has an agent fill a bucket.
func (f *splitFleet) reset(p *agentProc, b hotBucket) {
	f.Helper()
	if n, err := p.client(f.T).Do(f.Context(), "SG.RESET", "api", b.check, b.key).Int(); n != 1 || err != nil {
		f.Fatalf("SG.RESET: %v, %v", n, err)
	}
}

// one asks for the one token of a bucket that cannot be divided.
func (f *splitFleet) one(b hotBucket) {
	h := f.follow(b.key)
	l := newLedger(b)
	p := f.press(l, 4)
	time.Sleep(loadFor(1500 * time.Millisecond))
	p.end()
	l.judge(f.T)
	if n := l.tokens(0); n < 1 {
		f.Errorf("%d tokens of one", n)
	}
	if splits, _, _ := h.counts(); splits > 0 {
		f.Errorf("a bucket of one token was divided %d times", splits)
	}
}
