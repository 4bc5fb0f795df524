package main

import (
	"testing"
	"time"

	"github.com/spillgate/spillgate/agent"
	"github.com/spillgate/spillgate/internal/redistest"
	"github.com/spillgate/spillgate/internal/window"
	"github.com/spillgate/spillgate/limit"
)

// failLimit is G1 for the buckets of failRules.
var failLimit = window.Limit{Burst: 100, Tokens: 200 * 1001, Per: 1000 * time.Second, Slack: 10 * time.Microsecond}

func judgeSeen(t *testing.T, what string, s *seen) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	worst := window.Worst(s.admitted, failLimit)
	if worst.Breach() {
		t.Errorf("%s is over its bound: %v", what, worst)
	}
	t.Logf("%s: %d admitted; worst of all windows: %v", what, len(s.admitted), worst)
}

// TestLocalFleetWithoutRedis: three agents whose Redis stands still, twice, and comes back. Each gives out its third, and no window of
// what the fleet admitted is over the limit.
func TestLocalFleetWithoutRedis(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	f := startFailFleet(t, 3, srv.URL(), time.Second)
	s, stop := f.press("local", "x", 4)
	time.Sleep(time.Second)
	for range 2 {
		s.reset()
		must(t, srv.Stop())
		f.await("Redis is found gone", func(a *agent.Agent) bool { return a.Stats().Batcher.Down == 1 })
		from := time.Now()
		time.Sleep(3 * time.Second)
		got := s.reset()
		took := time.Since(from)
		must(t, srv.Continue())
		f.await("Redis is found back", func(a *agent.Agent) bool { return a.Stats().Batcher.Down == 0 })
		if got[limit.StoreLocal] == 0 || got[limit.StoreOpen]+got[limit.StoreClosed]+got[limit.Overloaded] > 0 {
			t.Errorf("without Redis: %v", got)
		}
		t.Logf("without Redis for %v: %v", took, got)
		time.Sleep(2 * time.Second)
	}
	stop()
	judgeSeen(t, "local", s)
	shared := uint64(0)
	for _, a := range f.agents {
		for _, p := range a.ByPolicy() {
			if p.Rule == "local" && p.Admitted && p.Reason == limit.StoreLocal {
				shared += p.Answers
			}
		}
	}
	// Twice 3 s at 200 a second, of which a busy machine may leave half.
	if shared < 600 {
		t.Errorf("the shares admitted %d of 1,200 tokens", shared)
	}
	t.Logf("%d tokens by shares", shared)
}
