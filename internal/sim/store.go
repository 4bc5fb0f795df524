package sim

import (
	"math"
	"time"

	"github.com/spillgate/spillgate/batcher"
	"github.com/spillgate/spillgate/limit"
	"github.com/spillgate/spillgate/memstore"
)

// master is one server: a clock, and the cells of its buckets, kept twice. memstore is what ships; plain is
// a map that does the same, for the mistakes that tests make. While nobody makes any, both must agree.
type master struct {
	world  *World
	id     int
	offset int64   // of its clock
	rate   float64 // of its clock, 1 is right
	store  *memstore.Store
	plain  plain
	log    []logged // what it ran, if it may fail over
	ran    int      // entries
}

// born is the server time at which runs begin, near enough.
const born = int64(1_700_000_000_000_000_000)

func newMaster(w *World, id int) *master {
	m := &master{world: w, id: id, rate: 1}
	m.clear()
	switch {
	case !w.plan.Divided:
		m.offset = born + w.upTo(1000e9) // so that ends of epochs lie anywhere
	case id == 0:
		m.offset = born + w.upTo(1000e9)
		w.around = m.offset
	}
	if w.plan.Divided {
		most := maxOffset
		if w.plan.Calm {
			most /= 10
		}
		m.offset = w.around + w.rng.Int64N(2*most) - most
	}
	if w.plan.Drift > 0 {
		m.rate += (2*w.rng.Float64() - 1) * w.plan.Drift
	}
	return m
}

// maxOffset is how far a clock may be from true time where buckets are divided: two are at most limit.MaxSkew apart.
const maxOffset = int64(490 * time.Millisecond)

// clear makes all buckets full.
func (m *master) clear() {
	store, err := memstore.New(memstore.Config{})
	if err != nil {
		panic(err)
	}
	m.store, m.plain = store, plain{wires: &m.world.wires}
}

// clock is the server's time.
func (m *master) clock() int64 {
	return m.offset + m.world.now + int64(float64(m.world.now)*(m.rate-1))
}

// apply runs one entry. [5]
func (m *master) apply(e *batcher.Entry) {
	now := m.clock()
	m.ran++
	if m.world.plan.Failover > 0 {
		m.log = append(m.log, logged{m.world.now, now, *e})
	}
	m.run(now, e)
}

// run runs one entry at a time of the server.
func (m *master) run(now int64, e *batcher.Entry) {
	wrong := m.world.wires.Apply != nil || m.world.wires.Divide != nil || m.world.wires.Window != nil
	var twin batcher.Entry
	if !wrong {
		twin = *e
		m.store.ApplyAt(now, &twin)
	}
	m.plain.apply(now, e)
	if !wrong && (twin.Out != e.Out || twin.Err != e.Err || !same(twin.Split, e.Split)) {
		m.world.fail("twin", m.world.bySum[e.Bucket.Sum()], "op %d of %d: memstore says %+v, %v, %+v; the arithmetic on a map says %+v, %v, %+v",
			e.Op, e.N, twin.Out, twin.Err, twin.Split, e.Out, e.Err, e.Split)
	}
}

func same(a, b *batcher.Split) bool { return a == b || a != nil && b != nil && *a == *b }

// plain is the store of generations as it is described: a cell, the generation in which it was written,
// and for each class the newest time of a write.
type plain struct {
	wires   *Wires
	classes []*class
}

type class struct {
	limit.Class
	part   uint64 // memstore has so many clocks for a class
	newest int64
	clock  limit.Ticks
	cells  map[limit.Sum]record
	loads  map[limit.Sum]limit.Load
}

type record struct {
	limit.Cell
	window     limit.Window // of a window kind, which has no Cell
	generation int64
}

func (p *plain) class(c limit.Class, sum limit.Sum) *class {
	part := sum.Lo % 64 // of the bucket: its parts share its clock
	for _, have := range p.classes {
		if have.Class == c && have.part == part {
			return have
		}
	}
	p.classes = append(p.classes, &class{Class: c, part: part, newest: math.MinInt64, cells: map[limit.Sum]record{}, loads: map[limit.Sum]limit.Load{}})
	return p.classes[len(p.classes)-1]
}

func (p *plain) apply(nanos int64, e *batcher.Entry) {
	sum := e.Bucket.PartSum(e.Part)
	c := p.class(e.Terms.Class, e.Bucket.Sum())
	generation, now := c.At(nanos)
	lag := int64(0)
	if generation < c.newest || generation == c.newest && now < c.clock {
		micros := int64(math.Ceil(float64(c.clock-now) / c.PerMicro))
		lag = 1000 * ((c.newest-generation)*c.Length.Microseconds() + micros)
		generation, now = c.newest, c.clock
	}
	cell := limit.Cell{TAT: now}
	r, exists := c.cells[sum]
	if exists = exists && r.generation >= generation-1; exists {
		cell = r.Cell
		if r.generation < generation {
			cell.TAT -= c.Span()
			cell.Epoch -= c.Epochs()
		}
	}
	o := operation{Entry: e, generation: generation, now: now, cell: cell, exists: exists, load: c.loads[sum]}
	if exists {
		o.window = r.window
	}
	out, write, ok := p.arithmetic(&o)
	e.Split = nil
	if e.Part.At() == 0 && o.cell.Start != 0 {
		left := o.cell.Until - (nanos+lag)/1000
		e.Split = &batcher.Split{Split: o.cell.Split, Left: time.Duration(left) * time.Microsecond}
	}
	if !ok {
		if write { // the split is over, and its part removed
			delete(c.cells, sum)
		}
		e.Out, e.Err = limit.Outcome{}, batcher.ErrStale
		return
	}
	if write {
		if generation > c.newest || now >= c.clock+c.Step() {
			c.newest, c.clock = generation, now
		}
		if o.cell.Split == (limit.Split{}) && o.cell.Leases == (limit.Leases{Epoch: o.cell.Epoch}) {
			o.cell.Epoch = 0 // a cell without a record is its TAT alone
		}
		c.cells[sum] = record{o.cell, o.window, generation}
		c.loads[sum] = o.load
	}
	out.Lag = lag
	e.Out, e.Err = out, nil
}

// operation is an entry on a cell at a moment.
type operation struct {
	*batcher.Entry
	generation int64
	now        limit.Ticks
	cell       limit.Cell // before, then after
	exists     bool
	load       limit.Load   // the same
	window     limit.Window // the same
}

func (p *plain) arithmetic(o *operation) (out limit.Outcome, write, ok bool) {
	switch {
	case o.Terms.Algorithm != limit.TokenBucket:
		apply := o.Terms.ApplyWindow
		if p.wires.Window != nil {
			apply = func(op limit.Op, n limit.Tokens, ask *limit.Ask, w limit.Window, micros int64) (limit.Window, limit.Outcome, bool) {
				return p.wires.Window(o.Terms, op, n, ask, w, micros)
			}
		}
		o.window, out, write = apply(o.Op, o.N, &o.Ask, o.window, o.generation*o.Terms.Class.Length.Microseconds()+int64(o.now))
		return out, write, true
	case p.wires.Divide != nil:
		return p.wires.Divide(o)
	case p.wires.Apply != nil:
		o.cell, out, write = p.wires.Apply(o.Terms, o.Op, o.N, &o.Ask, o.generation, o.cell, o.now)
		return out, write, true
	}
	return o.run()
}

// run does what the entry says. ok is false if the bucket is not divided as the entry says.
func (o *operation) run() (out limit.Outcome, write, ok bool) {
	t, cell := o.Terms, o.cell
	switch {
	case o.Op == limit.Touch:
		o.cell, o.load, out = t.ApplyTouch(o.Part, o.load, o.generation, cell, o.now)
		return out, true, true
	case o.Op == limit.Merge:
		o.cell, out, write = t.ApplyMerge(o.N, o.Part, o.generation, cell, o.now)
	case o.Part.At() > 0:
		o.cell, out, write, ok = t.ApplySub(o.Op, o.N, &o.Ask, o.Part, o.generation, cell, o.exists, o.now)
		return out, write, ok
	case o.Op != limit.Lease && cell.Split == limit.Split{} && cell.Leases == limit.Leases{Epoch: cell.Epoch}:
		tat, granted, write := t.Apply(o.Op, o.N, cell.TAT, o.now)
		o.cell = limit.Cell{TAT: tat}
		return limit.Outcome{Granted: granted, Level: max(0, tat-o.now)}, write, true
	default:
		o.cell, out, write = t.ApplyLeased(o.Op, o.N, &o.Ask, o.generation, cell, o.now)
		return out, write, o.cell.Ways == 0
	}
	return out, write, true
}
