package agent

import (
	"context"
	"errors"
	"time"

	"github.com/spillgate/spillgate/agent/split"
	"github.com/spillgate/spillgate/batcher"
	"github.com/spillgate/spillgate/hotkeys"
	"github.com/spillgate/spillgate/limit"
)

// In this file is what a batch does with buckets that are divided: where its claims go, and that they go on to other
// parts before a check is denied.

// watch counts a check of an exact rule for the tracker, and has a hot bucket watched. Those of other rules
// are counted by the desk.
func (b *Batch) watch(it *item, name *limit.Bucket) {
	d := b.agent.desk
	if it.op != limit.Take || it.n == 0 || it.n > it.terms.Burst || d.splitOps <= 0 || it.noSplit() {
		return
	}
	if d.tracker.Touch(b.now, name.Sum(), 1) == hotkeys.Hot {
		d.splits.Watch(b.id, name, it.terms, false)
	}
}

// noSplit reports whether the item's rule forbids to split.
func (it *item) noSplit() bool { return it.rule != nil && it.rule.NoSplit }

// choose names the part of the bucket that an item's claim goes to.
func (b *Batch) choose(it *item) {
	if it.op != limit.Take {
		return
	}
	if it.spread = b.agent.desk.splits.Find(&it.claim.Bucket, it.terms); it.spread != nil {
		it.spread.KeepWhole(it.noSplit())
		if p, ok := it.ruling.Rides(); ok {
			it.claim.Part = p
			return
		}
		it.claim.Part, _ = it.spread.Choose(b.now, it.terms, it.n, it.pace(), split.Asked{})
	}
}

// pace is how long claims of an item's rule begin at the same part. Those of leased rules ride with leases.
func (it *item) pace() split.Pace {
	if it.rule != nil && it.rule.Mode == limit.Exact {
		return split.Moving
	}
	return split.Staying
}

// mergePause is between two looks at a home whose parts are closed: it is whole in a few round trips.
const mergePause = 2 * time.Millisecond

// overflow sends claims on to other parts of their buckets, as long as some part may have what they need and there is
// time. Each part is asked once.
func (b *Batch) overflow(ctx context.Context, start time.Time) {
	for {
		var g *batcher.Group
		pause := true
		for i := range b.items {
			it := &b.items[i]
			if it.claim == nil || it.claim == it.last {
				continue
			}
			it.last = it.claim
			part, again := b.learn(it)
			if it.spread == nil {
				continue
			}
			left := b.agent.deadline(it.rule) - time.Since(start)
			it.unfinished = again
			if again = again && left > 0 && ctx.Err() == nil; !again {
				it.end(b.agent)
				continue
			}
			if it.n > 0 && it.claim.Err == nil {
				it.spread.Overflowed()
			}
			if g == nil {
				g = b.agent.batcher.Group()
				b.more = append(b.more, g)
			}
			pause = pause && it.asked.Home > 1
			it.goOn(g.Claim(), part, left)
		}
		if g == nil {
			return
		}
		if pause { // all of them found the parts closed, and home not whole yet
			select {
			case <-time.After(mergePause):
			case <-ctx.Done():
			}
		}
		g.Submit()
		g.Wait(ctx)
	}
}

// goOn makes c the item's claim, on another part. What it gets too late is refunded, if a part has denied before.
func (it *item) goOn(c *batcher.Claim, part *limit.Part, deadline time.Duration) {
	old := it.claim
	c.Bucket, c.Terms, c.Op, c.N, c.Keep = old.Bucket, old.Terms, old.Op, old.N, old.Keep && !it.heard
	c.Part, c.Deadline = part, deadline
	it.claim = c
}

// learn takes in what the item's claim brought, and says whether another part is to be asked.
func (b *Batch) learn(it *item) (part *limit.Part, again bool) {
	c, d := it.claim, b.agent.desk
	if it.spread == nil {
		if c.Split == nil || c.Split.Ways == 0 {
			return nil, false
		}
		if it.spread = d.splits.Watch(c.Bucket.ID(), &c.Bucket, it.terms, it.noSplit()); it.spread == nil {
			return nil, false
		}
	}
	d.splits.Learn(it.spread, c)
	return it.next(d.now())
}

// end makes of the last claim's outcome that of the whole bucket.
func (it *item) end(a *Agent) {
	c := it.claim
	switch {
	case errors.Is(c.Err, batcher.ErrStale) && it.op == limit.Take:
		c.Err, c.Out, it.between = nil, limit.Outcome{Level: it.terms.Depth}, true
	case c.Err == nil && it.op == limit.Reset && it.unfinished:
		c.Err = batcher.ErrDeadline
	case c.Err == nil:
		c.Out.Level = it.spread.Level(a.desk.now(), c.Part, c.Out.Level, true)
	case it.heard && it.op == limit.Take:
		// The parts that answered have too little: what one that did not answer might have had is not given away by a policy.
		c.Out = limit.Outcome{Level: it.spread.Level(a.desk.now(), c.Part, it.terms.Depth, false)}
		c.Err = nil
	}
}

// next is the part that is to be asked after the item's claim has come back; again is false if none is.
func (it *item) next(now int64) (part *limit.Part, again bool) {
	c := it.claim
	it.asked.Add(c.Part)
	switch {
	case c.Err == nil:
		it.heard = true
	case !errors.Is(c.Err, batcher.ErrNotRun):
		return nil, false
	}
	switch stale := errors.Is(c.Err, batcher.ErrStale); {
	case !stale && c.Part.At() == 0: // home is whole and has spoken, or does not answer
		return nil, false
	case it.op == limit.Reset && (c.Err == nil || stale):
		return it.spread.Untried(now, it.asked)
	case it.op != limit.Take, c.Err == nil && it.n > 0 && c.Out.Granted >= it.n:
		return nil, false
	}
	return it.spread.Choose(now, it.terms, it.n, it.pace(), it.asked)
}

// waitForParts makes the wait of a denial that until some part has what is needed.
func (it *item) waitForParts(a *Agent) {
	if it.spread == nil || it.decision.Reason != limit.OverLimit {
		return
	}
	it.decision.Remaining = min(it.decision.Remaining, it.n-1) // parts may have refilled while others were asked
	switch {
	case it.between:
		it.decision.RetryAfter = split.WholeSoon
	case it.spread.Ways() > 1:
		now := a.desk.now()
		it.decision.RetryAfter = max(it.spread.Wait(now, it.n), it.ruling.Pause(now))
	}
}

// Splits lists the buckets that are divided over several masters, as far as this agent knows, in no order.
func (a *Agent) Splits() []split.Info {
	if a.desk == nil {
		return nil
	}
	return a.desk.splits.Divided()
}
