package memstore

import (
	"math"
	"time"

	"github.com/spillgate/spillgate/batcher"
	"github.com/spillgate/spillgate/limit"
)

// A cell with a record, of leases or of a division, has no room in a slot. It lies in the hash's map, and its slot says so: then
// all other cells cost what they did before.

// elsewhere stands in a slot in place of a TAT.
const elsewhere limit.Ticks = math.MinInt64

// gone is the age of a cell that was removed: older than any, and not that of an empty slot.
const gone = age(1)

// leasedCell is a cell with a record. Its age is that of its slot, as long as that is alive.
type leasedCell struct {
	limit.Cell
	age age
}

// load is what was counted of a bucket, and when.
type load struct {
	limit.Load
	age age
}

// applyLeasedLocked is applyLocked where leases are asked for or recorded, or a division.
func (sh *shard) applyLeasedLocked(nanos int64, h *hash, at *slot, sum limit.Sum, e *batcher.Entry,
	gen int64, now limit.Ticks, lag int64, most int) (out limit.Outcome, err error) {
	cell, exists := h.cell(at, sum, gen, now)
	next, write, ok := cell, false, true
	var count limit.Load
	switch {
	case e.Op == limit.Touch:
		next, count, out = e.Terms.ApplyTouch(e.Part, h.loads[sum].Load, gen, cell, now)
		write = true
	case e.Op == limit.Merge:
		next, out, write = e.Terms.ApplyMerge(e.N, e.Part, gen, cell, now)
	case e.Part.At() > 0:
		next, out, write, ok = e.Terms.ApplySub(e.Op, e.N, &e.Ask, e.Part, gen, cell, exists, now)
	default:
		next, out, write = e.Terms.ApplyLeased(e.Op, e.N, &e.Ask, gen, cell, now)
		ok = next.Ways == 0
	}
	if e.Part.At() == 0 && next.Start != 0 {
		left := next.Until - (nanos+lag)/1000
		e.Split = &batcher.Split{Split: next.Split, Left: time.Duration(left) * time.Microsecond}
	}
	if !ok {
		if write {
			sh.dropLocked(h, at)
			delete(h.leased, sum)
		}
		return limit.Outcome{}, batcher.ErrStale
	}
	if write && !sh.writeCellLocked(nanos, h, at, sum, next, gen, now, most) {
		return limit.Outcome{}, errFull
	}
	if e.Op == limit.Touch {
		h.count(sum, count, gen)
	}
	out.Lag = lag
	return out, nil
}

// dropLocked removes a living cell.
func (sh *shard) dropLocked(h *hash, at *slot) {
	if at.age == ageOf(h.newest) {
		h.cur--
	} else {
		h.prev--
	}
	sh.mu.cells--
	at.age = gone
}

// writeCellLocked is writeLocked for a cell that may have a record.
func (sh *shard) writeCellLocked(nanos int64, h *hash, at *slot, sum limit.Sum, c limit.Cell, gen int64, now limit.Ticks, most int) bool {
	plain := c.Leases == limit.Leases{Epoch: c.Epoch} && c.Split == limit.Split{}
	tat := elsewhere
	if plain {
		tat = c.TAT
	}
	if !sh.writeLocked(nanos, h, at, sum, tat, gen, now, most) {
		return false
	}
	if plain {
		delete(h.leased, sum)
	} else {
		h.keep(sum, c)
	}
	return true
}

// cell is the state of a bucket, whose slot is at or nil, relative to a generation that is not
// older than the newest. One that does not exist is full.
func (h *hash) cell(at *slot, sum limit.Sum, gen int64, now limit.Ticks) (c limit.Cell, exists bool) {
	if at == nil || at.age < ageOf(gen-1) {
		return limit.Cell{TAT: now}, false
	}
	c = limit.Cell{TAT: at.tat}
	if at.tat == elsewhere {
		c = h.leased[sum].Cell
	}
	if at.age < ageOf(gen) {
		c.TAT -= h.class.Span()
		c.Epoch -= h.class.Epochs()
	}
	return c, true
}

// keep keeps a cell that was written in the newest generation.
func (h *hash) keep(sum limit.Sum, c limit.Cell) {
	if h.leased == nil {
		h.leased = make(map[limit.Sum]leasedCell)
	}
	h.leased[sum] = leasedCell{c, ageOf(h.newest)}
}

// count keeps the count of a bucket's entries.
func (h *hash) count(sum limit.Sum, l limit.Load, gen int64) {
	if h.loads == nil {
		h.loads = make(map[limit.Sum]load)
	}
	h.loads[sum] = load{l, ageOf(gen)}
}

// forget drops the records that no read can see any more, when a generation begins. Each record of a cell
// that is left belongs to a living one.
func (h *hash) forget() {
	for sum, c := range h.leased {
		if c.age < h.oldest() {
			delete(h.leased, sum)
		}
	}
	for sum, l := range h.loads {
		if l.age < h.oldest() {
			delete(h.loads, sum)
		}
	}
	for sum, w := range h.windows {
		if w.age < h.oldest() {
			delete(h.windows, sum)
		}
	}
	if len(h.windows) == 0 {
		h.windows = nil
	}
	if len(h.leased) == 0 {
		h.leased = nil // a map keeps the room of its largest time
	}
	if len(h.loads) == 0 {
		h.loads = nil
	}
}
