package redisshard

import (
	"cmp"
	_ "embed"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"

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
	entry *batcher.Entry
}

// call is one EVALSHA: entries in the order of the payload, ready to be
// encoded for any generation. Reused.
type call struct {
	layout  *layout
	items   []item
	numbers []byte
	args    []any
}

// load sorts entries into groups and, within a group, into runs that share
// terms, op and, leases apart, number.
func (c *call) load(l *layout, entries []*batcher.Entry) {
	c.layout = l
	c.items = c.items[:0]
	for _, e := range entries {
		tag, bin := l.place(&e.Bucket)
		c.items = append(c.items, item{group{tag, bin, e.Terms.Class, e.Round}, e})
	}
	slices.SortFunc(c.items, compareItems)
}

func compareItems(a, b item) int {
	if a.group != b.group {
		return cmp.Or(cmp.Compare(a.round, b.round), cmp.Compare(a.tag, b.tag), cmp.Compare(a.bin, b.bin),
			cmp.Compare(a.class.Length, b.class.Length), cmp.Compare(a.class.Kind, b.class.Kind))
	}
	x, y := a.entry, b.entry
	if x.Terms == y.Terms && x.Op == y.Op && (x.N == y.N || x.Op == limit.Lease) {
		return 0
	}
	return cmp.Or(cmp.Compare(x.Op, y.Op), cmp.Compare(runN(x), runN(y)), cmp.Compare(x.Terms.Emission, y.Terms.Emission),
		cmp.Compare(x.Terms.Depth, y.Terms.Depth), cmp.Compare(x.Terms.Ceiling, y.Terms.Ceiling))
}

// runN is the number that stands in a run's header. A lease carries its numbers itself.
func runN(e *batcher.Entry) limit.Tokens {
	if e.Op == limit.Lease {
		return 0
	}
	return e.N
}

// sameRun reports whether two entries of one group can share a run's header.
func sameRun(a, b *batcher.Entry) bool {
	return a.Op == b.Op && (a.N == b.N || a.Op == limit.Lease) && (a.Terms == b.Terms || *a.Terms == *b.Terms)
}

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
			e, n := c.items[i].entry, 1
			for i+n < end && sameRun(e, c.items[i+n].entry) {
				n++
			}
			t := e.Terms
			c.numbers = appendNumbers(c.numbers, float64(e.Op), float64(runN(e)), float64(t.Emission), float64(t.Depth),
				float64(t.Ceiling), float64(n))
			if e.Op == limit.Lease {
				c.appendAsks(c.items[i : i+n])
			}
			i += n
		}
	}
	c.args[2] = groups * generations
	binary.BigEndian.PutUint64(c.numbers[8:], math.Float64bits(float64(groups)))
	c.args = append(c.args, c.numbers)
	for i := range c.items {
		c.args = append(c.args, c.items[i].entry.Bucket.ID())
	}
	return c.args
}

// appendAsks appends what each of the lease entries carries.
func (c *call) appendAsks(items []item) {
	for _, it := range items {
		e, a := it.entry, &it.entry.Ask
		c.numbers = appendNumbers(c.numbers, float64(e.N), float64(a.Epoch), float64(a.Settled), float64(a.Returned),
			float64(a.Take), float64(a.Piece), float64(a.Presence))
	}
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
		if !sameRun(c.items[end-1].entry, c.items[end].entry) {
			runs++
		}
	}
	return end, runs
}

// Codes of the script in place of a grant.
const (
	codeDamaged = -1
	codeClock   = -2
)

// errClock marks entries that the script refused because the call named the wrong
// generations. They are sent again with the time that the reply told.
var errClock = errors.New("the server's clock is outside the generations that the call named")

// values is the number of values in the script's reply.
func (c *call) values() int {
	n := 2 + 2*len(c.items)
	for _, it := range c.items {
		if it.entry.Op == limit.Lease {
			n += 3
		}
	}
	return n
}

// decode sets the outcome of every entry from the script's reply and returns
// the server's time in microseconds.
func (c *call) decode(reply []byte) (micros int64, err error) {
	n, b, err := msgp.ReadArrayHeaderBytes(reply)
	if err != nil || int(n) != c.values() {
		return 0, fmt.Errorf("redisshard: the script answered %d values for %d entries: %v", n, len(c.items), err)
	}
	next := func() (v int64) {
		if err == nil {
			v, b, err = msgp.ReadInt64Bytes(b)
		}
		return v
	}
	micros = next()
	lag := next() * 1000
	for _, it := range c.items {
		granted, level := next(), next()
		e := it.entry
		e.Out, e.Err = limit.Outcome{}, nil
		var taken, epoch, contenders int64
		if e.Op == limit.Lease {
			taken, epoch, contenders = next(), next(), next()
		}
		switch {
		case granted >= 0:
			e.Out = limit.Outcome{Granted: limit.Tokens(granted), Level: limit.Ticks(level), Lag: lag,
				Taken: limit.Tokens(taken), Epoch: epoch, Contenders: contenders}
		case granted == codeDamaged:
			e.Err = fmt.Errorf("%w: bucket %q", batcher.ErrDamaged, e.Bucket.ID())
		case granted == codeClock:
			e.Err = errClock
		default:
			err = fmt.Errorf("redisshard: the script answered code %d", granted)
		}
	}
	return micros, err
}
