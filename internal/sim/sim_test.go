package sim

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

var (
	flagSeeds = flag.Int("sim.seeds", 0, "number of runs; 0 for the usual")
	flagFirst = flag.Uint64("sim.first", 1, "first seed")
	flagSeed  = flag.Uint64("sim.seed", 0, "the one seed to run")
	flagTrace = flag.Bool("sim.trace", false, "with -sim.seed: print what happens")
)

// search runs seeds on all cores until one breaks a promise, and returns it.
func search(first uint64, seeds int, run func(seed uint64) Result) (failed *Result, ran int, total Counts) {
	var next, stop atomic.Uint64
	stop.Store(first + uint64(seeds))
	next.Store(first)
	var mu sync.Mutex
	var all sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		all.Go(func() {
			for {
				seed := next.Add(1) - 1
				if seed >= stop.Load() {
					return
				}
				r := run(seed)
				mu.Lock()
				ran++
				total.Add(&r.Counts)
				if r.Breach != nil && (failed == nil || seed < failed.Plan.Seed) {
					failed = &r
					stop.Store(seed)
				}
				mu.Unlock()
			}
		})
	}
	all.Wait()
	return failed, ran, total
}

// report prints the last events that concern the bucket, and how to see them all.
func report(t *testing.T, r *Result) {
	t.Helper()
	again := Run(r.Plan, Options{Keep: true})
	want := fmt.Sprintf("bucket %2d ", r.Breach.Bucket)
	var lines []string
	for _, line := range again.Lines {
		if r.Breach.Bucket < 0 || strings.Contains(line, want) || strings.Contains(line, "bucket -1") {
			lines = append(lines, line)
		}
	}
	lines = lines[max(0, len(lines)-40):]
	t.Errorf("seed %d: %v\n%s\nbucket: %+v\nto see it all: go test ./internal/sim -run '%s$' -sim.seed %d -sim.trace",
		r.Plan.Seed, r.Breach, strings.Join(lines, "\n"), r.Plan.Buckets[max(0, r.Breach.Bucket)], t.Name(), r.Plan.Seed)
}

// testSeeds runs what draw makes of seeds, or of the one that -sim.seed names. Every promise must hold in every run, and none of
// the counts of what happened may be 0.
func testSeeds(t *testing.T, usual int, draw func(seed uint64) Plan, happened func(*Counts) []*int) {
	t.Helper()
	if *flagSeed != 0 {
		o := Options{}
		if *flagTrace {
			o.Trace = os.Stdout
		}
		p := draw(*flagSeed)
		t.Logf("%+v", p)
		if r := Run(p, o); r.Breach != nil {
			report(t, &r)
		}
		return
	}
	seeds := usual
	if raced {
		seeds /= 10
	}
	if *flagSeeds > 0 {
		seeds = *flagSeeds
	}
	failed, ran, total := search(*flagFirst, seeds, func(seed uint64) Result { return Run(draw(seed), Options{}) })
	t.Logf("%d runs: %+v", ran, total)
	if failed != nil {
		report(t, failed)
		return
	}
	for i, n := range happened(&total) {
		if *n == 0 && ran >= min(usual, 1000) {
			t.Errorf("count %d of %+v is 0: nothing of the kind happened", i, total)
		}
	}
}

// TestFleets runs fleets drawn from seeds.
func TestFleets(t *testing.T) { testSeeds(t, 5000, Draw, (*Counts).fields) }

// TestOneSeedIsOneRun: without it no failure could be looked into.
func TestOneSeedIsOneRun(t *testing.T) {
	for seed := uint64(1); seed <= 50; seed++ {
		a, b := Run(Draw(seed), Options{}), Run(Draw(seed), Options{})
		if a.Hash != b.Hash || a.Counts != b.Counts {
			t.Errorf("seed %d: %x %+v, then %x %+v", seed, a.Hash, a.Counts, b.Hash, b.Counts)
		}
	}
}
