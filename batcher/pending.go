package batcher

import (
	"time"

	"github.com/spillgate/spillgate/limit"
)

// pending is an entry that gathers: the claims that will share its grant, in
// order of arrival.
type pending struct {
	entry Entry
	// claims is an intrusive list, so that a claim that is given up can leave at once.
	first, last *Claim
	lease       *Claim // the claim of op Lease, which is not in the list; nil for other ops
	urgent      bool   // somebody waits for it
	sent        bool
}

// accepts reports whether a claim can ride in the entry: takes merge into one
// partial take, charges, refunds and resets into one of their kind. Takes also ride with a
// lease that is asked for, even one in flight: what it brings is theirs first.
func (p *pending) accepts(c *Claim) bool {
	if p.entry.Terms != c.Terms && *p.entry.Terms != *c.Terms || p.entry.Op > limit.Lease || c.Op > limit.Lease {
		return false
	}
	if p.entry.Op == limit.Lease {
		return c.Op == limit.Take && (!p.sent || p.entry.N > 0)
	}
	if c.Op == limit.Refund && c.Terms.Algorithm != limit.TokenBucket && c.Ask.Epoch != p.entry.Ask.Epoch {
		return false // each goes to its window
	}
	return family(p.entry.Op) == family(c.Op) && c.Op != limit.Lease && !p.sent
}

// family puts the two ways to take into one.
func family(op limit.Op) limit.Op {
	if op == limit.TakePartial {
		return limit.Take
	}
	return op
}

// push adds a claim at the end.
func (p *pending) push(c *Claim) {
	c.in, c.prev, c.next = p, p.last, nil
	if p.last == nil {
		p.first = c
	} else {
		p.last.next = c
	}
	p.last = c
}

// remove takes a claim out.
func (p *pending) remove(c *Claim) {
	if c.prev == nil {
		p.first = c.next
	} else {
		c.prev.next = c.next
	}
	if c.next == nil {
		p.last = c.prev
	} else {
		c.next.prev = c.prev
	}
	c.in, c.prev, c.next = nil, nil, nil
}

// replace puts one claim in the place of another.
func (p *pending) replace(old, c *Claim) {
	c.in, c.prev, c.next = p, old.prev, old.next
	if c.prev == nil {
		p.first = c
	} else {
		c.prev.next = c
	}
	if c.next == nil {
		p.last = c
	} else {
		c.next.prev = c
	}
	old.in, old.prev, old.next = nil, nil, nil
}

// seal fixes what the entry asks for, just before it is sent. A single claim
// is all or nothing in the store, so nothing has to be refunded; several
// take what is there. No more than Burst can be there, so the sum is cut to it; a
// take of more than Burst gets nothing and so asks for nothing.
func (p *pending) seal() {
	e := &p.entry
	p.sent = true
	if p.lease != nil {
		p.sealLease()
		return
	}
	e.N, e.Ask.Piece = 0, 0
	n := 0
	for c := p.first; c != nil; c = c.next {
		switch {
		case e.Op > limit.Lease:
			e.N = c.N
		case c.N <= e.Terms.Burst || family(e.Op) != limit.Take:
			e.N = min(e.N+c.N, e.Terms.Burst)
			e.Ask.Piece = max(e.Ask.Piece, c.N) // a log says when the dearest can be had
		}
		c.sent = true
		n++
	}
	if e.Op == limit.Take && (n > 1 || e.N == 0) {
		e.Op = limit.TakePartial
	}
}

// sealLease adds to the lease what the claims that ride with it need.
func (p *pending) sealLease() {
	e := &p.entry
	e.N, e.Ask = p.lease.N, p.lease.Ask
	for c := p.first; c != nil; c = c.next {
		if c.N > 0 && c.N <= e.Terms.Burst { // more can never be had
			if e.Ask.Take == 0 {
				e.Ask.Piece = c.N
			} else if c.N != e.Ask.Piece {
				e.Ask.Piece = 1 // they share what there is, and the rest is refunded
			}
			e.Ask.Take = min(e.Ask.Take+c.N, e.Terms.Burst)
		}
		c.sent = true
	}
}

// share gives every claim its outcome, in order, and returns what nobody
// used: the part of a partial grant that no claim could take whole, and the
// tokens of claims that were given up.
//
// Each claim sees the bucket as if it had been alone at its place in the
// order: the level after its own take, before those that follow.
func (p *pending) share() (unused limit.Tokens) {
	e := &p.entry
	if family(e.Op) != limit.Take || e.Err != nil {
		for c := p.first; c != nil; c = c.next {
			c.Out, c.Err, c.Split = e.Out, e.Err, e.Split
		}
		return 0
	}
	terms := e.terms()
	left, level := e.Out.Granted, e.Out.Level-limit.Ticks(e.Out.Granted)*terms.Emission
	for c := p.first; c != nil; c = c.next {
		c.Err, c.Split = nil, e.Split
		c.Out = e.Out
		c.Out.Granted, c.Out.Level = 0, level
		if c.N <= left && !c.orphan {
			left -= c.N
			level += limit.Ticks(c.N) * terms.Emission
			c.Out.Granted, c.Out.Level = c.N, level
		}
	}
	return left
}

// rideable is how old a lease may be, counted from before its call, when a claim takes tokens of it: a little less
// than it lasts, as in agent/lease.
func rideable(term int64) time.Duration {
	lasts := limit.LeaseTTL
	if term > 0 {
		lasts = min(lasts, time.Duration(term))
	}
	return lasts - lasts/64
}

// shareLease serves the claims that ride with a lease, in order, from what was taken for them
// and then from the lease; the rest is the lease's. Claims that came when the entry was in flight and
// found too little are passed to again if the store has what they need.
func (p *pending) shareLease(again func(*Claim)) (unused limit.Tokens) {
	e, lease, terms := &p.entry, p.lease, p.entry.terms()
	taken, left := e.Out.Taken, e.Out.Granted
	level := e.Out.Level - limit.Ticks(taken+left)*terms.Emission
	for c := p.first; c != nil; {
		next := c.next
		c.Err, c.Split, c.Rider = e.Err, e.Split, true
		c.Out = limit.Outcome{Level: level, Lag: e.Out.Lag, Left: e.Out.Left, Fading: e.Out.Fading}
		if terms.Algorithm != limit.TokenBucket {
			c.Out.Epoch = e.Out.Epoch
		}
		switch {
		case e.Err != nil || c.orphan:
		case c.N <= taken+left:
			level += limit.Ticks(c.N) * terms.Emission
			c.Out.Granted, c.Out.Level = c.N, level
			c.rode, c.rodeEpoch, c.lasts = max(0, c.N-taken), e.Out.Epoch, rideable(e.Out.Term)
			left -= c.rode
			taken -= min(taken, c.N)
		case !c.sent && e.Out.Level+limit.Ticks(c.N)*terms.Emission <= terms.Depth:
			p.remove(c)
			c.Rider = false
			again(c)
		default:
			c.Out.Level = e.Out.Level - limit.Ticks(taken+left)*terms.Emission
		}
		c = next
	}
	lease.Out, lease.Err, lease.Split = e.Out, e.Err, e.Split
	lease.Out.Granted = left
	lease.Rode = e.Out.Granted - left
	return taken
}
