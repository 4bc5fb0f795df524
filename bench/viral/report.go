package viral

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spillgate/spillgate/bench/rig"
)

// Report is the text of --json. Times are in nanoseconds.
type Report struct {
	Scenario    string        `json:"scenario"`
	Own         bool          `json:"own_cluster"`
	Agents      int           `json:"agents"`
	Connections int           `json:"connections_per_agent"`
	Settle      time.Duration `json:"settle_ns"`
	Duration    time.Duration `json:"duration_ns"`
	Rounds      int           `json:"rounds"`
	SplitOps    int64         `json:"split_ops"` // 0 is the agents' default
	Limit       int64         `json:"limit"`
	Rate        float64       `json:"rate"`    // 0 is a closed loop
	Masters     []string      `json:"masters"` // addresses
	Runs        []*RunReport  `json:"runs"`
}

func newReport(c *Config, masters *cluster) *Report {
	return &Report{Scenario: "viral", Own: masters.own, Agents: c.Agents, Connections: c.Connections, Settle: c.Settle,
		Duration: c.Duration, Rounds: c.Rounds, SplitOps: c.SplitOps, Limit: c.Limit, Rate: c.Rate, Masters: masters.addrs}
}

// Write writes the report as JSON.
func (r *Report) Write(file string) error { return rig.WriteJSON(file, r) }

// of is the runs of a variant.
func (r *Report) of(v int) (runs []*RunReport) {
	for _, run := range r.Runs {
		if run.Splitting == variantNames[v] {
			runs = append(runs, run)
		}
	}
	return runs
}

// row is a line of the table: a value of each run, and how to write the median. ok is false for a run that has none.
type row struct {
	name  string
	write func(float64) string
	value func(*RunReport) (v float64, ok bool)
}

// rows are those of the table; a master has two.
func (r *Report) rows() []row {
	number := func(format string, f func(*RunReport) float64) (func(float64) string, func(*RunReport) (float64, bool)) {
		return func(v float64) string { return fmt.Sprintf(format, v) }, func(run *RunReport) (float64, bool) { return f(run), true }
	}
	var all []row
	add := func(name, format string, f func(*RunReport) float64) {
		write, value := number(format, f)
		all = append(all, row{name, write, value})
	}
	add("checks/s", "%.0f", func(run *RunReport) float64 { return run.PerSecond })
	for i, addr := range r.Masters {
		add(addr+" calls/s", "%.0f", func(run *RunReport) float64 { return run.Masters[i].Calls })
		add(addr+" CPU, of a core", "%.0f %%", func(run *RunReport) float64 { return 100 * run.Masters[i].CPU })
	}
	add("calls, busiest/mean", "%.2f", func(run *RunReport) float64 { return run.CallsRatio })
	add("CPU, busiest/mean", "%.2f", func(run *RunReport) float64 { return run.CPURatio })
	add("calls of the busiest per 1,000 checks", "%.0f", func(run *RunReport) float64 { return run.Busiest })
	add("calls of all per 1,000 checks", "%.0f", func(run *RunReport) float64 { return run.All })
	add("time in the script per call, us", "%.1f", func(run *RunReport) float64 { return run.Micros })
	moment := func(name string, f func(*RunReport) *time.Duration) {
		all = append(all, row{name, writeTime, func(run *RunReport) (float64, bool) {
			d := f(run)
			if d == nil {
				return 0, false
			}
			return float64(*d), true
		}})
	}
	moment("from the load's begin until spread", func(run *RunReport) *time.Duration { return run.SpreadAfter })
	moment("from its end until whole", func(run *RunReport) *time.Duration { return run.WholeAfter })
	return all
}

func writeTime(ns float64) string { return fmt.Sprintf("%.1f s", ns/float64(time.Second)) }

// Print prints the table, medians over the rounds, and what the reader of it must know.
func (r *Report) Print(out io.Writer) error {
	loop := "closed loop"
	if r.Rate > 0 {
		loop = fmt.Sprintf("%.0f checks/s offered", r.Rate)
	}
	fmt.Fprintf(out, "one key, mode exact, limit %d/s, on %d masters\n%d agents x %d connections, %s\nmedians of %d rounds, %v each after %v to settle\n\n",
		r.Limit, len(r.Masters), r.Agents, r.Connections, loop, r.Rounds, r.Duration, r.Settle)
	rows, width := r.rows(), 0
	for _, w := range rows {
		width = max(width, len(w.name))
	}
	const line = "%-*s  %13s  %12s\n"
	fmt.Fprintf(out, line, width, "", "splitting off", "splitting on")
	for _, w := range rows {
		if _, err := fmt.Fprintf(out, line, width, w.name, w.over(r.of(off)), w.over(r.of(on))); err != nil {
			return err
		}
	}
	fmt.Fprintln(out)
	for _, note := range r.notes() {
		fmt.Fprintf(out, "note: %s\n", note)
	}
	return nil
}

// over is the median of the runs that have a value, "-" if none has.
func (w row) over(runs []*RunReport) string {
	var values []float64
	for _, run := range runs {
		if v, ok := w.value(run); ok {
			values = append(values, v)
		}
	}
	if len(values) == 0 {
		return "-"
	}
	return w.write(median(values))
}

// median is the middle of the sorted values, the mean of the two in the middle.
func median(values []float64) float64 {
	v := slices.Sorted(slices.Values(values))
	return (v[len(v)/2] + v[(len(v)-1)/2]) / 2
}

// notes say what is behind the figures, and what makes them worth less.
func (r *Report) notes() (all []string) {
	for _, run := range r.Runs {
		say := func(format string, args ...any) {
			all = append(all, fmt.Sprintf("round %d, splitting %s: ", run.Round, run.Splitting)+fmt.Sprintf(format, args...))
		}
		run.notes(r, say)
	}
	if r.Own {
		all = append(all, "servers and agents share this machine: see where the calls go, and not how many there are")
	}
	return all
}

func (run *RunReport) notes(r *Report, say func(string, ...any)) {
	if run.Checks == 0 {
		say("no check was answered")
		return
	}
	if run.Policy > 0 {
		say("%.1f %% of the checks were answered without the store", percent(run.Policy, run.Checks))
	}
	if run.Denied > run.Policy {
		say("%.1f %% of the checks were denied: the load is above the limit", percent(run.Denied, run.Checks))
	}
	if run.Lag > 0.01 {
		say("%.1f %% of the checks that were due were not made: lower --rate, or raise --connections", 100*run.Lag)
	}
	if run.Splitting != variantNames[on] {
		return
	}
	switch {
	case run.Ways > 0:
	case run.everDivided():
		say("the bucket was divided, but whole again before the load ended: the load had fallen below a quarter of the threshold; lower --split-ops")
		return
	default:
		say("the bucket was not divided: the load is below the threshold; lower --split-ops")
		return
	}
	say("%d parts, known to %d of %d agents, had %s of the entries", run.Ways, run.Knew, r.Agents, shares(run.Parts))
	if run.SpreadAfter == nil {
		say("traffic was not spread over the masters")
	} else if *run.SpreadAfter > r.Settle {
		say("traffic was spread only after the time to settle: raise --settle")
	}
	if run.WholeAfter == nil {
		say("%v after the load agents still knew of the split", wholePatience)
	}
}

func percent(part, of uint64) float64 { return 100 * float64(part) / float64(of) }

// shares writes 25/25/50 %.
func shares(parts []float64) string {
	texts := make([]string, len(parts))
	for i, p := range parts {
		texts[i] = fmt.Sprintf("%.0f", 100*p)
	}
	return strings.Join(texts, "/") + " %"
}
