package sim

import (
	"errors"

	"github.com/spillgate/spillgate/agent/split"
	"github.com/spillgate/spillgate/batcher"
	"github.com/spillgate/spillgate/hotkeys"
	"github.com/spillgate/spillgate/limit"
)

// In this file is agent/divided.go once more: where the claims of a batch go on a bucket that is divided, and that they go on
// to other parts before a check is denied.

// watch has a hot bucket of an exact rule watched.
func (b *batch) watch(it *item) {
	a, bk := b.agent, it.bucket
	if it.op != limit.Take || it.n == 0 || it.n > it.terms.Burst || a.world.plan.SplitOps <= 0 || bk.plan.NoSplit {
		return
	}
	if a.tracker.Touch(b.now, bk.name.Sum(), 1) == hotkeys.Hot {
		a.splits.Watch(bk.id, &bk.name, it.terms, false)
	}
}

// choose names the part that an item's claim goes to.
func (b *batch) choose(it *item) {
	if it.op != limit.Take {
		return
	}
	if it.spread = b.agent.splits.Find(&it.bucket.name, it.terms); it.spread != nil {
		it.spread.KeepWhole(it.bucket.plan.NoSplit)
		if p, ok := it.ruling.Rides(); ok {
			it.claim.Part = p
			return
		}
		it.claim.Part, _ = it.spread.Choose(b.now, it.terms, it.n, it.pace(), split.Asked{})
	}
}

// pace is how long claims of an item's rule begin at the same part.
func (it *item) pace() split.Pace {
	if it.bucket.plan.Mode == limit.Exact {
		return split.Moving
	}
	return split.Staying
}

// overflow takes in what claims brought, and sends those on that may find more elsewhere, if there is time. It is false if
// there are none.
func (b *batch) overflow() bool {
	a := b.agent
	b.open++ // until all are sent
	any := false
	for _, c := range b.checks {
		for i := range c.items {
			it := &c.items[i]
			if it.claim == nil || it.claim == it.last {
				continue
			}
			it.last = it.claim
			part, again := b.learn(it)
			if it.spread == nil {
				continue
			}
			it.more = again
			if !again || b.late || a.clock()-b.started >= int64(a.world.plan.Deadline) {
				b.end(it)
				continue
			}
			if it.n > 0 && it.claim.Err == nil {
				it.spread.Overflowed()
				a.world.counts.Divided.Overflows++
			}
			any = true
			b.goOn(it, part)
		}
	}
	if !any {
		b.open--
		return false
	}
	for _, c := range b.checks {
		for i := range c.items {
			if it := &c.items[i]; it.claim != nil && it.claim != it.last {
				b.send(it)
			}
		}
	}
	b.closeOne()
	return true
}

// goOn makes a claim on another part the item's.
func (b *batch) goOn(it *item, part *limit.Part) {
	keep := it.claim.Keep && !it.heard
	b.open++
	it.claim = b.newClaim(it)
	it.claim.Keep, it.claim.Part, it.answered = keep, part, false
}

// learn takes in what the item's claim brought, and says whether another part is to be asked.
func (b *batch) learn(it *item) (part *limit.Part, again bool) {
	c, a := it.claim, b.agent
	if it.spread == nil {
		if c.Split == nil || c.Split.Ways == 0 {
			return nil, false
		}
		it.spread = a.splits.Watch(it.bucket.id, &it.bucket.name, it.terms, it.bucket.plan.NoSplit)
	}
	a.splits.Learn(it.spread, c)
	return it.next(a.clock())
}

// end makes of the last claim's outcome that of the whole bucket.
func (b *batch) end(it *item) {
	c, now := it.claim, b.agent.clock()
	switch {
	case errors.Is(c.Err, batcher.ErrStale) && it.op == limit.Take:
		c.Err, c.Out, it.between = nil, limit.Outcome{Level: it.terms.Depth}, true
	case c.Err == nil && it.op == limit.Reset && it.more:
		c.Err = batcher.ErrDeadline
	case c.Err == nil:
		c.Out.Level = it.spread.Level(now, c.Part, c.Out.Level, true)
	case it.heard && it.op == limit.Take:
		c.Err, c.Out = nil, limit.Outcome{Level: it.spread.Level(now, c.Part, it.terms.Depth, false)}
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
	case !stale && c.Part.At() == 0:
		return nil, false
	case it.op == limit.Reset && (c.Err == nil || stale):
		return it.spread.Untried(now, it.asked)
	case it.op != limit.Take, c.Err == nil && it.n > 0 && c.Out.Granted >= it.n:
		return nil, false
	}
	return it.spread.Choose(now, it.terms, it.n, it.pace(), it.asked)
}

// waitForParts makes the wait of a denial that until some part has what is needed.
func (b *batch) waitForParts(it *item) {
	switch {
	case it.decision.Reason != limit.OverLimit || it.spread == nil:
	case it.between:
		it.decision.RetryAfter = split.WholeSoon
	case it.spread.Ways() > 1:
		now := b.agent.clock()
		it.decision.RetryAfter = max(it.spread.Wait(now, it.n), it.ruling.Pause(now))
	}
}
