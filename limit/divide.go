package limit

import "math"

// In this file is what a store does with an entry that concerns a division (Entry.Part). The script
// redisshard/lua/debit.lua does the same, bit for bit.

// open passes what has ended by now, in order and each as of its own moment: epochs, what was on lease when the
// bucket was split, the split. whole is false while the bucket is divided; else held is what takes room besides the
// leases of the record.
func (t *Terms) open(c *Cell, generation int64, now Ticks) (held Tokens, whole bool) {
	s := &c.Split
	if s.Start == 0 {
		t.pass(c, now, 0, 0)
		return 0, true
	}
	class := t.Class
	if s.Ways > 0 {
		end := class.ticksAt(generation, s.Until+SplitMargin.Microseconds())
		if end > now {
			t.empty(c, now)
			return 0, false
		}
		c.TAT = end + t.Depth // what the parts had is lost
		s.whole()
	}
	s.Held = t.pass(c, now, s.Held, class.ticksAt(generation, s.Start+LeaseTTL.Microseconds()))
	micros := class.micros(generation, now)
	if s.Held == 0 && micros >= s.Until+SplitMargin.Microseconds() && micros >= s.Start+2*LeaseTTL.Microseconds() {
		*s = Split{} // no account of an earlier record fits this one any more
	}
	return s.Held, true
}

// empty leaves nothing in a cell but how it is divided.
func (t *Terms) empty(c *Cell, now Ticks) {
	c.TAT, c.Leases = now, Leases{Epoch: int64(floorDiv(now, t.Class.EpochTicks()))}
}

// whole ends the split. Its name stays, and for how long it might have lasted.
func (s *Split) whole() { *s = Split{Start: s.Start, Until: s.Until, Held: s.Held} }

// ApplyTouch tells home of the load, and home decides: it splits the bucket, extends the split, or begins to end it. A home that lost
// its split in a failover takes up a newer one that an agent knows. The cell and the load are to be stored.
func (t *Terms) ApplyTouch(part *Part, load Load, generation int64, cell Cell, now Ticks) (next Cell, counted Load, out Outcome) {
	next, counted = cell, load
	held, whole := t.open(&next, generation, now)
	s, micros := &next.Split, t.Class.micros(generation, now)
	k := &part.Split
	if k.Start > s.Start && k.Ways > 1 && k.Ways <= MaxWays && k.fits(micros) && micros < k.Until+SplitMargin.Microseconds() {
		t.empty(&next, now)
		*s, whole = *k, false
	}
	if k.Start == s.Start && !whole {
		s.Closing = s.Closing || k.Closing // a home that forgot it must not go on: parts may be closed
	}
	perSecond := counted.count(micros, part.Ops)
	switch until := micros + t.splitTTL(); {
	case whole:
		ways := int(min(Tokens(part.Ways), MaxWays, t.Burst))
		paused := s.Start > 0 && micros < s.Until+SplitMargin.Microseconds()
		if ways > 1 && part.Threshold > 0 && perSecond >= part.Threshold && !part.End && !paused {
			*s = Split{Start: max(micros, s.Start+1), Until: until, Ways: ways, Stride: part.Stride,
				Held: min(next.out()+held, maxOut), Level: max(0, next.TAT-now)}
			t.empty(&next, now)
		}
	case s.Closing:
	case part.End || perSecond*calm < part.Threshold && micros >= s.Start+splitLeast.Microseconds():
		s.Closing = true
	case until > s.Until:
		s.Until = until
	}
	out.Level = max(0, next.TAT-now)
	return next, counted, out
}

// Open is the level at which a part begins. Whole tokens are dealt out as the burst is, and part 0 has the fraction besides: a third of
// a token in each of three parts would be of no use to anyone. A debt is everybody's, since all fill in the same time.
func (t *Terms) Open(s *Split, index int) Ticks {
	p := t.Part(s.Ways, index)
	if s.Level > t.Depth {
		return s.Level + p.Depth - t.Depth + Ticks(p.Burst) // a tick per token, since its emission was rounded up
	}
	tokens := Tokens((t.Depth - s.Level) / t.Emission)
	level := p.Depth - Ticks(min(Share(tokens, s.Ways, index), p.Burst))*p.Emission
	if fraction := (t.Depth - s.Level) % t.Emission; index == 0 && fraction > 0 {
		level -= max(0, Ticks(math.Floor(float64(fraction)*float64(p.Emission)/float64(t.Emission)))-1)
	}
	return max(0, level)
}

// fits reports whether a split can be what a home said not long ago, by a clock that is at most MaxSkew apart.
func (s *Split) fits(micros int64) bool {
	skew := MaxSkew.Microseconds()
	return s.Start <= micros+skew && s.Until <= micros+SplitTTL.Microseconds()+skew
}

// ApplyMerge makes a bucket whole again whose parts have all been closed: leased tokens were out there. Of several
// merges of one split the first counts. Granted is 1 if this was it.
func (t *Terms) ApplyMerge(leased Tokens, part *Part, generation int64, cell Cell, now Ticks) (next Cell, out Outcome, write bool) {
	next = cell
	_, whole := t.open(&next, generation, now)
	if s := &next.Split; !whole && s.Closing && s.Start == part.Split.Start {
		next.TAT = now + t.Depth - max(t.Depth-t.Ceiling, min(part.Free, t.Depth))
		next.Out = min(leased, maxOut)
		if s.whole(); t.Class.ticksAt(generation, s.Start+LeaseTTL.Microseconds()) <= now {
			s.Held = 0
		}
		if part.End {
			s.Until = t.Class.micros(generation, now) + splitPause.Microseconds()
		}
		next.TAT = max(next.TAT, t.filled(now, next.out()+s.Held))
		out.Granted, write = 1, true
	}
	out.Level = max(0, next.TAT-now)
	return next, out, write
}

// ApplySub runs an entry on a part. A part that has no cell yet begins (exists is false). It is refused, ok false, when the split
// is over by this master's clock, less SplitMargin, or closed. Op Close closes it: Granted is what is out on
// lease, Level what is free, in ticks of the part. A Close that comes after the end has the cell removed: write without ok.
func (t *Terms) ApplySub(op Op, n Tokens, ask *Ask, part *Part, generation int64, cell Cell, exists bool, now Ticks) (next Cell, out Outcome, write, ok bool) {
	s, class := &part.Split, t.Class
	micros := class.micros(generation, now)
	left := s.Until - SplitMargin.Microseconds() - micros
	switch valid := s.Ways > 1 && part.Index < s.Ways && s.Start > 0; {
	case valid && left <= 0 && op == Close:
		return cell, out, exists, false
	case !valid || left <= 0 || !s.fits(micros) || exists && cell.Closing && op != Close:
		return cell, out, false, false
	}
	p := t.Part(s.Ways, part.Index)
	next = cell
	if !exists {
		level := p.Depth
		if micros <= s.Start+openWithin.Microseconds() {
			level = t.Open(s, part.Index)
		}
		next = Cell{TAT: now + level}
		write = true
	}
	held := p.pass(&next, now, t.HeldBy(s, part.Index), class.ticksAt(generation, s.Start+(LeaseTTL+MaxSkew).Microseconds()))
	wrote := false
	switch op {
	case Close:
		out.Granted, out.Level = next.out(), now+p.Depth-next.TAT
		next.Closing = true
		return next, out, true, true // also if it was closed: so it is not forgotten
	case Lease:
		p.settle(&next, ask, generation, now)
		next.TAT = max(next.TAT, p.filled(now, next.out()+held))
		p.grant(n, ask, generation, &next, now, &out)
		out.Term = min(LeaseTTL.Nanoseconds(), left*1000)
		wrote = true
	default:
		next.TAT, out.Granted, wrote = p.Apply(op, n, next.TAT, now)
		next.TAT = max(next.TAT, p.filled(now, next.out()+held))
	}
	out.Level = max(0, next.TAT-now)
	return next, out, write || wrote, true
}
