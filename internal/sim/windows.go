package sim

import (
	"math/rand/v2"
	"time"

	"github.com/spillgate/spillgate/batcher"
	"github.com/spillgate/spillgate/limit"
)

// DrawWindows draws the plan of a seed whose buckets count in windows.
func DrawWindows(seed uint64) Plan {
	r := rand.New(rand.NewPCG(seed, 0x3149d0))
	p := drawFleet(seed, r)
	if r.IntN(8) == 0 {
		p.calm(r)
	} else {
		p.faults(r)
		p.StepUp = false // what is out on lease would outlive its window
		p.Several = pick(r, 0, 0.3, 0.6)
	}
	for range 1 + r.IntN(4) {
		b := p.bucket(r)
		b.NoSplit, b.Scheme, b.Hoarders, b.Allowance = true, false, 0, 0
		b.Rate = windowRate(r, pick(r, limit.FixedWindow, limit.SlidingWindow, limit.SlidingLog))
		if b.Mode = pick(r, limit.Leased, limit.Leased, limit.Exact); b.Rate.Algorithm == limit.SlidingLog {
			b.Mode = limit.Exact
		}
		for i := range b.Load {
			b.Load[i].Cost = min(b.Load[i].Cost, b.Rate.Requests)
		}
		b.scale(min(checksPerRun/2/p.Length.Seconds(), float64(b.Rate.Requests)/b.Rate.Period.Seconds()*pick(r, 0.5, 1, 3, 10)+1))
		p.Buckets = append(p.Buckets, b)
	}
	return p
}

func windowRate(r *rand.Rand, a limit.Algorithm) limit.Rate {
	return limit.Rate{Algorithm: a, Requests: pick[limit.Tokens](r, 1, 2, 5, 10, 20, 100),
		Period: pick(r, 20*time.Millisecond, 100*time.Millisecond, 300*time.Millisecond, time.Second, 5*time.Second)}
}

// windowed is the ledger of a bucket that counts in windows, by the epoch that the store named.
type windowed map[int64]given

// restart makes the bucket full: it was reset, or somebody came with another rule than the newest. What is on lease then may still be spent,
// or come back.
func (w windowed) restart() {
	for epoch, g := range w {
		g.all = 0
		w[epoch] = g
	}
}

// given is what a store gave of a window and did not take back.
type given struct {
	all    limit.Tokens
	leased limit.Tokens // of these, on lease
	spent  limit.Tokens // of those that are or were on lease
}

// window enters an entry that a store ran at a time, and looks whether the window in which it counted has more than it may.
func (b *bucket) window(e *batcher.Entry, micros int64) {
	t, epoch := e.Terms, e.Out.Epoch
	if *t != *b.terms || e.Op == limit.Reset {
		b.windows.restart()
		return
	}
	b.world.counts.Windows++
	length := t.Class.Window.Microseconds()
	g, n := b.windows[epoch], e.Out.Granted
	switch e.Op {
	case limit.Refund:
		of := b.windows[e.Ask.Epoch]
		of.all -= n
		b.windows[e.Ask.Epoch] = of
		if n < e.N {
			b.world.counts.Dropped++
		}
		return
	case limit.Lease:
		if e.Ask.Epoch == epoch {
			g.all -= e.Ask.Returned
			g.leased -= e.Ask.Returned
		}
		g.leased += n
		n += e.Out.Taken
	}
	g.all += n
	b.windows[epoch] = g
	b.overspent(epoch)
	if n == 0 {
		return
	}
	used, earliest := g.all, micros/length
	if t.Algorithm == limit.SlidingLog {
		earliest, used = micros, 0
		for at, g := range b.windows {
			if at <= epoch && at > epoch-length {
				used += g.all
			}
		}
	}
	switch {
	case epoch < earliest:
		b.world.fail("G1", b, "%d tokens count in %d, which is over at %d", n, epoch, micros)
	case used > t.Burst:
		b.world.fail("G1", b, "%d of %d per %v, a %v, in window %d", used, t.Burst, t.Class.Window, t.Algorithm, epoch)
	case t.Algorithm == limit.SlidingWindow && e.Out.Lag == 0:
		// What the window before had counts by the part of it that a window which slides still covers.
		left := min(length, (epoch+1)*length-micros)
		if before := b.windows[epoch-1].all; int64(used)*length+int64(before)*left > int64(t.Burst)*length {
			b.world.fail("G1", b, "%d of %d per %v, and %d before, with %d us left", used, t.Burst, t.Class.Window, before, left)
		}
	}
}

// spends enters tokens that were spent from a lease of a window, or, if n is below 0, that the lease has again. The window may not be
// over by its store's clock.
func (b *bucket) spends(t *limit.Terms, epoch int64, n limit.Tokens) {
	if t.Algorithm == limit.TokenBucket || *t != *b.terms || n == 0 {
		return
	}
	g, known := b.windows[epoch]
	if !known {
		return // the ledger was emptied since
	}
	g.spent += n
	b.windows[epoch] = g
	b.overspent(epoch)
	if ends := (epoch + 1) * int64(t.Class.Window); n > 0 && b.master.clock() >= ends {
		b.world.fail("G1", b, "%d spent from a lease, %v after its window", n, time.Duration(b.master.clock()-ends))
	}
}

// overspent looks whether more was spent from leases of a window than is or was on lease.
func (b *bucket) overspent(epoch int64) {
	if g := b.windows[epoch]; g.spent > g.leased {
		b.world.fail("G1", b, "of window %d, %d were leased and did not come back, and %d spent", epoch, g.leased, g.spent)
	}
}
