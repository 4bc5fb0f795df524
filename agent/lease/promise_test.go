package lease

import (
	"testing"

	"github.com/spillgate/spillgate/agent/split"
	"github.com/spillgate/spillgate/batcher"
	"github.com/spillgate/spillgate/limit"
)

// TestElsewherePromisesNothing: the look whether there are accounts of other parts than that in use sends nothing there, so others find what the part has.
func TestElsewherePromisesNothing(t *testing.T) {
	o, r := dividedHolding(t)
	o.now = 101*second + 900*ms
	o.brings(o.plans(1, Send), 5, 77, 0)
	o.wants(5, Admit)
	o.now = 102 * second
	o.brings(o.plans(1, Send), 7, 78, 0)
	o.wants(1, Admit)
	s, all := o.spread.Load(), o.terms.Part(4, 3).Burst
	for i := range 4 {
		p, _ := s.Named(o.now, i, r.Start)
		s.Learn(o.now, &batcher.Claim{Terms: o.terms, Op: limit.Take, Part: p}) // full
	}
	if all := o.Elsewhere(o.now); len(all) != 1 || all[0].Part.Index != 2 {
		t.Fatalf("%+v", all)
	}
	if p, _ := s.Choose(o.now, o.terms, all, split.Staying, split.Asked{}); p.Index != 3 {
		t.Errorf("part %d is chosen, want that in use, which has all that is needed", p.Index)
	}
}
