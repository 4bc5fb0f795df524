package sim

import (
	"github.com/spillgate/spillgate/agent/split"
	"github.com/spillgate/spillgate/hotkeys"
	"github.com/spillgate/spillgate/limit"
)

// In this file is agent/divided.go once more: the claims of a batch take their ways (split.Route) over the parts of a bucket that is
// divided, before a check is denied.

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
	splits, whole := b.agent.splits, it.bucket.plan.NoSplit
	if part, ok := it.ruling.Rides(); ok {
		it.route.Ride(splits, it.claim, part, it.pace(), whole)
	} else {
		it.route.Begin(splits, it.claim, it.pace(), whole)
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
// there are none. A closed bucket is asked again at once: messages take their time here.
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
			part, again := it.route.Next(a.splits, it.claim)
			if !it.route.Divided() {
				continue
			}
			if !again || b.late || a.clock()-b.started >= int64(a.world.plan.Deadline) {
				it.route.End(a.splits, it.claim, again)
				continue
			}
			if it.route.Overflows(it.claim) {
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
	keep := it.claim.Keep && it.route.Keeps()
	b.open++
	it.claim = b.newClaim(it)
	it.claim.Keep, it.claim.Part, it.answered = keep, part, false
}
