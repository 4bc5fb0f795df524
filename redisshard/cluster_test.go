package redisshard

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spillgate/spillgate/batcher"
	"github.com/spillgate/spillgate/internal/redistest"
	"github.com/spillgate/spillgate/limit"
)

// Fault 19 on the shared cluster: every debit counts once, whatever moves.

// revive brings a killed node back, for the tests that follow.
func revive(t *testing.T, c *redistest.Cluster, s *redistest.Server) {
	redistest.Must(t, s.Restart(t.Context()))
	redistest.Must(t, c.WaitStable(t.Context()))
}

// onMaster is a bucket that a master serves.
func (s *Store) onMaster(c *redistest.Cluster, m *redistest.Server) limit.Bucket {
	return s.bucketWhere(func(b *limit.Bucket) bool { return c.MasterOf("{"+s.tagOf(b)+"}") == m })
}

func (s *Store) slotOf(b *limit.Bucket) int { return slotOf("{" + s.tagOf(b) + "}") }

// moveBack gives a slot back to a master. Tests that moved one do so: others count on slots that are spread evenly.
func moveBack(t *testing.T, c *redistest.Cluster, slot int, home *redistest.Server) {
	redistest.Must(t, c.MigrateSlot(t.Context(), slot, home))
}

func TestMovedSlot(t *testing.T) {
	c := sharedCluster(t)
	s, terms := openStore(t, Config{URL: c.URL()}), compile(t, 10, time.Hour)
	b := s.onMaster(c, c.Masters()[0])
	s.must(t, b, terms, limit.Take, 3)
	redistest.Must(t, c.MigrateSlot(t.Context(), s.slotOf(&b), c.Masters()[1]))
	defer moveBack(t, c, s.slotOf(&b), c.Masters()[0])
	before := s.Stats()
	if out := s.must(t, b, terms, limit.Take, 1); out.Granted != 1 {
		t.Errorf("%+v", out)
	}
	if after := s.Stats(); after.Resent == before.Resent {
		t.Error("the old master served the slot")
	}
	if out := s.out(t, b, terms); out != 4 {
		t.Errorf("%d tokens are out, want 4", out)
	}
	until(t, func() bool { // the new place becomes known, and no call needs to be redirected
		before := s.Stats().Resent
		s.must(t, b, terms, limit.TakePartial, 0)
		return s.Stats().Resent == before
	})
}

// TestSlotOnTheMove: while a slot moves, Redis refuses every call that names a hash which is not there, and
// each call of ours does: TRYAGAIN, at the source or after an ASK. Nothing is debited, nothing is lost, other slots go on.
func TestSlotOnTheMove(t *testing.T) {
	c, ctx := sharedCluster(t), t.Context()
	s, terms := openStore(t, Config{URL: c.URL()}), compile(t, 10, time.Hour)
	from, to := c.Masters()[1], c.Masters()[2]
	b := s.onMaster(c, from)
	other := s.bucketWhere(func(o *limit.Bucket) bool { return s.tagOf(o) != s.tagOf(&b) && c.MasterOf("{"+s.tagOf(o)+"}") == from })
	s.must(t, b, terms, limit.Take, 3)
	m, err := c.BeginMigration(ctx, s.slotOf(&b), to)
	redistest.Must(t, err)
	for _, moved := range []bool{false, true} {
		if moved {
			redistest.Must(t, m.MoveKeys(ctx))
		}
		want := "TRYAGAIN"
		if moved {
			want = "ASK" // the second one: there it was TRYAGAIN again
		}
		if _, err := s.do(b, terms, limit.Take, 1); !errors.Is(err, batcher.ErrNotRun) || !strings.Contains(err.Error(), want) {
			t.Errorf("keys moved: %v: %v", moved, err)
		}
		s.must(t, other, terms, limit.Take, 1)
	}
	redistest.Must(t, m.Finish(ctx))
	defer moveBack(t, c, m.Slot, from)
	if out := s.must(t, b, terms, limit.TakePartial, 100); out.Granted != 7 {
		t.Errorf("after the move: %+v, want 7", out)
	}
}

// TestAsk: where all four hashes are there, a call is served by the new master before the slot has moved.
func TestAsk(t *testing.T) {
	c, ctx := sharedCluster(t), t.Context()
	s, terms := openStore(t, Config{URL: c.URL()}), compile(t, 10, 365*24*time.Hour)
	from, to := c.Masters()[2], c.Masters()[0]
	b := s.onMaster(c, from)
	s.must(t, b, terms, limit.Take, 3)
	now, length := time.Now().UnixNano(), int64(terms.Class.Length)
	for generation := int64(-2); generation <= 1; generation++ {
		redistest.Must(t, from.Client().HSet(ctx, s.key(&b, terms.Class, now+generation*length), "filler", "0").Err())
	}
	redistest.Must(t, to.ScriptFlush(ctx)) // ASK, then NOSCRIPT
	m, err := c.BeginMigration(ctx, s.slotOf(&b), to)
	redistest.Must(t, err)
	redistest.Must(t, m.MoveKeys(ctx))
	before := s.Stats()
	for n := range limit.Tokens(2) {
		if out := s.must(t, b, terms, limit.Take, 1); out.Granted != 1 {
			t.Errorf("take %d: %+v", n, out)
		}
	}
	if got := s.Stats().Resent - before.Resent; got != 3 {
		t.Errorf("two calls were sent again %d times, want 3", got)
	}
	redistest.Must(t, m.Finish(ctx))
	defer moveBack(t, c, m.Slot, from)
	if out := s.must(t, b, terms, limit.TakePartial, 100); out.Granted != 5 {
		t.Errorf("after the move: %+v, want 5", out)
	}
}

// TestMoveUnderLoad moves a slot away and back while callers take from it.
func TestMoveUnderLoad(t *testing.T) {
	c, ctx := sharedCluster(t), t.Context()
	s, terms := openStore(t, Config{URL: c.URL()}), compile(t, 1_000_000, 100*24*time.Hour)
	home, away := c.Masters()[0], c.Masters()[1]
	b := s.onMaster(c, home)
	var granted, notRun, unknown atomic.Int64
	stop := make(chan struct{})
	var callers sync.WaitGroup
	for range 4 {
		callers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				out, err := s.do(b, terms, limit.Take, 1)
				switch {
				case err == nil:
					granted.Add(int64(out.Granted))
				case errors.Is(err, batcher.ErrNotRun):
					notRun.Add(1)
				default:
					unknown.Add(1)
					t.Error(err)
				}
			}
		})
	}
	redistest.Must(t, c.MigrateSlot(ctx, s.slotOf(&b), away))
	redistest.Must(t, c.MigrateSlot(ctx, s.slotOf(&b), home))
	served := granted.Load()
	until(t, func() bool { return granted.Load() > served+100 })
	close(stop)
	callers.Wait()
	if out := s.out(t, b, terms); int64(out) != granted.Load() {
		t.Errorf("%d tokens are out, %d were granted", out, granted.Load())
	}
	t.Logf("granted %d, refused %d times", granted.Load(), notRun.Load())
}

// TestUncoveredSlot: a slot that nobody serves is a clear error, and nothing runs.
func TestUncoveredSlot(t *testing.T) {
	c, ctx := sharedCluster(t), t.Context()
	s, terms := openStore(t, Config{URL: c.URL()}), compile(t, 10, time.Hour)
	owner := c.Masters()[0]
	b := s.onMaster(c, owner)
	neighbour := s.bucketWhere(func(o *limit.Bucket) bool { return s.tagOf(o) != s.tagOf(&b) })
	s.must(t, b, terms, limit.Take, 1)
	slot := s.slotOf(&b)
	for _, n := range c.Nodes() {
		redistest.Must(t, n.Client().ClusterDelSlots(ctx, slot).Err())
	}
	uncovered := func() string {
		_, err := s.do(b, terms, limit.Take, 1)
		if !errors.Is(err, batcher.ErrNotRun) {
			t.Fatalf("nobody serves the slot: %v", err)
		}
		return err.Error()
	}
	if text := uncovered(); !strings.Contains(text, "slot") {
		t.Errorf("from Redis: %s", text)
	}
	// Once the topology is known, no server is asked.
	until(t, func() bool { return strings.Contains(uncovered(), fmt.Sprintf("no master serves this slot: %d", slot)) })
	s.must(t, neighbour, terms, limit.Take, 1)
	for _, n := range c.Nodes() {
		_ = n.Client().ClusterDelSlots(ctx, slot).Err() // who has learned of the owner again
	}
	redistest.Must(t, owner.Client().ClusterAddSlots(ctx, slot).Err())
	redistest.Must(t, c.WaitStable(ctx))
	until(t, func() bool { _, err := s.do(b, terms, limit.TakePartial, 0); return err == nil })
}

// TestFailover kills a master: the other shards do not notice, and its own goes on with the replica, with
// every debit that had reached it.
func TestFailover(t *testing.T) {
	c, ctx := sharedCluster(t), t.Context()
	var log journal
	s, terms := openStore(t, Config{URL: c.URL(), Logger: log.logger()}), compile(t, 1_000_000, 100*24*time.Hour)
	masters := c.Masters()
	victim := masters[0]
	b := s.onMaster(c, victim)
	others := []limit.Bucket{s.onMaster(c, masters[1]), s.onMaster(c, masters[2])}
	s.must(t, b, terms, limit.Take, 5)
	redistest.Must(t, victim.Client().Wait(ctx, 1, 5*time.Second).Err())

	stop := make(chan struct{})
	var callers sync.WaitGroup
	taken := make([]limit.Tokens, len(others))
	for i, o := range others {
		callers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if out, err := s.do(o, terms, limit.Take, 1); err != nil || out.Granted != 1 {
					t.Errorf("another shard: %+v, %v", out, err)
					return
				}
				taken[i]++
			}
		})
	}
	redistest.Must(t, victim.Kill())
	defer revive(t, c, victim)
	granted, unknown := limit.Tokens(5), limit.Tokens(0)
	until(t, func() bool {
		out, err := s.do(b, terms, limit.Take, 1)
		granted += out.Granted
		if errors.Is(err, batcher.ErrUnknown) {
			unknown++
		} else if err != nil && !errors.Is(err, batcher.ErrNotRun) {
			t.Errorf("while the master is dead: %v", err)
		}
		return err == nil
	})
	close(stop)
	callers.Wait()
	if out := s.out(t, b, terms); out < granted || out > granted+unknown {
		t.Errorf("%d tokens are out, want %d to %d", out, granted, granted+unknown)
	}
	for i, o := range others {
		if out := s.out(t, o, terms); out != taken[i] {
			t.Errorf("another shard: %d tokens are out, %d were taken", out, taken[i])
		}
	}
	_, err := c.WaitFailover(ctx, victim)
	redistest.Must(t, err)
	if !strings.Contains(log.String(), "slots have moved") {
		t.Errorf("the log does not tell of it: %s", log.String())
	}
}

// TestOrderlyFailover swaps a master and its replica: nothing is lost, and calls to the old
// master are redirected.
func TestOrderlyFailover(t *testing.T) {
	c, ctx := sharedCluster(t), t.Context()
	s, terms := openStore(t, Config{URL: c.URL()}), compile(t, 10, time.Hour)
	master := c.Masters()[1]
	b := s.onMaster(c, master)
	s.must(t, b, terms, limit.Take, 4)
	redistest.Must(t, c.Failover(ctx, c.Replicas(master)[0]))
	if out := s.must(t, b, terms, limit.TakePartial, 100); out.Granted != 6 {
		t.Errorf("%+v, want 6", out)
	}
}

// TestLayoutChangeMovesQueues: entries that were queued when the layout changed are refused or served,
// each once, and never cross slots unnoticed.
func TestLayoutChangeMovesQueues(t *testing.T) {
	c := sharedCluster(t)
	s, terms := openStore(t, Config{URL: c.URL(), Tags: 12}), compile(t, 10, time.Hour)
	var entries []*batcher.Entry
	for i := range 20 { // of several tags, but in one call
		entries = append(entries, &batcher.Entry{Bucket: s.bucket(fmt.Sprint(i)), Terms: terms, Op: limit.Take, N: 1})
	}
	s.Apply(t.Context(), 99, entries)
	for _, e := range entries {
		if !errors.Is(e.Err, batcher.ErrNotRun) {
			t.Errorf("%+v, %v", e.Out, e.Err)
		}
		if out := s.out(t, e.Bucket, terms); out != 0 {
			t.Errorf("%d tokens are out", out)
		}
	}
}
