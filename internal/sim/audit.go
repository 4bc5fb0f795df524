package sim

import "github.com/spillgate/spillgate/limit"

// audit is the end of a run: all have stopped, every message has arrived. [8]
func (w *World) audit() {
	for _, a := range w.agents {
		if a.state == closing {
			a.rest()
		}
	}
	cells := 0
	for _, m := range w.masters {
		cells += m.store.Cells()
	}
	most := len(w.buckets) * (1 + w.counts.Changes)
	if w.plan.Divided {
		most *= 1 + mostWays*(1+w.counts.Divided.Splits+w.counts.Divided.Adopted)
	}
	if cells > most {
		w.fail("G7", nil, "%d cells for %d buckets", cells, len(w.buckets))
	}
	if w.plan.Calm {
		w.balance()
	}
}

// balance holds, in a run without faults, what left the cells against what was admitted: no denial
// charged anything (G5). What agents had on lease and did not spend was sent back or expired; a check that found its
// lease expired may have taken tokens of it, for nothing.
func (w *World) balance() {
	var taken, admitted, spent, back, late limit.Tokens
	for _, b := range w.buckets {
		taken += b.taken + b.uncharged
		admitted += b.admitted
		spent += b.spent
		back += b.back
		late += b.late
		w.note(nil, b, "balance", int64(b.taken-b.admitted-b.back), int64(b.spent))
	}
	var unspent, wasted limit.Tokens
	for _, a := range w.agents {
		unspent += limit.Tokens(a.ended.Returned + a.ended.Expired)
		wasted += limit.Tokens(a.ended.Spent)
	}
	wasted += late - spent
	if taken != admitted+back+unspent+wasted || wasted < 0 {
		w.fail("G5", nil, "%d tokens left the cells, %d were admitted, %d refunded, %d not spent, %d expired at a check",
			taken, admitted, back, unspent, wasted)
	}
}
