package viral

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/spillgate/spillgate/limit"
)

// The variants, in the order of the report.
const (
	off = iota
	on
	variants
)

// variantNames are those of the report.
var variantNames = [variants]string{"off", "on"}

const (
	// wholePatience is how long a bucket may take to become whole.
	wholePatience = 20 * time.Second
	// wholeEvery is how often the agents are asked.
	wholeEvery = 10 * time.Millisecond
	// lapse is when a split that no agent touches any more has ended by itself. One that was merged might have lasted
	// as long, and its home does not split again before.
	lapse = limit.SplitTTL + limit.SplitMargin + limit.MaxSkew
)

// Config says what to drive, and how long. All fields but Store, SplitOps and Rate must be set; Default does.
type Config struct {
	// Store is the URL of a cluster; empty starts one.
	Store string
	// Agents, and callers of each.
	Agents, Connections int
	// Settle passes under load before the measured time, Duration.
	Settle, Duration time.Duration
	// Rounds over both variants.
	Rounds int
	// SplitOps is that of the agents with splitting on: entries per second of one bucket, over the fleet, from which
	// it is split. 0 is the agents' default.
	SplitOps int64
	// Limit of the key per second, and at once.
	Limit int64
	// Rate is the checks per second of all agents together; 0 has each caller check again as soon as it is answered.
	Rate float64
	// Logger takes what the first agent's store has to tell. Default: nobody.
	Logger *slog.Logger
}

// Default is what the command does without flags.
func Default() Config {
	return Config{Agents: 24, Connections: 4, Settle: 3 * time.Second, Duration: 5 * time.Second, Rounds: 3, Limit: 10_000_000}
}

// Validate names the flag of the command that cannot be, without its dashes.
func (c *Config) Validate() error {
	switch {
	case c.Agents < 1 || c.Agents > 1000:
		return fmt.Errorf("agents: %d do not go into one process; write 1 to 1000", c.Agents)
	case c.Connections < 1 || c.Connections > 1000:
		return fmt.Errorf("connections: an agent has 1 to 1000, not %d", c.Connections)
	case c.Settle < 0:
		return fmt.Errorf("settle: %v is no length of time; write 0s or more", c.Settle)
	case c.Duration < 2*slice:
		return fmt.Errorf("duration: %v is too short to measure; write %v or more", c.Duration, 2*slice)
	case c.Rounds < 1 || c.Rounds > 1000:
		return fmt.Errorf("rounds: write 1 to 1000, not %d", c.Rounds)
	case c.SplitOps < 0:
		return fmt.Errorf("split-ops: write 0 for the default of an agent or a number of entries per second, not %d", c.SplitOps)
	case c.Limit < 1 || limit.Tokens(c.Limit) > limit.MaxTokens:
		return fmt.Errorf("limit: write 1 to %d, not %d", limit.MaxTokens, c.Limit)
	case !(c.Rate >= 0 && c.Rate <= 1e7):
		return fmt.Errorf("rate: write 0 for a closed loop or up to 1e7 checks per second, not %g", c.Rate)
	}
	return nil
}

// bench is one invocation.
type bench struct {
	cfg     Config
	cluster *cluster
	key     string
}

// Run drives the key and reports; it tells progress of how far it is. What it started is stopped when it returns, also
// when ctx ends it early.
func Run(ctx context.Context, cfg Config, progress io.Writer) (_ *Report, err error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("viral: %w", err)
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	c, err := openCluster(ctx, cfg.Store, progress)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	var name [8]byte
	rand.Read(name[:]) // two benches at once on one cluster have two keys
	b := &bench{cfg: cfg, cluster: c, key: "viral-" + hex.EncodeToString(name[:])}
	rep := newReport(&cfg, c)
	var free time.Time // from then on a run finds the bucket as if there had been none before
	for round := range cfg.Rounds {
		for turn := range variants {
			v := (round + turn) % variants
			fmt.Fprintf(progress, "round %d of %d, splitting %s: %v\n", round+1, cfg.Rounds, variantNames[v], cfg.Settle+cfg.Duration)
			if err := pause(ctx, time.Until(free)); err != nil {
				return nil, err
			}
			r, err := b.run(ctx, v)
			if err != nil {
				return nil, err
			}
			if r.everDivided() {
				free = time.Now().Add(lapse)
			}
			r.Round = round + 1
			rep.Runs = append(rep.Runs, r)
		}
	}
	return rep, nil
}

// run is one run with fresh agents.
func (b *bench) run(ctx context.Context, v int) (_ *RunReport, err error) {
	f, err := openFleet(ctx, b, v)
	defer func() { err = errors.Join(err, f.Close()) }()
	if err != nil {
		return nil, err
	}
	if err := f.warm(ctx, b.key); err != nil {
		return nil, err
	}
	l := startLoad(&b.cfg, f, b.key)
	samples, err := b.sample(ctx, l, f)
	splits := f.splits()
	ended := l.stop()
	if err != nil {
		return nil, err
	}
	r := measure(samples, b.cfg.Settle, b.cluster.addrs)
	r.Splitting = variantNames[v]
	r.Lag = l.lag(ended)
	r.divided(splits)
	r.Events = f.events()
	if len(splits) > 0 {
		r.WholeAfter, err = f.awaitWhole(ctx)
	}
	return r, err
}

// pause is a sleep that ends early, with an error, if ctx does.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}
