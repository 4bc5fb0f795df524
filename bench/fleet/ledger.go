package main

import (
	"math"
	"slices"
	"time"

	"github.com/spillgate/spillgate/internal/window"
)

// admission is an admitted check: its token left the bucket, or a lease, between call and ret.
type admission struct {
	call, ret time.Duration // since the start of the load
	agent     int
}

// slack is what two clocks, one of them read to the microsecond, may be apart.
const slack = 10 * time.Microsecond

// worstWindow is the window that is most over burst + rate*w for certain.
func worstWindow(b bucketOf, all []admission) window.Window {
	seen := make([]window.Admission, len(all))
	for i, a := range all {
		seen[i] = window.Admission{Sent: a.call, Received: a.ret, Tokens: 1}
	}
	return window.Worst(seen, window.Limit{Burst: int64(b.Burst), Tokens: int64(b.Rate), Per: time.Second, Slack: slack})
}

// overdraft books each admission at its return in a reference bucket that starts full, and is the
// most that the bucket was overdrawn; below zero it never was.
func overdraft(b bucketOf, all []admission) float64 {
	burst, rate := float64(b.Burst), float64(b.Rate)
	returns := make([]time.Duration, len(all))
	for i, a := range all {
		returns[i] = a.ret
	}
	slices.Sort(returns)
	tokens, last, worst := burst, time.Duration(0), math.Inf(-1)
	for _, t := range returns {
		tokens = min(burst, tokens+rate*(t-last).Seconds()) - 1
		last = t
		worst = max(worst, -tokens)
	}
	return worst
}
