package memstore

import (
	"math"

	"github.com/spillgate/spillgate/batcher"
	"github.com/spillgate/spillgate/limit"
)

// A cell with a lease record has no room in a slot. It lies in the hash's map, and its slot says so: then
// all other cells cost what they did before.

// elsewhere stands in a slot in place of a TAT.
const elsewhere limit.Ticks = math.MinInt64

// leasedCell is a cell with a record. Its age is that of its slot, as long as that is alive.
type leasedCell struct {
	limit.Cell
	age age
}

// applyLeasedLocked is applyLocked where leases are asked for or recorded.
func (sh *shard) applyLeasedLocked(nanos int64, h *hash, at *slot, sum limit.Sum, e *batcher.Entry,
	gen int64, now limit.Ticks, lag int64, most int) (limit.Outcome, error) {
	next, out, write := e.Terms.ApplyLeased(e.Op, e.N, &e.Ask, gen, h.cell(at, sum, gen, now), now)
	if write {
		plain := next.Leases == limit.Leases{Epoch: next.Epoch}
		tat := elsewhere
		if plain {
			tat = next.TAT
		}
		if !sh.writeLocked(nanos, h, at, sum, tat, gen, now, most) {
			return limit.Outcome{}, errFull
		}
		if plain {
			delete(h.leased, sum)
		} else {
			h.lease(sum, next)
		}
	}
	out.Lag = lag
	return out, nil
}

// cell is the state of a bucket, whose slot is at or nil, relative to a generation that is not
// older than the newest.
func (h *hash) cell(at *slot, sum limit.Sum, gen int64, now limit.Ticks) limit.Cell {
	if at == nil || at.age < ageOf(gen-1) {
		return limit.Cell{TAT: now}
	}
	c := limit.Cell{TAT: at.tat}
	if at.tat == elsewhere {
		c = h.leased[sum].Cell
	}
	if at.age < ageOf(gen) {
		c.TAT -= h.class.Span()
		c.Epoch -= h.class.Epochs()
	}
	return c
}

// lease keeps a cell that was written in the newest generation.
func (h *hash) lease(sum limit.Sum, c limit.Cell) {
	if h.leased == nil {
		h.leased = make(map[limit.Sum]leasedCell)
	}
	h.leased[sum] = leasedCell{c, ageOf(h.newest)}
}

// forgetLeases drops the records that no read can see any more, when a generation begins. Each one
// that is left belongs to a living cell.
func (h *hash) forgetLeases() {
	for sum, c := range h.leased {
		if c.age < h.oldest() {
			delete(h.leased, sum)
		}
	}
	if len(h.leased) == 0 {
		h.leased = nil // a map keeps the room of its largest time
	}
}
