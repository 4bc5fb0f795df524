package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// report is the text of -json.
type report struct {
	Scenario string        `json:"scenario"`
	Agents   int           `json:"agents"`
	Workers  int           `json:"workers_per_agent"`
	Servers  int           `json:"servers"`
	Keys     int           `json:"keys"`
	Seed     uint64        `json:"seed"`
	Warmup   time.Duration `json:"warmup_ns"`
	Length   time.Duration `json:"length_ns"`
	Rounds   int           `json:"rounds"`
	Results  []*result     `json:"results"`
}

// of are the runs of a mode, by round.
func (r *result) of(mode string) (runs []*sample) {
	for _, s := range r.Samples {
		if s.Mode == mode {
			runs = append(runs, s)
		}
	}
	return runs
}

// columns of the table of a workload. The CPU times are in microseconds per check, which is milliseconds per thousand.
var columns = []struct {
	name   string
	format string
	value  func(*sample) float64
}{
	{"checks", "%.0f", func(s *sample) float64 { return float64(s.Checks) }},
	{"calls/1k", "%.1f", func(s *sample) float64 { return s.per1000(float64(s.Calls)) }},
	{"entries/1k", "%.1f", func(s *sample) float64 { return s.per1000(float64(s.Entries)) }},
	{"Redis CPU ms/1k", "%.2f", func(s *sample) float64 { return s.per1000(s.RedisCPU.Seconds() * 1000) }},
	{"agent CPU ms/1k", "%.2f", func(s *sample) float64 { return s.per1000(s.AgentCPU.Seconds() * 1000) }},
	{"p50 us", "%.1f", func(s *sample) float64 { return float64(s.P50) / 1000 }},
	{"p99 us", "%.1f", func(s *sample) float64 { return float64(s.P99) / 1000 }},
	{"p99 us from due", "%.0f", func(s *sample) float64 { return float64(s.DueP99) / 1000 }},
	{"admitted", "%.4f", func(s *sample) float64 { return float64(s.Admitted) / float64(max(1, s.Checks)) }},
}

// print prints the table of a workload: medians over the rounds, and the medians of the ratios within a round.
func (r *result) print(out io.Writer) error {
	fmt.Fprintf(out, "\n%s: %.0f checks/s, limit %d/s, burst %d; the generator alone uses %.2f ms/1k\n\n",
		r.Name, r.Rate, r.Bucket.Rate, r.Bucket.Burst, r.GeneratorCPU.Seconds()*1e6)
	t := tabwriter.NewWriter(out, 0, 0, 1, ' ', 0)
	fmt.Fprint(t, "| mode\t|")
	for _, c := range columns {
		fmt.Fprintf(t, " %s\t|", c.name)
	}
	fmt.Fprintln(t, "\n|"+strings.Repeat("---\t|", 1+len(columns)))
	for _, mode := range modes {
		fmt.Fprintf(t, "| %s\t|", mode)
		for _, c := range columns {
			fmt.Fprintf(t, " "+c.format+"\t|", median(each(r.of(mode), c.value)))
		}
		fmt.Fprintln(t)
	}
	fmt.Fprint(t, "| leased/exact\t|")
	for _, c := range columns {
		exact, leased := each(r.of(modes[0]), c.value), each(r.of(modes[1]), c.value)
		ratios := make([]float64, len(exact))
		for i := range exact {
			ratios[i] = leased[i] / exact[i]
		}
		fmt.Fprintf(t, " %.3g\t|", median(ratios))
	}
	fmt.Fprintln(t)
	return t.Flush()
}

// warn says what the reader of the tables must know.
func (r *result) warn(out io.Writer) {
	for _, s := range r.Samples {
		say := func(format string, args ...any) {
			fmt.Fprintf(out, "note: %s, mode %s, round %d: %s\n", r.Name, s.Mode, s.Round+1, fmt.Sprintf(format, args...))
		}
		if s.Policy > 0 {
			say("%d checks were answered without the store", s.Policy)
		}
		if s.Lost > 0 {
			say("%d checks (%.2f%%) were not made, as the agents' queues were full: the load is too much for the machine; lower -rate", s.Lost, lostShare(s))
		}
		if s.Late > 50*time.Millisecond {
			say("the pacer was up to %v late: the machine was busy", s.Late.Round(time.Millisecond))
		}
		if s.Made != s.AgentChecks {
			say("%d checks were made, but the agents counted %d", s.Made, s.AgentChecks)
		}
	}
}

// lostShare is the share of the due checks that were not made, in percent.
func lostShare(s *sample) float64 { return 100 * float64(s.Lost) / float64(max(1, s.Lost+s.Checks)) }

func each(runs []*sample, f func(*sample) float64) []float64 {
	values := make([]float64, len(runs))
	for i, s := range runs {
		values[i] = f(s)
	}
	return values
}

// median is the middle of the sorted values, the mean of the two in the middle.
func median(values []float64) float64 {
	v := slices.Sorted(slices.Values(values))
	return (v[len(v)/2] + v[(len(v)-1)/2]) / 2
}

// short is a time in nanoseconds for people.
func short(ns float64) time.Duration {
	d := time.Duration(ns)
	if d < 10*time.Microsecond {
		return d
	}
	return d.Round(time.Microsecond)
}
