package main

import (
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spillgate/spillgate/agent"
	"github.com/spillgate/spillgate/internal/redistest"
	"github.com/spillgate/spillgate/limit"
	"github.com/spillgate/spillgate/redisshard"
	"github.com/spillgate/spillgate/telemetry"
)

// TestShardStopped is fault 18: one master of three is stopped for 5 s under load. Its buckets are answered by the policy of their rule, which
// says so; nobody waits for it, and it is sent probes alone. The buckets of other masters are decided by the store as ever.
// When it is back it decides again, and has not been sent what gathered meanwhile: nothing did.
func TestShardStopped(t *testing.T) {
	t.Parallel()
	const stopped, agents, callers = 5 * time.Second, 2, 4
	// Nobody shall take the master for dead: then its slots would be refused, and that is another story.
	cluster := redistest.StartCluster(t, redistest.WithShards(3, 0), redistest.WithNodeTimeout(time.Minute), redistest.WithConfig("cluster-require-full-coverage no"))
	f := startFailFleet(t, agents, cluster.URL(), time.Second)

	policies := map[string]limit.Reason{"open": limit.StoreOpen, "closed": limit.StoreClosed, "local": limit.StoreLocal}
	master := cluster.Masters()[0]
	addr := master.Addr()
	if _, on := f.shard("open", "x"); !strings.Contains(on, ":") {
		t.Fatalf("a bucket lives on %q", on)
	}
	there, elsewhere := make(map[string]*seen), make(map[string]*seen)
	var shards []int
	var stops []func()
	for rule := range policies {
		for _, on := range []bool{true, false} {
			value := f.valueOn(rule, addr, on)
			s, stop := f.press(rule, value, callers)
			if stops = append(stops, stop); !on {
				elsewhere[rule] = s
				continue
			}
			there[rule] = s
			number, _ := f.shard(rule, value)
			shards = append(shards, number)
		}
	}
	calls := func() (n int64) {
		f.calls.Range(func(key, value any) bool {
			for _, s := range shards {
				if key == s {
					n += value.(*atomic.Int64).Load()
					break
				}
			}
			return true
		})
		return n
	}
	probes := func() (n uint64) {
		for _, a := range f.agents {
			n += a.Stats().Batcher.Probes
		}
		return n
	}
	waits := func() (n int64) {
		for _, a := range f.agents {
			n += a.Stats().Batcher.Waiting
		}
		return n
	}

	time.Sleep(time.Second)
	for rule, s := range there {
		f.only("before, "+rule, s.reset(), limit.OK, limit.OverLimit)
	}
	before := scriptCalls(t, master)
	must(t, master.Stop())
	distinct := make(map[int]bool)
	for _, s := range shards {
		distinct[s] = true
	}
	f.await("the shards are found down", func(a *agent.Agent) bool { return a.Stats().Batcher.Down >= int64(len(distinct)) })
	time.Sleep(50 * time.Millisecond) // for answers that are on their way to their callers
	for _, s := range there {
		s.reset()
	}
	sent, probed := calls(), probes()
	for end := time.Now().Add(stopped); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		for i, store := range f.stores {
			if down := silent(store); !slices.Contains(down, addr) {
				t.Fatalf("store %d: masters %v do not answer, want all the while %s", i, down, addr)
			}
		}
	}
	for rule, s := range there {
		got := s.reset()
		f.only("stopped, "+rule, got, policies[rule])
		if rule == "local" {
			t.Logf("stopped: %v by shares", got)
		}
	}
	if n := calls() - sent; n > 0 {
		t.Errorf("%d calls to a master that does not answer", n)
	}
	tried := probes() - probed
	// At pauses of at least 375 ms, from each agent to each of its shards.
	if most := uint64(agents*len(distinct)) * uint64(stopped/(375*time.Millisecond)+6); tried == 0 || tried > most {
		t.Errorf("%d probes in %v, want 1 to %d", tried, stopped, most)
	}
	if n := waits(); n > agents*callers*int64(len(policies)) {
		t.Errorf("%d claims wait", n)
	}

	must(t, master.Continue())
	back := time.Now()
	f.await("all are asked again", func(a *agent.Agent) bool { return a.Stats().Batcher.Down == 0 })
	await(t, "all stores are well", func() bool {
		return !slices.ContainsFunc(f.stores, func(s *redisshard.Store) bool { return len(silent(s)) > 0 || s.Status() != nil })
	})
	t.Logf("asked again %v after the return; the master has run %d calls since it was stopped; %d probes", time.Since(back),
		scriptCalls(t, master)-before, tried)
	time.Sleep(50 * time.Millisecond)
	for _, s := range there {
		s.reset()
	}
	time.Sleep(time.Second)
	for rule, s := range there {
		if got := s.reset(); rule == "local" {
			f.only("back, local", got, limit.OK, limit.OverLimit, limit.StoreLocal)
		} else {
			f.only("back, "+rule, got, limit.OK, limit.OverLimit)
		}
	}
	time.Sleep(1500 * time.Millisecond) // until the shares bind no more
	there["local"].reset()
	time.Sleep(500 * time.Millisecond)
	f.only("later, local", there["local"].reset(), limit.OK, limit.OverLimit)
	for _, stop := range stops {
		stop()
	}
	for rule, s := range elsewhere {
		f.only("on another master, "+rule, s.reset(), limit.OK, limit.OverLimit)
	}
	for rule, s := range there {
		if s.wrong > 0 {
			t.Errorf("%s: %d answers do not go with their reason", rule, s.wrong)
		}
	}
	for _, rule := range []string{"closed", "local"} {
		judgeSeen(t, rule, there[rule])
	}
}

// silent are the addresses of the masters that do not answer.
func silent(store *redisshard.Store) (addrs []string) {
	for _, m := range mastersOf(store) {
		if !m.Up {
			addrs = append(addrs, m.Addr)
		}
	}
	return addrs
}

// TestWhoDoesNotAnswer: of one master of several it is not said that the store is away.
func TestWhoDoesNotAnswer(t *testing.T) {
	up, down := telemetry.Master{Addr: "a", Up: true}, telemetry.Master{Addr: "b"}
	for _, tt := range []struct {
		masters []telemetry.Master
		want    string
	}{
		{nil, "the store does not answer"},
		{[]telemetry.Master{down}, "the store does not answer"},
		{[]telemetry.Master{up}, "the store does not answer"}, // its layout cannot be read
		{[]telemetry.Master{up, down, up}, "1 of the store's 3 masters does not answer"},
		{[]telemetry.Master{up, down, down}, "2 of the store's 3 masters do not answer"},
		{[]telemetry.Master{down, down}, "the store does not answer"},
	} {
		if got := who(tt.masters); got != tt.want {
			t.Errorf("%v: %s, want %s", tt.masters, got, tt.want)
		}
	}
}
