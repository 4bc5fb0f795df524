package lease

import "github.com/spillgate/spillgate/batcher"

// divided tells what is known of a division what a reply brought, and adds to the answer what is known of the whole.
func (d *Desk) divided(h *Holding, c *batcher.Claim, a *Answer) {
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
		a.Ways, a.Wait = int64(s.Ways()), s.Wait(d.cfg.Clock(), 1)
		a.Out.Level = s.Level(d.cfg.Clock(), c.Part, a.Out.Level, true)
	}
}
