package lease

import (
	"testing"
	"time"

	"github.com/spillgate/spillgate/limit"
)

// TestUncounted: a check that is counted elsewhere is in no total of its Holding, whether it was admitted or denied, and in its demand all the
// same: else a bucket that is asked for a lot would look idle, and cool down.
func TestUncounted(t *testing.T) {
	for what, burst := range map[string]limit.Tokens{"admitted": 100_000, "denied": 10} {
		t.Run(what, func(t *testing.T) {
			o, terms := open(t, 0), rate(t, burst, time.Hour, 0)
			o.heat("a", terms)
			for range 20 {
				o.check("a", Check{Terms: terms, N: 1})
			}
			h := o.table.find([]byte("a"))
			h.Tend(o.now)
			before, decided := o.Stats(), int64(0)
			for range 50 {
				var d limit.Decision
				if r, found := o.Hot([]byte("a"), &Check{Terms: terms, N: 1}, 0, &d); found && r.Decided && d.Admitted == (what == "admitted") {
					r.Uncount()
					decided++
				}
			}
			if decided < 40 {
				t.Fatalf("%d of 50 were %s", decided, what)
			}
			if s := o.Stats(); s.Admitted != before.Admitted || s.Denied != before.Denied {
				t.Errorf("the totals went from %+v to %+v", before.Totals, s.Totals)
			}
			if n, _, _ := h.Tend(o.now); n < decided {
				t.Errorf("the demand is of %d checks, and there were %d", n, decided)
			}
		})
	}
}
