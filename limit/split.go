package limit

import (
	"math"
	"time"
)

// A bucket that the whole fleet asks for is divided into parts, cells of their own on different masters. The cell that it
// always had is its home: while the bucket is divided home has no tokens, and says how it is divided.
// docs/guarantees.md has the proof that no window holds more for it.
const (
	// SplitTTL is how long a split lasts unless home extends it; less in a bucket whose class is hardly longer
	// than its fill.
	SplitTTL = 3 * time.Second
	// SplitMargin separates the moment from which parts refuse, by their masters' clocks, from the end
	// of the split, and that from the moment at which home counts itself whole again.
	SplitMargin = 500 * time.Millisecond
	// MaxSkew is how far the clocks of two masters may be apart.
	MaxSkew = 2 * SplitMargin
	// MaxWays is the most parts of a bucket.
	MaxWays = 64

	// splitLeast is the least age of a split that ends for want of load.
	splitLeast = 2 * time.Second
	// splitPause follows a split that was ended by order (Part.End).
	splitPause = 10 * time.Second
	// openWithin is for how long after the split a part may begin with its share of what was there: less
	// than the shortest generation, so that one that was forgotten never begins with it again.
	openWithin = 2 * time.Second
	// calm: a split ends when the load is below this part of what began it.
	calm = 4
	// maxOps bounds the counts of a Load.
	maxOps = 1 << 30
)

// Split says how a bucket is divided. It is in the record of its home, and goes with every reply from there. The
// zero value is a bucket that was not divided of late.
type Split struct {
	// Start names the split: its moment by home's clock, in microseconds since 1970. It outlasts
	// the split for some seconds, and names the lease record that began with it (Ask.Origin).
	Start int64
	// Until is the end of the split, in microseconds since 1970. Home may move it on.
	Until int64
	// Ways is the number of parts; 0 once the bucket is whole again.
	Ways int
	// Stride is how many tags lie between a part and the next; part 0 is on home's. The store chooses it.
	Stride int
	// Held is what was on lease at Start. It takes room in all parts until it has certainly ended.
	Held Tokens
	// Level of the bucket at Start, which says what the parts begin with (Terms.Open).
	Level Ticks
	// Closing: the load has gone. Whoever sees it closes the parts and brings home what is in them. In the cell
	// of a part: it is closed.
	Closing bool
}

// Part is what an entry carries that concerns a division: to which part it goes, or what home
// shall know (ops Touch and Merge). Other entries on home have none.
type Part struct {
	// Index of the part, 0 to Split.Ways - 1. Not for home.
	Index int
	// Split as the agent knows it; zero if it knows of none.
	Split Split

	// The rest is for home. Ops are the entries that the agent had on the bucket since the last Touch, wherever they went.
	Ops int64
	// Threshold of entries per second, of all agents, from which the bucket is split; 0 never does.
	Threshold int64
	// Ways and Stride are the division that suits the store: more than one way if it has several masters.
	Ways, Stride int
	// End ends the split, or keeps the bucket whole.
	End bool
	// Free is, for Merge, what the parts had when they closed (Terms.FromPart); what they had on lease is the entry's N.
	Free Ticks
	// Home: the entry is for home.
	Home bool
}

// At numbers the cells of a bucket: 0 is home, 1 is the part of index 0, and so on. Nil is home.
func (p *Part) At() int {
	if p == nil || p.Home {
		return 0
	}
	return p.Index + 1
}

// Load counts the entries on a bucket in seconds of its home's clock. The zero value has counted nothing.
type Load struct {
	// Window is the second that Ops belong to, since 1970; Before are those of the second before.
	Window, Ops, Before int64
}

// count adds entries and estimates the load per second: that of the last second, of which the window before counts by
// the part that lies in it.
func (l *Load) count(micros, ops int64) int64 {
	const second = 1_000_000
	if w := micros / second; w != l.Window {
		before := l.Ops
		if w != l.Window+1 {
			before = 0
		}
		*l = Load{Window: w, Before: before}
	}
	l.Ops = min(l.Ops+ops, maxOps)
	return l.Ops + l.Before*(second-micros%second)/second
}

// Valid reports whether the counts are in range. A store checks what it reads.
func (l *Load) Valid() bool {
	return l.Window >= 0 && l.Window < 1<<40 && l.Ops >= 0 && l.Ops <= maxOps && l.Before >= 0 && l.Before <= maxOps
}

// Valid reports whether a record is in range. A store checks what it reads.
func (s *Split) Valid() bool {
	return s.Start >= 0 && s.Start < 1<<52 && s.Until >= 0 && s.Until < 1<<52 && s.Ways >= 0 && s.Ways <= MaxWays &&
		s.Stride >= 0 && s.Stride < 1<<20 && s.Held >= 0 && s.Held <= maxOut && s.Level >= 0 && s.Level < MaxTicks
}

// Share is what the part of an index has of a number of tokens: remainders go to the first ones.
func Share(total Tokens, ways, index int) Tokens {
	share := total / Tokens(ways)
	if Tokens(index) < total%Tokens(ways) {
		share++
	}
	return share
}

// Part is the terms of a part: its share of the burst, which fills in the time in which the whole would. So
// rates are divided as bursts are, and a TAT says the same of a part as of the whole. A part without burst, as there
// is one when the burst was lowered below the ways, grants nothing.
func (t *Terms) Part(ways, index int) Terms {
	p := Terms{Class: t.Class, Burst: Share(t.Burst, ways, index), Emission: t.Depth}
	if p.Burst > 0 {
		p.Emission = (t.Depth + Ticks(p.Burst) - 1) / Ticks(p.Burst)
		p.Depth = Ticks(p.Burst) * p.Emission
	}
	p.Ceiling = p.Depth + t.Ceiling - t.Depth
	return p
}

// FromPart converts free time of a part, which may be negative, to that of the whole: the same
// tokens, less one tick for what is rounded.
func (t *Terms) FromPart(p *Terms, free Ticks) Ticks {
	return Ticks(math.Floor(float64(free)*float64(t.Emission)/float64(p.Emission))) - 1
}

// HeldBy is the room that Split.Held takes in a part.
func (t *Terms) HeldBy(s *Split, index int) Tokens {
	return Share(t.Burst, s.Ways, index) - Share(max(0, t.Burst-s.Held), s.Ways, index)
}

// splitTTL is SplitTTL in microseconds, or less: a cell is forgotten a generation after it was last written, and
// from the end of the split it needs its time to fill.
func (t *Terms) splitTTL() int64 {
	room := int64(math.Floor(float64(t.Class.Span()-t.Ceiling)/t.Class.PerMicro)) - SplitMargin.Microseconds()
	return min(SplitTTL.Microseconds(), room)
}

// micros is the time of a tick, in whole microseconds since 1970.
func (c Class) micros(generation int64, now Ticks) int64 {
	return generation*c.Length.Microseconds() + int64(math.Floor(float64(now)/c.PerMicro))
}

// ticksAt is the tick of a time in microseconds since 1970, relative to a generation.
func (c Class) ticksAt(generation, micros int64) Ticks {
	return Ticks(math.Floor(float64(micros-generation*c.Length.Microseconds()) * c.PerMicro))
}
