package split

import (
	"errors"
	"time"

	"github.com/spillgate/spillgate/batcher"
	"github.com/spillgate/spillgate/limit"
)

// MergePause is between two looks of a check at a home whose parts are closed: it is whole in a few round trips.
const MergePause = 2 * time.Millisecond

// homeTries is how often a check asks home: it may be told of a split, go to the parts, find them closed, and home not whole yet.
const homeTries = 8

// Asked are the cells that a check has asked.
type Asked struct {
	Home  int    // so many times
	Parts uint64 // a bit for each
}

// Add adds the cell that an entry went to.
func (a *Asked) Add(p *limit.Part) {
	if p.At() == 0 {
		a.Home++
	} else {
		a.Parts |= 1 << p.Index
	}
}

// Route is the way of one check, of op Take or Reset, over the cells of its bucket: where its claim goes, whether it goes on
// when it comes back, and what the answer is in the end. The zero value is a check that has not left.
//
//	Begin or Ride, then for every claim that comes back Next, until it says no; then End, and Denied if the check is.
type Route struct {
	spread  *Spread // nil unless the bucket is divided, or may be
	pace    Pace
	off     bool // the rule forbids to split
	asked   Asked
	heard   bool // some cell has answered
	between bool // the parts were closed, and home not whole yet
}

// Begin names the part that the check's first claim goes to. off says that its rule forbids to split.
func (r *Route) Begin(t *Table, c *batcher.Claim, pace Pace, off bool) {
	if r.find(t, c, pace, off); r.spread != nil {
		c.Part, _ = r.spread.Choose(t.cfg.Clock(), c.Terms, c.N, pace, Asked{})
	}
}

// Ride is Begin for a claim that goes where a lease was ordered for it: to part, or home if that is nil.
func (r *Route) Ride(t *Table, c *batcher.Claim, part *limit.Part, pace Pace, off bool) {
	if r.find(t, c, pace, off); r.spread != nil {
		c.Part = part
	}
}

func (r *Route) find(t *Table, c *batcher.Claim, pace Pace, off bool) {
	*r = Route{pace: pace, off: off}
	if c.Op != limit.Take {
		return
	}
	if r.spread = t.Find(&c.Bucket, c.Terms); r.spread != nil {
		r.spread.KeepWhole(off)
	}
}

// Divided reports whether anything is known of a division: if not, the outcome stands as it is.
func (r *Route) Divided() bool { return r.spread != nil }

// Next takes in what a claim brought, and names the part to be asked after it; nil is home, and again is false if nothing is to be
// asked any more. Each part is asked once.
func (r *Route) Next(t *Table, c *batcher.Claim) (part *limit.Part, again bool) {
	if r.spread == nil && c.Split != nil && c.Split.Ways > 0 {
		r.spread = t.Watch(c.Bucket.ID(), &c.Bucket, c.Terms, r.off)
	}
	if r.spread == nil {
		return nil, false
	}
	t.Learn(r.spread, c)
	r.asked.Add(c.Part)
	r.heard = r.heard || c.Err == nil
	stale := errors.Is(c.Err, batcher.ErrStale)
	switch now := t.cfg.Clock(); {
	case c.Err != nil && !errors.Is(c.Err, batcher.ErrNotRun):
		return nil, false
	case !stale && c.Part.At() == 0: // home is whole and has spoken, or does not answer
		return nil, false
	case c.Op == limit.Reset && (c.Err == nil || stale):
		return r.spread.Untried(now, r.asked)
	case c.Op != limit.Take, c.Err == nil && c.N > 0 && c.Out.Granted >= c.N:
		return nil, false
	default:
		return r.spread.Choose(now, c.Terms, c.N, r.pace, r.asked)
	}
}

// Keeps reports whether tokens that come too late may stay debited, where the fail policy admits. Once a cell has denied, it does not.
func (r *Route) Keeps() bool { return !r.heard }

// Waits reports whether the check found the parts closed and home not whole yet, so that it should wait for MergePause.
func (r *Route) Waits() bool { return r.asked.Home > 1 }

// Overflows counts that the check goes on since a part had too little.
func (r *Route) Overflows(c *batcher.Claim) bool {
	if c.N == 0 || c.Err != nil {
		return false
	}
	r.spread.Overflowed()
	return true
}

// End makes of the last claim's outcome that of the whole bucket. unfinished says that there was more to ask, and no time.
func (r *Route) End(t *Table, c *batcher.Claim, unfinished bool) {
	now := t.cfg.Clock()
	switch {
	case errors.Is(c.Err, batcher.ErrStale) && c.Op == limit.Take:
		// The store is well: no policy is asked.
		c.Err, c.Out, r.between = nil, limit.Outcome{Level: c.Terms.Depth}, true
	case c.Err == nil && c.Op == limit.Reset && unfinished:
		c.Err = batcher.ErrDeadline
	case c.Err == nil:
		c.Out.Level = r.spread.Level(now, c.Part, c.Out.Level, true)
	case r.heard && c.Op == limit.Take:
		// The parts that answered have too little: what one that did not answer might have had is not given away by a policy.
		c.Err, c.Out = nil, limit.Outcome{Level: r.spread.Level(now, c.Part, c.Terms.Depth, false)}
	}
}

// Denied completes the decision on a check of n tokens that is over the limit: its wait is until some part has them, and at
// least pause.
func (r *Route) Denied(t *Table, n limit.Tokens, pause time.Duration, d *limit.Decision) {
	if r.spread == nil || d.Reason != limit.OverLimit {
		return
	}
	d.Remaining = min(d.Remaining, n-1) // parts may have refilled while others were asked
	switch {
	case r.between:
		d.RetryAfter = WholeSoon
	case r.spread.Ways() > 1:
		d.RetryAfter = max(r.spread.Wait(t.cfg.Clock(), n), pause)
	}
}
