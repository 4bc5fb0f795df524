package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"syscall"
	"time"

	"github.com/spillgate/spillgate/agent"
	"github.com/spillgate/spillgate/batcher"
	"github.com/spillgate/spillgate/limit"
	"github.com/spillgate/spillgate/redisshard"
	"github.com/spillgate/spillgate/rules"
)

// patience is the deadline of a check and the timeout of a call: long, so that a busy machine makes
// checks slow and not their answers wrong.
const patience = 5 * time.Second

// domain and rule of all checks.
const (
	domainName = "bench"
	ruleName   = "bench"
)

// fleet is agents that each have a store of their own, and one rule.
type fleet struct {
	stores  []*redisshard.Store
	agents  []*agent.Agent
	handles []*agent.Handle
}

// bucketOf is the limit of the rule: rate tokens per second, burst at once.
type bucketOf struct {
	Burst limit.Tokens `json:"burst"`
	Rate  limit.Tokens `json:"rate"`
}

// ruleSet has one rule of the mode, with a bucket for each key.
func ruleSet(mode string, b bucketOf) (*rules.Set, error) {
	return rules.Parse("fleet", fmt.Appendf(nil, `domain: %s
rules:
  - name: %s
    match: [{key: key}]
    limit: {requests: %d, per: 1s, burst: %d}
    mode: %s
    on_store_error: closed
    deadline: %v
`, domainName, ruleName, b.Rate, b.Burst, mode, patience))
}

// openFleet starts n agents on the store at url. Close what it returns, even with an error.
func openFleet(ctx context.Context, n int, url string, set *rules.Set) (*fleet, error) {
	f := new(fleet)
	for i := range n {
		cfg := redisshard.Config{URL: url, Timeout: patience}
		if i > 0 { // what befalls the servers is told once
			cfg.Logger = slog.New(slog.DiscardHandler)
		}
		store, err := redisshard.Open(ctx, cfg)
		if err != nil {
			return f, err
		}
		f.stores = append(f.stores, store)
		a, err := agent.New(agent.Config{Store: store, Rules: set, StoreTimeout: patience})
		if err != nil {
			return f, err
		}
		f.agents = append(f.agents, a)
		if !a.Ready() {
			return f, fmt.Errorf("agent %d does not reach the store", i)
		}
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

// check asks one agent about one key.
func (f *fleet) check(agent int, key string) limit.Decision {
	return f.handles[agent].Check(context.Background(), 1, key)
}

// stats adds up what the agents have counted.
func (f *fleet) stats() (checks uint64, store batcher.Stats) {
	for _, a := range f.agents {
		s := a.Stats()
		for _, c := range s.Checks {
			checks += c.Checks
		}
		store.Calls += s.Batcher.Calls
		store.Entries += s.Batcher.Entries
		store.Claims += s.Batcher.Claims
	}
	return checks, store
}

// ownCPU is what this process has used so far, in user and kernel mode.
func ownCPU() (time.Duration, error) {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0, fmt.Errorf("getrusage: %w", err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), nil
}
