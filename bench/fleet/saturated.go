package main

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spillgate/spillgate/limit"
)

// overload is the offered load of scenario saturated, in rates of the bucket.
const overload = 10

// callsPerAgent is how many calls a second an agent may make for a bucket beyond those that bring tokens.
const callsPerAgent = 50

// saturation is what became of the tokens of one bucket.
type saturation struct {
	// Granted is what was admitted in the measured time, over rate * time; WithBurst what was admitted
	// from the first check on, over burst + rate * time.
	Granted   float64 `json:"granted"`
	WithBurst float64 `json:"with_burst"`
	// Least and Most are the shares of an agent in the measured time; 1 is the mean.
	Least float64 `json:"least_agent"`
	Most  float64 `json:"most_agent"`
	// Excess is that of worstWindow, AtReturn is overdraft, both in tokens; below zero the bound was never reached. Over: it is broken.
	Excess   float64 `json:"worst_window_excess"`
	AtReturn float64 `json:"overdraft_at_return"`
	Over     bool    `json:"over"`
}

// saturationOf looks at the recorded admissions.
func saturationOf(b bucketOf, agents int, t *tally) *saturation {
	burst, rate := float64(b.Burst), float64(b.Rate)
	perAgent, measured, whole := make([]float64, agents), 0.0, t.ended
	for _, a := range t.admissions {
		whole = max(whole, a.ret)
		if a.ret >= t.began && a.ret < t.ended {
			perAgent[a.agent]++
			measured++
		}
	}
	s := &saturation{
		Granted:   measured / (rate * (t.ended - t.began).Seconds()),
		WithBurst: float64(len(t.admissions)) / (burst + rate*whole.Seconds()),
	}
	if len(t.admissions) > 0 {
		worst := worstWindow(b, t.admissions)
		s.Excess, s.Over, s.AtReturn = worst.Over, worst.Breach(), overdraft(b, t.admissions)
	}
	if measured > 0 {
		mean := measured / float64(agents)
		s.Least, s.Most = slices.Min(perAgent)/mean, slices.Max(perAgent)/mean
	}
	return s
}

// parseBuckets reads pairs of burst and rate such as 100:1000,10:100.
func parseBuckets(text string) (all []bucketOf, err error) {
	for pair := range strings.SplitSeq(text, ",") {
		burst, rate, _ := strings.Cut(pair, ":")
		c, errC := strconv.ParseInt(burst, 10, 64)
		r, errR := strconv.ParseInt(rate, 10, 64)
		if errC != nil || errR != nil || c < 1 || r < 1 {
			return nil, fmt.Errorf("-buckets: %q is no pair burst:rate", pair)
		}
		all = append(all, bucketOf{limit.Tokens(c), limit.Tokens(r)})
	}
	return all, nil
}

// saturatedWorkloads has one viral key for each bucket.
func saturatedWorkloads(buckets []bucketOf) (all []workload) {
	for _, b := range buckets {
		all = append(all, workload{Name: fmt.Sprintf("saturated C=%d r=%d/s", b.Burst, b.Rate), Bucket: b,
			Rate: overload * float64(b.Rate), draw: oneKey, shuffled: true, record: true})
	}
	return all
}

// printSaturated prints a line for each bucket and mode: medians over the rounds, of the two excesses the worst.
func printSaturated(out io.Writer, agents int, results []*result) error {
	t := tabwriter.NewWriter(out, 0, 0, 1, ' ', 0)
	fmt.Fprintln(t, "| C\t| r/s\t| mode\t| granted\t| with the burst\t| agents\t| calls/s\t| entries/s\t| bound/s\t"+
		"| p50\t| p99\t| lost\t| worst window\t| at return\t|")
	fmt.Fprintln(t, "|"+strings.Repeat("---\t|", 14))
	for _, r := range results {
		for _, mode := range modes {
			runs := r.of(mode)
			of := func(f func(*sample) float64) float64 { return median(each(runs, f)) }
			worst := func(f func(*sample) float64) float64 { return slices.Max(each(runs, f)) }
			verdict := "ok"
			if slices.ContainsFunc(runs, func(s *sample) bool { return s.Saturated.Over }) {
				verdict = "OVER"
			}
			fmt.Fprintf(t, "| %d\t| %d\t| %s\t| %.4f\t| %.4f\t| %.3f-%.3f\t| %.0f\t| %.0f\t| %d\t| %v\t| %v\t| %.2f%%\t| %+.2f %s\t| %+.2f\t|\n",
				r.Bucket.Burst, r.Bucket.Rate, mode,
				of(func(s *sample) float64 { return s.Saturated.Granted }), of(func(s *sample) float64 { return s.Saturated.WithBurst }),
				of(func(s *sample) float64 { return s.Saturated.Least }), of(func(s *sample) float64 { return s.Saturated.Most }),
				of(func(s *sample) float64 { return float64(s.Calls) / s.Length.Seconds() }),
				of(func(s *sample) float64 { return float64(s.Entries) / s.Length.Seconds() }),
				int(r.Bucket.Rate)+callsPerAgent*agents,
				short(of(func(s *sample) float64 { return float64(s.P50) })), short(of(func(s *sample) float64 { return float64(s.P99) })),
				of(lostShare),
				worst(func(s *sample) float64 { return s.Saturated.Excess }), verdict,
				worst(func(s *sample) float64 { return s.Saturated.AtReturn }))
		}
	}
	return t.Flush()
}
