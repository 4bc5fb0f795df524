package limit

import "time"

// LeaseTTL is how long an agent may spend the tokens of a lease, by its own monotonic clock
// from before it asked, and the length of a store's epochs. Every class is a whole number of
// epochs long, and longer than a full bucket's refill by at least one (see Rate.Terms).
const LeaseTTL = 2 * time.Second

// Presence is the unit of Ask.Presence: this many make up one LeaseTTL.
const Presence = 256

const (
	// maxOut bounds the counts of a record, so that sums stay exact.
	maxOut = MaxTokens
	// maxSeen bounds the presence in one epoch: a hundred thousand agents.
	maxSeen = 1 << 25
)

// Cell is what a store holds of one bucket: its TAT, what is out on lease, how it is divided. TAT and Epoch are
// relative to the start of one generation.
type Cell struct {
	TAT Ticks
	Leases
	// Split is how the bucket is divided, and for some seconds how it was. The cell of a part has of it only Closing.
	Split
}

// Valid reports whether the record is in range. A store checks what it reads.
func (c *Cell) Valid() bool { return c.Leases.Valid() && c.Split.Valid() }

// Leases is the record of tokens that agents hold. Tokens are counted in the epoch in which
// they were granted, and for one more: after that every lease that they were part of
// has ended, so whatever was not settled is free to refill. The zero value records nothing.
type Leases struct {
	// Epoch that Out belongs to, since the generation began; negative when read from the
	// generation before.
	Epoch int64
	// Out and Before are the unsettled tokens granted in Epoch and in the one before.
	Out, Before Tokens
	// Seen and SeenBefore are the time for which agents have asked in Epoch and in the one before, in
	// 1/Presence of LeaseTTL, summed over agents.
	Seen, SeenBefore int64
}

// out is all that counts as out on lease.
func (l *Leases) out() Tokens { return l.Out + l.Before }

// none reports whether nothing is recorded: the cell is its TAT alone.
func (l *Leases) none() bool {
	return l.Out == 0 && l.Before == 0 && l.Seen == 0 && l.SeenBefore == 0
}

// Valid reports whether the counts are in range. A store checks what it reads.
func (l *Leases) Valid() bool {
	return l.Out >= 0 && l.Out <= maxOut && l.Before >= 0 && l.Before <= maxOut &&
		l.Seen >= 0 && l.Seen <= maxSeen && l.SeenBefore >= 0 && l.SeenBefore <= maxSeen &&
		l.Epoch > -1<<40 && l.Epoch < 1<<40
}

// Ask is what an entry of op Lease carries besides the tokens wanted; of the window kinds others have of it what ApplyWindow says.
type Ask struct {
	// Epoch of the grant that Settled belongs to, counted from 1970.
	Epoch int64
	// Settled tokens of that epoch are spent or come back; they stop counting as out. Each
	// token is settled at most once.
	Settled Tokens
	// Returned are those of Settled that come back unspent.
	Returned Tokens
	// Take is what waiting callers need: debited first, as by TakePartial, and spent at once, so it
	// never counts as out.
	Take Tokens
	// Piece divides what is taken: callers that need several tokens each take them whole. 0 stands for 1.
	Piece Tokens
	// Presence is the time since the agent asked last, at most one LeaseTTL, in 1/Presence of it. The
	// sum over agents tells how many ask at a time.
	Presence int64
	// Origin is the Split.Start of the record that the grant was made in, as the store said it; 0 where it said none. Where
	// a split has begun a new record since, Settled is void.
	Origin int64
}

// EpochTicks is LeaseTTL in ticks of the class.
func (c Class) EpochTicks() Ticks { return Ticks(float64(LeaseTTL.Microseconds()) * c.PerMicro) }

// Epochs is the number of epochs in a generation.
func (c Class) Epochs() int64 { return int64(c.Length / LeaseTTL) }

// ApplyLeased is Apply for a cell that has leases or was divided, or that is asked for a lease (op Lease). While the
// bucket is divided nothing is done, and next.Ways is above 0. The order is
// what keeps unspent and free tokens together at or below Burst (docs/guarantees.md):
//
//  1. pass the ends of epochs and of a split up to now, each as of its own moment;
//  2. clamp the free tokens to what is not out, as of now;
//  3. settle;
//  4. take, grant, or whatever op says.
//
// generation is that of cell and now. taken and granted are the tokens for waiting callers
// and those on lease; other ops have only granted.
func (t *Terms) ApplyLeased(op Op, n Tokens, ask *Ask, generation int64, cell Cell, now Ticks) (next Cell, out Outcome, write bool) {
	next = cell
	held, whole := t.open(&next, generation, now)
	if !whole {
		return next, out, false
	}
	if op == Lease {
		if next.Start == 0 || next.Start == ask.Origin {
			t.settle(&next, ask, generation, now)
			next.TAT = max(next.TAT, t.filled(now, next.out()+held))
		}
		t.grant(n, ask, generation, &next, now, &out)
		write = true
	} else {
		next.TAT, out.Granted, write = t.Apply(op, n, next.TAT, now)
		next.TAT = max(next.TAT, t.filled(now, next.out()+held))
	}
	out.Level = max(0, next.TAT-now)
	return next, out, write
}

// filled is the lowest TAT at now when that many tokens are out.
func (t *Terms) filled(now Ticks, out Tokens) Ticks { return now + Ticks(min(out, t.Burst))*t.Emission }

// pass passes the ends of epochs up to a time, and clamps as of then. held tokens take room besides those of the record
// until freed; what is left of them is returned.
func (t *Terms) pass(c *Cell, at Ticks, held Tokens, freed Ticks) Tokens {
	held = t.roll(c, at, held, freed)
	c.TAT = max(c.TAT, t.filled(at, c.out()+held))
	return held
}

// roll passes the ends of epochs up to a time. What refills before an end finds less room than what refills after it, so
// the clamp is as of the end.
func (t *Terms) roll(c *Cell, at Ticks, held Tokens, freed Ticks) Tokens {
	ttl := t.Class.EpochTicks()
	epoch := int64(floorDiv(at, ttl))
	if freed <= Ticks(c.Epoch)*ttl {
		held = 0 // before the last write
	}
	if c.none() {
		c.Leases = Leases{Epoch: epoch}
	}
	// Two ends empty the record; more change nothing.
	for range 2 {
		if c.Epoch >= epoch {
			break
		}
		end := Ticks(c.Epoch+1) * ttl
		if held > 0 && freed <= end {
			c.TAT = max(c.TAT, t.filled(freed, c.out()+held))
			held = 0
		}
		c.TAT = max(c.TAT, t.filled(end, c.out()+held))
		c.Leases = Leases{Epoch: c.Epoch + 1, Before: c.Out, SeenBefore: c.Seen}
	}
	c.Epoch = max(c.Epoch, epoch)
	if held > 0 && freed <= at {
		c.TAT = max(c.TAT, t.filled(freed, c.out()+held))
		held = 0
	}
	return held
}

// floorDiv is a / b, rounded down; b > 0.
func floorDiv(a, b Ticks) Ticks {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}

// settle takes an agent's account of one epoch. What no record matches has expired and is void.
func (t *Terms) settle(c *Cell, ask *Ask, generation int64, now Ticks) {
	n := Tokens(0)
	switch ask.Epoch - generation*t.Class.Epochs() {
	case c.Epoch:
		n = min(ask.Settled, c.Out)
		c.Out -= n
	case c.Epoch - 1:
		n = min(ask.Settled, c.Before)
		c.Before -= n
	}
	back := min(ask.Returned, n, t.Burst)
	c.TAT = max(c.TAT-Ticks(back)*t.Emission, t.filled(now, c.out()))
}

// grant serves waiting callers, then leases up to n: a fair share of what is left, of which there is always one
// more than contenders, so that a newcomer finds something.
func (t *Terms) grant(n Tokens, ask *Ask, generation int64, c *Cell, now Ticks, out *Outcome) {
	ttl := t.Class.EpochTicks()
	c.Seen = min(c.Seen+ask.Presence, maxSeen)
	m := contenders(c, now, ttl)
	free := Tokens(max(0, now+t.Depth-c.TAT) / t.Emission)
	out.Taken = min(ask.Take, free)
	out.Taken -= out.Taken % max(1, ask.Piece)
	free -= out.Taken
	share := free / Tokens(m+1)
	switch {
	case out.Taken < ask.Take:
		share = 0 // what is left is part of what a caller needs
	case share == 0 && ask.Take > 0 && free > 0:
		share = 1
	}
	out.Granted = min(n, share, maxOut-c.Out)
	c.Out += out.Granted
	c.TAT += Ticks(out.Taken+out.Granted) * t.Emission
	out.Epoch, out.Contenders = c.Epoch+generation*t.Class.Epochs(), m
}

// contenders estimates how many agents ask at a time, at least 1: the presence in the last
// LeaseTTL, in which the epoch before counts by the part that lies in it.
func contenders(c *Cell, now, ttl Ticks) int64 {
	since := max(0, now-Ticks(c.Epoch)*ttl)
	part := min(Presence, int64(float64(since)*Presence/float64(ttl)))
	return max(1, (c.Seen*Presence+c.SeenBefore*(Presence-part))/(Presence*Presence))
}
