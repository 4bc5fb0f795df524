package main

import (
	"math"
	"slices"
	"time"
)

// admission is an admitted check: its token left the bucket, or a lease, between call and ret.
type admission struct {
	call, ret time.Duration // since the start of the load
	agent     int
}

// worstWindow is the largest excess over burst + rate*w that is certain: over all windows that begin with a
// call and end with a return, the number of admissions that lie in the window whole, less the bound. Below zero
// the bucket never was at its bound.
//
// One sweep over the returns. A tree over the calls, in order, holds for each call of an admission
// that has returned the value rate*call + (returned admissions called then or later); the
// maximum, less rate*ret + burst, is the worst of the windows that end now.
func worstWindow(burst, rate float64, all []admission) float64 {
	all = slices.Clone(all)
	slices.SortFunc(all, func(a, b admission) int { return int(a.call - b.call) })
	byReturn := make([]int, len(all))
	for i := range byReturn {
		byReturn[i] = i
	}
	slices.SortFunc(byReturn, func(i, j int) int { return int(all[i].ret - all[j].ret) })

	size := 1
	for size < len(all) {
		size *= 2
	}
	count, best := make([]float64, 2*size), make([]float64, 2*size)
	for i := range best {
		best[i] = math.Inf(-1)
	}
	worst := math.Inf(-1)
	for _, i := range byReturn {
		at := size + i
		count[at], best[at] = 1, rate*all[i].call.Seconds()+1
		for at /= 2; at > 0; at /= 2 {
			left, right := 2*at, 2*at+1
			count[at] = count[left] + count[right]
			best[at] = max(best[right], best[left]+count[right])
		}
		worst = max(worst, best[1]-rate*all[i].ret.Seconds()-burst)
	}
	return worst
}

// overdraft books each admission at its return in a reference bucket that starts full, and is the
// most that the bucket was overdrawn; below zero it never was.
func overdraft(burst, rate float64, all []admission) float64 {
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
