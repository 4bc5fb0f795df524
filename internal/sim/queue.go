package sim

import (
	"time"

	"github.com/spillgate/spillgate/batcher"
	"github.com/spillgate/spillgate/limit"
)

// queue is what batcher/queue.go is, without its lock, timer and goroutines: a batcher.Line, and when its calls
// leave. Each method has its twin there.
type queue struct {
	agent   *agent
	master  *master
	line    batcher.Line
	running int
	closed  bool
	armed   bool // ring is due
	due     bool // lazy entries have waited long enough
}

const (
	linger = int64(25 * time.Millisecond)
)

// rideable is how old a lease may be when a claim takes tokens of it.
func rideable(term int64) int64 {
	lasts := int64(limit.LeaseTTL)
	if term > 0 {
		lasts = min(lasts, term)
	}
	return lasts - lasts/64
}

func passes(c *batcher.Claim) bool { return c.Op == limit.Refund || c.Op >= limit.Lease }

// add takes a claim in. [3]
func (q *queue) add(c *batcher.Claim) error {
	p := &q.agent.world.plan
	switch {
	case q.closed && !(q.running > 0 && passes(c)):
		return batcher.ErrClosed
	case q.line.Len() >= p.MaxPending && !passes(c):
		return batcher.ErrOverloaded
	}
	q.line.Add(c)
	q.start()
	return nil
}

func (q *queue) start() {
	p := &q.agent.world.plan
	full := q.line.Len() >= p.MaxEntries
	switch {
	case q.running == 0 && (q.line.Urgent() || full || q.ready()), full && q.running < p.MaxInFlight:
		q.running++
		q.agent.after(q.agent.world.rng.Int64N(20_000), func() { q.run(new(batcher.Load)) })
	case q.line.Len() > 0 && !q.line.Urgent() && !q.ready() && !q.armed:
		q.armed = true
		q.agent.after(linger, q.ring)
	}
}

func (q *queue) ready() bool { return q.line.Len() > 0 && (q.due || q.closed) }

func (q *queue) ring() {
	if q.armed = false; q.line.Len() > 0 {
		q.due = true
		q.start()
	}
}

// run makes the next call, and is called again when that is done.
func (q *queue) run(load *batcher.Load) {
	p := &q.agent.world.plan
	if full := q.line.Len() >= p.MaxEntries; full || q.running == 1 && (q.line.Urgent() || q.ready()) {
		q.line.Next(p.MaxEntries, load)
		q.due = q.due && q.line.Len() > 0
	}
	if len(load.Entries) == 0 {
		q.running--
		q.start()
		return
	}
	start := q.agent.clock()
	q.call(load, func() {
		q.settle(load, start)
		q.run(load)
	})
}

// settle shares out the outcomes of a call and tells those who asked, first those who order ahead. [6]
func (q *queue) settle(load *batcher.Load, start int64) {
	books := q.balance(load)
	var done []*batcher.Claim
	refunded, _ := q.line.Settle(load, func(c *batcher.Claim) { done = append(done, c) })
	q.agent.world.counts.Refunded += int(refunded)
	since := q.agent.clock() - start
	if q.agent.world.wires.RideOld {
		since = 0
	}
	for _, c := range done {
		books.claim(c, since)
	}
	books.close(q.agent)
	for _, c := range done {
		c.Unride(time.Duration(since))
	}
	for _, ahead := range [...]bool{true, false} {
		for _, c := range done {
			if c.Done != nil && ahead == (c.Op >= limit.Lease || c.Op == limit.Charge) {
				c.Done(c)
			}
		}
	}
}

func (q *queue) close() {
	q.closed = true
	q.start()
}

// books are the tokens of one load, by bucket and rule: what left the cells for claims, and what claims got.
type books []account

type account struct {
	bucket *bucket
	terms  *limit.Terms
	taken  limit.Tokens // of the cell, for claims
	rode   limit.Tokens // of the lease, for claims
	live   limit.Tokens // of these, while it lasted
	served limit.Tokens // to claims
}

func (b *books) of(w *World, name *limit.Bucket, t *limit.Terms) *account {
	bucket := w.bySum[name.Sum()]
	for i := range *b {
		if (*b)[i].bucket == bucket && *(*b)[i].terms == *t {
			return &(*b)[i]
		}
	}
	*b = append(*b, account{bucket: bucket, terms: t})
	return &(*b)[len(*b)-1]
}

// balance opens the books with what the store gave.
func (q *queue) balance(load *batcher.Load) *ledgers {
	l := &ledgers{world: q.agent.world}
	for _, e := range load.Entries {
		switch {
		case e.Err != nil:
		case e.Op == limit.Take || e.Op == limit.TakePartial:
			l.of(l.world, &e.Bucket, e.Terms).taken += e.Out.Granted
		case e.Op == limit.Lease:
			l.of(l.world, &e.Bucket, e.Terms).taken += e.Out.Taken
		}
	}
	return l
}

type ledgers struct {
	world *World
	books
}

// claim enters what a claim got, so long after its call began.
func (l *ledgers) claim(c *batcher.Claim, since int64) {
	switch {
	case c.Err != nil:
	case l.world.bySum[c.Bucket.Sum()] == nil: // stands in for a claim that was given up, and names no bucket
	case c.Op == limit.Lease:
		acc := l.of(l.world, &c.Bucket, c.Terms)
		if acc.rode += c.Rode; since < rideable(c.Out.Term) {
			acc.live += c.Rode
			acc.bucket.spends(c.Terms, c.Out.Epoch, c.Rode)
		}
		l.world.counts.Rode += int(c.Rode)
	case c.Op == limit.Take || c.Op == limit.TakePartial:
		l.of(l.world, &c.Bucket, c.Terms).served += c.Out.Granted
	}
}

// close takes what rode from the reference, now that it has left the lease, unless that has ended; and notes
// what nobody got.
func (l *ledgers) close(a *agent) {
	for i := range l.books {
		acc := &l.books[i]
		b := acc.bucket
		b.debit(a, acc.terms, acc.live, "ride")
		b.late += acc.rode - acc.live
		unused := acc.taken + acc.rode - acc.served
		if unused < 0 {
			l.world.fail("G1", b, "the store gave %d and the line shared out %d", acc.taken+acc.rode, acc.served)
			return
		}
		b.unused(a, unused)
		b.back += unused
	}
}
