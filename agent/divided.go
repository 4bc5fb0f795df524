package agent

import (
	"context"
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

// noSplit reports whether the item's rule forbids to split, or its bucket counts in windows.
func (it *item) noSplit() bool {
	return it.rule != nil && it.rule.NoSplit || it.terms.Algorithm != limit.TokenBucket
}

// choose names the part of the bucket that an item's claim goes to.
func (b *Batch) choose(it *item) {
	if it.terms.Algorithm != limit.TokenBucket {
		return // never divided
	}
	splits := b.agent.desk.splits
	if part, ok := it.ruling.Rides(); ok {
		it.route.Ride(splits, it.claim, part, it.pace(), it.noSplit())
	} else {
		it.route.Begin(splits, it.claim, it.pace(), it.noSplit())
	}
}

// pace is how long claims of an item's rule begin at the same part. Those of leased rules ride with leases.
func (it *item) pace() split.Pace {
	if it.exact() {
		return split.Moving
	}
	return split.Staying
}

// overflow sends claims on to other parts of their buckets, as long as some part may have what they need and there is
// time.
func (b *Batch) overflow(ctx context.Context, start time.Time) {
	splits := b.agent.desk.splits
	for {
		var g *batcher.Group
		pause := true
		for i := range b.items {
			it := &b.items[i]
			if it.claim == nil || it.claim == it.last {
				continue
			}
			it.last = it.claim
			part, again := it.route.Next(splits, it.claim)
			if !it.route.Divided() {
				continue
			}
			left := b.agent.deadline(it.rule) - time.Since(start)
			if it.route.Waits() {
				left -= split.MergePause
			}
			if !again || left <= 0 || ctx.Err() != nil {
				it.route.End(splits, it.claim, again)
				continue
			}
			it.route.Overflows(it.claim)
			if g == nil {
				g = b.agent.batcher.Group()
				b.more = append(b.more, g)
			}
			pause = pause && it.route.Waits()
			it.goOn(g.Claim(), part, left)
		}
		if g == nil {
			return
		}
		if pause { // not while others could go on
			select {
			case <-time.After(split.MergePause):
			case <-ctx.Done():
			}
		}
		g.Submit(ctx)
		g.Wait(ctx)
	}
}

// goOn makes c the item's claim, on another part.
func (it *item) goOn(c *batcher.Claim, part *limit.Part, deadline time.Duration) {
	old := it.claim
	c.Bucket, c.Terms, c.Op, c.N, c.Keep = old.Bucket, old.Terms, old.Op, old.N, old.Keep && it.route.Keeps()
	c.Part, c.Deadline = part, deadline
	it.claim = c
}

// Splits lists the buckets that are divided over several masters, as far as this agent knows, in no order.
func (a *Agent) Splits() []split.Info {
	if a.desk == nil {
		return nil
	}
	return a.desk.splits.Divided()
}
