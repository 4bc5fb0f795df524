package redistest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// TestCluster runs one story on one cluster: a cluster is two seconds' work.
func TestCluster(t *testing.T) {
	ctx := t.Context()
	began := time.Now()
	c := StartCluster(t, WithPassword("pw"))
	t.Logf("six nodes were ready after %v", time.Since(began).Round(time.Millisecond))

	testFreshCluster(ctx, t, c)
	t.Run("slots", func(t *testing.T) { testSlots(ctx, t, c) })
	t.Run("script flush", func(t *testing.T) { testClusterScriptFlush(ctx, t, c) })
	t.Run("migration", func(t *testing.T) { testMigration(ctx, t, c) })
	t.Run("failover", func(t *testing.T) { testFailover(ctx, t, c) })
	t.Run("death of a master", func(t *testing.T) { testDeath(ctx, t, c) })
}

// testFreshCluster looks at the cluster without a wait: StartCluster has waited.
func testFreshCluster(ctx context.Context, t *testing.T, c *Cluster) {
	if n, m := len(c.Nodes()), len(c.Masters()); n != 6 || m != 3 {
		t.Fatalf("%d nodes, %d masters; want 6, 3", n, m)
	}
	for i, m := range c.Masters() {
		if len(c.Replicas(m)) != 1 {
			t.Errorf("%v has the replicas %v, want one", m, c.Replicas(m))
		}
		if owner := c.MasterOfSlot(i*numSlots/3 + 1); owner != m {
			t.Errorf("third %d of the slots is on %v, want %v", i, owner, m)
		}
	}
	for _, s := range c.Nodes() {
		if info := s.Client().ClusterInfo(ctx).Val(); !strings.Contains(info, "cluster_state:ok") {
			t.Errorf("%v: %s", s, info)
		}
	}
	Must(t, c.Client().ForEachMaster(ctx, func(ctx context.Context, m *redis.Client) error {
		return m.Set(ctx, "{"+tagOn(c, m.Options().Addr)+"}", "v", 0).Err()
	}))
	opts, err := redis.ParseURL(c.Nodes()[0].URL())
	Must(t, err)
	if want := "redis://:" + opts.Password + "@" + strings.Join(c.Addrs(), ","); c.URL() != want+"/0" {
		t.Errorf("URL is %s, want %s/0", c.URL(), want)
	}
}

// tagOn returns a key whose slot is on the master with an address.
func tagOn(c *Cluster, addr string) string {
	for i := 0; ; i++ {
		if key := fmt.Sprint("k", i); c.MasterOf(key).Addr() == addr {
			return key
		}
	}
}

// testSlots holds Slot against the server's own arithmetic.
func testSlots(ctx context.Context, t *testing.T, c *Cluster) {
	for _, key := range []string{
		"", "123456789", "foo", "{user1000}.following", "foo{}{bar}", "foo{{bar}}zap",
		"foo{bar}{zap}", "foo{bar", "}{", "{}", "\x00\xff", "sg:{4f}:8:0:12",
	} {
		want, err := c.Nodes()[0].Client().ClusterKeySlot(ctx, key).Result()
		Must(t, err)
		if got := Slot(key); int64(got) != want {
			t.Errorf("Slot(%q) = %d, the server says %d", key, got, want)
		}
	}
}

func testClusterScriptFlush(ctx context.Context, t *testing.T, c *Cluster) {
	sha := c.Client().ScriptLoad(ctx, "return 1").Val() // on every shard
	Must(t, c.ScriptFlush(ctx))
	for _, m := range c.Masters() {
		if loaded := m.Client().ScriptExists(ctx, sha).Val(); !slices.Equal(loaded, []bool{false}) {
			t.Errorf("%v: script loaded after the flush: %v", m, loaded)
		}
	}
}

func testMigration(ctx context.Context, t *testing.T, c *Cluster) {
	const stay, move = "{mig}stay", "{mig}move"
	from := c.MasterOf(stay)
	to := c.Masters()[0]
	if to == from {
		to = c.Masters()[1]
	}
	Must(t, from.Client().MSet(ctx, stay, 1, move, 2).Err())
	get := func(s *Server, key string) string {
		v, err := s.Client().Get(ctx, key).Result()
		if err != nil {
			v, _, _ = strings.Cut(err.Error(), " ")
		}
		return v
	}

	if _, err := c.BeginMigration(ctx, Slot(stay), from); err == nil {
		t.Error("a slot may migrate to where it is")
	}
	m, err := c.BeginMigration(ctx, Slot(stay), to)
	Must(t, err)
	Must(t, m.MoveKeys(ctx, move))
	for _, tt := range []struct {
		on        *Server
		key, want string
	}{
		{from, stay, "1"}, {from, move, "ASK"}, {to, move, "MOVED"},
	} {
		if got := get(tt.on, tt.key); got != tt.want {
			t.Errorf("half way, %s on %v: %s, want %s", tt.key, tt.on, got, tt.want)
		}
	}
	if err := from.Client().MGet(ctx, stay, move).Err(); !redis.HasErrorPrefix(err, "TRYAGAIN") {
		t.Errorf("half way, both keys at once: %v, want TRYAGAIN", err)
	}

	Must(t, m.Finish(ctx))
	if got := get(from, stay) + " " + get(to, stay) + " " + get(to, move); got != "MOVED 1 2" {
		t.Errorf("in the end: %s, want MOVED 1 2", got)
	}
	if owner := c.MasterOf(stay); owner != to {
		t.Errorf("the layout says %v, want %v", owner, to)
	}

	// And back, in one call, so that the next tests find thirds again.
	Must(t, c.MigrateSlot(ctx, Slot(stay), from))
	if got := get(from, stay); got != "1" {
		t.Errorf("after the way back: %s", got)
	}
}

func testFailover(ctx context.Context, t *testing.T, c *Cluster) {
	const key = "failover"
	old := c.MasterOf(key)
	replica := c.Replicas(old)[0]
	Must(t, old.Client().Set(ctx, key, "kept", 0).Err())
	Must(t, c.Failover(ctx, replica))
	if c.MasterOf(key) != replica || !slices.Equal(c.Replicas(replica), []*Server{old}) {
		t.Errorf("master is %v, its replicas %v; want %v, %v", c.MasterOf(key), c.Replicas(replica), replica, old)
	}
	if v, err := replica.Client().Get(ctx, key).Result(); v != "kept" || err != nil {
		t.Errorf("new master answers %q, %v", v, err)
	}
	if err := c.Failover(ctx, replica); err == nil {
		t.Error("a master could be promoted")
	}
}

func testDeath(ctx context.Context, t *testing.T, c *Cluster) {
	const key = "death"
	dead := c.MasterOf(key)
	began := time.Now()
	Must(t, dead.Kill())
	heir, err := c.WaitFailover(ctx, dead)
	Must(t, err)
	t.Logf("a replica took over after %v", time.Since(began).Round(time.Millisecond))
	if heir == dead || heir != c.MasterOf(key) {
		t.Fatalf("heir is %v, master %v, dead %v", heir, c.MasterOf(key), dead)
	}
	Must(t, heir.Client().Set(ctx, key, "v", 0).Err())
	if _, err := c.WaitFailover(ctx, dead); err == nil {
		t.Error("a node without slots had a failover")
	}
	if _, err := c.WaitFailover(ctx, heir); err == nil {
		t.Error("a master without replicas had a failover")
	}

	Must(t, dead.Restart(ctx))
	Must(t, c.WaitStable(ctx))
	if got := c.Replicas(heir); !slices.Contains(got, dead) {
		t.Errorf("replicas of the new master: %v, want the old one among them", got)
	}
}

func TestClusterOfAnotherSize(t *testing.T) {
	c := StartCluster(t, WithShards(2, 0), WithNodeTimeout(2*time.Second), WithConfig("cluster-require-full-coverage no"))
	if len(c.Masters()) != 2 || len(c.Nodes()) != 2 || len(c.Replicas(c.Nodes()[0])) != 0 {
		t.Errorf("masters %v of nodes %v", c.Masters(), c.Nodes())
	}
	Must(t, c.Masters()[0].Kill())
	Must(t, c.Refresh(t.Context()))
	if owner := c.MasterOfSlot(0); owner != c.Nodes()[0] {
		t.Errorf("slot 0 went from a dead master without replica to %v", owner)
	}
	Must(t, c.ScriptFlush(t.Context()))
}

func TestClusterThatCannotStart(t *testing.T) {
	fake := &fakeTB{TB: t}
	fake.run(func() { StartCluster(fake, WithConfig("no-such-directive 1")) })
	if !fake.failed || !strings.Contains(fake.text, "no-such-directive") {
		t.Errorf("failed %v: %s", fake.failed, fake.text)
	}
}
