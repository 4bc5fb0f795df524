package batcher

import (
	"errors"
	"time"

	"github.com/spillgate/spillgate/limit"
)

// Line is the queue of one shard without its lock, clock and goroutines: which claims share
// an entry, which entries the next call takes, who gets what of its outcomes. It is the pure core of a
// Batcher, exported for simulators; not for concurrent use.
//
// Invariants:
//   - every claim that is queued or in flight is in exactly one pending's list, or is its lease;
//   - byBucket has the newest pending of each bucket that may still take claims: those in line,
//     and leases in flight.
type Line struct {
	byBucket map[limit.Sum]*pending // by Bucket.PartSum
	waiting  []*pending             // in order of arrival
	urgent   int                    // of waiting, those for which somebody waits
	leases   int                    // of waiting, those that ask for a lease
	free     []*pending
	loads    uint64 // that Next filled
}

// Load is what one call carries: Next fills it, Settle empties it. The zero value is empty.
type Load struct {
	// Entries to be given to Store.Apply.
	Entries  []*Entry
	pendings []*pending
	number   uint64
}

// maxFree bounds the pendings kept for reuse, per shard.
const maxFree = 1024

// Len is the number of entries in line.
func (l *Line) Len() int { return len(l.waiting) }

// Urgent reports whether somebody waits for an entry in line.
func (l *Line) Urgent() bool { return l.urgent > 0 }

// Add puts a claim in line.
func (l *Line) Add(c *Claim) {
	sum := c.Bucket.PartSum(c.Part)
	p := l.byBucket[sum]
	if p == nil || !p.accepts(c) {
		round := 0
		if p != nil && !p.sent {
			round = p.entry.Round + 1
		}
		p = l.empty()
		p.entry = Entry{Bucket: c.Bucket, Terms: c.Terms, Op: c.Op, Ask: limit.Ask{Epoch: c.Ask.Epoch}, Part: c.Part, Round: round}
		if l.byBucket == nil {
			l.byBucket = make(map[limit.Sum]*pending)
		}
		l.byBucket[sum] = p
		l.waiting = append(l.waiting, p)
	}
	if c.Part.At() > 0 && c.Part.Split.Until > p.entry.Part.Split.Until && !p.sent {
		p.entry.Part = c.Part // the later news
	}
	if c.Op == limit.Lease {
		p.lease, c.in = c, p
		l.leases++
	} else {
		p.push(c)
	}
	if !c.Lazy && !p.urgent && !p.sent {
		p.urgent = true
		l.urgent++
	}
}

// empty returns an empty pending.
func (l *Line) empty() *pending {
	if n := len(l.free); n > 0 {
		p := l.free[n-1]
		l.free = l.free[:n-1]
		return p
	}
	return new(pending)
}

// Next fills the load with the oldest entries, up to most.
func (l *Line) Next(most int, load *Load) {
	l.loads++
	load.number = l.loads
	n := 0
	for ; n < len(l.waiting) && len(load.Entries) < most; n++ {
		p := l.waiting[n]
		if p.urgent {
			l.urgent--
		}
		if p.first == nil && p.lease == nil { // all its claims were given up
			l.unlist(p)
			l.recycle(p)
			continue
		}
		p.seal()
		if p.lease != nil {
			l.leases--
		} else {
			l.unlist(p)
		}
		load.pendings = append(load.pendings, p)
		load.Entries = append(load.Entries, &p.entry)
	}
	rest := copy(l.waiting, l.waiting[n:])
	clear(l.waiting[rest:])
	l.waiting = l.waiting[:rest]
}

// unlist closes a pending to further claims.
func (l *Line) unlist(p *pending) {
	if sum := p.entry.Bucket.PartSum(p.entry.Part); l.byBucket[sum] == p {
		delete(l.byBucket, sum)
	}
}

// recycle keeps a pending that nothing refers to for reuse.
func (l *Line) recycle(p *pending) {
	*p = pending{}
	if len(l.free) < maxFree {
		l.free = append(l.free, p)
	}
}

// Settle shares out the outcomes of a load, passes every claim that has its own to done, and empties the
// load. It queues refunds of tokens that nobody used, and says how many; nobody waits for them.
func (l *Line) Settle(load *Load, done func(*Claim)) (refunded limit.Tokens, refunds int) {
	for _, p := range load.pendings {
		unused := limit.Tokens(0)
		if p.lease != nil {
			l.unlist(p)
			unused = p.shareLease(func(c *Claim) { l.Add(c) })
		} else {
			unused = p.share()
		}
		if unused > 0 {
			refunded += unused
			refunds++
			l.Add(&Claim{Bucket: p.entry.Bucket, Terms: p.entry.Terms, Op: limit.Refund, N: unused, Part: p.entry.Part,
				Ask: limit.Ask{Epoch: p.entry.Out.Epoch}})
		}
		for c := p.first; c != nil; {
			next := c.next
			c.in, c.prev, c.next, c.done, c.Call = nil, nil, nil, true, load.number
			done(c)
			c = next
		}
		if c := p.lease; c != nil {
			c.in, c.done, c.Call = nil, true, load.number
			done(c)
		}
		l.recycle(p)
	}
	clear(load.pendings)
	clear(load.Entries)
	load.pendings, load.Entries = load.pendings[:0], load.Entries[:0]
	return refunded, refunds
}

// GiveUp takes a claim out of its entry. unsent reports whether it had not left yet and never will; else a
// stand-in takes, or leaves, its tokens. It is not for claims that have their outcome.
func (l *Line) GiveUp(c *Claim) (unsent bool) {
	p := c.in
	unsent = !p.sent
	if p.sent {
		p.replace(c, &Claim{Op: c.Op, N: c.N, sent: true, orphan: !c.Keep})
	} else {
		p.remove(c)
	}
	c.Err, c.done = ErrDeadline, true
	return unsent
}

// Unride takes from a claim that has its outcome what it got of a lease that has ended by now, so long after its call
// began. It counts as spent.
func (c *Claim) Unride(since time.Duration) {
	if c.rode > 0 && since >= c.lasts {
		c.Err = ErrUnknown
	}
}

// tally counts the failed entries of a load by kind.
func (load *Load) tally(info *CallInfo) {
	info.Entries = len(load.Entries)
	for _, e := range load.Entries {
		switch {
		case e.Err == nil:
		case errors.Is(e.Err, ErrUnknown):
			info.Unknown++
		case errors.Is(e.Err, ErrDamaged):
			info.Damaged++
		default:
			info.NotRun++
		}
	}
}
