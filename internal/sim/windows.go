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
		p.Several = pick(r, 0, 0.3, 0.6)
	}
	for range 1 + r.IntN(4) {
		b := p.bucket(r)
		b.Mode, b.NoSplit, b.Scheme, b.Hoarders, b.Allowance = limit.Exact, true, false, 0, 0
		b.Rate = windowRate(r, pick(r, limit.FixedWindow, limit.SlidingWindow, limit.SlidingLog))
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

// windowed is the ledger of a bucket that counts in windows: what a store gave of it and did not take back, by the
// epoch that the store named. A reset, and every operation under another rule than the newest, empties it.
type windowed map[int64]limit.Tokens

// window enters an entry that a store ran at a time, and looks whether the window in which it counted has more than it may.
func (b *bucket) window(e *batcher.Entry, micros int64) {
	t, epoch := e.Terms, e.Out.Epoch
	if *t != *b.terms || e.Op == limit.Reset {
		clear(b.windows)
		return
	}
	b.world.counts.Windows++
	length := t.Class.Window.Microseconds()
	if e.Op == limit.Refund {
		if b.windows[e.Ask.Epoch] -= e.Out.Granted; e.Out.Granted < e.N {
			b.world.counts.Dropped++
		}
		return
	}
	if e.Out.Granted == 0 {
		return
	}
	b.windows[epoch] += e.Out.Granted
	used, earliest := b.windows[epoch], micros/length
	if t.Algorithm == limit.SlidingLog {
		earliest, used = micros, 0
		for at, n := range b.windows {
			if at <= epoch && at > epoch-length {
				used += n
			}
		}
	}
	switch {
	case epoch < earliest:
		b.world.fail("G1", b, "%d tokens count in %d, which is over at %d", e.Out.Granted, epoch, micros)
	case used > t.Burst:
		b.world.fail("G1", b, "%d of %d per %v, a %v, in window %d", used, t.Burst, t.Class.Window, t.Algorithm, epoch)
	case t.Algorithm == limit.SlidingWindow && e.Out.Lag == 0:
		// What the window before had counts by the part of it that a window which slides still covers.
		left := min(length, (epoch+1)*length-micros)
		if int64(used)*length+int64(b.windows[epoch-1])*left > int64(t.Burst)*length {
			b.world.fail("G1", b, "%d of %d per %v, and %d before, with %d us left", used, t.Burst, t.Class.Window, b.windows[epoch-1], left)
		}
	}
}
