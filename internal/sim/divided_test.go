package sim

import (
	"os"
	"testing"
)

func runDivided(seed uint64) Result { return Run(DrawDivided(seed), Options{}) }

// TestDivided runs buckets that are divided and made whole again while dividers do their worst. No window may hold more than
// the whole bucket has.
func TestDivided(t *testing.T) {
	if *flagSeed != 0 {
		o := Options{}
		if *flagTrace {
			o.Trace = os.Stdout
		}
		p := DrawDivided(*flagSeed)
		t.Logf("%+v", p)
		if r := Run(p, o); r.Breach != nil {
			report(t, &r, Options{})
		}
		return
	}
	seeds := 5000
	if raced {
		seeds /= 10
	}
	if *flagSeeds > 0 {
		seeds = *flagSeeds
	}
	failed, ran, total := search(*flagFirst, seeds, runDivided)
	t.Logf("%d runs, %d events: %+v", ran, total.Events, total.Divided)
	if failed != nil {
		report(t, failed, Options{})
		return
	}
	for i, n := range total.Divided.fields() {
		if *n == 0 && ran >= 1000 {
			t.Errorf("count %d of %+v is 0: nothing of the kind happened", i, total.Divided)
		}
	}
}
