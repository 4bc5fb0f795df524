package main

import (
	"context"
	"testing"
	"time"

	"github.com/spillgate/spillgate/internal/redistest"
)

// The bound on how long a dead agent's lease counts: twice its 2 s.
const leaseGone = 4 * time.Second

// heat has one agent decide a bucket at a steady pace for a while, 1,000 tokens a second.
func heat(t *testing.T, p *agentProc, l *ledger, length time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), length)
	defer cancel()
	must(t, (&stream{agent: p, l: l, batch: int(20 / l.bucket.quantity), every: 20 * time.Millisecond}).run(ctx))
}

// TestHotKill is fault 16, kill -9: what the dead agent held is spent by nobody, and no longer than until it is
// forgotten does it keep the bucket from being full.
func TestHotKill(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	dir := shortDir(t)
	dead, other := startProc(t, dir, "dead", srv.URL()), startProc(t, dir, "other", srv.URL())
	// It refills faster than the demand, so that the bucket is as full as the lease lets it be.
	l := newLedger(hotBucket{key: "killed", burst: 5000, count: 2000, period: 1, quantity: 5})
	heat(t, dead, l, time.Second)
	dead.kill()

	// At once: all that the bucket has, and not what was on lease.
	c := other.mustCall(t, l)
	must(t, drain(c, 100*time.Millisecond))
	first := l.tokens(0)
	// Then it is left alone until nothing counts as leased any more, and for the second in which what was comes back.
	time.Sleep(leaseGone + 1300*time.Millisecond)
	from := l.now()
	must(t, drain(c, 300*time.Millisecond))
	granted, there := float64(l.tokens(from)), float64(l.bucket.burst)+l.bucket.refill(l.now()-from)
	t.Logf("%d admitted up to the first drain; %.0f of %.0f tokens by the second", first, granted, there)
	// At the end an agent may believe for a while that nothing is there.
	if granted < there-0.02*float64(l.bucket.burst)-l.bucket.refill(denialSlack) {
		t.Errorf("long after the kill only %.0f of %.0f tokens are granted: what the dead agent held is missing", granted, there)
	}
	l.judge(t)
}

// TestHotTerminate is fault 16, SIGTERM: what the agent held is there for the others when its process has ended.
func TestHotTerminate(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	dir := shortDir(t)
	gone, other := startProc(t, dir, "gone", srv.URL()), startProc(t, dir, "other", srv.URL())
	// It is never full again after the first second, so that no token is lost but by the agents.
	l := newLedger(hotBucket{key: "terminated", burst: 5000, count: 100, period: 1, quantity: 5})
	start := l.now()
	heat(t, gone, l, 2*time.Second)
	held := l.tokens(0)
	must(t, gone.terminate())
	c := other.mustCall(t, l)
	must(t, drain(c, 300*time.Millisecond))
	took := l.now() - start
	granted, there := float64(l.tokens(0)), float64(l.bucket.burst)+l.bucket.refill(took)
	t.Logf("%d admitted before SIGTERM; %.0f of %.0f tokens in the end", held, granted, there)
	if granted < 0.96*there { // at the end an agent may believe for a while that nothing is there
		t.Errorf("%.0f of %.0f tokens were granted: what the agent held is missing", granted, there)
	}
	l.judge(t)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
