package batcher

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/spillgate/spillgate/limit"
)

// queue holds the pending entries of one shard and runs its calls.
//
// Invariants, under mu:
//   - every claim that is queued or in flight is in exactly one pending's list;
//   - byBucket has the newest pending of each bucket in line, and line has them all,
//     in order of arrival;
//   - while line is not empty, at least one goroutine runs calls.
type queue struct {
	batcher *Batcher
	shard   int

	mu       sync.Mutex
	byBucket map[limit.Sum]*pending
	line     []*pending
	running  int
	closed   bool
	free     []*pending
}

// maxFree bounds the pendings kept for reuse, per shard.
const maxFree = 1024

// add queues a claim and starts a call if that is due. The error is ErrClosed or
// ErrOverloaded: claims that were given up wait for nothing, but their empty
// entries stay in line until the next call, so the line has a bound of its own.
func (q *queue) add(c *Claim) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.closed:
		return ErrClosed
	case len(q.line) >= q.batcher.cfg.MaxPending && c.Op != limit.Refund:
		return ErrOverloaded
	}
	q.addLocked(c)
	return nil
}

func (q *queue) addLocked(c *Claim) {
	sum := c.Bucket.Sum()
	p := q.byBucket[sum]
	if p == nil || !p.accepts(c) {
		round := 0
		if p != nil {
			round = p.entry.Round + 1
		}
		p = q.emptyLocked()
		p.entry = Entry{Bucket: c.Bucket, Terms: c.Terms, Op: c.Op, Round: round}
		q.byBucket[sum] = p
		q.line = append(q.line, p)
	}
	p.push(c)
	if q.running == 0 || (len(q.line) >= q.batcher.cfg.MaxEntries && q.running < q.batcher.cfg.MaxInFlight) {
		q.running++
		q.batcher.calls.Add(1)
		go q.run()
	}
}

// emptyLocked returns an empty pending.
func (q *queue) emptyLocked() *pending {
	if n := len(q.free); n > 0 {
		p := q.free[n-1]
		q.free = q.free[:n-1]
		return p
	}
	return new(pending)
}

// run makes calls until nothing is left to send.
func (q *queue) run() {
	defer q.batcher.calls.Done()
	var batch []*pending
	var entries []*Entry
	for {
		batch, entries = q.next(batch[:0], entries[:0])
		if len(entries) == 0 {
			return
		}
		q.call(batch, entries)
	}
}

// next takes the oldest pendings, up to a full call. With none left it ends the
// goroutine's turn; with less than a full call, if another goroutine is there to take them.
func (q *queue) next(batch []*pending, entries []*Entry) ([]*pending, []*Entry) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.running > 1 && len(q.line) < q.batcher.cfg.MaxEntries {
		q.running--
		return batch, entries
	}
	n := 0
	for ; n < len(q.line) && len(entries) < q.batcher.cfg.MaxEntries; n++ {
		p := q.line[n]
		if p.first == nil { // all its claims were given up
			q.unlistLocked(p)
			q.recycleLocked(p)
			continue
		}
		p.seal()
		batch = append(batch, p)
		entries = append(entries, &p.entry)
	}
	rest := copy(q.line, q.line[n:])
	clear(q.line[rest:])
	q.line = q.line[:rest]
	for _, p := range batch {
		q.unlistLocked(p)
	}
	if len(entries) == 0 {
		q.running--
	}
	return batch, entries
}

// unlistLocked closes a pending to further claims.
func (q *queue) unlistLocked(p *pending) {
	if sum := p.entry.Bucket.Sum(); q.byBucket[sum] == p {
		delete(q.byBucket, sum)
	}
}

// recycleLocked keeps a pending that is out of line for reuse.
func (q *queue) recycleLocked(p *pending) {
	*p = pending{}
	if len(q.free) < maxFree {
		q.free = append(q.free, p)
	}
}

// call sends one batch and hands out the outcomes.
func (q *queue) call(batch []*pending, entries []*Entry) {
	b := q.batcher
	ctx, cancel := context.WithTimeout(b.life, b.cfg.Timeout)
	start := time.Now()
	b.cfg.Store.Apply(ctx, q.shard, entries)
	cancel()
	info := CallInfo{Shard: q.shard, Entries: len(entries), Took: time.Since(start)}
	for _, e := range entries {
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
	info.Claims = q.settle(batch)
	b.stats.record(info)
	if b.cfg.OnCall != nil {
		b.cfg.OnCall(info)
	}
}

// settle shares out the grants of a call, wakes the callers and queues refunds.
func (q *queue) settle(batch []*pending) (claims int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, p := range batch {
		if unused := p.share(); unused > 0 {
			q.refundLocked(p, unused)
		}
		for c := p.first; c != nil; {
			next := c.next
			c.in, c.prev, c.next, c.done = nil, nil, nil, true
			claims++
			q.batcher.waiting.Add(-1) // before the caller can come back
			if c.group != nil {
				c.group.finish(1)
			}
			c = next
		}
		q.recycleLocked(p)
	}
	return claims
}

// refundLocked gives back tokens that nobody used. Nobody waits for it. It is queued even while
// the batcher closes: Close drains it.
func (q *queue) refundLocked(p *pending, n limit.Tokens) {
	q.batcher.stats.refunded.Add(uint64(n))
	q.batcher.waiting.Add(1)
	q.addLocked(&Claim{Bucket: p.entry.Bucket, Terms: p.entry.Terms, Op: limit.Refund, N: n, queue: q})
}

// close refuses new claims. What is queued still goes out, and so do refunds of the queue's own.
func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
}

// giveUp takes a claim back from the queue. It is false when the claim has
// its outcome already.
func (q *queue) giveUp(c *Claim) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if c.done {
		return false
	}
	q.batcher.stats.givenUp.Add(1)
	if c.sent {
		// The call goes on without its caller: a stand-in takes, or leaves, its tokens.
		c.in.replace(c, &Claim{Op: c.Op, N: c.N, sent: true, orphan: !c.Keep})
	} else {
		c.in.remove(c)
		q.batcher.waiting.Add(-1)
	}
	c.Err, c.done = ErrDeadline, true
	return true
}
