package main

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spillgate/spillgate/agent"
	"github.com/spillgate/spillgate/batcher"
	"github.com/spillgate/spillgate/internal/window"
	"github.com/spillgate/spillgate/limit"
	"github.com/spillgate/spillgate/redisshard"
	"github.com/spillgate/spillgate/rules"
)

// The tests in fail_*_test.go stop servers under a fleet of agents, in one process, and look at who answers then: the reason of
// every answer, and what was admitted.

// failRules has a rule for each policy: 200 tokens a second for each value, 100 at once; one of a token a second, and one
// that is soon used up.
const failRules = `domain: api
rules:
  - {name: open,   match: [{key: open}],   limit: {requests: 200, per: 1s, burst: 100}, mode: exact,  on_store_error: open}
  - {name: closed, match: [{key: closed}], limit: {requests: 200, per: 1s, burst: 100}, mode: exact,  on_store_error: closed}
  - {name: local,  match: [{key: local}],  limit: {requests: 200, per: 1s, burst: 100}, mode: leased, on_store_error: local, split: off}
  - {name: rare,   match: [{key: rare}],   limit: 100/100s, on_store_error: local}
  - {name: used,   match: [{key: used}],   limit: 1/d, algorithm: fixed_window, mode: exact}
`

// failFleet is agents with a store each.
type failFleet struct {
	*testing.T
	stores []*redisshard.Store
	agents []*agent.Agent
	calls  sync.Map // of shard number to *atomic.Int64: calls of all agents, not counting probes
}

// startFailFleet waits until the agents have counted each other. timeout bounds a call: long enough that a busy machine does not look like
// a server that is gone.
func startFailFleet(t *testing.T, n int, url string, timeout time.Duration) *failFleet {
	t.Helper()
	set, err := rules.Parse("", []byte(failRules))
	must(t, err)
	f := &failFleet{T: t}
	for range n {
		store, err := redisshard.Open(t.Context(), redisshard.Config{URL: url, Timeout: timeout, Logger: slog.New(slog.DiscardHandler)})
		must(t, err)
		a, err := agent.New(agent.Config{Store: store, Rules: set, Deadline: timeout, StoreTimeout: timeout, OnCall: func(c batcher.CallInfo) {
			calls, _ := f.calls.LoadOrStore(c.Shard, new(atomic.Int64))
			calls.(*atomic.Int64).Add(1)
		}})
		must(t, err)
		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), scriptPatience)
			defer cancel()
			must(t, a.Close(ctx))
			must(t, store.Close())
		})
		f.stores, f.agents = append(f.stores, store), append(f.agents, a)
	}
	f.await("the agents have counted each other", func(a *agent.Agent) bool {
		agents, known := a.Fleet()
		return known && agents == n
	})
	return f
}

// await waits until all agents are so.
func (f *failFleet) await(what string, so func(*agent.Agent) bool) {
	f.Helper()
	end := time.Now().Add(scriptPatience)
	for _, a := range f.agents {
		for !so(a) {
			if time.Now().After(end) {
				f.Fatalf("not in time: %s", what)
			}
			time.Sleep(time.Millisecond)
		}
	}
}

// shard is where the bucket of a rule and a value lives: the number of its shard, and its master.
func (f *failFleet) shard(rule, value string) (number int, master string) {
	secret, _ := f.stores[0].Secret()
	var b limit.Bucket
	secret.Name(&b, limit.AppendPart(limit.AppendPart(limit.AppendPart(nil, "api"), rule), value))
	return f.stores[0].Shard(&b, nil), f.stores[0].Master(&b, nil)
}

// valueOn is a value whose bucket lives on a master, or on another one.
func (f *failFleet) valueOn(rule, master string, there bool) string {
	for i := 0; ; i++ {
		value := fmt.Sprint("v", i)
		if _, on := f.shard(rule, value); (on == master) == there {
			return value
		}
	}
}

// seen is what a bucket's callers were told.
type seen struct {
	mu       sync.Mutex
	reasons  map[limit.Reason]int
	admitted []window.Admission
	wrong    int // answers that do not go with their reason
}

// reset returns the counts by reason, and begins anew.
func (s *seen) reset() map[limit.Reason]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	was := s.reasons
	s.reasons = make(map[limit.Reason]int)
	return was
}

func (s *seen) add(d *limit.Decision, sent, received time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reasons[d.Reason]++
	if d.Admitted {
		s.admitted = append(s.admitted, window.Admission{Sent: sent, Received: received, Tokens: 1})
	}
	if d.Reason == limit.StoreOpen && !d.Admitted || d.Reason == limit.StoreClosed && (d.Admitted || !d.Unavailable()) {
		s.wrong++
	}
}

// press has every agent asked for a bucket of a rule, by some callers each, until stop is called.
func (f *failFleet) press(rule, value string, callers int) (s *seen, stop func()) {
	s = &seen{reasons: make(map[limit.Reason]int)}
	ctx, cancel := context.WithCancel(f.Context())
	start := time.Now()
	var all sync.WaitGroup
	for _, a := range f.agents {
		for range callers {
			all.Go(func() {
				for ctx.Err() == nil {
					sent := time.Since(start)
					d, err := a.Check(f.Context(), agent.Request{Domain: "api", Hits: 1, Descriptors: []rules.Descriptor{{{Key: rule, Value: value}}}})
					if err != nil {
						f.Errorf("%s: %v", rule, err)
						return
					}
					s.add(&d, sent, time.Since(start))
					time.Sleep(2 * time.Millisecond)
				}
			})
		}
	}
	return s, func() { cancel(); all.Wait() }
}

// only fails unless all answers had one of the reasons, and there were some.
func (f *failFleet) only(what string, got map[limit.Reason]int, reasons ...limit.Reason) {
	f.Helper()
	all, fit := 0, 0
	for _, n := range got {
		all += n
	}
	for _, r := range reasons {
		fit += got[r]
	}
	if all == 0 || fit != all {
		f.Errorf("%s: %v, want %v alone", what, got, reasons)
	}
}
