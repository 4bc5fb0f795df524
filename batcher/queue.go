package batcher

import (
	"context"
	"sync"
	"time"

	"github.com/spillgate/spillgate/limit"
)

// queue runs the calls of one shard: a Line with a lock, a timer and goroutines.
//
// Invariant, under mu: while somebody waits for an entry in line, or lazy ones are due, at least one
// goroutine runs calls; while only lazy ones are in line, the timer is set.
type queue struct {
	batcher *Batcher
	shard   int

	mu      sync.Mutex
	line    Line
	running int
	closed  bool
	timer   *time.Timer
	armed   bool // the timer will call due
	due     bool // lazy entries have waited long enough

	breaker breaker
	alarm   *time.Timer // of the breaker: the next probe, or the end of the recovery
	alarmAt time.Time
	probing bool
}

func newQueue(b *Batcher, shard int, closed bool) *queue {
	return &queue{batcher: b, shard: shard, closed: closed}
}

// passes reports whether a claim may exceed the bounds. Refunds do: there are never more of them than
// grants, and refusing one would charge a denial. So do leases and what concerns a division: they are what
// makes the queue shorter.
func (c *Claim) passes() bool { return c.Op == limit.Refund || c.uncounted() }

// uncounted reports whether a claim is not counted among those that wait: nobody waits for a lease or for what concerns a
// division, and there are few for each hot bucket.
func (c *Claim) uncounted() bool { return c.Op >= limit.Lease }

// add queues a claim and starts a call if that is due. The error is as of addLocked.
func (q *queue) add(c *Claim) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	err := q.addLocked(c)
	q.startLocked()
	return err
}

// addAll is add for those of claims that are the queue's. They leave together, as far as a call has room: no call
// starts in between. It tells failed of each that has an error.
func (q *queue) addAll(claims []*Claim, failed func(*Claim, error)) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, c := range claims {
		if c.queue != q {
			continue
		}
		c.submitted = true
		if err := q.addLocked(c); err != nil {
			failed(c, err)
		}
	}
	q.startLocked()
}

// addLocked queues a claim. The error is ErrClosed, but for what replies bring about while the queue drains, ErrDown while the
// shard does not answer, or ErrOverloaded.
func (q *queue) addLocked(c *Claim) error {
	b := q.batcher
	switch {
	case q.closed && !(q.running > 0 && c.passes()):
		return ErrClosed
	case q.breaker.open:
		if !c.uncounted() {
			b.stats.refused.Add(1)
		}
		return ErrDown
	case q.fullLocked() && !c.passes():
		b.stats.overloaded.Add(1)
		return ErrOverloaded
	}
	if !c.uncounted() && b.waiting.Add(1) > int64(b.cfg.MaxPending) && !c.passes() {
		b.waiting.Add(-1)
		b.stats.overloaded.Add(1)
		return ErrOverloaded
	}
	q.line.Add(c)
	return nil
}

// fullLocked reports whether the line has reached its own bound: claims that were given up wait for nothing, but their empty
// entries stay in line until the next call. Leases do not count.
func (q *queue) fullLocked() bool { return q.line.Len()-q.line.leases >= q.batcher.cfg.MaxPending }

// startLocked starts a goroutine for what is in line, if it should leave now, or sees to it that it will.
func (q *queue) startLocked() {
	cfg := &q.batcher.cfg
	full := q.line.Len() >= cfg.MaxEntries
	switch {
	case q.running == 0 && (q.line.Urgent() || full || q.readyLocked()), full && q.running < cfg.MaxInFlight:
		q.running++
		q.batcher.calls.Add(1)
		go q.run()
	case q.line.Len() > 0 && !q.line.Urgent() && !q.readyLocked() && !q.armed: // also while calls run: they may be slow
		q.armLocked()
	}
}

// readyLocked reports whether lazy entries should leave.
func (q *queue) readyLocked() bool { return q.line.Len() > 0 && (q.due || q.closed) }

func (q *queue) armLocked() {
	q.armed = true
	if q.timer == nil {
		q.timer = time.AfterFunc(q.batcher.cfg.Linger, q.ring)
		return
	}
	q.timer.Reset(q.batcher.cfg.Linger)
}

// ring is called when the oldest lazy entry has waited for Linger.
func (q *queue) ring() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.armed = false; q.line.Len() > 0 {
		q.due = true
		q.startLocked()
	}
}

// run makes calls until nothing is left to send.
func (q *queue) run() {
	defer q.batcher.calls.Done()
	var load Load
	var done []*Claim
	for {
		down := q.next(&load)
		if len(load.Entries) == 0 {
			return
		}
		if down {
			done = q.refuse(&load, done[:0])
		} else {
			done = q.call(&load, done[:0])
		}
	}
}

// next takes the oldest entries, up to a full call. With none left, or only lazy ones that are not due, it
// ends the goroutine's turn; with less than a full call, if another goroutine is there to take them. down says that
// they must not be sent.
func (q *queue) next(load *Load) (down bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	most := q.batcher.cfg.MaxEntries
	if full := q.line.Len() >= most; full || q.running == 1 && (q.line.Urgent() || q.readyLocked()) {
		q.line.Next(most, load)
		q.due = q.due && q.line.Len() > 0
	}
	if len(load.Entries) == 0 {
		q.running--
		q.startLocked()
	}
	return q.breaker.open
}

// call sends one load and hands out the outcomes.
func (q *queue) call(load *Load, done []*Claim) []*Claim {
	b := q.batcher
	start := time.Now()
	b.apply(q.shard, load.Entries)
	info := CallInfo{Shard: q.shard, Took: time.Since(start)}
	load.tally(&info)
	done = q.settle(load, true, done)
	since := time.Since(start) // read afterwards, so that a stop of the process in between shows
	for _, c := range done {
		c.Unride(since)
	}
	info.Claims = len(done)
	b.stats.record(info)
	if b.cfg.OnCall != nil {
		b.cfg.OnCall(info)
	}
	return hand(done)
}

// apply is one call to the store.
func (b *Batcher) apply(shard int, entries []*Entry) {
	ctx, cancel := context.WithTimeout(b.life, b.cfg.Timeout)
	defer cancel()
	b.cfg.Store.Apply(ctx, shard, entries)
}

// refuse answers a load that was in line when the shard was found down.
func (q *queue) refuse(load *Load, done []*Claim) []*Claim {
	for _, e := range load.Entries {
		e.Err = ErrDown
	}
	done = q.settle(load, false, done)
	q.batcher.stats.refused.Add(uint64(len(done)))
	return hand(done)
}

// hand tells everybody of the outcome of a claim.
func hand(done []*Claim) []*Claim {
	// First those who order ahead: a caller who is told to wait must find what it was told.
	for _, c := range done {
		if c.Done != nil {
			c.Done(c)
		}
	}
	for _, c := range done {
		if c.group != nil {
			c.group.finish(1)
		}
	}
	clear(done)
	return done
}

// settle shares out the grants of a call, and appends the claims that have their outcome. called says that the store
// was asked.
func (q *queue) settle(load *Load, called bool, done []*Claim) []*Claim {
	q.mu.Lock()
	defer q.mu.Unlock()
	if called {
		q.heardLocked(load, load.replied())
	}
	refunded, refunds := q.line.Settle(load, func(c *Claim) {
		if !c.uncounted() {
			q.batcher.waiting.Add(-1) // before the caller can come back
		}
		done = append(done, c)
	})
	q.batcher.stats.refunded.Add(uint64(refunded))
	q.batcher.waiting.Add(int64(refunds))
	return done
}

// close refuses new claims. What is queued still goes out, and so do refunds of the queue's own.
func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	if q.armed && q.timer.Stop() {
		q.armed = false
	}
	if q.alarm != nil {
		q.alarm.Stop()
	}
	q.startLocked()
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
	if q.line.GiveUp(c) {
		q.batcher.waiting.Add(-1)
	}
	return true
}
