package memstore

import (
	"github.com/spillgate/spillgate/batcher"
	"github.com/spillgate/spillgate/limit"
)

// A cell of a window kind has no room in a slot either: it lies in a map of its hash, as cells with a record do.

// windowCell is a cell of a window kind, and when it was written last.
type windowCell struct {
	limit.Window
	age age
}

// applyWindowLocked is applyLocked for the window kinds.
func (sh *shard) applyWindowLocked(nanos int64, h *hash, at *slot, sum limit.Sum, e *batcher.Entry,
	gen int64, now limit.Ticks, lag int64, most int) (limit.Outcome, error) {
	if err := e.Valid(); err != nil {
		return limit.Outcome{}, err
	}
	var cell limit.Window
	if at != nil && at.age >= ageOf(gen-1) {
		cell = h.windows[sum].Window
	}
	micros := gen*h.class.Length.Microseconds() + int64(now)
	next, out, write := e.Terms.ApplyWindow(e.Op, e.N, &e.Ask, cell, micros)
	if write {
		if !sh.writeLocked(nanos, h, at, sum, elsewhere, gen, now, most) {
			return limit.Outcome{}, errFull
		}
		if h.windows == nil {
			h.windows = make(map[limit.Sum]windowCell)
		}
		h.windows[sum] = windowCell{next, ageOf(h.newest)}
	}
	out.Lag = lag
	return out, nil
}
