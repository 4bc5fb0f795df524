package main

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillgate/spillgate/agent"
	"github.com/spillgate/spillgate/internal/redistest"
	"github.com/spillgate/spillgate/limit"
	"github.com/spillgate/spillgate/redisshard"
	"github.com/spillgate/spillgate/sidecar/resp"
)

// These tests drive whole agents, door to cluster, as a fleet would.

// fleetAgent is one agent with its own store connection and socket.
type fleetAgent struct {
	store  *redisshard.Store
	client *redis.Client
}

// startAgent runs an agent on the cluster. Its fail policy is closed, so that answers without
// a token are told apart.
func startAgent(t *testing.T, c *redistest.Cluster) *fleetAgent {
	t.Helper()
	ctx := context.Background()
	store, err := redisshard.Open(ctx, redisshard.Config{URL: c.URL(), Timeout: 10 * time.Second})
	redistest.Must(t, err)
	a, err := agent.New(agent.Config{Store: store, Deadline: 10 * time.Second, StoreTimeout: 10 * time.Second, OnStoreError: limit.Closed})
	redistest.Must(t, err)
	door, err := resp.New(resp.Config{Agent: a})
	redistest.Must(t, err)
	socket := filepath.Join(t.TempDir(), "sg.sock")
	l, err := net.Listen("unix", socket)
	redistest.Must(t, err)
	served := make(chan error, 1)
	go func() { served <- door.Serve(l) }()
	client := redis.NewClient(&redis.Options{Network: "unix", Addr: socket, PoolSize: 16, MaxRetries: -1, DisableIdentity: true,
		ReadTimeout: scriptPatience})
	t.Cleanup(func() {
		client.Close()
		redistest.Must(t, door.Shutdown(ctx))
		redistest.Must(t, <-served)
		redistest.Must(t, a.Close(ctx))
		redistest.Must(t, store.Close())
	})
	return &fleetAgent{store, client}
}

// throttle asks for one token and returns the door's five integers.
func (f *fleetAgent) throttle(ctx context.Context, key string, maxBurst, count, period int) ([]int64, error) {
	return f.client.Do(ctx, "CL.THROTTLE", key, maxBurst, count, period).Int64Slice()
}

// hammer has clients check one key as fast as they can, for a while, over the agents
// in turn. It returns how many were admitted and between which bounds of time.
func hammer(t *testing.T, agents []*fleetAgent, clients int, length time.Duration) (admitted int64, took time.Duration) {
	t.Helper()
	var n atomic.Int64
	var wg sync.WaitGroup
	start := time.Now()
	for i := range clients {
		f := agents[i%len(agents)]
		wg.Go(func() {
			for time.Since(start) < length {
				got, err := f.throttle(context.Background(), "k", 99, 100, 1)
				if err != nil {
					t.Error(err)
					return
				}
				if got[0] == 0 {
					n.Add(1)
				}
			}
		})
	}
	wg.Wait()
	return n.Load(), time.Since(start)
}

// TestClusterOneBucket: 100 at once and 100 a second on one bucket admit what they
// say, through one agent and through two (G1, G3).
func TestClusterOneBucket(t *testing.T) {
	cluster := redistest.StartCluster(t, redistest.WithShards(3, -1))
	for _, n := range []int{1, 2} {
		t.Run(fmt.Sprintf("agents=%d", n), func(t *testing.T) {
			var agents []*fleetAgent
			for range n {
				agents = append(agents, startAgent(t, cluster))
			}
			// Another run's tokens are back after two seconds of the bucket's generation at most.
			redistest.Must(t, cluster.Client().ForEachMaster(context.Background(), func(ctx context.Context, c *redis.Client) error {
				return c.FlushAll(ctx).Err()
			}))
			admitted, took := hammer(t, agents, 8, 5*time.Second)
			most := int64(100 + 100*took.Seconds())
			if admitted > most {
				t.Errorf("admitted %d in %v, more than burst + rate * time = %d", admitted, took, most)
			}
			if least := most * 98 / 100; admitted < least {
				t.Errorf("admitted %d in %v, less than 98 %% of %d", admitted, took, most)
			}
			if unknown := agents[0].store.Stats().Unknown; unknown > 0 {
				t.Errorf("%d debits unknown on a healthy cluster", unknown)
			}
		})
	}
}

// TestClusterMasterKilled: kill -9 of a master under load. Every call is answered; those of
// other shards are decided by the store all the while; the shard resumes
// after the replica's promotion, without a restart (fault 19).
func TestClusterMasterKilled(t *testing.T) {
	cluster := redistest.StartCluster(t, redistest.WithConfig("cluster-require-full-coverage no"))
	f := startAgent(t, cluster)
	ctx := context.Background()

	dead := cluster.Masters()[0]
	mine, others := keysByMaster(t, f, cluster, dead)

	redistest.Must(t, dead.Kill())
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for _, key := range others {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				got, err := f.throttle(ctx, key, 1_000_000, 1_000_000, 1)
				if err != nil || got[0] != 0 {
					t.Errorf("key of a living shard: %v, %v; want admitted", got, err)
					return
				}
			}
		})
	}
	_, err := cluster.WaitFailover(ctx, dead)
	redistest.Must(t, err)
	deadline := time.Now().Add(scriptPatience)
	for resumed := 0; resumed < len(mine); {
		if time.Now().After(deadline) {
			t.Fatal("the shard did not resume after the promotion")
		}
		got, err := f.throttle(ctx, mine[resumed], 1_000_000, 1_000_000, 1)
		if err != nil {
			t.Fatalf("a call was not answered: %v", err)
		}
		if got[0] == 0 { // the policy is closed: admitted means decided by the store
			resumed++
		}
	}
	close(stop)
	wg.Wait()
}

// keysByMaster makes keys and tells those of one master from those of the others: where a bucket
// lives is the store's secret, but the master counts the scripts that it runs.
func keysByMaster(t *testing.T, f *fleetAgent, cluster *redistest.Cluster, master *redistest.Server) (mine, others []string) {
	t.Helper()
	for i := 0; len(mine) < 2 || len(others) < 4; i++ {
		before := scriptCalls(t, master)
		key := fmt.Sprintf("key-%d", i)
		got, err := f.throttle(context.Background(), key, 1_000_000, 1_000_000, 1)
		if err != nil || got[0] != 0 {
			t.Fatalf("%s: %v, %v", key, got, err)
		}
		if scriptCalls(t, master) > before {
			mine = append(mine, key)
		} else {
			others = append(others, key)
		}
		if i > 1000 {
			t.Fatal("1,000 keys are all on one side")
		}
	}
	return mine, others
}

// scriptCalls is how many EVAL and EVALSHA calls a server has run.
func scriptCalls(t *testing.T, s *redistest.Server) (calls int) {
	t.Helper()
	text, err := s.Client().Info(context.Background(), "commandstats").Result()
	redistest.Must(t, err)
	for line := range strings.Lines(text) {
		var n int
		if _, err := fmt.Sscanf(line, "cmdstat_evalsha:calls=%d,", &n); err == nil {
			calls += n
		}
		if _, err := fmt.Sscanf(line, "cmdstat_eval:calls=%d,", &n); err == nil {
			calls += n
		}
	}
	return calls
}
