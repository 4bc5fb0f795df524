package main

import (
	"context"
	"fmt"
	"syscall"
	"time"

	"github.com/spillgate/spillgate/agent"
	"github.com/spillgate/spillgate/batcher"
	"github.com/spillgate/spillgate/bench/rig"
	"github.com/spillgate/spillgate/limit"
	"github.com/spillgate/spillgate/redisshard"
	"github.com/spillgate/spillgate/rules"
)

// fleet is agents that the load asks in turn.
type fleet struct{ *rig.Fleet }

// bucketOf is the limit of the rule: rate tokens per second, burst at once.
type bucketOf struct {
	Burst limit.Tokens `json:"burst"`
	Rate  limit.Tokens `json:"rate"`
}

// openFleet starts n agents on the store at url. Close what it returns, even with an error.
func openFleet(ctx context.Context, n int, url string, set *rules.Set) (*fleet, error) {
	all, err := rig.Open(ctx, n, redisshard.Config{URL: url}, agent.Config{Rules: set})
	if err != nil {
		return &fleet{all}, err
	}
	for i, a := range all.Agents {
		if !a.Ready() {
			return &fleet{all}, fmt.Errorf("agent %d does not reach the store", i)
		}
	}
	return &fleet{all}, nil
}

// check asks one agent about one key.
func (f *fleet) check(agent int, key string) limit.Decision {
	return f.Handles[agent].Check(context.Background(), 1, key)
}

// stats adds up what the agents have counted.
func (f *fleet) stats() (checks uint64, store batcher.Stats) {
	for _, a := range f.Agents {
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
