package main

import (
	"context"
	"log/slog"
	"time"

	"github.com/spillgate/spillgate/batcher"
	"github.com/spillgate/spillgate/cmd/spillgate/config"
	"github.com/spillgate/spillgate/limit"
	"github.com/spillgate/spillgate/memstore"
	"github.com/spillgate/spillgate/redisshard"
	"github.com/spillgate/spillgate/rules/source"
	"github.com/spillgate/spillgate/telemetry"
)

// store is either store, with what the process wants to know of it beyond checks.
type store struct {
	batcher.Store
	name string // for the log, without a password

	// status is nil when the store can be used, else why not.
	status func() error
	// masters says how each master answers; none in memory.
	masters func() []telemetry.Master
	// resent counts repeated calls; nil without calls.
	resent func() uint64
	// master is where a part of a bucket lives, "" if that is not known, and skew how far masters' clocks are apart.
	master func(*limit.Bucket, *limit.Part) string
	skew   func() (time.Duration, bool)
	// memory describes a memory store; nil for another.
	memory func() *telemetry.Memstore
	// versions are those of the rules; nil for a store that has none.
	versions source.Store
	close    func() error
}

// openStore opens the store of the configuration, [2]. A Redis that is away is no error.
func openStore(ctx context.Context, cfg *config.Config, log *slog.Logger) (*store, error) {
	if cfg.Store.InMemory() {
		s, err := memstore.New(memstore.Config{MaxCells: cfg.Memory.MaxCells})
		if err != nil {
			return nil, err
		}
		return &store{
			Store:   s,
			name:    storeName(cfg),
			status:  func() error { return nil },
			masters: func() []telemetry.Master { return nil },
			resent:  func() uint64 { return 0 },
			master:  func(*limit.Bucket, *limit.Part) string { return "" },
			skew:    func() (time.Duration, bool) { return 0, false },
			memory:  func() *telemetry.Memstore { return &telemetry.Memstore{Cells: s.Cells()} },
			close:   func() error { return nil },
		}, nil
	}
	adoptClientLog(log)
	rc := cfg.Redis()
	rc.Logger = log
	s, err := redisshard.Open(ctx, rc)
	if err != nil {
		return nil, err
	}
	return &store{
		Store:    s,
		name:     storeName(cfg),
		status:   s.Status,
		masters:  func() []telemetry.Master { return mastersOf(s) },
		resent:   func() uint64 { return s.Stats().Resent },
		master:   s.Master,
		skew:     s.Skew,
		memory:   func() *telemetry.Memstore { return nil },
		versions: s.Rules(cfg.Agent.Fleet),
		close:    s.Close,
	}, nil
}

// mastersOf says how the masters of a Redis answer.
func mastersOf(s *redisshard.Store) []telemetry.Master {
	var all []telemetry.Master
	for _, m := range s.Masters() {
		all = append(all, telemetry.Master{Addr: m.Addr, Up: m.Err == nil})
	}
	return all
}

// storeName is the store's address without a password.
func storeName(cfg *config.Config) string {
	if cfg.Store.InMemory() {
		return cfg.Store.URL
	}
	return cfg.Redis().String()
}
