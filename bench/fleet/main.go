package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spillgate/spillgate/bench/rig"
	"github.com/spillgate/spillgate/limit"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "fleet:", err)
		os.Exit(1)
	}
}

// config is what the flags say.
type config struct {
	scenario        string
	agents, workers int
	rate            float64
	keys            int
	seed            uint64
	warmup, length  time.Duration
	rounds          int
	cluster         bool
	trace           string
	buckets         string
	json            string
}

func parseFlags(args []string, out io.Writer) (*config, error) {
	c := new(config)
	flags := flag.NewFlagSet("fleet", flag.ContinueOnError)
	flags.SetOutput(out)
	flags.StringVar(&c.scenario, "scenario", "zipf", "viral, zipf, uniform, trace or saturated")
	flags.IntVar(&c.agents, "agents", 20, "number of agents")
	flags.IntVar(&c.workers, "workers", 32, "concurrent checks of an agent")
	flags.Float64Var(&c.rate, "rate", 20_000, "checks per second of all agents; saturated has its own")
	flags.IntVar(&c.keys, "keys", 1_000_000, "keys of zipf and uniform")
	flags.Uint64Var(&c.seed, "seed", 1, "seed of keys and turns")
	flags.DurationVar(&c.warmup, "warmup", 5*time.Second, "time before the measured time")
	flags.DurationVar(&c.length, "length", 10*time.Second, "measured time of a run")
	flags.IntVar(&c.rounds, "rounds", 3, "rounds over both modes")
	flags.BoolVar(&c.cluster, "cluster", false, "3 masters instead of one server")
	flags.StringVar(&c.trace, "trace", "", "file of scenario trace: little-endian int32 ids, plain or .xz")
	flags.StringVar(&c.buckets, "buckets", "100:1000,1000:1000,10:100,1000:10000,200:200", "buckets of saturated, burst:rate")
	flags.StringVar(&c.json, "json", "", "also write every run to this file")
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	switch {
	case flags.NArg() > 0:
		return nil, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	case c.agents < 1 || c.workers < 1 || c.rounds < 1 || c.keys < 1:
		return nil, errors.New("-agents, -workers, -rounds and -keys must be at least 1")
	case c.agents > 1000:
		return nil, errors.New("-agents: more than 1000 do not fit into one process")
	case c.warmup < 0 || c.length <= 0:
		return nil, errors.New("-warmup must not be negative, and -length must be positive")
	case !(c.rate*c.length.Seconds() >= 1):
		return nil, errors.New("-rate must be positive and leave at least one check to measure")
	}
	return c, nil
}

// workloads are those of the scenario.
func (c *config) workloads() ([]workload, error) {
	// Far above what any key gets, but not so far that a bucket would take no time to refill.
	perSecond := limit.Tokens(max(10, c.rate))
	generous := bucketOf{Burst: 10 * perSecond, Rate: 10 * perSecond}
	of := func(d draw) []workload {
		return []workload{{Name: c.scenario, Bucket: generous, Rate: c.rate, draw: d}}
	}
	switch c.scenario {
	case "viral":
		tight := bucketOf{Burst: perSecond / 10, Rate: perSecond / 2}
		return []workload{
			{Name: "viral, limit far above the load", Bucket: generous, Rate: c.rate, draw: oneKey},
			{Name: "viral, limit half of the load", Bucket: tight, Rate: c.rate, draw: oneKey},
		}, nil
	case "zipf":
		return of(zipf(c.keys, c.seed)), nil
	case "uniform":
		return of(uniform(c.keys, c.seed)), nil
	case "trace":
		ids, err := readTrace(c.trace)
		if err != nil {
			return nil, err
		}
		return of(replay(ids)), nil
	case "saturated":
		buckets, err := parseBuckets(c.buckets)
		if err != nil {
			return nil, err
		}
		return saturatedWorkloads(buckets), nil
	}
	return nil, fmt.Errorf("-scenario: there is no %q; want viral, zipf, uniform, trace or saturated", c.scenario)
}

// runner has what all runs share.
type runner struct {
	cfg     *config
	servers *servers
}

// run is the program: it starts the servers, runs the scenario, prints and stops the servers.
func run(ctx context.Context, args []string, out io.Writer) (err error) {
	cfg, err := parseFlags(args, out)
	if err != nil {
		return err
	}
	all, err := cfg.workloads()
	if err != nil {
		return err
	}
	s, err := startServers(ctx, cfg.cluster)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	rep := &report{Scenario: cfg.scenario, Agents: cfg.agents, Workers: cfg.workers, Servers: len(s.nodes), Keys: cfg.keys,
		Seed: cfg.seed, Warmup: cfg.warmup, Length: cfg.length, Rounds: cfg.rounds}
	fmt.Fprintf(out, "%s: %d agents, %d Redis, %v after %v of warm-up, %d rounds\n", cfg.scenario, cfg.agents,
		len(s.nodes), cfg.length, cfg.warmup, cfg.rounds)
	r := &runner{cfg, s}
	for _, w := range all {
		one, err := r.compare(ctx, w)
		if err != nil {
			return err
		}
		rep.Results = append(rep.Results, one)
		if !w.record {
			if err := one.print(out); err != nil {
				return err
			}
		}
		one.warn(out)
	}
	if cfg.scenario == "saturated" {
		fmt.Fprintln(out)
		if err := printSaturated(out, cfg.agents, rep.Results); err != nil {
			return err
		}
	}
	if cfg.json != "" {
		return rig.WriteJSON(cfg.json, rep)
	}
	return nil
}
