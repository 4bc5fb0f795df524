package agent

import (
	"sync/atomic"

	"github.com/spillgate/spillgate/agent/lease"
	"github.com/spillgate/spillgate/agent/split"
	"github.com/spillgate/spillgate/batcher"
	"github.com/spillgate/spillgate/limit"
)

// counters count decisions by outcome and reason. They are spread over stripes, so
// that two cores seldom write one cache line.
type counters struct {
	stripes [8]stripe
}

type stripe struct {
	denied, admitted [16]atomic.Uint64 // by reason
}

// count adds a decision.
func (c *counters) count(d *limit.Decision) {
	// The time to reset differs from check to check and is at hand: mixed, it picks the stripe.
	s := &c.stripes[uint64(d.ResetAfter)*0x9e3779b97f4a7c15>>61]
	if d.Admitted {
		s.admitted[d.Reason].Add(1)
	} else {
		s.denied[d.Reason].Add(1)
	}
}

// Count is a number of decisions.
type Count struct {
	Admitted bool
	Reason   limit.Reason
	Checks   uint64
}

// Stats are totals since New.
type Stats struct {
	// Checks by outcome and reason; combinations that did not occur are left out.
	Checks []Count
	// Shadow has what shadow rules would have denied, for each that has.
	Shadow []ShadowDenied
	// Batcher, Leases and Splits are zero on a direct store.
	Batcher batcher.Stats
	Leases  lease.Stats
	// Shares of buckets that the agent enforces, or did so not long ago, the store being away.
	Shares int
	// Splits of buckets, as this agent learned of them.
	Splits split.Totals
}

// Stats returns the totals. Checks in progress are not counted yet.
func (a *Agent) Stats() Stats {
	s := Stats{Shadow: a.shadows.all()}
	if a.desk != nil {
		s.Leases = a.desk.Stats()
		s.Splits = a.desk.splits.Stats()
		s.Shares = a.desk.shares.Len()
	}
	for _, r := range limit.Reasons() {
		var admitted, denied uint64
		for i := range a.stats.stripes {
			admitted += a.stats.stripes[i].admitted[r].Load()
			denied += a.stats.stripes[i].denied[r].Load()
		}
		switch r { // what Holdings count is not counted here
		case limit.OK:
			admitted += s.Leases.Admitted
		case limit.OverLimit:
			denied += s.Leases.Denied
		}
		if admitted > 0 {
			s.Checks = append(s.Checks, Count{true, r, admitted})
		}
		if denied > 0 {
			s.Checks = append(s.Checks, Count{false, r, denied})
		}
	}
	if a.batcher != nil {
		s.Batcher = a.batcher.Stats()
	}
	return s
}
