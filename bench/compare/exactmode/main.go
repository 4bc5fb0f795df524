// Command exactmode compares checks in exact mode, every one decided by Redis, with
// go-redis/redis_rate on the same server: checks per second and latency at a number
// of concurrent callers in one process. It starts its own servers.
//
//	go run ./exactmode -callers 64,512 -rounds 5
//	go run ./exactmode -cluster
//
// The two take turns, round by round; a ratio is taken within its round.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"text/tabwriter"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"

	"github.com/spillgate/spillgate/agent"
	"github.com/spillgate/spillgate/internal/redistest"
	"github.com/spillgate/spillgate/limit"
	"github.com/spillgate/spillgate/redisshard"
)

func main() {
	callers := flag.String("callers", "64,512", "numbers of concurrent callers")
	buckets := flag.Int("buckets", 100_000, "buckets, chosen uniformly")
	rounds := flag.Int("rounds", 5, "rounds over both")
	length := flag.Duration("length", 2*time.Second, "length of a run")
	cluster := flag.Bool("cluster", false, "3 masters instead of one server")
	flag.Parse()
	if err := measure(*callers, *buckets, *rounds, *length, *cluster); err != nil {
		fmt.Fprintln(os.Stderr, "exactmode:", err)
		os.Exit(1)
	}
}

// A check decides on one bucket.
type check func(ctx context.Context, bucket string) error

// A sample is one run.
type sample struct {
	rate     float64
	p50, p99 time.Duration
}

func measure(callers string, buckets, rounds int, length time.Duration, cluster bool) error {
	ctx := context.Background()
	url, client, stop, err := servers(ctx, cluster)
	if err != nil {
		return err
	}
	defer stop()

	store, err := redisshard.Open(ctx, redisshard.Config{URL: url, Timeout: 2 * time.Second})
	if err != nil {
		return err
	}
	defer store.Close()
	a, err := agent.New(agent.Config{Store: store, Deadline: 2 * time.Second, OnStoreError: limit.Closed})
	if err != nil {
		return err
	}
	defer a.Close(ctx)
	terms, err := limit.Rate{Requests: 1000, Period: time.Minute}.Terms()
	if err != nil {
		return err
	}
	ours := func(ctx context.Context, bucket string) error {
		d, err := a.Throttle(ctx, bucket, terms, 1)
		if err == nil && d.Reason != limit.OK {
			err = errors.New("answered by policy: " + d.Reason.String())
		}
		return err
	}
	limiter, rate := redis_rate.NewLimiter(client), redis_rate.PerMinute(1000)
	theirs := func(ctx context.Context, bucket string) error {
		_, err := limiter.Allow(ctx, bucket, rate)
		return err
	}

	names := make([]string, buckets)
	for i := range names {
		names[i] = fmt.Sprintf("user:%08d", i)
	}
	t := tabwriter.NewWriter(os.Stdout, 0, 0, 1, ' ', 0)
	fmt.Fprintln(t, "| callers\t| limiter\t| checks/s\t| ratio\t| p50\t| p99\t|")
	fmt.Fprintln(t, "|---\t|---\t|---\t|---\t|---\t|---\t|")
	for field := range strings.SplitSeq(callers, ",") {
		n, err := strconv.Atoi(field)
		if err != nil || n < 1 {
			return fmt.Errorf("-callers: %q is no number of callers", field)
		}
		var rival, our []sample
		for range rounds {
			for _, turn := range []struct {
				check check
				to    *[]sample
			}{{theirs, &rival}, {ours, &our}} {
				s, err := run(ctx, n, names, length, turn.check)
				if err != nil {
					return err
				}
				*turn.to = append(*turn.to, s)
			}
		}
		row(t, n, "redis_rate", rival, rival)
		row(t, n, "spillgate", our, rival)
	}
	return t.Flush()
}

// servers starts one server or a cluster of three masters.
func servers(ctx context.Context, cluster bool) (url string, client redis.UniversalClient, stop func(), err error) {
	if cluster {
		c, err := redistest.LaunchCluster(ctx, "", redistest.Config{Replicas: -1})
		if err != nil {
			return "", nil, nil, err
		}
		return c.URL(), c.Client(), func() { c.Close() }, nil
	}
	s, err := redistest.Launch(ctx, "", redistest.Config{})
	if err != nil {
		return "", nil, nil, err
	}
	// Room for every caller at once, or the pool would be what is measured.
	client = redis.NewClient(&redis.Options{Addr: s.Addr(), PoolSize: 512})
	return s.URL(), client, func() { client.Close(); s.Close() }, nil
}

// run has callers check random buckets for a while.
func run(ctx context.Context, callers int, names []string, length time.Duration, do check) (sample, error) {
	var (
		stop      atomic.Bool
		wg        sync.WaitGroup
		latencies = make([][]time.Duration, callers)
		errs      = make([]error, callers)
	)
	start := time.Now()
	for c := range callers {
		wg.Go(func() {
			random := rand.New(rand.NewPCG(uint64(c), 7))
			for !stop.Load() {
				began := time.Now()
				if err := do(ctx, names[random.IntN(len(names))]); err != nil {
					errs[c] = err
					return
				}
				latencies[c] = append(latencies[c], time.Since(began))
			}
		})
	}
	time.Sleep(length)
	stop.Store(true)
	wg.Wait()
	took := time.Since(start)
	if err := errors.Join(errs...); err != nil {
		return sample{}, err
	}
	all := slices.Concat(latencies...)
	slices.Sort(all)
	if len(all) == 0 {
		return sample{}, errors.New("no check was answered")
	}
	return sample{rate: float64(len(all)) / took.Seconds(), p50: all[len(all)/2], p99: all[len(all)*99/100]}, nil
}

func row(t *tabwriter.Writer, callers int, name string, samples, base []sample) {
	var rates, ratios []float64
	var p50, p99 []time.Duration
	for i, s := range samples {
		rates = append(rates, s.rate)
		ratios = append(ratios, s.rate/base[i].rate)
		p50, p99 = append(p50, s.p50), append(p99, s.p99)
	}
	fmt.Fprintf(t, "| %d\t| %s\t| %.0f\t| %.2f\t| %v\t| %v\t|\n", callers, name, median(rates), median(ratios),
		median(p50).Round(time.Microsecond), median(p99).Round(time.Microsecond))
}

func median[T float64 | time.Duration](values []T) T {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}
