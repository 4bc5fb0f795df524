package viral

import (
	"context"
	"fmt"
	"time"

	"github.com/spillgate/spillgate/agent"
	"github.com/spillgate/spillgate/agent/split"
	"github.com/spillgate/spillgate/bench/rig"
	"github.com/spillgate/spillgate/limit"
	"github.com/spillgate/spillgate/redisshard"
)

// never is an agent.Config.SplitOps that keeps a bucket whole.
const never = -1

// fleet is agents that all check the one key.
type fleet struct{ *rig.Fleet }

// openFleet starts the agents of a variant. Close what it returns, even with an error.
func openFleet(ctx context.Context, b *bench, v int) (*fleet, error) {
	set, err := rig.Rule("exact", b.cfg.Limit, b.cfg.Limit)
	if err != nil {
		return &fleet{new(rig.Fleet)}, err
	}
	cfg := agent.Config{Rules: set, SplitOps: b.cfg.SplitOps}
	if v == off {
		cfg.SplitOps = never
	}
	all, err := rig.Open(ctx, b.cfg.Agents, redisshard.Config{URL: b.cluster.url, Logger: b.cfg.Logger}, cfg)
	return &fleet{all}, err
}

// warm makes one check at each agent, so that connections and scripts are there when the load begins.
func (f *fleet) warm(ctx context.Context, key string) error {
	for i, h := range f.Handles {
		d := h.Check(ctx, 1, key)
		switch err := f.Stores[i].Status(); {
		case ctx.Err() != nil: // then the policy answered for that
			return context.Cause(ctx)
		case byPolicy(&d) && err != nil:
			return fmt.Errorf("agent %d gets no answer from the store (%v): %w", i+1, d.Reason, err)
		case byPolicy(&d):
			return fmt.Errorf("agent %d gets no answer from the store in time (%v)", i+1, d.Reason)
		}
	}
	return nil
}

// byPolicy reports whether a decision was made without the store.
func byPolicy(d *limit.Decision) bool { return d.Reason != limit.OK && d.Reason != limit.OverLimit }

// splits is what the agents know of divided buckets; there is one bucket, so at most one of each agent.
func (f *fleet) splits() (known []split.Info) {
	for _, a := range f.Agents {
		known = append(known, a.Splits()...)
	}
	return known
}

// events adds up what befell the agents with splits.
func (f *fleet) events() (sum EventReport) {
	for _, a := range f.Agents {
		t := a.Stats().Splits
		sum.Split += t.Split
		sum.Merged += t.Merged
		sum.Ended += t.Ended
		sum.Touches += t.Touches
		sum.Refused += t.Refused
		sum.Overflow += t.Overflow
	}
	return sum
}

// awaitWhole returns the time until no agent knew of a split, nil if that did not come.
func (f *fleet) awaitWhole(ctx context.Context) (*time.Duration, error) {
	start := time.Now()
	for time.Since(start) < wholePatience {
		if len(f.splits()) == 0 {
			took := time.Since(start)
			return &took, nil
		}
		if err := pause(ctx, wholeEvery); err != nil {
			return nil, err
		}
	}
	return nil, nil
}
