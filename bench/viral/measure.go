package viral

import (
	"slices"
	"time"

	"github.com/spillgate/spillgate/agent/split"
)

const (
	// undivided is the part of the calls that may still go to one master, the rest being even, when traffic is spread.
	undivided = 0.25
	// sliceCalls is how many calls for each master a slice needs, so that its ratio says something.
	sliceCalls = 20
)

// RunReport is one run of a variant. Ratios are busiest/mean over the masters.
type RunReport struct {
	Splitting string        `json:"splitting"` // off or on
	Round     int           `json:"round"`
	Length    time.Duration `json:"length_ns"` // of the measured time
	Checks    uint64        `json:"checks"`    // in it: Admitted + Denied
	Admitted  uint64        `json:"admitted"`
	Denied    uint64        `json:"denied"`
	Policy    uint64        `json:"by_policy"` // of them, without the store
	PerSecond float64       `json:"checks_per_s"`
	// Lag is the part of the checks that were due and not made; 0 in a closed loop.
	Lag     float64        `json:"lag"`
	Masters []MasterReport `json:"masters"`

	CallsRatio float64 `json:"calls_busiest_over_mean"`
	CPURatio   float64 `json:"cpu_busiest_over_mean"`
	// Busiest and All are calls per 1,000 checks: of the busiest master, and of all.
	Busiest float64 `json:"busiest_calls_per_1000_checks"`
	All     float64 `json:"calls_per_1000_checks"`
	// Micros is that of a MasterReport, over all masters.
	Micros float64 `json:"script_us_per_call"`

	// SpreadAfter is the time from the begin of the load until traffic was spread, WholeAfter that from its end
	// until no agent knew of the split; nil where it was not.
	SpreadAfter *time.Duration `json:"spread_after_ns"`
	WholeAfter  *time.Duration `json:"whole_after_ns"`
	// Ways is the number of parts at the end of the load, 0 if the agents knew of no split; Knew is how many agents
	// knew. Parts are the shares of the parts in the entries of the agents.
	Ways  int       `json:"ways"`
	Knew  int       `json:"agents_that_knew"`
	Parts []float64 `json:"parts"`
	// Events of all agents until the end of the load.
	Events EventReport `json:"events"`

	Slices []SliceReport `json:"slices"`
}

// MasterReport is one master in the measured time.
type MasterReport struct {
	Addr  string  `json:"addr"`
	Calls float64 `json:"calls_per_s"`
	CPU   float64 `json:"cpu_cores"`
	// Micros is the time in the script of a call, without what the server does around it; 0 without calls.
	Micros float64 `json:"script_us_per_call"`
}

// SliceReport is what happened until At, since the slice before.
type SliceReport struct {
	At     time.Duration `json:"at_ns"` // since the begin of the load
	Checks uint64        `json:"checks"`
	Calls  []uint64      `json:"calls"` // by master
	Knew   int           `json:"agents_that_knew"`
}

// EventReport is split.Totals, of all agents: each learns of the same split.
type EventReport struct {
	Split    uint64 `json:"split"`
	Merged   uint64 `json:"merged"`
	Ended    uint64 `json:"ended"`
	Touches  uint64 `json:"touches"`
	Refused  uint64 `json:"refused"`
	Overflow uint64 `json:"overflow"`
}

// measure makes a report of the samples of a run, of which the last was made after settle and more. The measured time begins at
// the first sample after settle, or earlier if only one is left.
func measure(samples []sample, settle time.Duration, addrs []string) *RunReport {
	first := min(len(samples)-2, slices.IndexFunc(samples, func(s sample) bool { return s.at >= settle }))
	a, z := &samples[first], &samples[len(samples)-1]
	n := z.counts.minus(a.counts)
	r := &RunReport{Length: z.at - a.at, Checks: n.checks(), Admitted: n.Admitted, Denied: n.Denied, Policy: n.Policy}
	r.PerSecond = float64(r.Checks) / r.Length.Seconds()
	calls, cpu, all := make([]float64, len(addrs)), make([]float64, len(addrs)), scripts{}
	for i, addr := range addrs {
		from, to := a.masters[i], z.masters[i]
		calls[i] = callRate(from, to)
		cpu[i] = (to.cpu - from.cpu).Seconds() / (to.at - from.at).Seconds()
		m := MasterReport{Addr: addr, Calls: calls[i], CPU: cpu[i]}
		n, spent := since(from, to)
		if n > 0 {
			m.Micros = float64(spent) / float64(n)
		}
		all.calls, all.micros = all.calls+n, all.micros+spent
		r.Masters = append(r.Masters, m)
		if r.PerSecond > 0 {
			r.All += 1000 * calls[i] / r.PerSecond
			r.Busiest = max(r.Busiest, 1000*calls[i]/r.PerSecond)
		}
	}
	r.Micros = float64(all.micros) / float64(max(1, all.calls))
	r.CallsRatio, r.CPURatio = busiestOverMean(calls), busiestOverMean(cpu)
	r.SpreadAfter = spreadAfter(samples)
	for i := range samples[1:] {
		r.Slices = append(r.Slices, sliceReport(&samples[i], &samples[i+1]))
	}
	return r
}

// callRate is in calls per second.
func callRate(from, to reading) float64 {
	n, _ := since(from, to)
	return float64(n) / (to.at - from.at).Seconds()
}

// since is what was run between two readings. Counters that were reset count from zero.
func since(from, to reading) (calls, micros uint64) {
	if to.calls < from.calls || to.micros < from.micros {
		return to.calls, to.micros
	}
	return to.calls - from.calls, to.micros - from.micros
}

func sliceReport(a, z *sample) SliceReport {
	s := SliceReport{At: z.at, Checks: z.counts.minus(a.counts).checks(), Knew: z.knew}
	for i := range a.masters {
		n, _ := since(a.masters[i], z.masters[i])
		s.Calls = append(s.Calls, n)
	}
	return s
}

// busiestOverMean is 1 for equal values, their number if all but one are zero, and 0 if all are.
func busiestOverMean(values []float64) float64 {
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	if sum == 0 {
		return 0
	}
	return slices.Max(values) * float64(len(values)) / sum
}

// spreadAfter is when traffic was spread, as the package comment defines it; nil if it never was.
func spreadAfter(samples []sample) *time.Duration {
	masters := len(samples[0].masters)
	from, rates := &samples[0], make([]float64, masters)
	for i := range samples[1:] {
		to, calls := &samples[i+1], uint64(0)
		for m := range rates {
			rates[m] = callRate(from.masters[m], to.masters[m])
			n, _ := since(from.masters[m], to.masters[m])
			calls += n
		}
		if calls < uint64(sliceCalls*masters) {
			continue // joined with the next
		}
		if busiestOverMean(rates) <= 1+undivided*float64(masters-1) {
			at := to.at
			return &at
		}
		from = to
	}
	return nil
}

// divided takes over what the agents know of the split.
func (run *RunReport) divided(known []split.Info) {
	run.Knew = len(known)
	var latest split.Info
	for _, k := range known {
		if k.Since.After(latest.Since) {
			latest = k
		}
	}
	run.Ways = latest.Ways
	ops, sum := make([]float64, run.Ways), 0.0
	for _, k := range known {
		for i, p := range k.Parts {
			if i < run.Ways {
				ops[i] += float64(p.Ops)
				sum += float64(p.Ops)
			}
		}
	}
	for _, n := range ops {
		run.Parts = append(run.Parts, n/max(1, sum))
	}
}

// everDivided reports whether some agent knew of a split at some time.
func (run *RunReport) everDivided() bool {
	return run.Ways > 0 || slices.ContainsFunc(run.Slices, func(s SliceReport) bool { return s.Knew > 0 })
}
