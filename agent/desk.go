package agent

import (
	crand "crypto/rand"
	"math/bits"
	"math/rand/v2"
	"runtime"
	"sync"
	"time"

	"github.com/spillgate/spillgate/agent/lease"
	"github.com/spillgate/spillgate/agent/share"
	"github.com/spillgate/spillgate/agent/split"
	"github.com/spillgate/spillgate/batcher"
	"github.com/spillgate/spillgate/hotkeys"
	"github.com/spillgate/spillgate/limit"
)

// tendEvery is how often the desk looks after what it holds.
const tendEvery = 100 * time.Millisecond

// desk is a lease.Desk with what it lives on: a clock, a memory, and a goroutine that tends it.
type desk struct {
	*lease.Desk
	start   time.Time
	tracker *hotkeys.Tracker
	splits  *split.Table
	// splitOps is the threshold of splits; 0 never splits.
	splitOps int64
	memory   *memory
	active   active
	// shares are what is enforced while the store gives no answer; ownSecret names their buckets before it was reached.
	shares    *share.Table
	ownSecret limit.Secret
	secret    *limit.Secret // that named the buckets held; tend's own
	stop      chan struct{}
	done      sync.WaitGroup
}

func newDesk(cfg *Config, b *batcher.Batcher) (*desk, error) {
	tracker, err := hotkeys.New(cfg.Hotkeys)
	if err != nil {
		return nil, err
	}
	d := &desk{start: time.Now(), tracker: tracker, splitOps: max(0, cfg.SplitOps), stop: make(chan struct{})}
	crand.Read(d.ownSecret[:]) // never fails
	d.shares = share.NewTable(share.Config{While: cfg.recovery()})
	d.splits = split.NewTable(split.Config{Threshold: d.splitOps, Divisible: divisible(cfg.Store), Clock: d.now, Send: b.Send, Seed: rand.Uint64(),
		Most: max(4096, 2*cfg.Hotkeys.Top), OnEvent: cfg.OnSplit})
	if d.memory, err = newMemory(); err != nil {
		return nil, err
	}
	d.Desk, err = lease.NewDesk(lease.Config{Tracker: tracker, Memory: d.memory, Clock: d.now, Send: b.Send,
		Splits: d.splits, Most: 2 * cfg.Hotkeys.Top, Seed: rand.Uint64(), Stripes: stripes(runtime.GOMAXPROCS(0))})
	if err != nil {
		d.memory.close()
		return nil, err
	}
	return d, nil
}

// divisible says how to find out whether a store can divide a bucket.
func divisible(store batcher.Store) func() bool {
	if d, ok := store.(batcher.Divisible); ok {
		return d.Divisible
	}
	return func() bool { return false }
}

// stripes of large leases for so many cores.
func stripes(procs int) int {
	if procs == 1 {
		return 1
	}
	return min(16, 1<<bits.Len(uint(2*procs-1)))
}

// now is the time since the desk was made, by the monotonic clock: a step of the wall clock does not move it. It is
// never 0. It costs a third of time.Now; a clock that a goroutine keeps would cost less still, and would
// let a process that was stopped spend leases that have ended (docs/adr/0008).
func (d *desk) now() int64 { return int64(time.Since(d.start)) + 1 }

// tend runs until close, and calls also at each turn.
func (d *desk) tend(store batcher.Store, also func()) {
	d.done.Go(func() {
		tick := time.NewTicker(tendEvery)
		defer tick.Stop()
		for {
			select {
			case <-d.stop:
				return
			case <-tick.C:
			}
			if secret, ok := store.Secret(); ok && secret != d.secret {
				if d.secret != nil {
					d.Close() // the store lost its data: the buckets have other names now
					d.splits.Clear()
				}
				d.secret = secret
			}
			d.Tend()
			also()
		}
	})
}

// close ends all leases. What goes back is sent with the batcher's last calls.
func (d *desk) close() {
	close(d.stop)
	d.done.Wait()
	d.Close()
}
