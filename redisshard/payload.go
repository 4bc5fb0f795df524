package redisshard

import (
	"cmp"
	_ "embed"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/tinylib/msgp/msgp"

	"github.com/spillgate/spillgate/batcher"
	"github.com/spillgate/spillgate/limit"
)

//go:embed lua/debit.lua
var debitScript string

// group is what shares one hash: its entries go to the script together.
type group struct {
	tag, bin int
	class    limit.Class
	round    int
}

// item is an entry with the group it belongs to.
type item struct {
	group
	op    limit.Op // as the script has it
	entry *batcher.Entry
}

// onPart is added to the op of an entry on a part, onWindow to that of one on a bucket that counts in windows.
const (
	onPart   = 16
	onWindow = 32
)

// ownNumbers is how many numbers each entry of an op has of its own. Ops that have none carry their
// number of tokens in the run's header.
func ownNumbers(op limit.Op) int {
	switch {
	case op == onWindow+limit.Lease:
		return 6
	case op > onWindow:
		return 3
	case op == limit.Lease:
		return 8
	case op == limit.Touch:
		return 12
	case op == limit.Merge:
		return 4
	case op == onPart+limit.Lease:
		return 12
	case op > onPart:
		return 5
	}
	return 0
}

// call is one EVALSHA: entries in the order of the payload, ready to be
// encoded for any generation. Reused.
type call struct {
	layout  *layout
	divider divider
	items   []item
	numbers []byte
	args    []any
}

// divider says how a bucket is divided best.
type divider interface {
	division(tag int) (ways, stride int)
	// tooSkewed reports whether the masters' clocks are too far apart for any.
	tooSkewed() bool
}

// load sorts entries into groups and, within a group, into runs that share
// terms, op and, unless it is each entry's own, number.
func (c *call) load(l *layout, entries []*batcher.Entry) {
	c.layout = l
	c.items = c.items[:0]
	for _, e := range entries {
		tag, bin := l.placePart(&e.Bucket, e.Part)
		op := e.Op
		if e.Part.At() > 0 {
			op += onPart
		} else if e.Terms.Algorithm != limit.TokenBucket {
			op += onWindow
		}
		e.Split = nil
		if err := e.Valid(); err != nil {
			e.Out, e.Err = limit.Outcome{}, err
			continue
		}
		c.items = append(c.items, item{group{tag, bin, e.Terms.Class, e.Round}, op, e})
	}
	slices.SortFunc(c.items, compareItems)
}

func compareItems(a, b item) int {
	if a.group != b.group {
		return cmp.Or(cmp.Compare(a.round, b.round), cmp.Compare(a.tag, b.tag), cmp.Compare(a.bin, b.bin),
			cmp.Compare(a.class.Length, b.class.Length), cmp.Compare(a.class.Kind, b.class.Kind), cmp.Compare(a.class.Window, b.class.Window))
	}
	x, y := a.entry, b.entry
	if x.Terms == y.Terms && a.op == b.op && a.headerN() == b.headerN() {
		return 0
	}
	return cmp.Or(cmp.Compare(a.op, b.op), cmp.Compare(a.headerN(), b.headerN()), cmp.Compare(x.Terms.Emission, y.Terms.Emission),
		cmp.Compare(x.Terms.Depth, y.Terms.Depth), cmp.Compare(x.Terms.Ceiling, y.Terms.Ceiling))
}

// headerN is the number that stands in the header of the item's run.
func (it *item) headerN() int64 {
	if it.op <= limit.Reset {
		return int64(it.entry.N)
	}
	return int64(ownNumbers(it.op))
}

// sameRun reports whether two items of one group can share a run's header.
func sameRun(a, b *item) bool {
	x, y := a.entry, b.entry
	return a.op == b.op && a.headerN() == b.headerN() && (x.Terms == y.Terms || *x.Terms == *y.Terms) && (!a.onPart() ||
		x.Part.Index == y.Part.Index && x.Part.Split.Ways == y.Part.Split.Ways)
}

// onPart reports whether the item is for a part of its bucket.
func (it *item) onPart() bool { return it.op > onPart && it.op < onWindow }

// terms are those that the item's entry runs on.
func (it *item) terms() *limit.Terms {
	if !it.onPart() || !isPart(it.entry.Part) {
		return it.entry.Terms
	}
	t := it.entry.Terms.Part(it.entry.Part.Split.Ways, it.entry.Part.Index)
	return &t
}

// isPart reports whether a split has the part.
func isPart(p *limit.Part) bool { return p.Split.Ways > 1 && p.Index < p.Split.Ways }

// encode builds the arguments of EVALSHA or EVAL for a call made when the
// server's clock shows about nanos. stamp is the time that the script shall use, in
// microseconds, or 0 for the server's own. The result is valid until the next encode.
func (c *call) encode(command, script string, names *nameCache, nanos, stamp int64) []any {
	c.args = append(c.args[:0], command, script, 0)
	c.numbers = appendNumbers(c.numbers[:0], float64(stamp), 0)
	groups := 0
	for i := 0; i < len(c.items); groups++ {
		g := c.items[i].group
		end, runs := c.extent(i)
		generation, _ := g.class.At(nanos)
		base := generation - 2
		c.args = names.appendKeys(c.args, c.layout, g, base)
		c.numbers = appendNumbers(c.numbers, float64(g.class.Length.Microseconds()), g.class.PerMicro, float64(base),
			float64(end-i), float64(runs))
		for i < end {
			it, n := &c.items[i], 1
			for i+n < end && sameRun(it, &c.items[i+n]) {
				n++
			}
			t := it.terms()
			c.numbers = appendNumbers(c.numbers, float64(it.op), float64(it.headerN()))
			if it.op > onWindow {
				c.numbers = appendNumbers(c.numbers, float64(t.Class.Window.Microseconds()), float64(t.Burst), float64(t.Algorithm))
			} else {
				c.numbers = appendNumbers(c.numbers, float64(t.Emission), float64(t.Depth), float64(t.Ceiling))
			}
			c.numbers = appendNumbers(c.numbers, float64(n))
			if it.op > limit.Reset {
				c.appendOwn(c.items[i : i+n])
			}
			i += n
		}
	}
	c.args[2] = groups * generations
	binary.BigEndian.PutUint64(c.numbers[8:], math.Float64bits(float64(groups)))
	c.args = append(c.args, c.numbers)
	for i := range c.items {
		c.args = append(c.args, field(c.items[i].entry))
	}
	return c.args
}

// appendOwn appends the numbers that each of the entries of a run has of its own.
func (c *call) appendOwn(items []item) {
	for i := range items {
		it := &items[i]
		e, p, a := it.entry, it.entry.Part, &it.entry.Ask
		if it.onPart() {
			c.appendPart(e)
		}
		switch {
		case it.op > onWindow:
			c.numbers = appendNumbers(c.numbers, float64(e.N), float64(a.Epoch), float64(a.Piece))
			if e.Op == limit.Lease {
				c.numbers = appendNumbers(c.numbers, float64(a.Returned), float64(a.Take), float64(a.Presence))
			}
		case e.Op == limit.Touch:
			c.appendTouch(p, it.tag)
		case e.Op == limit.Merge:
			c.numbers = appendNumbers(c.numbers, float64(e.N), float64(p.Split.Start), number(p.End), float64(p.Free))
		case e.Op == limit.Lease:
			c.numbers = appendNumbers(c.numbers, float64(e.N), float64(a.Epoch), float64(a.Settled), float64(a.Returned),
				float64(a.Take), float64(a.Piece), float64(a.Presence), float64(a.Origin))
		case it.op > onPart:
			c.numbers = appendNumbers(c.numbers, float64(e.N))
		}
	}
}

// appendPart appends what the script needs to know of the split. It refuses one that has ended.
func (c *call) appendPart(e *batcher.Entry) {
	s, index := &e.Part.Split, e.Part.Index
	if !isPart(e.Part) {
		c.numbers = appendNumbers(c.numbers, 0, 0, 0, 0)
		return
	}
	c.numbers = appendNumbers(c.numbers, float64(s.Start), float64(s.Until), float64(e.Terms.HeldBy(s, index)), float64(e.Terms.Open(s, index)))
}

// appendTouch appends what home is told of the load. Who names a stride has chosen the division; else it is the one that
// suits the topology, in at most as many ways as the part allows.
func (c *call) appendTouch(p *limit.Part, tag int) {
	ways, stride := p.Ways, p.Stride
	if stride == 0 {
		if ways, stride = c.divider.division(tag); p.Ways > 0 {
			ways = min(ways, p.Ways)
		}
	}
	s := &p.Split
	end := p.End || c.divider.tooSkewed()
	c.numbers = appendNumbers(c.numbers, float64(p.Ops), float64(p.Threshold), float64(ways), float64(stride), number(end),
		float64(s.Start), float64(s.Until), float64(s.Ways), float64(s.Stride), float64(s.Held), float64(s.Level), number(s.Closing))
}

func number(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// appendNumbers appends values as the script reads them.
func appendNumbers(b []byte, values ...float64) []byte {
	for _, v := range values {
		b = binary.BigEndian.AppendUint64(b, math.Float64bits(v))
	}
	return b
}

// extent is the end of the group that begins at i, and the number of its runs.
func (c *call) extent(i int) (end, runs int) {
	runs = 1
	for end = i + 1; end < len(c.items) && c.items[end].group == c.items[i].group; end++ {
		if !sameRun(&c.items[end-1], &c.items[end]) {
			runs++
		}
	}
	return end, runs
}

// Codes of the script in place of a grant.
const (
	codeDamaged = -1
	codeClock   = -2
	codeStale   = -3
)

// errClock marks entries that the script refused because the call named the wrong
// generations. They are sent again with the time that the reply told.
var errClock = errors.New("the server's clock is outside the generations that the call named")

// splitValues is the number of values that a split takes in the script's reply, with the entry's number before.
const splitValues = 8

// values is the least number of values in the script's reply; splits may follow.
func (c *call) values() int {
	n := 2 + 2*len(c.items)
	for i := range c.items {
		switch op := c.items[i].op; {
		case op == onWindow+limit.Lease:
			n += 5
		case op == limit.Lease || op > onWindow:
			n += 3
		case op == onPart+limit.Lease:
			n += 4
		}
	}
	return n
}

// reply reads the script's reply, value by value. err is that of the first that was no integer.
type reply struct {
	rest []byte
	err  error
}

func (r *reply) next() (v int64) {
	if r.err == nil {
		v, r.rest, r.err = msgp.ReadInt64Bytes(r.rest)
	}
	return v
}

// decode sets the outcome of every entry from the script's reply and returns
// the server's time in microseconds.
func (c *call) decode(text []byte) (micros int64, err error) {
	n, b, err := msgp.ReadArrayHeaderBytes(text)
	values := c.values()
	if err != nil || int(n) < values || (int(n)-values)%splitValues != 0 {
		return 0, fmt.Errorf("redisshard: the script answered %d values for %d entries: %v", n, len(c.items), err)
	}
	r := &reply{rest: b}
	micros = r.next()
	lag := r.next() * 1000
	for i := range c.items {
		if err = c.items[i].decode(r, lag); err != nil {
			return micros, err
		}
	}
	for range (int(n) - values) / splitValues {
		if err = c.decodeSplit(r, micros+lag/1000); err != nil {
			return micros, err
		}
	}
	return micros, r.err
}

// decode sets the outcome of one entry.
func (it *item) decode(r *reply, lag int64) error {
	e, granted, level := it.entry, r.next(), r.next()
	out := limit.Outcome{Granted: limit.Tokens(granted), Level: limit.Ticks(level), Lag: lag}
	switch {
	case it.op > onWindow:
		out.Left, out.Epoch = limit.Ticks(r.next()), r.next()
		if rest := r.next(); e.Terms.Algorithm == limit.SlidingLog {
			out.Wait = limit.Ticks(rest)
		} else {
			out.Fading = limit.Tokens(rest)
		}
		if e.Op == limit.Lease {
			out.Taken, out.Contenders = limit.Tokens(r.next()), r.next()
			out.Term = min(limit.LeaseTTL.Nanoseconds(), int64(out.Left)*1000)
		}
	case e.Op == limit.Lease:
		out.Taken, out.Epoch, out.Contenders = limit.Tokens(r.next()), r.next(), r.next()
		if it.op > onPart {
			out.Term = r.next()
		}
	}
	e.Out, e.Err = limit.Outcome{}, nil
	switch {
	case granted >= 0:
		e.Out = out
	case granted == codeDamaged:
		e.Err = fmt.Errorf("%w: bucket %q", batcher.ErrDamaged, e.Bucket.ID())
	case granted == codeClock:
		e.Err = errClock
	case granted == codeStale:
		e.Err = batcher.ErrStale
	default:
		return fmt.Errorf("redisshard: the script answered code %d", granted)
	}
	return nil
}

// decodeSplit sets how the bucket of one entry is divided.
func (c *call) decodeSplit(r *reply, micros int64) error {
	at := r.next()
	s := limit.Split{Start: r.next(), Until: r.next(), Ways: int(r.next()), Stride: int(r.next()),
		Held: limit.Tokens(r.next()), Level: limit.Ticks(r.next()), Closing: r.next() == 1}
	if r.err != nil {
		return r.err
	}
	if at < 0 || at >= int64(len(c.items)) {
		return fmt.Errorf("redisshard: the script answered with a split for entry %d of %d", at, len(c.items))
	}
	c.items[at].entry.Split = &batcher.Split{Split: s, Left: time.Duration(s.Until-micros) * time.Microsecond}
	return nil
}
