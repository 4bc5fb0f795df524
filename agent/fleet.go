package agent

import (
	"context"
	"crypto/rand"
	"regexp"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spillgate/spillgate/batcher"
)

const (
	// beatEvery is how often an agent says that it lives, and beatLife for how long the store believes it.
	beatEvery = 2 * time.Second
	beatLife  = 10 * time.Second
	// beatTimeout bounds one beat.
	beatTimeout = time.Second
	// mostID bounds Config.ID, in bytes.
	mostID = 64
)

// fleetName is what Config.Fleet may be: part of a key's name.
var fleetName = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)

// fleet counts the agents that share the store, by beats of each of them.
type fleet struct {
	store  batcher.Countable
	name   string
	member string
	counts counts // of the goroutine that beats
	agents atomic.Int64
	// troubled says that shares are enforced, or may be.
	troubled func() bool
	stop     context.CancelFunc
	done     sync.WaitGroup
}

// counts are the last ones that the store told. A share of a limit is safe while no agent believes in fewer agents than there
// are, so the most of them counts: one that is not seen for a moment is there, and a store that lost its data and
// is told anew does not matter. An agent that has just come does not believe in a number before
// the others, who beat in their own time, have counted it.
type counts struct {
	last  [beatLife / beatEvery]int
	heard int
}

// settle is how many counts an agent needs to believe them: by the third all others have beaten since the first.
const settle = 3

// add takes a count, and returns the number to believe in; 0 is none.
func (c *counts) add(n int) (most int) {
	c.last[c.heard%len(c.last)] = n
	if c.heard++; c.heard < settle {
		return 0
	}
	for _, n := range c.last {
		most = max(most, n)
	}
	return most
}

// newFleet begins to beat, if the store counts. troubled says whether some shard is or was away.
func newFleet(cfg *Config, troubled func() bool) *fleet {
	f := &fleet{name: cfg.Fleet, member: cfg.ID + "/" + rand.Text(), troubled: troubled}
	var ctx context.Context
	ctx, f.stop = context.WithCancel(context.Background())
	if store, ok := cfg.Store.(batcher.Countable); ok {
		f.store = store
		f.done.Go(func() { f.tend(ctx) })
	}
	return f
}

// tend beats until ctx ends. Without an answer the last number stays: that is what it is for.
func (f *fleet) tend(ctx context.Context) {
	tick := time.NewTicker(beatEvery)
	defer tick.Stop()
	for ctx.Err() == nil {
		f.beat(ctx)
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
}

func (f *fleet) beat(ctx context.Context) {
	if _, reached := f.store.Secret(); !reached {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, beatTimeout)
	defer cancel()
	n, err := f.store.Beat(ctx, f.name, f.member, beatLife)
	if err != nil || n < 1 {
		return
	}
	most := int64(f.counts.add(n))
	if f.troubled() { // who has left may have used up its shares just before
		most = max(most, f.agents.Load())
	}
	f.agents.Store(most)
}

func (f *fleet) close() {
	f.stop()
	f.done.Wait()
}

// Fleet is how many agents share the store's limits, this one included, as the store last told: the most of the last 10 seconds and, while a
// shard is away, of that time; or Config.FleetSize where it has not told. known is false where neither is known: in the first 4 seconds, and where the store has not been
// reached since. A memory store is not shared: 1.
func (a *Agent) Fleet() (agents int, known bool) {
	if a.direct != nil {
		return 1, true
	}
	if n := int(a.fleet.agents.Load()); n > 0 {
		return n, true
	}
	return a.cfg.FleetSize, a.cfg.FleetSize > 0
}
