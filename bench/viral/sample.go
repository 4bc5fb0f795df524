package viral

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// slice is the time between two samples.
const slice = 100 * time.Millisecond

// reading is the counters of one master.
type reading struct {
	at time.Duration // of the answer, since the load began
	scripts
	cpu time.Duration
}

// scripts is what a master has run of them: how many, and for how many microseconds.
type scripts struct{ calls, micros uint64 }

// sample is everything at one moment. The masters answer when they can, so each reading has a time of its own.
type sample struct {
	at      time.Duration
	counts  counts
	masters []reading
	knew    int // agents that know of a split
}

// sample samples a load from its begin until the end of the measured time.
func (b *bench) sample(ctx context.Context, l *load, f *fleet) ([]sample, error) {
	tick := time.NewTicker(slice)
	defer tick.Stop()
	var all []sample
	for {
		s := sample{counts: l.so(), at: time.Since(l.start), knew: len(f.splits())}
		var err error
		if s.masters, err = b.cluster.read(ctx, l.start); err != nil {
			return nil, err
		}
		all = append(all, s)
		if s.at >= b.cfg.Settle+b.cfg.Duration {
			return all, nil
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-tick.C:
		}
	}
}

// read asks all masters at once.
func (c *cluster) read(ctx context.Context, start time.Time) ([]reading, error) {
	readings, errs := make([]reading, len(c.masters)), make([]error, len(c.masters))
	var wg sync.WaitGroup
	for i, m := range c.masters {
		wg.Go(func() {
			if readings[i], errs[i] = readMaster(ctx, m, start); errs[i] != nil {
				errs[i] = fmt.Errorf("INFO of %s: %w", c.addrs[i], errs[i])
			}
		})
	}
	wg.Wait()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return readings, errors.Join(errs...)
}

func readMaster(ctx context.Context, m *redis.Client, start time.Time) (r reading, err error) {
	pipe := m.Pipeline()
	commands, cpu := pipe.Info(ctx, "commandstats"), pipe.Info(ctx, "cpu")
	if _, err = pipe.Exec(ctx); err != nil {
		return r, err
	}
	r.at = time.Since(start)
	if r.scripts, err = scriptsRun(commands.Val()); err != nil {
		return r, err
	}
	r.cpu, err = cpuUsed(cpu.Val())
	return r, err
}

// scriptsRun adds up the scripts, as INFO commandstats has them; none when there is no line of them yet.
func scriptsRun(info string) (sum scripts, err error) {
	for line := range strings.Lines(info) {
		name, fields, _ := strings.Cut(line, ":")
		if name != "cmdstat_evalsha" && name != "cmdstat_eval" {
			continue
		}
		var s scripts
		if _, err := fmt.Sscanf(fields, "calls=%d,usec=%d,", &s.calls, &s.micros); err != nil {
			return scripts{}, fmt.Errorf("no number of calls in %q", strings.TrimSpace(line))
		}
		sum.calls += s.calls
		sum.micros += s.micros
	}
	return sum, nil
}

// cpuUsed adds the times of INFO cpu, in user and kernel mode.
func cpuUsed(info string) (time.Duration, error) {
	var seconds float64
	found := 0
	for line := range strings.Lines(info) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		if name != "used_cpu_user" && name != "used_cpu_sys" {
			continue
		}
		v, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return 0, fmt.Errorf("no CPU time in %q", line)
		}
		seconds += v
		found++
	}
	if found != 2 {
		return 0, errors.New("no CPU times in INFO cpu")
	}
	return time.Duration(seconds * float64(time.Second)), nil
}
