package sim

import (
	"time"

	"github.com/spillgate/spillgate/batcher"
	"github.com/spillgate/spillgate/limit"
)

// logged is an entry that a master ran, as it came.
type logged struct {
	at    int64 // of the run
	clock int64 // of the master
	entry batcher.Entry
}

// aftermath is how long a failover is felt. Home may not know that its bucket is divided until the split has ended, by any clock,
// and what it leased in that time has ended a lease later.
const aftermath = limit.SplitTTL + limit.SplitMargin + limit.MaxSkew + limit.LeaseTTL + 500*time.Millisecond

// failover puts in the master's place one that knows what it knew some time ago, or nothing, by another clock.
func (m *master) failover() {
	w := m.world
	lag := w.upTo(pick(w.rng, 10*time.Millisecond, time.Second, 5*time.Second, time.Hour))
	w.counts.Divided.Failovers++
	w.note(nil, nil, "failover", lag, int64(m.id))
	by := w.upTo(100 * time.Millisecond)
	m.move(by - int64(50*time.Millisecond))
	all := m.log
	m.log = nil
	m.clear()
	for _, l := range all {
		if l.at > w.now-lag {
			break
		}
		m.log = append(m.log, l)
		e := l.entry
		m.run(l.clock, &e)
	}
	for _, b := range w.buckets {
		b.failedOver()
	}
}

// move moves the clock, and keeps it near those of the others.
func (m *master) move(by int64) {
	around := m.world.around
	m.offset = min(max(m.offset+by, around-maxOffset), around+maxOffset)
}

// failedOver allows for a failover: the cell is full once more; as much is on lease, and in no record; and home, which
// knows of no split, may refill beside the parts. Once that is over, nothing may be left of it.
func (b *bucket) failedOver() {
	w := b.world
	t := b.terms
	b.gift += 2*t.Burst + limit.Tokens(t.Class.Ticks(int64(aftermath))/t.Emission+1)
	b.aftermath = w.now + int64(aftermath)
	w.after(int64(aftermath), func() {
		if w.now >= b.aftermath {
			b.gift = 0
			b.restart(b.terms)
		}
	})
}
