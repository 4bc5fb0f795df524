package sim

import (
	"math"

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
}

// born is the server time at which runs begin, near enough.
const born = int64(1_700_000_000_000_000_000)

func newMaster(w *World, id int) *master {
	store, err := memstore.New(memstore.Config{})
	if err != nil {
		panic(err)
	}
	m := &master{world: w, id: id, store: store, rate: 1, plain: plain{wires: &w.wires}}
	m.offset = born + w.upTo(1000e9) // so that ends of epochs lie anywhere
	if w.plan.Drift > 0 {
		m.rate += (2*w.rng.Float64() - 1) * w.plan.Drift
	}
	return m
}

// clock is the server's time.
func (m *master) clock() int64 {
	return m.offset + m.world.now + int64(float64(m.world.now)*(m.rate-1))
}

// apply runs one entry. [5]
func (m *master) apply(e *batcher.Entry) {
	now := m.clock()
	wrong := m.world.wires.Apply != nil
	var twin batcher.Entry
	if !wrong {
		twin = *e
		m.store.ApplyAt(now, &twin)
	}
	m.plain.apply(now, e)
	if !wrong && (twin.Out != e.Out || twin.Err != nil) {
		m.world.fail("twin", m.world.bySum[e.Bucket.Sum()], "op %d of %d: memstore says %+v, %v; ApplyLeased on a map says %+v",
			e.Op, e.N, twin.Out, twin.Err, e.Out)
	}
}

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
}

type record struct {
	limit.Cell
	generation int64
}

func (p *plain) class(c limit.Class, sum limit.Sum) *class {
	part := sum.Lo % 64
	for _, have := range p.classes {
		if have.Class == c && have.part == part {
			return have
		}
	}
	p.classes = append(p.classes, &class{Class: c, part: part, newest: math.MinInt64, cells: map[limit.Sum]record{}})
	return p.classes[len(p.classes)-1]
}

func (p *plain) apply(nanos int64, e *batcher.Entry) {
	sum := e.Bucket.Sum()
	c := p.class(e.Terms.Class, sum)
	generation, now := c.At(nanos)
	lag := int64(0)
	if generation < c.newest || generation == c.newest && now < c.clock {
		micros := int64(math.Ceil(float64(c.clock-now) / c.PerMicro))
		lag = 1000 * ((c.newest-generation)*c.Length.Microseconds() + micros)
		generation, now = c.newest, c.clock
	}
	cell := limit.Cell{TAT: now}
	if r, ok := c.cells[sum]; ok && r.generation >= generation-1 {
		cell = r.Cell
		if r.generation < generation {
			cell.TAT -= c.Span()
			cell.Epoch -= c.Epochs()
		}
	}
	next, out, write := p.arithmetic(e, generation, cell, now)
	if write {
		if generation > c.newest || now >= c.clock+c.Step() {
			c.newest, c.clock = generation, now
		}
		c.cells[sum] = record{next, generation}
	}
	out.Lag = lag
	e.Out, e.Err = out, nil
}

func (p *plain) arithmetic(e *batcher.Entry, generation int64, cell limit.Cell, now limit.Ticks) (limit.Cell, limit.Outcome, bool) {
	if p.wires.Apply != nil {
		return p.wires.Apply(e.Terms, e.Op, e.N, &e.Ask, generation, cell, now)
	}
	if e.Op != limit.Lease && cell.Leases == (limit.Leases{Epoch: cell.Epoch}) {
		tat, granted, write := e.Terms.Apply(e.Op, e.N, cell.TAT, now)
		return limit.Cell{TAT: tat}, limit.Outcome{Granted: granted, Level: max(0, tat-now)}, write
	}
	return e.Terms.ApplyLeased(e.Op, e.N, &e.Ask, generation, cell, now)
}
