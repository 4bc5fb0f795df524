package sim

import (
	"fmt"
	"time"

	"github.com/spillgate/spillgate/batcher"
	"github.com/spillgate/spillgate/limit"
)

// errRefused is a reply that proves that an entry was not run, such as MOVED.
var errRefused = fmt.Errorf("%w: refused", batcher.ErrNotRun)

// call is one call on its way. Its entries are copies: a request may reach the store long after its
// sender has given it up.
type call struct {
	queue   *queue
	load    *batcher.Load
	entries []batcher.Entry
	done    func()
	over    bool // the sender has its outcome

	generation int // of the sender
}

// call sends a load and calls done when it is known or given up. [4]
func (q *queue) call(load *batcher.Load, done func()) {
	w := q.agent.world
	w.counts.Calls++
	q.agent.tally.calls++
	c := &call{queue: q, load: load, done: done, generation: q.agent.generation, entries: make([]batcher.Entry, len(load.Entries))}
	for i, e := range load.Entries {
		c.entries[i] = *e
		w.note(q.agent, w.bySum[e.Bucket.Sum()], "send "+opNames[e.Op], int64(e.N), int64(e.Ask.Settled))
	}
	if q.cut() {
		q.agent.after(w.upTo(w.plan.Timeout), func() { c.end(batcher.ErrNotRun) })
		return
	}
	timeout := int64(w.plan.Timeout)
	if w.plan.Calm && timeout < 10*w.oneWay() {
		panic("sim: a calm run needs patience")
	}
	q.agent.after(timeout, func() { c.end(batcher.ErrUnknown) })
	delay := w.oneWay()
	if w.chance(w.plan.LoseRequest) {
		if !w.chance(w.plan.ArriveLate) {
			return
		}
		delay += w.upTo(25 * time.Second)
	}
	w.after(delay, c.arrive)
}

var opNames = [...]string{"", "take", "takes", "charge", "refund", "reset", "lease", "touch", "close", "merge"}

// cut reports whether a partition lies between.
func (q *queue) cut() bool {
	w := q.agent.world
	return w.now < w.cuts[q.agent.id][q.master.id]
}

// oneWay is the time that a message takes.
func (w *World) oneWay() int64 {
	d := int64(w.plan.Delay) + w.upTo(w.plan.Delay)
	if w.chance(w.plan.Tail) {
		d += w.upTo(w.plan.LongDelay)
	}
	return d
}

// arrive is a request at its store.
func (c *call) arrive() {
	q := c.queue
	w := q.agent.world
	if q.cut() && !w.chance(w.plan.ArriveLate) {
		return
	}
	for i := range c.entries {
		e := &c.entries[i]
		b := w.bySum[e.Bucket.Sum()]
		if w.chance(w.plan.Refuse) {
			e.Err = errRefused
			continue
		}
		if e.Op == limit.Touch {
			e.Part = w.division(e.Part)
		}
		q.master.apply(e)
		if w.breach != nil {
			return
		}
		c.record(b, e)
	}
	if w.chance(w.plan.LoseReply) || q.cut() {
		return
	}
	w.after(w.oneWay(), func() {
		if q.cut() || q.agent.generation != c.generation {
			return
		}
		q.agent.deliver(c.reply)
	})
}

// division fills in what suits the store, as a store does.
func (w *World) division(p *limit.Part) *limit.Part {
	mine := *p
	mine.Stride = 1
	if mine.Ways = w.plan.Ways; p.Ways > 0 {
		mine.Ways = min(mine.Ways, p.Ways)
	}
	return &mine
}

// record enters in the ledger what an entry took from its cell.
func (c *call) record(b *bucket, e *batcher.Entry) {
	a := c.queue.agent
	if b.world.plan.Divided {
		b.count(e)
	}
	if e.Err != nil {
		b.world.note(a, b, "refused "+opNames[e.Op], int64(e.Part.At()), 0)
		return
	}
	b.touched(e.Op, e.Terms)
	if e.Terms.Algorithm != limit.TokenBucket {
		b.window(e, (c.queue.master.clock()+e.Out.Lag)/1000)
	}
	switch e.Op {
	case limit.Take, limit.TakePartial:
		b.debit(a, e.Terms, e.Out.Granted, "take")
		b.taken += e.Out.Granted
	case limit.Lease:
		b.debit(a, e.Terms, e.Out.Taken, "take")
		b.taken += e.Out.Taken + e.Out.Granted
		b.leased(e.Out.Granted)
	case limit.Charge:
		b.taken += e.N // admitted ahead
	case limit.Refund:
		b.refunded(a, e.Terms, e.N)
	}
	b.world.note(a, b, "run "+opNames[e.Op], int64(e.Out.Granted), int64(e.Out.Level))
}

// reply is the store's answer at the agent.
func (c *call) reply() {
	if c.over {
		return
	}
	for i := range c.entries {
		to, from := c.load.Entries[i], &c.entries[i]
		to.Out, to.Err, to.Split = from.Out, from.Err, from.Split
	}
	c.finish()
}

// end is a call without an answer.
func (c *call) end(err error) {
	if c.over {
		return
	}
	w := c.queue.agent.world
	if err == batcher.ErrUnknown {
		w.counts.Unknown++
	} else {
		w.counts.NotRun++
	}
	for _, e := range c.load.Entries {
		e.Err = err
		w.note(c.queue.agent, w.bySum[e.Bucket.Sum()], err.Error()[9:17], int64(e.N), 0)
	}
	c.finish()
}

func (c *call) finish() {
	c.over = true
	c.done()
}
