package dashboard

import (
	"cmp"
	"time"

	"github.com/spillgate/spillgate/agent"
	"github.com/spillgate/spillgate/limit"
	"github.com/spillgate/spillgate/rules"
)

// Stats are the agent's totals since its start, but for what is said to be now.
type Stats struct {
	Checks []Checks `json:"checks"`
	Store  Store    `json:"store"`
	Leases Leases   `json:"leases"`
	Splits Splits   `json:"splits"`
	// Rules are left out by programs that do not follow any source of them.
	Rules *RuleSource `json:"rules,omitempty"`
}

// RuleSource says which rules are in force.
type RuleSource struct {
	Source          string     `json:"source"`          // none, file, store or snapshot
	Version         int64      `json:"version"`         // 0 without a store
	Since           *time.Time `json:"since,omitempty"` // left out while there are none
	Stale           bool       `json:"stale"`           // they may not be the latest, or there are none yet
	Reason          string     `json:"reason"`          // why; empty if not
	Refused         uint64     `json:"refused"`
	SnapshotsFailed uint64     `json:"snapshots_failed"`
}

// showRules is a status in the form of the API.
func showRules(s rules.Status) *RuleSource {
	reason := cmp.Or(s.Missing, s.Stale)
	r := &RuleSource{Source: string(s.From()), Version: s.Version, Stale: reason != "", Reason: reason, Refused: s.Refused, SnapshotsFailed: s.SnapshotsFailed}
	if !s.Since.IsZero() {
		since := s.Since.UTC()
		r.Since = &since
	}
	return r
}

// Checks are decisions of one outcome and reason. Those that did not occur are left out.
type Checks struct {
	Outcome string `json:"outcome"` // admitted or denied
	Reason  string `json:"reason"`
	Checks  uint64 `json:"checks"`
}

// Store is what went to the store, and what became of it; all 0 with the memory store.
type Store struct {
	Calls      uint64 `json:"calls"`
	Entries    uint64 `json:"entries"`
	Claims     uint64 `json:"claims"`
	NotRun     uint64 `json:"not_run"`
	Unknown    uint64 `json:"unknown"`
	Damaged    uint64 `json:"damaged"`
	Overloaded uint64 `json:"overloaded"`
	GivenUp    uint64 `json:"given_up"`
	Refunded   uint64 `json:"refunded"`
	Waiting    int64  `json:"waiting"` // now
}

// Leases are what was decided without the store, and with what.
type Leases struct {
	HotBuckets  int          `json:"hot_buckets"` // now
	Promoted    uint64       `json:"promoted"`
	Demoted     uint64       `json:"demoted"`
	Held        limit.Tokens `json:"held"` // now
	Granted     uint64       `json:"granted"`
	Rode        uint64       `json:"rode"`
	Spent       uint64       `json:"spent"`
	Returned    uint64       `json:"returned"`
	Expired     uint64       `json:"expired"`
	Requests    uint64       `json:"requests"`
	Admitted    uint64       `json:"admitted"`
	Denied      uint64       `json:"denied"`
	KnownDenied uint64       `json:"known_denied"`
	Charged     uint64       `json:"charged"`
	ChargesLost uint64       `json:"charges_lost"`
}

// Splits are the divisions of buckets.
type Splits struct {
	Active    int    `json:"active"` // now
	Split     uint64 `json:"split"`
	Merged    uint64 `json:"merged"`
	Ended     uint64 `json:"ended"`
	Touches   uint64 `json:"touches"`
	Refused   uint64 `json:"refused"`
	Overflows uint64 `json:"overflows"`
}

// showStats is the agent's totals in the form of the API. [6]
func showStats(of *agent.Stats) Stats {
	b, l, t := &of.Batcher, &of.Leases, &of.Splits
	s := Stats{
		Checks: []Checks{},
		Store: Store{Calls: b.Calls, Entries: b.Entries, Claims: b.Claims, NotRun: b.NotRun, Unknown: b.Unknown, Damaged: b.Damaged,
			Overloaded: b.Overloaded, GivenUp: b.GivenUp, Refunded: b.Refunded, Waiting: b.Waiting},
		Leases: Leases{HotBuckets: l.Holdings, Promoted: l.Promoted, Demoted: l.Demoted, Held: l.Held, Granted: l.Granted, Rode: l.Rode,
			Spent: l.Spent, Returned: l.Returned, Expired: l.Expired, Requests: l.Asks, Admitted: l.Admitted, Denied: l.Denied,
			KnownDenied: l.KnownDenied, Charged: l.Charged, ChargesLost: l.ChargesLost},
		Splits: Splits{Active: t.Active, Split: t.Split, Merged: t.Merged, Ended: t.Ended, Touches: t.Touches, Refused: t.Refused,
			Overflows: t.Overflow},
	}
	for _, c := range of.Checks {
		outcome := "denied"
		if c.Admitted {
			outcome = "admitted"
		}
		s.Checks = append(s.Checks, Checks{outcome, c.Reason.String(), c.Checks})
	}
	return s
}
