package lease

import (
	"errors"

	"github.com/spillgate/spillgate/agent/split"
	"github.com/spillgate/spillgate/batcher"
	"github.com/spillgate/spillgate/limit"
)

// divided tells what is known of a division what a reply brought, and adds to the answer what is known of the whole.
func (d *Desk) divided(h *Holding, c *batcher.Claim, a *Answer) {
	if c.Terms.Algorithm != limit.TokenBucket {
		return
	}
	if c.Split != nil {
		a.Start = c.Split.Start
	}
	s := d.cfg.Splits.Watch([]byte(h.id), &h.Bucket, c.Terms, h.whole.Load()) // it may have been forgotten
	h.spread.Store(s)
	if s == nil {
		return
	}
	d.cfg.Splits.Learn(s, c)
	if c.Err == nil {
		a.May = s.May(d.cfg.Clock(), 1)
		a.Ways, a.Wait = int64(s.Ways()), s.Wait(d.cfg.Clock(), 1)
		a.Out.Level = s.Level(d.cfg.Clock(), c.Part, a.Out.Level, true)
	}
}

// sendCharge sends a charge: to the part of the bucket that is the fullest, if that is divided. What turns out to be divided
// otherwise is charged there.
func (d *Desk) sendCharge(b *limit.Bucket, c *Check, now int64) error {
	claim := &batcher.Claim{Bucket: *b, Terms: c.Terms, Op: limit.Charge, N: c.N, Lazy: true}
	whole, asked := c.Whole, new(split.Asked) // c stays on its caller's stack
	claim.Done = func(done *batcher.Claim) {
		again, ok := d.elsewhere(done, whole, asked)
		if ok {
			again.Done = claim.Done
			ok = d.cfg.Send(again) == nil
		}
		if !ok {
			d.charged(done)
		}
	}
	if s := d.cfg.Splits.Find(b, c.Terms); s != nil {
		claim.Part, _ = s.Choose(now, c.Terms, c.N, split.Moving, split.Asked{})
	}
	return d.cfg.Send(claim)
}

// Charge tells the store of tokens that were admitted without it: in shares to all parts, if the bucket is divided. failed is told of
// those of which certainly nothing was heard; what may have been is not sent again.
func (d *Desk) Charge(b *limit.Bucket, t *limit.Terms, n limit.Tokens, failed func(limit.Tokens)) {
	s, ways := d.cfg.Splits.Find(b, t), 1
	if s != nil {
		ways = max(1, s.Ways())
	}
	done := func(c *batcher.Claim) {
		if errors.Is(c.Err, batcher.ErrStale) { // where it is to go is learned for the next time
			if s := d.cfg.Splits.Watch(b.ID(), b, t, false); s != nil {
				d.cfg.Splits.Learn(s, c)
			}
		}
		if errors.Is(c.Err, batcher.ErrNotRun) {
			failed(c.N)
		}
	}
	var asked split.Asked
	for i := range ways {
		c := &batcher.Claim{Bucket: *b, Terms: t, Op: limit.Charge, N: limit.Share(n, ways, i), Lazy: true, Done: done}
		if ways > 1 {
			c.Part, _ = s.Untried(d.cfg.Clock(), asked)
			asked.Add(c.Part)
		}
		if c.N > 0 && d.cfg.Send(c) != nil {
			failed(c.N)
		}
	}
}

// elsewhere is the claim once more, for another cell of its bucket, if it certainly did not run since that is
// not divided as was thought. asked are the cells that were tried.
func (d *Desk) elsewhere(c *batcher.Claim, whole bool, asked *split.Asked) (again *batcher.Claim, ok bool) {
	stale := errors.Is(c.Err, batcher.ErrStale)
	s := d.cfg.Splits.Find(&c.Bucket, c.Terms)
	if s == nil && stale {
		s = d.cfg.Splits.Watch(c.Bucket.ID(), &c.Bucket, c.Terms, whole)
	}
	if s == nil {
		return nil, false
	}
	d.cfg.Splits.Learn(s, c)
	if asked.Add(c.Part); !stale {
		return nil, false
	}
	part, ok := s.Choose(d.cfg.Clock(), c.Terms, c.N, split.Moving, *asked)
	return &batcher.Claim{Bucket: c.Bucket, Terms: c.Terms, Op: c.Op, N: c.N, Lazy: c.Lazy, Part: part}, ok
}

// Refund sends the refund once more that a claim could not bring home, since its bucket was divided or made whole meanwhile.
func (d *Desk) Refund(c *batcher.Claim) {
	if again, ok := d.elsewhere(c, false, new(split.Asked)); ok {
		_ = d.cfg.Send(again) // what it does not bring back refills by itself
	}
}
