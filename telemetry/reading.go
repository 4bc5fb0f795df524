package telemetry

import (
	"runtime"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/spillgate/spillgate/agent"
	"github.com/spillgate/spillgate/limit"
)

// Reading is what one scrape sees. Totals are since the start of the process.
type Reading struct {
	// Agent has the agent's totals.
	Agent agent.Stats
	// StoreUp: the store could be used when it was last looked at.
	StoreUp bool
	// StoreResent counts calls that the store repeated.
	StoreResent uint64
	// Memstore describes the memory store; nil with another one.
	Memstore *Memstore

	// Rules in force.
	Rules int
	// RulesLoaded is when they were loaded; zero without rules.
	RulesLoaded time.Time
	// RulesReloadsFailed counts reloads that were refused.
	RulesReloadsFailed uint64
}

// Memstore is a memory store at the time of a Reading.
type Memstore struct {
	// Cells in memory.
	Cells int
}

// labels are the attribute sets of the series, made once.
type labels struct {
	checks                   map[decided]metric.ObserveOption
	notRun, unknown, damaged metric.ObserveOption
	build                    metric.ObserveOption
}

// decided is what tells apart the series of Checks.
type decided struct {
	admitted bool
	reason   limit.Reason
}

// always are the series of Checks that exist before they count anything. Without
// them, the first denial of a process would be no increase to Prometheus, and an
// alarm on store_open would miss it.
var always = []decided{
	{true, limit.OK}, {false, limit.OverLimit}, {false, limit.Never}, {true, limit.NoRule}, {true, limit.Unlimited},
	{true, limit.StoreOpen}, {false, limit.StoreClosed}, {true, limit.Overloaded}, {false, limit.Overloaded},
}

func newLabels(version string) *labels {
	set := func(kvs ...string) metric.ObserveOption {
		var attrs []attribute.KeyValue
		for i := 0; i < len(kvs); i += 2 {
			attrs = append(attrs, attribute.String(kvs[i], kvs[i+1]))
		}
		return metric.WithAttributeSet(attribute.NewSet(attrs...))
	}
	l := &labels{
		checks:  make(map[decided]metric.ObserveOption),
		notRun:  set(AttrCause, CauseNotRun),
		unknown: set(AttrCause, CauseUnknown),
		damaged: set(AttrCause, CauseDamaged),
		build:   set(AttrVersion, version, AttrGoVersion, runtime.Version()),
	}
	for _, r := range limit.Reasons() {
		l.checks[decided{true, r}] = set(AttrOutcome, OutcomeAdmitted, AttrReason, r.String())
		l.checks[decided{false, r}] = set(AttrOutcome, OutcomeDenied, AttrReason, r.String())
	}
	return l
}

// show reports every value of a reading to see.
func (r *Reading) show(l *labels, see func(name string, value float64, opts ...metric.ObserveOption)) {
	r.showChecks(l, see)

	b := &r.Agent.Batcher
	see(StoreUp, oneIf(r.StoreUp))
	see(StoreCalls, float64(b.Calls))
	see(StoreCallsResent, float64(r.StoreResent))
	see(StoreEntries, float64(b.Entries))
	see(StoreEntriesFailed, float64(b.NotRun), l.notRun)
	see(StoreEntriesFailed, float64(b.Unknown), l.unknown)
	see(StoreEntriesFailed, float64(b.Damaged), l.damaged)
	see(StoreClaims, float64(b.Claims))
	see(ClaimsWaiting, float64(b.Waiting))
	see(ClaimsOverloaded, float64(b.Overloaded))
	see(ClaimsGivenUp, float64(b.GivenUp))
	see(TokensRefunded, float64(b.Refunded))

	see(Rules, float64(r.Rules))
	if !r.RulesLoaded.IsZero() {
		see(RulesLoaded, float64(r.RulesLoaded.UnixMilli())/1e3)
	}
	see(RulesReloadsFailed, float64(r.RulesReloadsFailed))
	if r.Memstore != nil {
		see(MemstoreCells, float64(r.Memstore.Cells))
	}
	see(BuildInfo, 1, l.build)
}

func (r *Reading) showChecks(l *labels, see func(name string, value float64, opts ...metric.ObserveOption)) {
	counts := make(map[decided]uint64, len(always))
	for _, d := range always {
		counts[d] = 0
	}
	for _, c := range r.Agent.Checks {
		counts[decided{c.Admitted, c.Reason}] = c.Checks
	}
	for d, n := range counts {
		see(Checks, float64(n), l.checks[d])
	}
}

func oneIf(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}
