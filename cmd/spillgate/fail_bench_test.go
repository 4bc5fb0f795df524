package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spillgate/spillgate/agent"
	"github.com/spillgate/spillgate/internal/redistest"
	"github.com/spillgate/spillgate/limit"
	"github.com/spillgate/spillgate/redisshard"
	"github.com/spillgate/spillgate/rules"
)

// failStopped is how long BenchmarkShardStopped stops a master: go test ./cmd/spillgate -run '^$' -bench ShardStopped -benchtime 1x
var failStopped = flag.Duration("fail.stopped", 5*time.Second, "how long a master is stopped in BenchmarkShardStopped")

// BenchmarkShardStopped measures fault 18: of three masters one is stopped under load. It reports
//
//	p99.9-us   of all answers on the master that is stopped, from the stop to the return; the deadline is 25 ms
//	others     throughput of the other masters while it is stopped, over that before
//	back-ms    from the return until it is asked again
//
// Other masters are asked by callers who ask again as soon as they are answered. The one that will be stopped is asked at a steady
// pace, as by clients who do not ask more because they are refused sooner.
func BenchmarkShardStopped(b *testing.B) {
	const deadline, pacers, pace, callers = 25 * time.Millisecond, 30, 10 * time.Millisecond, 16
	cluster := redistest.StartCluster(b, redistest.WithShards(3, 0), redistest.WithNodeTimeout(time.Minute), redistest.WithConfig("cluster-require-full-coverage no"))
	set, err := rules.Parse("", fmt.Appendf(nil, `domain: api
rules:
  - {name: open,   match: [{key: open}],   limit: 100000/s, mode: exact, on_store_error: open,   deadline: %[1]v}
  - {name: closed, match: [{key: closed}], limit: 100000/s, mode: exact, on_store_error: closed, deadline: %[1]v}
  - {name: local,  match: [{key: local}],  limit: 100000/s, mode: exact, on_store_error: local,  deadline: %[1]v}
`, deadline))
	redistest.Must(b, err)
	store, err := redisshard.Open(b.Context(), redisshard.Config{URL: cluster.URL(), Logger: slog.New(slog.DiscardHandler)})
	redistest.Must(b, err)
	defer store.Close()
	a, err := agent.New(agent.Config{Store: store, Rules: set, FleetSize: 1})
	redistest.Must(b, err)
	defer a.Close(context.Background())

	policies := []string{"open", "closed", "local"}
	stopped := cluster.Masters()[0]
	values := map[bool][][2]string{} // of a rule, by whether they live on the master that will be stopped
	secret, _ := store.Secret()
	for i := range 3000 {
		rule, value := policies[i%len(policies)], fmt.Sprint("v", i)
		var name limit.Bucket
		secret.Name(&name, limit.AppendPart(limit.AppendPart(limit.AppendPart(nil, "api"), rule), value))
		on := store.Master(&name, nil) == stopped.Addr()
		values[on] = append(values[on], [2]string{rule, value})
	}

	var mu sync.Mutex
	var took []time.Duration // of the answers on the one
	var others atomic.Int64
	reasons := make(map[limit.Reason]int)
	ctx, stop := context.WithCancel(b.Context())
	var all sync.WaitGroup
	check := func(v [2]string) limit.Decision {
		d, err := a.Check(ctx, agent.Request{Domain: "api", Hits: 1, Descriptors: []rules.Descriptor{{{Key: v[0], Value: v[1]}}}})
		if err != nil {
			b.Error(err)
		}
		return d
	}
	for i := range pacers {
		all.Go(func() {
			tick := time.NewTicker(pace)
			defer tick.Stop()
			for n := i; ctx.Err() == nil; n += pacers {
				<-tick.C
				start := time.Now()
				d := check(values[true][n%len(values[true])])
				t := time.Since(start)
				mu.Lock()
				took = append(took, t)
				reasons[d.Reason]++
				mu.Unlock()
			}
		})
	}
	for i := range callers {
		all.Go(func() {
			for n := i; ctx.Err() == nil; n += callers {
				if d := check(values[false][n%len(values[false])]); d.Reason == limit.OK {
					others.Add(1)
				}
			}
		})
	}
	// phase is what happens in a while.
	phase := func(length time.Duration) (rate float64, lasts []time.Duration, by map[limit.Reason]int) {
		mu.Lock()
		took, reasons = nil, make(map[limit.Reason]int)
		mu.Unlock()
		before, start := others.Load(), time.Now()
		time.Sleep(length)
		rate = float64(others.Load()-before) / time.Since(start).Seconds()
		mu.Lock()
		defer mu.Unlock()
		slices.Sort(took)
		return rate, took, reasons
	}
	at := func(sorted []time.Duration, q float64) float64 {
		return float64(sorted[int(q*float64(len(sorted)-1))].Microseconds())
	}
	for b.Loop() {
		phase(2 * time.Second)
		before, calm, by := phase(*failStopped)
		b.Logf("before: others %.0f/s; the one: p99.9 %.0f us, %v", before, at(calm, 0.999), by)
		redistest.Must(b, stopped.Stop())
		during, lasts, by := phase(*failStopped)
		redistest.Must(b, stopped.Continue())
		b.Logf("stopped: others %.0f/s; the one: %d answers, p50 %.0f us, p99 %.0f us, p99.9 %.0f us, max %.0f us, %v", during, len(lasts),
			at(lasts, 0.5), at(lasts, 0.99), at(lasts, 0.999), at(lasts, 1), by)
		b.ReportMetric(at(lasts, 0.999), "p99.9-us")
		b.ReportMetric(during/before, "others")
		back := time.Now()
		for a.Stats().Batcher.Down > 0 {
			time.Sleep(time.Millisecond)
		}
		asked := time.Since(back)
		after, lasts, by := phase(time.Second)
		b.Logf("back: asked again after %v; in the next second others %.0f/s; the one: p99.9 %.0f us, %v", asked, after, at(lasts, 0.999), by)
		b.ReportMetric(0, "ns/op")
		b.ReportMetric(float64(asked.Milliseconds()), "back-ms")
	}
	stop()
	all.Wait()
}
