package redistest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// pollEvery is the pause between two looks at a cluster that settles.
const pollEvery = 20 * time.Millisecond

// Cluster is a Redis Cluster of our own processes.
//
// Masters, Replicas, MasterOf and the like answer from a layout that the
// Cluster read last: at the start, after each of its own helpers that change
// it (Failover, WaitFailover, Migration, WaitStable) and on Refresh. They do no
// I/O and cannot fail. Its methods may be called from several goroutines.
type Cluster struct {
	cfg    Config
	dir    string
	ownDir bool
	nodes  []*Server // masters first, as they were at the start
	ids    []string  // node ids, by index in nodes

	mu struct {
		sync.Mutex
		layout layout
		client *redis.ClusterClient // made on first use
		closed bool
	}
}

// LaunchCluster starts a cluster below dir and waits until it serves. With an
// empty dir it makes a temporary one that Close removes.
func LaunchCluster(ctx context.Context, dir string, cfg Config) (*Cluster, error) {
	if err := cfg.ensureDefaults(); err != nil {
		return nil, err
	}
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	ctx, cancel := withPatience(ctx)
	defer cancel()
	dir, ownDir, err := makeDir(dir)
	if err != nil {
		return nil, err
	}
	n := cfg.Masters * (1 + cfg.Replicas)
	c := &Cluster{cfg: cfg, dir: dir, ownDir: ownDir, nodes: make([]*Server, n), ids: make([]string, n)}
	c.mu.layout.master = make([]int, n)
	err = each(c.nodes, func(i int, _ *Server) (err error) {
		c.nodes[i], err = launch(ctx, filepath.Join(dir, strconv.Itoa(i)), cfg, true)
		return err
	})
	if err == nil {
		err = c.assemble(ctx)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("redistest: launch a cluster: %w", err), c.Close())
	}
	return c, nil
}

// assemble makes a cluster of nodes that know nobody. It is redis-cli --cluster
// create without the waits: all but a fraction of a second passes while the
// masters sit out their two seconds.
func (c *Cluster) assemble(ctx context.Context) error {
	masters := c.nodes[:c.cfg.Masters]
	err := each(c.nodes, func(i int, s *Server) error {
		id, err := s.Client().ClusterMyID(ctx).Result()
		c.ids[i], s.nodeID = id, id
		return err
	})
	if err != nil {
		return fmt.Errorf("ask for node ids: %w", err)
	}

	// Distinct epochs beforehand spare the masters the fight over equal ones.
	// They can be set only while a node is alone.
	err = each(masters, func(i int, s *Server) error {
		first, next := i*numSlots/len(masters), (i+1)*numSlots/len(masters)
		return errors.Join(
			s.Client().Do(ctx, "CLUSTER", "SET-CONFIG-EPOCH", i+1).Err(),
			s.Client().ClusterAddSlotsRange(ctx, first, next-1).Err())
	})
	if err != nil {
		return fmt.Errorf("give out slots: %w", err)
	}

	// Everyone meets everyone: faster than to wait for the gossip.
	err = each(c.nodes, func(i int, s *Server) error {
		pipe := s.Client().Pipeline()
		for _, other := range c.nodes[i+1:] {
			pipe.ClusterMeet(ctx, "127.0.0.1", strconv.Itoa(other.port))
		}
		_, err := pipe.Exec(ctx)
		return err
	})
	if err != nil {
		return fmt.Errorf("CLUSTER MEET: %w", err)
	}

	err = each(c.nodes[len(masters):], func(i int, s *Server) error {
		return poll(ctx, pollEvery, func(ctx context.Context) error {
			// Refused until the replica has heard of its master.
			return s.Client().ClusterReplicate(ctx, c.ids[i%len(masters)]).Err()
		})
	})
	if err != nil {
		return fmt.Errorf("CLUSTER REPLICATE: %w", err)
	}
	return c.WaitStable(ctx)
}

// survey asks all live nodes at once for their reports. A node that is down has
// none.
func (c *Cluster) survey(ctx context.Context) ([]*report, error) {
	reports := make([]*report, len(c.nodes))
	err := each(c.nodes, func(i int, s *Server) (err error) {
		if !s.Alive() {
			return nil
		}
		pipe := s.Client().Pipeline()
		nodes := pipe.ClusterNodes(ctx)
		info := pipe.ClusterInfo(ctx)
		replication := pipe.Info(ctx, "replication")
		if _, err := pipe.Exec(ctx); err != nil {
			return fmt.Errorf("redistest: ask %v about the cluster: %w", s, err)
		}
		reports[i], err = parseReport(nodes.Val(), info.Val(), replication.Val())
		return err
	})
	return reports, err
}

// waitFor polls the live nodes until ok finds nothing missing, then takes over
// the layout they report.
func (c *Cluster) waitFor(ctx context.Context, what string, ok func([]*report) error) error {
	ctx, cancel := withPatience(ctx)
	defer cancel()
	err := poll(ctx, pollEvery, func(ctx context.Context) error {
		reports, err := c.survey(ctx)
		if err != nil {
			return err
		}
		if err := ok(reports); err != nil {
			return err
		}
		return c.learn(reports)
	})
	if err != nil {
		return fmt.Errorf("redistest: wait until %s: %w", what, err)
	}
	return nil
}

func (c *Cluster) learn(reports []*report) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.layout.update(reports, c.ids)
}

// WaitStable waits until all live nodes agree on the cluster, every slot is
// served and every live replica is in sync. Call it after Restart and Continue.
func (c *Cluster) WaitStable(ctx context.Context) error {
	return c.waitFor(ctx, "the cluster is stable", func(r []*report) error {
		if err := agreed(r, c.ids); err != nil {
			return err
		}
		return linked(r, c.ids)
	})
}

// Refresh reads the layout from the live nodes as it is now, settled or not.
func (c *Cluster) Refresh(ctx context.Context) error {
	ctx, cancel := withPatience(ctx)
	defer cancel()
	reports, err := c.survey(ctx)
	if err != nil {
		return err
	}
	return c.learn(reports)
}

// Nodes returns all nodes; at the start, the masters came first.
func (c *Cluster) Nodes() []*Server { return slices.Clone(c.nodes) }

// Addrs returns the host:port of all nodes.
func (c *Cluster) Addrs() []string {
	addrs := make([]string, len(c.nodes))
	for i, s := range c.nodes {
		addrs[i] = s.Addr()
	}
	return addrs
}

// URL returns the cluster as redis://host:port,host:port/0, with the password if
// there is one.
func (c *Cluster) URL() string { return redisURL(c.cfg.Password, strings.Join(c.Addrs(), ",")) }

// Masters returns the nodes that own slots, in the order of Nodes.
func (c *Cluster) Masters() []*Server {
	c.mu.Lock()
	defer c.mu.Unlock()
	owns := make([]bool, len(c.nodes))
	for _, i := range c.mu.layout.owner {
		owns[i] = true
	}
	var masters []*Server
	for i, s := range c.nodes {
		if owns[i] {
			masters = append(masters, s)
		}
	}
	return masters
}

// Replicas returns the nodes that replicate master.
func (c *Cluster) Replicas(master *Server) []*Server {
	c.mu.Lock()
	defer c.mu.Unlock()
	var replicas []*Server
	for i, m := range c.mu.layout.master {
		if m != nobody && c.nodes[m] == master {
			replicas = append(replicas, c.nodes[i])
		}
	}
	return replicas
}

// MasterOf returns the owner of the slot of a key.
func (c *Cluster) MasterOf(key string) *Server { return c.MasterOfSlot(Slot(key)) }

// MasterOfSlot returns the owner of a slot.
func (c *Cluster) MasterOfSlot(slot int) *Server {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.nodes[c.mu.layout.owner[slot]]
}

// Client returns a client of the whole cluster. It belongs to the cluster: Close
// closes it.
func (c *Cluster) Client() *redis.ClusterClient {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.client == nil {
		c.mu.client = redis.NewClusterClient(&redis.ClusterOptions{
			Addrs:                 c.Addrs(),
			Password:              c.cfg.Password,
			ContextTimeoutEnabled: true,
			DisableIdentity:       true,
			MaintNotificationsConfig: &maintnotifications.Config{
				Mode: maintnotifications.ModeDisabled,
			},
		})
	}
	return c.mu.client
}

// ScriptFlush empties the script caches of all live nodes.
func (c *Cluster) ScriptFlush(ctx context.Context) error {
	return each(c.nodes, func(_ int, s *Server) error {
		if !s.Alive() {
			return nil
		}
		return s.ScriptFlush(ctx)
	})
}

// Close kills all nodes, closes the clients and removes the directory if
// LaunchCluster made it. A second Close does nothing.
func (c *Cluster) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.closed {
		return nil
	}
	c.mu.closed = true
	var errs []error
	if c.mu.client != nil {
		errs = append(errs, c.mu.client.Close())
	}
	for _, s := range c.nodes {
		if s != nil { // nil where the launch failed
			errs = append(errs, s.Close())
		}
	}
	if c.ownDir {
		errs = append(errs, os.RemoveAll(c.dir))
	}
	return errors.Join(errs...)
}
