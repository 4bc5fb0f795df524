package viral

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/spillgate/spillgate/agent"
	"github.com/spillgate/spillgate/agent/split"
	"github.com/spillgate/spillgate/limit"
	"github.com/spillgate/spillgate/redisshard"
	"github.com/spillgate/spillgate/rules"
)

// domain and rule of all checks.
const (
	domainName = "bench"
	ruleName   = "viral"
)

// never is an agent.Config.SplitOps that keeps a bucket whole.
const never = -1

// fleet is agents that each have a store of their own.
type fleet struct {
	stores  []*redisshard.Store
	agents  []*agent.Agent
	handles []*agent.Handle
}

func ruleSet(perSecond int64) (*rules.Set, error) {
	return rules.Parse("viral", fmt.Appendf(nil, `domain: %s
rules:
  - name: %s
    match: [{key: key}]
    limit: {requests: %d, per: 1s, burst: %d}
    mode: exact
    on_store_error: closed
    deadline: %v
`, domainName, ruleName, perSecond, perSecond, patience))
}

// openFleet starts the agents of a variant. Close what it returns, even with an error.
func openFleet(ctx context.Context, b *bench, v int) (*fleet, error) {
	f := new(fleet)
	set, err := ruleSet(b.cfg.Limit)
	if err != nil {
		return f, err
	}
	cfg := agent.Config{Rules: set, StoreTimeout: patience, SplitOps: b.cfg.SplitOps}
	if v == off {
		cfg.SplitOps = never
	}
	for i := range b.cfg.Agents {
		sc := redisshard.Config{URL: b.cluster.url, Timeout: patience, Logger: b.cfg.Logger}
		if i > 0 { // what befalls the servers is told once
			sc.Logger = slog.New(slog.DiscardHandler)
		}
		store, err := redisshard.Open(ctx, sc)
		if err != nil {
			return f, err
		}
		f.stores = append(f.stores, store)
		cfg.Store = store
		a, err := agent.New(cfg)
		if err != nil {
			return f, err
		}
		f.agents = append(f.agents, a)
		h, err := a.Handle(domainName, ruleName)
		if err != nil {
			return f, err
		}
		f.handles = append(f.handles, h)
	}
	return f, nil
}

func (f *fleet) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	defer cancel()
	var errs []error
	for _, a := range f.agents {
		errs = append(errs, a.Close(ctx))
	}
	for _, s := range f.stores {
		errs = append(errs, s.Close())
	}
	return errors.Join(errs...)
}

// warm makes one check at each agent, so that connections and scripts are there when the load begins.
func (f *fleet) warm(ctx context.Context, key string) error {
	for i, h := range f.handles {
		d := h.Check(ctx, 1, key)
		switch err := f.stores[i].Status(); {
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
	for _, a := range f.agents {
		known = append(known, a.Splits()...)
	}
	return known
}

// events adds up what befell the agents with splits.
func (f *fleet) events() (sum EventReport) {
	for _, a := range f.agents {
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
