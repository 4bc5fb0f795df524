package limit

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// TestSlidingAgainstLog: how far what a sliding window admits is from what an exact log admits of the same traffic. Poisson traffic and
// bursts that last for several windows are within 2 %. Bursts shorter than a window, and far above the limit, are what it
// gets wrong: all of one may lie at the end of a window, and it fades as if it had been spread. No
// second has more than the documented edge. -v prints the figures.
func TestSlidingAgainstLog(t *testing.T) {
	const limit, window, seconds = 200, 1_000_000, 1000
	rng := rand.New(rand.NewPCG(5, 1))
	poisson := func(load float64) func(now float64) float64 {
		return func(now float64) float64 { return now + rng.ExpFloat64()*window/(load*limit) }
	}
	// bursts are on and off for exponential times, in seconds on average, with so many times the limit while they are on.
	bursts := func(load, on, off float64) func(now float64) float64 {
		ends := 0.0
		return func(now float64) float64 {
			next := now + rng.ExpFloat64()*window/(load*limit)
			if next > ends {
				next = max(now, ends) + rng.ExpFloat64()*off*window
				ends = next + rng.ExpFloat64()*on*window
			}
			return next
		}
	}
	for _, tt := range []struct {
		name    string
		percent float64
		next    func(float64) float64
	}{
		{"Poisson at 0.8 of the limit", 2, poisson(0.8)},
		{"Poisson at the limit", 2, poisson(1)},
		{"Poisson at 1.2 of the limit", 2, poisson(1.2)},
		{"Poisson at twice the limit", 2, poisson(2)},
		{"Poisson at ten times the limit", 2, poisson(10)},
		{"bursts of 1.5 of the limit, 10 s of 20 s", 2, bursts(1.5, 10, 10)},
		{"bursts of 3 of the limit, 10 s of 20 s", 2, bursts(3, 10, 10)},
		{"bursts of 3 of the limit, 2 s of 5 s", 4, bursts(3, 2, 3)},
		{"bursts of 5 of the limit, 0.5 s of 5 s", 7, bursts(5, 0.5, 4.5)},
		{"bursts of 20 of the limit, 0.1 s of 1 s", 4, bursts(20, 0.1, 0.9)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			kinds := [2]Algorithm{SlidingWindow, SlidingLog}
			var terms [2]*Terms
			var cells [2]Window
			var admitted [2]Tokens
			var of []int64 // the sliding window's admissions of the last second
			worst, asked := 0, 0
			for i, a := range kinds {
				terms[i] = compileWindow(t, a, limit, time.Second)
			}
			start := 1e9 * float64(window)
			for now := tt.next(start); now < start+seconds*window; now = tt.next(now) {
				micros := int64(math.Floor(now))
				asked++
				for i, a := range kinds {
					next, out, write := terms[i].ApplyWindow(Take, 1, &Ask{}, cells[i], micros)
					if write {
						cells[i] = next
						admitted[i]++
					}
					if a == SlidingWindow && out.Granted > 0 {
						of = append(of, micros)
						for of[0] <= micros-window {
							of = of[1:]
						}
						worst = max(worst, len(of))
						if before := next.Before; float64(len(of)) > limit+float64(before)*float64(micros%window)/window {
							t.Fatalf("%d admitted in a second, with %d before", len(of), before)
						}
					}
				}
			}
			deviation := float64(admitted[0])/float64(admitted[1]) - 1
			t.Logf("of %d asked the log admitted %d, the sliding window %d (%+.2f %%); at most %d in a second, with a limit of %d",
				asked, admitted[1], admitted[0], 100*deviation, worst, limit)
			if math.Abs(100*deviation) > tt.percent {
				t.Errorf("%+.2f %% apart, want at most %v", 100*deviation, tt.percent)
			}
		})
	}
}

func compileWindow(tb testing.TB, a Algorithm, requests Tokens, period time.Duration) *Terms {
	tb.Helper()
	terms, err := Rate{Algorithm: a, Requests: requests, Period: period}.Terms()
	if err != nil {
		tb.Fatal(err)
	}
	return terms
}
