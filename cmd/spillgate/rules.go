package main

import (
	"context"
	"log/slog"

	"github.com/spillgate/spillgate/cmd/spillgate/config"
	"github.com/spillgate/spillgate/rules"
	"github.com/spillgate/spillgate/rules/source"
)

// ruleSource is where the rules come from.
type ruleSource interface {
	// Begin finds the rules to begin with; nil has none.
	Begin(context.Context) (*rules.Set, error)
	// Follow gives use what comes into force later, until Close.
	Follow(use func(*rules.Set))
	// Reload is SIGHUP.
	Reload()
	Status() rules.Status
	Close()
}

// newRuleSource is the source of the configuration, [3].
func newRuleSource(cfg *config.Config, s *store, log *slog.Logger) (ruleSource, error) {
	switch r := &cfg.Rules; {
	case r.Store:
		f, err := source.NewFollower(source.FollowerConfig{Store: s.versions, TTL: r.CacheTTL, Fleet: cfg.Agent.Fleet, Snapshot: r.Snapshot,
			Parse: parserFor(&cfg.Datacenter), Logger: log})
		if err != nil {
			return nil, err
		}
		return followed{f}, nil
	case r.File != "":
		return source.NewFile(source.FileConfig{Path: r.File, Parse: parserFor(&cfg.Datacenter), Logger: log})
	}
	return noRules{log}, nil
}

// followed are the rules of a store: to have none yet is no reason not to start.
type followed struct{ *source.Follower }

func (f followed) Begin(ctx context.Context) (*rules.Set, error) { return f.Follower.Begin(ctx), nil }

// noRules is an agent without rules.
type noRules struct{ log *slog.Logger }

func (noRules) Begin(context.Context) (*rules.Set, error) { return nil, nil }
func (noRules) Follow(func(*rules.Set))                   {}
func (noRules) Status() rules.Status                      { return rules.Status{} }
func (noRules) Close()                                    {}

func (n noRules) Reload() {
	n.log.Warn("no rules to reload: the agent was started without a rules file")
}
