package main

import (
	"context"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spillgate/spillgate/limit"
)

// tick is how often the pacer releases what is due.
const tick = time.Millisecond

// backlog is how much of the load may wait for a free worker. What is due beyond it is not made.
const backlog = 250 * time.Millisecond

// load is an open loop: check i is due i/rate after the start, at agent turns[i], on keys[i]. One pacer
// releases what is due; each agent has workers, so that checks that wait for the store overlap.
type load struct {
	agents, workers int // workers of each agent
	rate            float64
	keys            []uint32
	turns           []uint16
	warm            int  // keys[:warm] are the warm-up
	record          bool // keep the times of admitted checks

	start  time.Time
	queues []chan int // of each agent
	warmed atomic.Bool
}

// tally is what became of the measured checks: those answered after the warm-up, so that they are
// as many as the counters between the two marks saw, even when some had to wait.
type tally struct {
	admitted, denied uint64
	policy           uint64 // of both: answered by policy, for want of the store's answer
	lost             uint64 // not made: the agent's queue was full
	made, unmade     uint64 // the same for all checks, with the warm-up: made and lost
	began, ended     time.Duration
	latency, due     histogram     // in the call; since it was due
	late             time.Duration // the most by which the pacer was behind

	admissions []admission // since the start, if recorded
}

// run makes the checks. It calls mark where the warm-up ends, and when the last check is answered.
func (l *load) run(ctx context.Context, check func(agent int, key string) limit.Decision, mark func() error) (*tally, error) {
	l.queues = make([]chan int, l.agents)
	for a := range l.queues {
		l.queues[a] = make(chan int, l.workers+int(l.rate*backlog.Seconds())/l.agents)
	}
	tallies := make([]tally, l.agents*l.workers)
	l.start = time.Now()
	var workers sync.WaitGroup
	for w := range tallies {
		workers.Go(func() {
			for i := range l.queues[w%l.agents] {
				l.make(i, &tallies[w], check)
			}
		})
	}
	sum := new(tally)
	err := l.pace(ctx, sum, mark)
	for _, q := range l.queues {
		close(q)
	}
	workers.Wait()
	if err == nil {
		err = mark()
	}
	for i := range tallies {
		sum.merge(&tallies[i])
	}
	return sum, err
}

// pace releases the warm-up, then the measured checks.
func (l *load) pace(ctx context.Context, t *tally, mark func() error) error {
	warmup := new(tally)
	if err := l.release(ctx, warmup, 0, l.warm); err != nil {
		return err
	}
	l.warmed.Store(true)
	if err := mark(); err != nil {
		return err
	}
	t.began = time.Since(l.start)
	err := l.release(ctx, t, l.warm, len(l.keys))
	t.ended = time.Since(l.start)
	t.unmade = warmup.lost + t.lost
	return err
}

// release hands out the checks from i until end as they fall due. It waits for nobody.
func (l *load) release(ctx context.Context, t *tally, i, end int) error {
	for i < end {
		now := time.Since(l.start)
		due := min(end, 1+int(now.Seconds()*l.rate))
		if i < due {
			t.late = max(t.late, now-l.dueAt(i))
		}
		for ; i < due; i++ {
			select {
			case l.queues[l.turns[i]] <- i:
			default:
				t.lost++
			}
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if i < end {
			time.Sleep(tick)
		}
	}
	return nil
}

func (l *load) dueAt(i int) time.Duration {
	return time.Duration(float64(i) / l.rate * float64(time.Second))
}

// make makes check i.
func (l *load) make(i int, t *tally, check func(agent int, key string) limit.Decision) {
	called := time.Since(l.start)
	agent := int(l.turns[i])
	d := check(agent, strconv.Itoa(int(l.keys[i])))
	returned := time.Since(l.start)
	t.made++
	if l.record && d.Admitted {
		t.admissions = append(t.admissions, admission{called, returned, agent})
	}
	if !l.warmed.Load() {
		return
	}
	if d.Admitted {
		t.admitted++
	} else {
		t.denied++
	}
	if d.Reason != limit.OK && d.Reason != limit.OverLimit {
		t.policy++
	}
	t.latency.add(returned - called)
	t.due.add(returned - l.dueAt(i))
}

// merge adds what a worker has counted.
func (t *tally) merge(w *tally) {
	t.admitted += w.admitted
	t.denied += w.denied
	t.policy += w.policy
	t.made += w.made
	t.latency.merge(&w.latency)
	t.due.merge(&w.due)
	t.admissions = append(t.admissions, w.admissions...)
}
