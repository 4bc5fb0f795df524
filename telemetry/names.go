package telemetry

// Names of the metrics, as Prometheus shows them.
const (
	Checks      = "spillgate_checks_total"
	ChecksLocal = "spillgate_checks_local_total"
	// ShadowDenied has a series for each shadow rule that would have denied.
	ShadowDenied = "spillgate_shadow_denied_total"

	HotBuckets        = "spillgate_hot_buckets"
	HotBucketsChanged = "spillgate_hot_buckets_changed_total"
	LeaseTokensHeld   = "spillgate_lease_tokens_held"
	LeaseTokens       = "spillgate_lease_tokens_total"
	LeaseRequests     = "spillgate_lease_requests_total"
	TokensCharged     = "spillgate_tokens_charged_total"
	TokensChargedLost = "spillgate_tokens_charged_lost_total"

	Splits         = "spillgate_splits"
	SplitsChanged  = "spillgate_splits_changed_total"
	SplitTouches   = "spillgate_split_touches_total"
	SplitRefused   = "spillgate_split_refused_total"
	SplitOverflows = "spillgate_split_overflows_total"

	ActiveBuckets = "spillgate_active_buckets"

	PolicyAnswers = "spillgate_policy_answers_total"
	LocalShares   = "spillgate_local_shares"
	FleetAgents   = "spillgate_fleet_agents"

	StoreUp            = "spillgate_store_up"
	StoreMasterUp      = "spillgate_store_master_up"
	StoreCalls         = "spillgate_store_calls_total"
	StoreCallsResent   = "spillgate_store_calls_resent_total"
	StoreEntries       = "spillgate_store_entries_total"
	StoreEntriesFailed = "spillgate_store_entries_failed_total"
	StoreClaims        = "spillgate_store_claims_total"
	StoreCallEntries   = "spillgate_store_call_entries"
	StoreCallSeconds   = "spillgate_store_call_seconds"
	StoreSkew          = "spillgate_store_skew_seconds"

	ClaimsWaiting    = "spillgate_claims_waiting"
	ClaimsOverloaded = "spillgate_claims_overloaded_total"
	ClaimsGivenUp    = "spillgate_claims_given_up_total"
	TokensRefunded   = "spillgate_tokens_refunded_total"

	ShardsDown   = "spillgate_shards_down"
	ShardsFailed = "spillgate_shards_failed_total"
	ShardProbes  = "spillgate_shard_probes_total"
	ClaimsDown   = "spillgate_claims_down_total"

	Rules                = "spillgate_rules"
	RulesSource          = "spillgate_rules_source"
	RulesVersion         = "spillgate_rules_version"
	RulesLoaded          = "spillgate_rules_loaded_timestamp_seconds"
	RulesStale           = "spillgate_rules_stale"
	RulesReloadsFailed   = "spillgate_rules_reloads_failed_total"
	RulesSnapshotsFailed = "spillgate_rules_snapshots_failed_total"

	MemstoreCells = "spillgate_memstore_cells"
	BuildInfo     = "spillgate_build_info"
)

// Names and values of the attributes, which Prometheus calls labels.
const (
	AttrOutcome     = "outcome"
	OutcomeAdmitted = "admitted"
	OutcomeDenied   = "denied"

	// AttrReason has the words of limit.Reason.
	AttrReason = "reason"

	// AttrSource has, of RulesSource, the words of rules.Source.
	AttrSource   = "source"
	SourceLease  = "lease"
	SourceMemory = "memory"

	AttrChange     = "change"
	ChangePromoted = "promoted"
	ChangeDemoted  = "demoted"
	ChangeSplit    = "split"
	ChangeMerged   = "merged"
	ChangeEnded    = "ended"

	AttrKind     = "kind"
	KindGranted  = "granted"
	KindRode     = "rode"
	KindSpent    = "spent"
	KindReturned = "returned"
	KindExpired  = "expired"

	AttrCause    = "cause"
	CauseNotRun  = "not_run"
	CauseUnknown = "unknown"
	CauseDamaged = "damaged"

	// AttrDomain and AttrRule are empty for buckets that callers name themselves.
	AttrDomain = "domain"
	AttrRule   = "rule"

	// AttrMaster is the address of a master of the store.
	AttrMaster = "master"

	AttrVersion   = "version"
	AttrGoVersion = "go_version"
)

// Kind is how a metric's value behaves, in Prometheus's words.
type Kind string

// The kinds.
const (
	Counter   Kind = "counter"
	Gauge     Kind = "gauge"
	Histogram Kind = "histogram"
)

// Metric describes one metric.
type Metric struct {
	Name string
	Kind Kind
	// Unit in UCUM: s, 1, or {thing}.
	Unit string
	// Labels that its series have.
	Labels []string
	// Help is the line that Prometheus shows.
	Help string
	// Steady counters are kept in one place, so that they never fall while their series lives; a series that comes back after its
	// rule was gone begins at 0 again. The others are put together, see floor.
	Steady bool
	// Buckets of a histogram: the upper bounds, without the last, infinite one.
	Buckets []float64
}

var (
	// entryBuckets reach to the largest call that batcher.Config.MaxEntries allows.
	entryBuckets = []float64{1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048}
	// secondBuckets are for 50 us (a Redis on the same machine) to 1 s (a server that stands still).
	secondBuckets = []float64{50e-6, 100e-6, 200e-6, 500e-6, 1e-3, 2e-3, 5e-3, 10e-3, 20e-3, 50e-3, 100e-3, 200e-3, 500e-3, 1}
)

// Metrics describes all metrics, in the order of docs/metrics.md.
var Metrics = []Metric{
	{Name: Checks, Kind: Counter, Unit: "{check}", Labels: []string{AttrOutcome, AttrReason},
		Help: "Checks decided."},
	{Name: ChecksLocal, Kind: Counter, Unit: "{check}", Labels: []string{AttrOutcome, AttrSource},
		Help: "Those of them that a lease decided, or the memory of denials, without a claim to the store."},
	{Name: ShadowDenied, Kind: Counter, Unit: "{descriptor}", Labels: []string{AttrDomain, AttrRule}, Steady: true,
		Help: "Descriptors of checks that a shadow rule would have denied. Absent for rules that would have denied none."},

	{Name: HotBuckets, Kind: Gauge, Unit: "{bucket}",
		Help: "Buckets that are hot now: this agent decides on them from leases."},
	{Name: HotBucketsChanged, Kind: Counter, Unit: "{bucket}", Labels: []string{AttrChange},
		Help: "Buckets that became hot (promoted) or cold (demoted)."},
	{Name: LeaseTokensHeld, Kind: Gauge, Unit: "{token}",
		Help: "Tokens on lease that are unspent now."},
	{Name: LeaseTokens, Kind: Counter, Unit: "{token}", Labels: []string{AttrKind},
		Help: "Tokens of leases: granted to this agent, rode to callers who had waited for them, " +
			"spent here, returned unspent, or expired, their lease having ended unspent at this agent."},
	{Name: LeaseRequests, Kind: Counter, Unit: "{request}",
		Help: "Requests for leases, and returns of them, within the calls to the store."},
	{Name: TokensCharged, Kind: Counter, Unit: "{token}",
		Help: "Tokens of optimistic rules admitted ahead of the store."},
	{Name: TokensChargedLost, Kind: Counter, Unit: "{token}",
		Help: "Those of them that the store may not have counted."},

	{Name: Splits, Kind: Gauge, Unit: "{bucket}",
		Help: "Buckets that are divided over several masters now, as far as this agent knows."},
	{Name: SplitsChanged, Kind: Counter, Unit: "{bucket}", Labels: []string{AttrChange},
		Help: "Buckets that were divided (split), and that are whole again: by order (merged), or since the time was over (ended)."},
	{Name: SplitTouches, Kind: Counter, Unit: "{report}",
		Help: "Reports of the load on a bucket to its home, among the entries."},
	{Name: SplitRefused, Kind: Counter, Unit: "{entry}",
		Help: "Entries on parts of buckets that were not divided any more; they were asked again at home."},
	{Name: SplitOverflows, Kind: Counter, Unit: "{claim}",
		Help: "Checks and leases that went on to another part of their bucket, the one before having too little."},
	{Name: ActiveBuckets, Kind: Gauge, Unit: "{bucket}", Labels: []string{AttrDomain, AttrRule},
		Help: "Distinct buckets of a rule that were checked in the last minute or two, an estimate. Absent with the memory store."},

	{Name: PolicyAnswers, Kind: Counter, Steady: true, Unit: "{answer}", Labels: []string{AttrDomain, AttrRule, AttrOutcome, AttrReason},
		Help: "Descriptors that a rule's on_store_error decided, the store giving no answer. Appears with the first."},
	{Name: LocalShares, Kind: Gauge, Unit: "{bucket}",
		Help: "Buckets of which this agent enforces its own share, or did so not long ago (on_store_error: local)."},
	{Name: FleetAgents, Kind: Gauge, Unit: "{agent}",
		Help: "Agents that share the limits, as this one believes. Absent while it does not know."},

	{Name: StoreUp, Kind: Gauge, Unit: "1",
		Help: "1 if the store has been reached and its last calls were answered, else 0."},
	{Name: StoreMasterUp, Kind: Gauge, Unit: "1", Labels: []string{AttrMaster},
		Help: "1 if the last calls to this master of the store were answered, or none went to it, else 0. Absent for the memory store."},
	{Name: StoreCalls, Kind: Counter, Unit: "{call}",
		Help: "Calls to the store. 0 for the memory store, which needs none."},
	{Name: StoreCallsResent, Kind: Counter, Unit: "{call}",
		Help: "Calls repeated because the store proved that nothing had run."},
	{Name: StoreEntries, Kind: Counter, Unit: "{entry}",
		Help: "Entries, one per bucket, in the calls to the store."},
	{Name: StoreEntriesFailed, Kind: Counter, Unit: "{entry}", Labels: []string{AttrCause},
		Help: "Entries without an answer: not_run was not debited, unknown counts as spent, damaged holds no cell."},
	{Name: StoreClaims, Kind: Counter, Unit: "{claim}",
		Help: "Claims of checks that the entries carried."},
	{Name: StoreCallEntries, Kind: Histogram, Unit: "{entry}",
		Help: "Entries in one call to the store.", Buckets: entryBuckets},
	{Name: StoreCallSeconds, Kind: Histogram, Unit: "s",
		Help: "Time from sending a call to the store to its answer.", Buckets: secondBuckets},
	{Name: StoreSkew, Kind: Gauge, Unit: "s",
		Help: "How far the clocks of two masters are apart at least. Absent where that is not known or does not matter."},

	{Name: ClaimsWaiting, Kind: Gauge, Unit: "{claim}",
		Help: "Claims that wait for the store now."},
	{Name: ClaimsOverloaded, Kind: Counter, Unit: "{claim}",
		Help: "Claims refused because agent.max_pending others waited."},
	{Name: ClaimsGivenUp, Kind: Counter, Unit: "{claim}",
		Help: "Claims whose deadline passed before the store's answer."},
	{Name: TokensRefunded, Kind: Counter, Unit: "{token}",
		Help: "Tokens sent back because nobody waited for them any more."},

	{Name: ShardsDown, Kind: Gauge, Unit: "{shard}",
		Help: "Shards that are not asked now, since they do not answer: tags on a cluster, else the whole store."},
	{Name: ShardsFailed, Kind: Counter, Unit: "{shard}",
		Help: "Times that a shard was found not to answer."},
	{Name: ShardProbes, Kind: Counter, Unit: "{call}",
		Help: "Calls that asked whether such a shard is back, beside spillgate_store_calls_total."},
	{Name: ClaimsDown, Kind: Counter, Unit: "{claim}",
		Help: "Claims refused at once because their shard does not answer."},

	{Name: Rules, Kind: Gauge, Unit: "{rule}",
		Help: "Rules in force."},
	{Name: RulesSource, Kind: Gauge, Unit: "1", Labels: []string{AttrSource},
		Help: "1 for where the rules in force came from, 0 for the others."},
	{Name: RulesVersion, Kind: Gauge, Unit: "1",
		Help: "Version in force of the rules in the store. Absent with a file, and without rules."},
	{Name: RulesLoaded, Kind: Gauge, Unit: "s",
		Help: "Unix time at which the rules in force were loaded. Absent without rules."},
	{Name: RulesStale, Kind: Gauge, Unit: "1",
		Help: "1 if the rules in force may not be the latest (they serve all the same), or if there are none yet, else 0."},
	{Name: RulesReloadsFailed, Kind: Counter, Unit: "{reload}",
		Help: "Files and versions refused; the rules in force stayed."},
	{Name: RulesSnapshotsFailed, Kind: Counter, Unit: "{snapshot}",
		Help: "Attempts to write the snapshot of the rules that failed."},

	{Name: MemstoreCells, Kind: Gauge, Unit: "{cell}",
		Help: "Cells in the memory store. Absent with another store."},
	{Name: BuildInfo, Kind: Gauge, Unit: "1", Labels: []string{AttrVersion, AttrGoVersion},
		Help: "Always 1; the labels say what runs."},
}
