package limit

import "math"

// In this file is what a store does with an entry that concerns a division (Entry.Part). The script
// redisshard/lua/debit.lua does the same, bit for bit.

// open passes what has ended by now, in order and each as of its own moment: epochs, what was on lease when the
// bucket was split, the split. It returns the terms in force and what takes room besides the leases of the record.
func (t *Terms) open(c *Cell, generation int64, now Ticks) (terms *Terms, held Tokens) {
	s := &c.Split
	if s.Start == 0 {
		t.pass(c, now, 0, 0)
		return t, 0
	}
	class := t.Class
	freed := class.ticksAt(generation, s.Start+LeaseTTL.Microseconds())
	if s.Ways > 0 {
		p := t.Part(s.Ways, 0)
		end := class.ticksAt(generation, s.Until+SplitMargin.Microseconds())
		held = p.pass(c, min(now, end), t.heldBy(s, 0), freed)
		if end > now {
			return &p, held
		}
		c.TAT = end + t.Depth - t.FromPart(&p, end+p.Depth-c.TAT)
		if s.whole(); freed <= end {
			s.Held = 0
		}
	}
	s.Held = t.pass(c, now, s.Held, freed)
	micros := class.micros(generation, now)
	if s.Held == 0 && micros >= s.Until+SplitMargin.Microseconds() && micros >= s.Start+2*LeaseTTL.Microseconds() {
		*s = Split{} // no account of an earlier record fits this one any more
	}
	return t, s.Held
}

// whole ends the split. Its name stays, and for how long it might have lasted.
func (s *Split) whole() { *s = Split{Start: s.Start, Until: s.Until, Held: s.Held} }

// ApplyTouch tells home of the load, and home decides: it splits the bucket, extends the split, or begins to end it. A home that lost
// its split in a failover takes up a newer one that an agent knows. The cell and the load are to be stored.
func (t *Terms) ApplyTouch(part *Part, load Load, generation int64, cell Cell, now Ticks) (next Cell, counted Load, out Outcome) {
	next, counted = cell, load
	terms, held := t.open(&next, generation, now)
	s, micros := &next.Split, t.Class.micros(generation, now)
	if k := &part.Split; k.Start > s.Start && k.Ways > 1 && !k.Closing && k.fits(micros) && micros < k.Until+SplitMargin.Microseconds() {
		*s = *k
		terms, held = t.open(&next, generation, now)
	}
	perSecond := counted.count(micros, part.Ops)
	switch until := micros + t.splitTTL(); {
	case s.Ways == 0:
		ways := int(min(Tokens(part.Ways), MaxWays, t.Burst))
		paused := s.Start > 0 && micros < s.Until+SplitMargin.Microseconds()
		if ways > 1 && part.Threshold > 0 && perSecond >= part.Threshold && !part.End && !paused {
			t.split(&next, Split{Start: max(micros, s.Start+1), Until: until, Ways: ways, Stride: part.Stride,
				Held: min(next.out()+held, maxOut), Level: max(0, next.TAT-now)}, now)
			terms, held = t.open(&next, generation, now)
		}
	case s.Closing:
	case part.End || perSecond*calm < part.Threshold && micros >= s.Start+splitLeast.Microseconds():
		s.Closing = true
	case until > s.Until:
		s.Until = until
	}
	next.TAT = max(next.TAT, terms.filled(now, next.out()+held))
	out.Level = next.TAT - now
	return next, counted, out
}

// split divides a cell.
func (t *Terms) split(c *Cell, s Split, now Ticks) {
	c.TAT = now + t.Open(&s, 0)
	c.Out, c.Before = 0, 0
	c.Split = s
}

// Open is the level at which a part begins. Whole tokens are dealt out as the burst is, and home keeps the fraction: a third of
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

// ApplyMerge makes a bucket whole again whose other sub-buckets have all been closed: out tokens were on lease there. Of several
// merges of one split the first counts. Granted is 1 if this was it.
func (t *Terms) ApplyMerge(leased Tokens, part *Part, generation int64, cell Cell, now Ticks) (next Cell, out Outcome, write bool) {
	next = cell
	terms, held := t.open(&next, generation, now)
	s := &next.Split
	if s.Ways > 0 && s.Closing && s.Start == part.Split.Start {
		free := t.FromPart(terms, now+terms.Depth-next.TAT) + part.Free
		next.TAT = now + t.Depth - max(-t.Ceiling, min(free, t.Depth))
		next.Out = min(next.Out+leased, maxOut)
		if s.whole(); t.Class.ticksAt(generation, s.Start+LeaseTTL.Microseconds()) <= now {
			s.Held = 0
		}
		if part.End {
			s.Until = t.Class.micros(generation, now) + splitPause.Microseconds()
		}
		terms, held = t, s.Held
		out.Granted, write = 1, true
	}
	next.TAT = max(next.TAT, terms.filled(now, next.out()+held))
	out.Level = max(0, next.TAT-now)
	return next, out, write
}

// ApplySub runs an entry on a sub-bucket other than home; cell is zero if it has none yet. It is refused, ok false, when the split
// is over by this master's clock, less SplitMargin, or closed, or when a later one has begun. Op Close closes it: Granted is what is out on
// lease, Level what is free, for Part.Free.
func (t *Terms) ApplySub(op Op, n Tokens, ask *Ask, part *Part, generation int64, cell Cell, now Ticks) (next Cell, out Outcome, write, ok bool) {
	s, class := &part.Split, t.Class
	micros := class.micros(generation, now)
	left := s.Until - SplitMargin.Microseconds() - micros
	if left < 0 || !s.fits(micros) || s.Ways < 2 || part.Index >= s.Ways || cell.Start > s.Start || cell.Start == s.Start && cell.Closing && op != Close {
		return cell, out, false, false
	}
	p := t.Part(s.Ways, part.Index)
	next = cell
	if cell.Start < s.Start {
		level := p.Depth
		if micros <= s.Start+openWithin.Microseconds() {
			level = t.Open(s, part.Index)
		}
		next = Cell{TAT: now + level, Split: Split{Start: s.Start}}
		write = true
	}
	held, freed := t.heldBy(s, part.Index), class.ticksAt(generation, s.Start+(LeaseTTL+MaxSkew).Microseconds())
	held = p.pass(&next, now, held, freed)
	wrote := false
	switch op {
	case Close:
		out.Granted, out.Level = next.out(), t.FromPart(&p, now+p.Depth-next.TAT)
		write = write || !next.Closing
		next.Closing = true
		return next, out, write, true
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
