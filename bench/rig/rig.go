// Package rig is what the benches share: fleets of agents in one process, and their reports.
package rig

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/spillgate/spillgate/agent"
	"github.com/spillgate/spillgate/redisshard"
	"github.com/spillgate/spillgate/rules"
)

// Patience is the deadline of a check and the timeout of a call: long, so that a busy machine makes
// checks slow and not their answers wrong.
const Patience = 5 * time.Second

const (
	domain = "bench"
	rule   = "bench"
)

// Fleet is agents that each have a store of their own, and one rule.
type Fleet struct {
	Stores  []*redisshard.Store
	Agents  []*agent.Agent
	Handles []*agent.Handle // on the rule
}

// Rule is a rule set with one rule of a mode, with a bucket for each key: rate tokens per second, burst at once. Its store errors
// deny, so that none is taken for an answer.
func Rule(mode string, rate, burst int64) (*rules.Set, error) {
	return rules.Parse("bench", fmt.Appendf(nil, `domain: %s
rules:
  - name: %s
    match: [{key: key}]
    limit: {requests: %d, per: 1s, burst: %d}
    mode: %s
    on_store_error: closed
    deadline: %v
`, domain, rule, rate, burst, mode, Patience))
}

// Open starts n agents with these configs, on rules that Rule made. Only the first store logs: what befalls the servers is
// told once. Close what it returns, even with an error.
func Open(ctx context.Context, n int, store redisshard.Config, cfg agent.Config) (*Fleet, error) {
	f := new(Fleet)
	store.Timeout, cfg.StoreTimeout = Patience, Patience
	for i := range n {
		if i > 0 {
			store.Logger = slog.New(slog.DiscardHandler)
		}
		s, err := redisshard.Open(ctx, store)
		if err != nil {
			return f, err
		}
		f.Stores = append(f.Stores, s)
		cfg.Store = s
		a, err := agent.New(cfg)
		if err != nil {
			return f, err
		}
		f.Agents = append(f.Agents, a)
		h, err := a.Handle(domain, rule)
		if err != nil {
			return f, err
		}
		f.Handles = append(f.Handles, h)
	}
	return f, nil
}

// Close closes the agents, then their stores.
func (f *Fleet) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*Patience)
	defer cancel()
	var errs []error
	for _, a := range f.Agents {
		errs = append(errs, a.Close(ctx))
	}
	for _, s := range f.Stores {
		errs = append(errs, s.Close())
	}
	return errors.Join(errs...)
}

// WriteJSON writes a report to a file, with indentation.
func WriteJSON(file string, report any) error {
	text, err := json.MarshalIndent(report, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(text, '\n'), 0o666)
}
