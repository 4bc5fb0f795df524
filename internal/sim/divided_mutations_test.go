package sim

import (
	"testing"

	"github.com/spillgate/spillgate/limit"
)

// mistake changes an entry or its cell before it is run, and may change what came of it after that. The parts
// of entries are shared, so it changes copies.
type mistake struct {
	before func(o *operation)
	after  func(o *operation, before limit.Cell, out *limit.Outcome)
}

func (m mistake) divide(o *operation) (out limit.Outcome, write, ok bool) {
	before, part := o.cell, o.Part
	if part != nil {
		mine := *part
		o.Part = &mine
	}
	exists := o.exists
	if m.before != nil {
		m.before(o)
	}
	out, write, ok = o.run()
	if m.after != nil && ok {
		m.after(o, before, &out)
	}
	o.Part = part
	return out, write || m.after != nil || !exists, ok
}

const marginMicros = int64(limit.SplitMargin / 1000)

// micros is the time of the store.
func (o *operation) micros() int64 {
	c := o.Terms.Class
	return o.generation*c.Length.Microseconds() + int64(float64(o.now)/c.PerMicro)
}

// onPart reports whether the entry is one on a sub-bucket, and the cell of that is not of this split.
func (o *operation) onPart() (part, fresh bool) {
	if o.Part.At() == 0 {
		return false, false
	}
	return true, !o.exists
}

// begin begins a sub-bucket at a level.
func (o *operation) begin(level limit.Ticks) {
	o.cell, o.exists = limit.Cell{TAT: o.now + level}, true
}

// TestMistakesInDivisionsAreCaught makes each mistake that the protocol of divided buckets guards against.
func TestMistakesInDivisionsAreCaught(t *testing.T) {
	for _, m := range []struct {
		name  string
		seeds int
		mistake
	}{
		{"parts start full", 100, mistake{before: func(o *operation) {
			if _, fresh := o.onPart(); fresh {
				o.begin(0)
			}
		}}},
		{"parts begin with the level at each touch", 100, mistake{before: func(o *operation) {
			if part, _ := o.onPart(); part && o.Op != limit.Close && !o.cell.Closing {
				o.begin(o.Terms.Open(&o.Part.Split, o.Part.Index))
			}
		}}},
		{"home is whole before the parts have ended", 1000, mistake{before: func(o *operation) {
			if o.Part.At() == 0 && o.cell.Ways > 0 {
				o.cell.Until -= 2 * marginMicros
			}
		}, after: func(o *operation, before limit.Cell, _ *limit.Outcome) {
			if o.Part.At() == 0 && o.cell.Ways > 0 && o.cell.Until == before.Until-2*marginMicros {
				o.cell.Until = before.Until
			}
		}}},
		{"home has tokens at the end", 1000, mistake{before: func(o *operation) {
			if s := &o.cell.Split; o.Part.At() == 0 && s.Ways > 0 && o.micros() > s.Until+marginMicros {
				*s = limit.Split{Start: s.Start, Until: s.Until, Held: s.Held}
			}
		}}},
		{"parts last until home is whole", 20000, mistake{before: func(o *operation) {
			if part, _ := o.onPart(); part {
				o.Part.Split.Until += 2 * marginMicros
			}
		}}},
		{"leases of parts are not clipped", 20000, mistake{after: func(o *operation, _ limit.Cell, out *limit.Outcome) {
			out.Term = 0
		}}},
		{"old leases are ignored", 200, mistake{after: func(o *operation, before limit.Cell, _ *limit.Outcome) {
			if o.Op == limit.Touch && o.cell.Start != before.Start {
				o.cell.Held = 0
			}
		}}},
		{"parts know when old leases end by their own clocks", 1000, mistake{before: func(o *operation) {
			if part, _ := o.onPart(); part && o.micros() >= o.Part.Split.Start+limit.LeaseTTL.Microseconds() {
				o.Part.Split.Held = 0
			}
		}}},
		{"closed parts grant", 100, mistake{before: func(o *operation) {
			if o.Op != limit.Close && o.Part.At() > 0 {
				o.cell.Closing = false
			}
		}}},
		{"merged twice", 200, mistake{after: func(o *operation, before limit.Cell, out *limit.Outcome) {
			if o.Op == limit.Merge && before.Ways == 0 && before.Start == o.Part.Split.Start {
				o.cell.TAT = max(o.now, o.cell.TAT-o.Part.Free)
			}
		}}},
		{"a merge of any split counts", 40000, mistake{before: func(o *operation) {
			if o.Op == limit.Merge {
				o.Part.Split.Start = o.cell.Start
			}
		}}},
		{"a merge brings no leases home", 5000, mistake{before: func(o *operation) {
			if o.Op == limit.Merge {
				o.N = 0
			}
		}}},
		{"settlements of an earlier record count", 5000, mistake{before: func(o *operation) {
			if o.Part.At() == 0 {
				o.Ask.Origin = o.cell.Start
			}
		}}},
		{"home takes up a split that has ended", 1000, mistake{before: func(o *operation) {
			if o.Op != limit.Touch {
				return
			}
			if k := &o.Part.Split; k.Start > o.cell.Start && k.Ways > 1 && !k.Closing {
				o.cell.Split = *k
			}
		}}},
		{"home forgets a split while news of it lasts", 1000, mistake{before: func(o *operation) {
			if o.Op == limit.Touch && o.cell.Ways == 0 && o.cell.Start > 0 {
				o.cell.Until = o.cell.Start
			}
		}}},
	} {
		t.Run(m.name, func(t *testing.T) {
			if raced && m.seeds > 1000 {
				t.Skip("too many runs for the race detector, which has nothing to find here")
			}
			failed, ran, _ := search(1, m.seeds, func(seed uint64) Result {
				r := Run(DrawDivided(seed), Options{Wires: Wires{Divide: m.divide}})
				if r.Breach != nil && r.Breach.Promise != "G1" {
					r.Breach = nil
				}
				return r
			})
			if failed == nil {
				t.Fatalf("not found in %d runs", ran)
			}
			t.Logf("run %d: %v", failed.Plan.Seed, failed.Breach)
		})
	}
	t.Run("none", func(t *testing.T) {
		if failed, _, _ := search(1, 500, func(seed uint64) Result {
			return Run(DrawDivided(seed), Options{Wires: Wires{Divide: mistake{}.divide}})
		}); failed != nil {
			t.Errorf("seed %d: %v, with no mistake", failed.Plan.Seed, failed.Breach)
		}
	})
}
