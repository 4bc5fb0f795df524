package sim

import (
	"errors"
	"time"

	"github.com/spillgate/spillgate/agent/lease"
	"github.com/spillgate/spillgate/agent/split"
	"github.com/spillgate/spillgate/batcher"
	"github.com/spillgate/spillgate/limit"
)

// batch is what agent.Batch is, without goroutines: checks that are decided together. What it waits for
// are the replies to its claims, or their deadline.
type batch struct {
	agent      *agent
	generation int
	checks     []*check
	now        int64 // read once, before anything is spent
	ends       int64 // of the lease that ends first, of those spent from
	open       int   // claims without an outcome
	started    int64 // when the first claims were sent
	late       bool  // the deadline has passed
	over       bool
}

// check is one request: an item for each descriptor.
type check struct {
	items    []item
	done     func(limit.Decision, bool) // told of the decision; true if a store's answer was missing
	decision limit.Decision
}

type item struct {
	bucket   *bucket
	terms    *limit.Terms
	n        limit.Tokens
	op       limit.Op
	ruling   lease.Ruling
	claim    *batcher.Claim
	answered bool // claim has its outcome
	route    split.Route
	last     *batcher.Claim // whose outcome is taken in
	decision limit.Decision
	failed   bool
}

// decide takes checks in. [2]
func (a *agent) decide(checks ...*check) {
	w := a.world
	b := &batch{agent: a, generation: a.generation, checks: checks, now: a.clock()}
	if a.stall(); b.dead() {
		return
	}
	for _, c := range checks {
		w.counts.Checks++
		if w.asked != nil {
			w.asked(c.items[0].n)
		}
		if len(c.items) > 1 {
			w.counts.Several++
		}
		for i := range c.items {
			b.rule(&c.items[i], len(c.items) == 1)
		}
	}
	if a.stall(); b.dead() {
		return
	}
	b.recheck()
	b.enter()
	b.submit()
}

// dead reports whether the agent that had the batch is no more.
func (b *batch) dead() bool { return b.generation != b.agent.generation || b.agent.world.breach != nil }

// rule lets the desk decide an item, or makes a claim of it.
func (b *batch) rule(it *item, sole bool) {
	a := b.agent
	bk := it.bucket
	it.terms = a.terms[bk.index]
	switch {
	case bk.plan.Mode == limit.Exact:
		b.watch(it)
		b.claim(it)
		return
	case it.op == limit.Reset:
		a.desk.Forget(bk.id, &bk.name)
		b.claim(it)
		return
	case a.phantom[bk.index] >= it.n && it.n > 0:
		a.phantom[bk.index] -= it.n
		it.decision = limit.Decision{Admitted: true, Reason: limit.OK}
		bk.admit(a, it.terms, it.n, "phantom")
		return
	}
	c := lease.Check{Terms: it.terms, N: it.n, Whole: bk.plan.NoSplit}
	if sole {
		c.Allowance = bk.plan.Allowance
	}
	var found bool
	if it.ruling, found = a.desk.Hot(bk.id, &c, b.now, &it.decision); !found {
		it.ruling = a.desk.Cold(bk.id, &bk.name, &c, &it.decision)
	}
	if !it.ruling.Decided {
		b.claim(it)
		return
	}
	if at, ok := it.ruling.Ends(); ok && (b.ends == 0 || at < b.ends) {
		b.ends = at
	}
}

func (b *batch) claim(it *item) {
	it.claim = b.newClaim(it)
	it.claim.Keep = it.bucket.plan.Open
	b.choose(it)
}

func (b *batch) newClaim(it *item) *batcher.Claim {
	return &batcher.Claim{Bucket: it.bucket.name, Terms: it.terms, Op: it.op, N: it.n, Done: func(c *batcher.Claim) {
		if c == it.claim {
			b.answer(it)
		}
	}}
}

// send sends an item's claim.
func (b *batch) send(it *item) {
	if err := b.agent.queue(it.bucket, it.claim.Part).add(it.claim); err != nil {
		it.claim.Err = err
		b.answer(it)
	}
}

// recheck leaves to the store what was admitted from leases that have ended since.
func (b *batch) recheck() {
	a := b.agent
	if now := a.clock(); b.ends == 0 || now < b.ends || a.world.wires.NoRecheck {
		return
	}
	for _, c := range b.checks {
		for i := range c.items {
			it := &c.items[i]
			if at, ok := it.ruling.Ends(); ok && a.clock() >= at {
				a.world.counts.Voided++
				it.ruling.Void()
				b.claim(it)
			}
		}
	}
}

// enter takes down in the ledger what was admitted without the store.
func (b *batch) enter() {
	a := b.agent
	for _, c := range b.checks {
		for i := range c.items {
			it := &c.items[i]
			switch _, leased := it.ruling.Ends(); {
			case !it.ruling.Decided:
			case !it.decision.Admitted:
				a.world.counts.LocalDenied++
				a.tally.denied++
				a.world.note(a, it.bucket, "deny", int64(it.n), int64(it.decision.RetryAfter))
			case leased:
				a.world.counts.LocalAdmitted++
				it.bucket.spent += it.n
				it.bucket.admit(a, it.terms, it.n, "spend")
				it.bucket.spends(it.terms, it.ruling.Epoch(), it.n)
			default:
				a.world.counts.Charged++
				it.bucket.admit(a, it.terms, it.n, "ahead")
			}
		}
	}
}

// submit sends the claims and waits.
func (b *batch) submit() {
	a := b.agent
	for _, c := range b.checks {
		for i := range c.items {
			if it := &c.items[i]; it.claim != nil {
				if len(c.items) > 1 {
					it.claim.Keep = false
				}
				b.open++
			}
		}
	}
	if b.open == 0 {
		b.conclude()
		return
	}
	b.open++ // until all are sent
	b.started = a.clock()
	for _, c := range b.checks {
		for i := range c.items {
			if it := &c.items[i]; it.claim != nil {
				b.send(it)
			}
		}
	}
	a.after(int64(a.world.plan.Deadline), b.giveUp)
	b.closeOne()
}

// answer is told of a claim that has its outcome.
func (b *batch) answer(it *item) {
	if !it.answered {
		it.answered = true
		b.closeOne()
	}
}

func (b *batch) closeOne() {
	if b.open--; b.open == 0 {
		b.conclude()
	}
}

// giveUp ends the wait at the deadline.
func (b *batch) giveUp() {
	if b.over {
		return
	}
	b.late = true
	for _, c := range b.checks {
		for i := range c.items {
			it := &c.items[i]
			if it.claim != nil && !it.answered {
				b.agent.world.counts.GivenUp++
				b.agent.world.note(b.agent, it.bucket, "give up", int64(it.n), 0)
				b.agent.queue(it.bucket, it.claim.Part).line.GiveUp(it.claim)
				b.answer(it)
			}
		}
	}
}

// conclude makes the decisions and refunds what denied checks took.
func (b *batch) conclude() {
	if b.overflow() {
		return
	}
	b.over = true
	for _, c := range b.checks {
		for i := range c.items {
			b.settle(&c.items[i])
		}
	}
	for _, c := range b.checks {
		b.decide(c)
	}
}

// settle turns the outcome of an item's claim into its decision.
func (b *batch) settle(it *item) {
	a := b.agent
	if it.claim == nil {
		return
	}
	switch {
	case it.claim.Err != nil:
		it.failed = true
		it.decision = limit.Decision{Admitted: it.bucket.plan.Open, Reason: limit.StoreClosed, RetryAfter: time.Second}
		if it.n > it.terms.Burst {
			it.decision = limit.Decision{Reason: limit.Never, RetryAfter: limit.NoRetry}
		}
	case it.op == limit.Take && it.bucket.plan.Mode != limit.Exact:
		it.decision = a.desk.Learn(&it.ruling, it.claim)
		if it.ruling.Decided { // from a lease that came meanwhile
			a.world.counts.LocalAdmitted++
			it.bucket.spent += it.n
			it.bucket.admit(a, it.terms, it.n, "late")
			it.bucket.spends(it.terms, it.ruling.Epoch(), it.n)
		}
	default:
		it.decision = it.terms.Decide(it.n, it.claim.Out)
	}
	if !it.failed {
		it.route.Denied(a.splits, it.n, it.ruling.Pause(a.clock()), &it.decision)
	}
	if it.op == limit.Take && !it.failed && it.decision.Admitted && !it.ruling.Decided {
		it.bucket.admitted += it.n
	}
}

// decide joins the items of a check.
func (b *batch) decide(c *check) {
	w := b.agent.world
	failed := false
	c.decision = c.items[0].decision
	for i := range c.items {
		it := &c.items[i]
		failed = failed || it.failed
		if d := &it.decision; !d.Admitted && (c.decision.Admitted || d.RetryAfter > c.decision.RetryAfter) {
			c.decision = *d
		}
	}
	b.agent.tally.checks++
	if c.decision.Admitted {
		w.counts.Admitted++
		b.agent.tally.admitted += c.items[0].n
	} else {
		w.counts.Denied++
		for i := range c.items {
			if it := &c.items[i]; it.decision.Admitted && it.n > 0 && !it.failed && len(c.items) > 1 {
				b.refund(it)
			}
		}
	}
	if c.done != nil {
		c.done(c.decision, failed)
	}
}

// refund gives back what an item of a denied check took.
func (b *batch) refund(it *item) {
	a := b.agent
	w := a.world
	bk := it.bucket
	bk.admitted -= it.n
	if it.claim == nil || it.ruling.Decided {
		w.counts.Undone++
		if it.ruling.Undo() == nil {
			bk.spent -= it.n
			bk.unspend(a, it.terms, it.n)
			bk.spends(it.terms, it.ruling.Epoch(), -it.n)
			return
		}
		if w.wires.SpendAccounted {
			a.phantom[bk.index] += it.n
			bk.unspend(a, it.terms, it.n)
			return
		}
	}
	n := it.n
	if it.claim != nil && !it.ruling.Decided {
		lease := it.ruling.Reclaim(it.claim)
		bk.unspend(a, it.terms, lease)
		n -= lease
	}
	bk.unused(a, n)
	if n > 0 && !w.wires.NoRefunds {
		bk.back += n
		part, ask := it.ruling.Part(a.clock()), limit.Ask{Epoch: it.ruling.Epoch()}
		if it.claim != nil && !it.ruling.Decided {
			part, ask.Epoch = it.claim.Part, it.claim.Out.Epoch
		}
		_ = a.queue(bk, part).add(&batcher.Claim{Bucket: bk.name, Terms: it.terms, Op: limit.Refund, N: n, Ask: ask, Part: part, Done: a.refunded})
	}
}

// refunded sends on what could not be refunded where it was taken.
func (a *agent) refunded(c *batcher.Claim) {
	if errors.Is(c.Err, batcher.ErrStale) {
		a.desk.Refund(c)
	}
}
