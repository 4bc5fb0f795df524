package main

import (
	"testing"

	"github.com/spillgate/spillgate/agent"
	"github.com/spillgate/spillgate/internal/redistest"
	"github.com/spillgate/spillgate/limit"
	"github.com/spillgate/spillgate/rules"
)

// TestRedisThatTakesNoWrites: a server that answers and refuses every write is down, until it takes them again. A probe that only read would
// find it back each time, and the shares of rules with local would begin anew, empty: a slow one would never have a token.
func TestRedisThatTakesNoWrites(t *testing.T) {
	t.Parallel()
	for _, of := range []struct{ name, setting, bad, good string }{
		{"out of memory", "maxmemory", "1", "0"},
		{"without replicas", "min-replicas-to-write", "1", "0"},
	} {
		t.Run(of.name, func(t *testing.T) {
			t.Parallel()
			srv := redistest.Start(t)
			f := startFailFleet(t, 1, srv.URL(), busyTimeout)
			a := f.agents[0]
			ask := func(rule string) limit.Decision {
				got, err := a.Check(t.Context(), agent.Request{Domain: "api", Hits: 1, Descriptors: []rules.Descriptor{{{Key: rule, Value: "x"}}}})
				must(t, err)
				return got
			}
			for ask("used").Admitted {
			}
			must(t, srv.Client().ConfigSet(t.Context(), of.setting, of.bad).Err())
			f.await("Redis is found to take no writes", func(a *agent.Agent) bool {
				ask("used")
				ask("rare")
				return a.Stats().Batcher.Down == 1
			})
			admitted := 0
			f.await("the share of a slow rule admits", func(*agent.Agent) bool {
				ask("used") // which is denied, as ever: that needs no write
				got := ask("rare")
				if got.Admitted && got.Reason == limit.StoreLocal {
					admitted++
				}
				return admitted == 3
			})
			if s := a.Stats().Batcher; s.Opened != 1 || s.Down != 1 || s.Probes < 3 {
				t.Errorf("found down %d times in %d probes, now %d; want once", s.Opened, s.Probes, s.Down)
			}
			must(t, srv.Client().ConfigSet(t.Context(), of.setting, of.good).Err())
			f.await("Redis is found back", func(a *agent.Agent) bool { return a.Stats().Batcher.Down == 0 })
			if got := ask("closed"); got.Reason != limit.OK {
				t.Errorf("after its return: %+v", got)
			}
		})
	}
}
