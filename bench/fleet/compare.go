package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/spillgate/spillgate/batcher"
	"github.com/spillgate/spillgate/bench/rig"
	"github.com/spillgate/spillgate/limit"
)

// modes are what is compared, the base of the ratios first.
var modes = []string{"exact", "leased"}

// workload is one load on one kind of rule.
type workload struct {
	Name   string   `json:"name"`
	Bucket bucketOf `json:"bucket"`
	Rate   float64  `json:"checks_per_s"`

	draw     draw
	shuffled bool // the agents' turns
	record   bool // the admissions
}

// sample is one run of a workload in one mode.
type sample struct {
	Mode  string `json:"mode"`
	Round int    `json:"round"`
	// Checks answered in the measured time: Admitted + Denied. Policy of them were answered without the
	// store. Lost ones were due but not made.
	Checks   uint64 `json:"checks"`
	Admitted uint64 `json:"admitted"`
	Denied   uint64 `json:"denied"`
	Policy   uint64 `json:"by_policy"`
	Lost     uint64 `json:"lost"`
	// Calls to the store, entries in them and claims merged into these, in the measured time.
	Calls    uint64        `json:"calls"`
	Entries  uint64        `json:"entries"`
	Claims   uint64        `json:"claims"`
	RedisCPU time.Duration `json:"redis_cpu_ns"`
	AgentCPU time.Duration `json:"agent_cpu_ns"`
	// Latency of a check; Due counts from when it was due, so with the waits for the pacer and a worker.
	P50    time.Duration `json:"p50_ns"`
	P99    time.Duration `json:"p99_ns"`
	DueP99 time.Duration `json:"p99_from_due_ns"`
	Late   time.Duration `json:"pacer_late_ns"`
	Length time.Duration `json:"length_ns"` // from the first to the last release
	// Due are all checks, with the warm-up: those Made and those Unmade, which were lost. AgentChecks is what the agents counted.
	Due         int    `json:"due"`
	Made        uint64 `json:"made"`
	Unmade      uint64 `json:"unmade"`
	AgentChecks uint64 `json:"agent_checks"`

	Saturated *saturation `json:"saturated,omitempty"`
}

// result is a workload and its runs.
type result struct {
	workload
	// GeneratorCPU is what the load generator uses for a check that does nothing.
	GeneratorCPU time.Duration `json:"generator_cpu_ns_per_check"`
	Samples      []*sample     `json:"samples"`
}

// compare runs a workload in both modes, round by round.
func (r *runner) compare(ctx context.Context, w workload) (*result, error) {
	out := &result{workload: w}
	var err error
	if out.GeneratorCPU, err = r.generatorCPU(ctx, w); err != nil {
		return nil, err
	}
	for round := range r.cfg.rounds {
		for turn := range modes {
			mode := modes[(round+turn)%len(modes)]
			s, err := r.run(ctx, w, mode, round)
			if err != nil {
				return nil, fmt.Errorf("%s, mode %s: %w", w.Name, mode, err)
			}
			out.Samples = append(out.Samples, s)
		}
	}
	return out, nil
}

// load is the schedule of a round.
func (r *runner) load(w workload, round int, warmup, length time.Duration) *load {
	warm := int(w.Rate * warmup.Seconds())
	n := warm + int(w.Rate*length.Seconds())
	return &load{agents: r.cfg.agents, workers: r.cfg.workers, rate: w.Rate, keys: w.draw(round, n),
		turns: deal(r.cfg.agents, n, w.shuffled, r.cfg.seed+uint64(round)), warm: warm, record: w.record}
}

// generatorCPU measures the load alone, for a short while.
func (r *runner) generatorCPU(ctx context.Context, w workload) (time.Duration, error) {
	w.record = false
	l := r.load(w, 0, r.cfg.length/10, r.cfg.length/4)
	nothing := func(int, string) limit.Decision { return limit.Decision{Admitted: true, Reason: limit.OK} }
	var marks []time.Duration
	t, err := l.run(ctx, nothing, func() error {
		used, err := ownCPU()
		marks = append(marks, used)
		return err
	})
	if err != nil {
		return 0, err
	}
	return (marks[1] - marks[0]) / time.Duration(max(1, t.admitted)), nil
}

// counters are read where the warm-up ends, and at the end.
type counters struct {
	store    batcher.Stats
	own, srv time.Duration
}

func (r *runner) counters(ctx context.Context, f *fleet) (c counters, err error) {
	_, c.store = f.stats()
	if c.srv, err = r.servers.cpu(ctx); err != nil {
		return c, err
	}
	c.own, err = ownCPU()
	return c, err
}

// run is one run, on an empty store, with new agents.
func (r *runner) run(ctx context.Context, w workload, mode string, round int) (_ *sample, err error) {
	set, err := rig.Rule(mode, int64(w.Bucket.Rate), int64(w.Bucket.Burst))
	if err != nil {
		return nil, err
	}
	if err := r.servers.empty(ctx); err != nil {
		return nil, err
	}
	l := r.load(w, round, r.cfg.warmup, r.cfg.length)
	f, err := openFleet(ctx, r.cfg.agents, r.servers.url, set)
	defer func() { err = errors.Join(err, f.Close()) }()
	if err != nil {
		return nil, err
	}
	runtime.GC() // what was drawn for the round before is not this one's
	var marks []counters
	t, err := l.run(ctx, f.check, func() error {
		c, err := r.counters(ctx, f)
		marks = append(marks, c)
		return err
	})
	if err != nil {
		return nil, err
	}
	s := newSample(mode, round, t, marks[0], marks[1])
	s.Due = len(l.keys)
	s.AgentChecks, _ = f.stats()
	if s.Policy*100 > s.Checks {
		return nil, fmt.Errorf("%d of %d checks were answered without the store: that measures nothing", s.Policy, s.Checks)
	}
	if w.record {
		s.Saturated = saturationOf(w.Bucket, r.cfg.agents, t)
	}
	return s, nil
}

func newSample(mode string, round int, t *tally, before, after counters) *sample {
	return &sample{
		Mode: mode, Round: round,
		Checks: t.admitted + t.denied, Admitted: t.admitted, Denied: t.denied, Policy: t.policy, Lost: t.lost,
		Calls:    after.store.Calls - before.store.Calls,
		Entries:  after.store.Entries - before.store.Entries,
		Claims:   after.store.Claims - before.store.Claims,
		RedisCPU: after.srv - before.srv, AgentCPU: after.own - before.own,
		P50: t.latency.quantile(0.5), P99: t.latency.quantile(0.99), DueP99: t.due.quantile(0.99),
		Late: t.late, Length: t.ended - t.began, Made: t.made, Unmade: t.unmade,
	}
}

// per1000 is a count or a time for a thousand checks.
func (s *sample) per1000(v float64) float64 { return 1000 * v / float64(max(1, s.Checks)) }
