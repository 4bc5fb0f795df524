package telemetry

import (
	"cmp"
	"runtime"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/spillgate/spillgate/agent"
	"github.com/spillgate/spillgate/limit"
	"github.com/spillgate/spillgate/rules"
)

// Reading is what one scrape sees. Totals are since the start of the process.
type Reading struct {
	// Agent has the agent's totals.
	Agent agent.Stats
	// Active has the buckets that were checked of late, by rule.
	Active []agent.Active
	// ByPolicy has what the store did not decide, by rule.
	ByPolicy []agent.ByPolicy
	// Fleet is the number of agents that share the limits; 0 if it is not known.
	Fleet int
	// StoreUp: the store could be used when it was last looked at.
	StoreUp bool
	// Masters are those of the store; none of the memory store.
	Masters []Master
	// StoreResent counts calls that the store repeated.
	StoreResent uint64
	// StoreSkew is how far the clocks of masters are apart; nil or not ok if that is not known.
	StoreSkew func() (skew time.Duration, ok bool)
	// Memstore describes the memory store; nil with another one.
	Memstore *Memstore

	// Rules in force.
	Rules int
	// RulesStatus is where they come from, and whether they are the latest.
	RulesStatus rules.Status
}

// Master is one master of the store at the time of a Reading.
type Master struct {
	Addr string
	Up   bool
}

// Memstore is a memory store at the time of a Reading.
type Memstore struct {
	// Cells in memory.
	Cells int
}

// series is the attributes of one series, made once. A pointer to it tells it from others of its metric.
type series struct{ option metric.ObserveOption }

// labels are all series with labels.
type labels struct {
	checks                   map[decided]*series
	leaseAdmitted            *series
	leaseDenied              *series
	memoryDenied             *series
	promoted, demoted        *series
	granted, rode, spent     *series
	returned, expired        *series
	split, merged, ended     *series
	notRun, unknown, damaged *series
	build                    *series
	sources                  map[rules.Source]*series
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
	{true, limit.OK}, {false, limit.OverLimit}, {false, limit.Never}, {true, limit.ShadowOver}, {true, limit.NoRule}, {true, limit.Unlimited},
	{true, limit.StoreOpen}, {false, limit.StoreClosed}, {true, limit.StoreLocal}, {false, limit.StoreLocal}, {true, limit.Overloaded}, {false, limit.Overloaded},
}

func newSeries(kvs ...string) *series {
	var attrs []attribute.KeyValue
	for i := 0; i < len(kvs); i += 2 {
		attrs = append(attrs, attribute.String(kvs[i], kvs[i+1]))
	}
	return &series{metric.WithAttributeSet(attribute.NewSet(attrs...))}
}

func newLabels(version string) *labels {
	l := &labels{
		checks:        make(map[decided]*series),
		leaseAdmitted: newSeries(AttrOutcome, OutcomeAdmitted, AttrSource, SourceLease),
		leaseDenied:   newSeries(AttrOutcome, OutcomeDenied, AttrSource, SourceLease),
		memoryDenied:  newSeries(AttrOutcome, OutcomeDenied, AttrSource, SourceMemory),
		promoted:      newSeries(AttrChange, ChangePromoted),
		demoted:       newSeries(AttrChange, ChangeDemoted),
		granted:       newSeries(AttrKind, KindGranted),
		rode:          newSeries(AttrKind, KindRode),
		spent:         newSeries(AttrKind, KindSpent),
		returned:      newSeries(AttrKind, KindReturned),
		expired:       newSeries(AttrKind, KindExpired),
		split:         newSeries(AttrChange, ChangeSplit),
		merged:        newSeries(AttrChange, ChangeMerged),
		ended:         newSeries(AttrChange, ChangeEnded),
		notRun:        newSeries(AttrCause, CauseNotRun),
		unknown:       newSeries(AttrCause, CauseUnknown),
		damaged:       newSeries(AttrCause, CauseDamaged),
		build:         newSeries(AttrVersion, version, AttrGoVersion, runtime.Version()),
	}
	l.sources = make(map[rules.Source]*series)
	for _, from := range rules.Sources() {
		l.sources[from] = newSeries(AttrSource, string(from))
	}
	for _, r := range limit.Reasons() {
		l.checks[decided{true, r}] = newSeries(AttrOutcome, OutcomeAdmitted, AttrReason, r.String())
		l.checks[decided{false, r}] = newSeries(AttrOutcome, OutcomeDenied, AttrReason, r.String())
	}
	return l
}

// seeFunc takes the value of a metric, of the one series that is named if it has labels.
type seeFunc func(name string, value float64, of ...*series)

// show reports every value of a reading to see.
func (r *Reading) show(l *labels, see seeFunc) {
	r.showChecks(l, see)
	r.showLeases(l, see)
	r.showSplits(l, see)
	r.showActive(see)
	r.showShadow(see)
	r.showPolicies(see)

	b := &r.Agent.Batcher
	see(StoreUp, oneIf(r.StoreUp))
	for _, m := range r.Masters {
		see(StoreMasterUp, oneIf(m.Up), newSeries(AttrMaster, m.Addr))
	}
	see(StoreCalls, count(b.Calls))
	see(StoreCallsResent, count(r.StoreResent))
	see(StoreEntries, count(b.Entries))
	see(StoreEntriesFailed, count(b.NotRun), l.notRun)
	see(StoreEntriesFailed, count(b.Unknown), l.unknown)
	see(StoreEntriesFailed, count(b.Damaged), l.damaged)
	see(StoreClaims, count(b.Claims))
	if r.StoreSkew != nil {
		if skew, ok := r.StoreSkew(); ok {
			see(StoreSkew, skew.Seconds())
		}
	}
	see(ClaimsWaiting, float64(b.Waiting))
	see(ClaimsOverloaded, count(b.Overloaded))
	see(ClaimsGivenUp, count(b.GivenUp))
	see(TokensRefunded, count(b.Refunded))
	see(ShardsDown, float64(b.Down))
	see(ShardsFailed, count(b.Opened))
	see(ShardProbes, count(b.Probes))
	see(ClaimsDown, count(b.Refused))

	r.showRules(l, see)
	if r.Memstore != nil {
		see(MemstoreCells, float64(r.Memstore.Cells))
	}
	see(BuildInfo, 1, l.build)
}

func (r *Reading) showChecks(l *labels, see seeFunc) {
	counts := make(map[decided]uint64, len(always))
	for _, d := range always {
		counts[d] = 0
	}
	for _, c := range r.Agent.Checks {
		counts[decided{c.Admitted, c.Reason}] = c.Checks
	}
	for d, n := range counts {
		see(Checks, count(n), l.checks[d])
	}
}

// showShadow reports what shadow rules would have denied, of those that would have denied most.
func (r *Reading) showShadow(see seeFunc) {
	all := r.Agent.Shadow
	if len(all) > mostRules {
		all = slices.Clone(all)
		slices.SortStableFunc(all, func(x, y agent.ShadowDenied) int { return cmp.Compare(y.Denied, x.Denied) })
		all = all[:mostRules]
	}
	for _, s := range all {
		see(ShadowDenied, count(s.Denied), newSeries(AttrDomain, s.Domain, AttrRule, s.Rule))
	}
}

// showLeases reports what was decided without the store, and with what. All of it is there from
// the start, with 0.
func (r *Reading) showLeases(l *labels, see seeFunc) {
	s := &r.Agent.Leases
	see(ChecksLocal, count(s.Admitted), l.leaseAdmitted)
	see(ChecksLocal, count(s.Denied), l.leaseDenied)
	see(ChecksLocal, count(s.KnownDenied), l.memoryDenied)
	see(HotBuckets, float64(s.Holdings))
	see(HotBucketsChanged, count(s.Promoted), l.promoted)
	see(HotBucketsChanged, count(s.Demoted), l.demoted)
	see(LeaseTokensHeld, float64(s.Held))
	see(LeaseTokens, count(s.Granted), l.granted)
	see(LeaseTokens, count(s.Rode), l.rode)
	see(LeaseTokens, count(s.Spent), l.spent)
	see(LeaseTokens, count(s.Returned), l.returned)
	see(LeaseTokens, count(s.Expired), l.expired)
	see(LeaseRequests, count(s.Asks))
	see(TokensCharged, count(s.Charged))
	see(TokensChargedLost, count(s.ChargesLost))
}

// showRules reports which rules are in force.
func (r *Reading) showRules(l *labels, see seeFunc) {
	s := &r.RulesStatus
	see(Rules, float64(r.Rules))
	for from, of := range l.sources {
		see(RulesSource, oneIf(from == s.From()), of)
	}
	if s.Version > 0 {
		see(RulesVersion, float64(s.Version))
	}
	if !s.Since.IsZero() {
		see(RulesLoaded, float64(s.Since.UnixMilli())/1e3)
	}
	see(RulesStale, oneIf(s.Stale != "" || s.Missing != ""))
	see(RulesReloadsFailed, count(s.Refused))
	see(RulesSnapshotsFailed, count(s.SnapshotsFailed))
}

// showSplits reports how buckets are divided. All of it is there from the start, with 0.
func (r *Reading) showSplits(l *labels, see seeFunc) {
	s := &r.Agent.Splits
	see(Splits, float64(s.Active))
	see(SplitsChanged, count(s.Split), l.split)
	see(SplitsChanged, count(s.Merged), l.merged)
	see(SplitsChanged, count(s.Ended), l.ended)
	see(SplitTouches, count(s.Touches))
	see(SplitRefused, count(s.Refused))
	see(SplitOverflows, count(s.Overflow))
}

// mostRules is for how many rules active buckets and shadow denials are shown: a rules file may have many thousands.
const mostRules = 500

// showActive reports the active buckets of the rules that have most.
func (r *Reading) showActive(see seeFunc) {
	all := r.Active
	if len(all) > mostRules {
		all = slices.Clone(all)
		slices.SortStableFunc(all, func(x, y agent.Active) int { return cmp.Compare(y.Buckets, x.Buckets) })
		all = all[:mostRules]
	}
	for _, a := range all {
		see(ActiveBuckets, float64(a.Buckets), newSeries(AttrDomain, a.Domain, AttrRule, a.Rule))
	}
}

// showPolicies reports what fail policies decided, by rule, of the first rules by name.
func (r *Reading) showPolicies(see seeFunc) {
	see(LocalShares, float64(r.Agent.Shares))
	if r.Fleet > 0 {
		see(FleetAgents, float64(r.Fleet))
	}
	rules := 0
	for i, p := range r.ByPolicy {
		if i == 0 || p.Domain != r.ByPolicy[i-1].Domain || p.Rule != r.ByPolicy[i-1].Rule {
			rules++
		}
		if rules > mostRules {
			return
		}
		outcome := OutcomeDenied
		if p.Admitted {
			outcome = OutcomeAdmitted
		}
		see(PolicyAnswers, count(p.Answers), newSeries(AttrDomain, p.Domain, AttrRule, p.Rule, AttrOutcome, outcome, AttrReason, p.Reason.String()))
	}
}

// count is the value of a total. One that is put together from parts, while checks run, can be some below
// 0 for a moment.
func count(n uint64) float64 { return float64(int64(n)) }

// floor keeps counters from falling. The agent puts some totals together from parts that move on meanwhile, so
// a reading may be some behind the one before; Prometheus would take that for a restart, and
// the whole total for an increase.
type floor struct {
	mu   sync.Mutex
	seen map[shownAs]float64
}

// shownAs is one series of one metric; of is nil for a metric without labels.
type shownAs struct {
	name string
	of   *series
}

// above returns the value, or the highest one before it.
func (f *floor) above(name string, value float64, of ...*series) float64 {
	at := shownAs{name: name}
	if len(of) > 0 {
		at.of = of[0]
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.seen == nil {
		f.seen = make(map[shownAs]float64)
	}
	f.seen[at] = max(f.seen[at], value)
	return f.seen[at]
}

func oneIf(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}
