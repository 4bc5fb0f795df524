package main

import (
	"context"
	"flag"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillgate/spillgate/internal/redistest"
)

// hotLength is how long the fleet is under load. CI has it short; by hand: go test -run TestHotFleet ./cmd/spillgate -hot.length=30s
var hotLength = flag.Duration("hot.length", 4*time.Second, "length of the load in TestHotFleet")

// TestHotFleet: ten agents on a cluster of three masters share one bucket at ten times its rate, and every second one of them is
// killed and started again. No window is over the bound (G1), and what is refilled is granted but for what
// the dead had on lease (G3).
func TestHotFleet(t *testing.T) {
	t.Parallel()
	const agents, streams = 10, 2
	// 10 agents * 2 streams * 5 commands every 10 ms: 10,000 checks a second.
	bucket := hotBucket{key: "viral", burst: 100, count: 1000, period: 1, quantity: 1}
	const batch, every = 5, 10 * time.Millisecond

	cluster := redistest.StartCluster(t, redistest.WithShards(3, -1))
	dir := shortDir(t)
	fleet := startProcs(t, dir, agents, cluster.URL())

	l := newLedger(bucket)
	ctx, cancel := context.WithTimeout(t.Context(), *hotLength)
	defer cancel()
	var wg sync.WaitGroup
	for _, a := range fleet {
		for range streams {
			wg.Go(func() {
				if err := (&stream{agent: a, l: l, batch: batch, every: every}).run(ctx); err != nil {
					t.Error(err)
				}
			})
		}
	}
	kills := 0
	wg.Go(func() { kills = killAtRandom(ctx, t, fleet) })
	var stalled time.Duration
	wg.Go(func() { stalled = stalls(ctx, cluster.Masters(), 80*time.Millisecond) })
	<-ctx.Done()
	took := l.now()
	wg.Wait()

	l.judge(t)
	granted, refilled := float64(l.tokens(0)), float64(bucket.burst)+bucket.refill(took-stalled)
	share := granted / refilled
	t.Logf("%d agents, %d killed in %v, of which a master or this test stood still for %v: %.0f tokens granted; %.0f could be, and %.0f were refilled",
		agents, kills, took, stalled, granted, refilled, float64(bucket.burst)+bucket.refill(took))
	// A short run has relatively more of what costs tokens: the start, and answers on their way at a kill.
	least := 0.90
	if *hotLength >= 20*time.Second {
		least = 0.97
	}
	if share < least {
		t.Errorf("granted %.2f %% of what was refilled, want %.0f %%", 100*share, 100*least)
	}
	if kills == 0 {
		t.Error("no agent was killed")
	}
}

// killAtRandom kills an agent about once a second and starts it again.
func killAtRandom(ctx context.Context, t *testing.T, fleet []*agentProc) (kills int) {
	for {
		select {
		case <-ctx.Done():
			return kills
		case <-time.After(500*time.Millisecond + rand.N(time.Second)):
		}
		a := fleet[rand.N(len(fleet))]
		a.kill()
		kills++
		if err := a.start(); err != nil {
			t.Error(err)
			return kills
		}
	}
}

// stalls is for how long a busy machine left one of the servers, or this test, without a turn. A pause is harmless while the
// bucket is not full at its end, or hardly: what would be refilled in the rest of a longer one nobody can grant.
func stalls(ctx context.Context, servers []*redistest.Server, harmless time.Duration) (longest time.Duration) {
	const pause = 5 * time.Millisecond
	var mu sync.Mutex
	var wg sync.WaitGroup
	for _, s := range servers {
		client := redis.NewClient(&redis.Options{Network: "unix", Addr: s.Socket(), DisableIdentity: true, ReadTimeout: scriptPatience})
		wg.Go(func() {
			defer client.Close()
			var sum time.Duration
			for last := time.Now(); ctx.Err() == nil; time.Sleep(pause) {
				client.Ping(context.Background())
				now := time.Now()
				sum += max(0, now.Sub(last)-harmless)
				last = now
			}
			mu.Lock()
			defer mu.Unlock()
			longest = max(longest, sum)
		})
	}
	wg.Wait()
	return longest
}
