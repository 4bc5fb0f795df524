package sim

import (
	"time"

	"github.com/spillgate/spillgate/limit"
)

// startLoad starts the callers: open loops, or, in a calm run, one caller for each bucket who
// waits as long as it is told.
func (w *World) startLoad() {
	for _, b := range w.buckets {
		b.startHoarders()
		for i, l := range b.plan.Load {
			if l.PerSecond <= 0 {
				continue
			}
			if w.plan.Calm && w.plan.Several == 0 {
				w.callInTurn(w.agents[i], b, l)
			} else {
				w.callAtRandom(w.agents[i], b, l)
			}
		}
	}
}

// cost of a check.
func (w *World) cost(b *bucket, l *Load) limit.Tokens {
	if w.chance(l.Odd) {
		return limit.Tokens(w.rng.Int64N(int64(b.terms.Burst) + 2))
	}
	return l.Cost
}

// callAtRandom is many callers who know nothing of one another. [1]
func (w *World) callAtRandom(a *agent, b *bucket, l Load) {
	start := w.upTo(time.Second)
	w.often(l.PerSecond/float64(l.Burst), func() {
		if l.On > 0 && (w.now-start)%int64(l.On+l.Off+1) > int64(l.On) {
			return
		}
		for range l.Burst {
			a.do(func() { w.ask(a, b, &l) })
		}
	})
}

// ask makes a check, perhaps of several descriptors, or several checks at a time.
func (w *World) ask(a *agent, b *bucket, l *Load) {
	if a.state != up {
		return
	}
	checks := []*check{{items: []item{{bucket: b, op: limit.Take, n: w.cost(b, l)}}}}
	if w.chance(w.plan.Several) {
		n := checks[0].items[0].n
		for _, other := range w.buckets {
			if other != b && w.rng.IntN(2) == 0 {
				checks[0].items = append(checks[0].items, item{bucket: other, op: limit.Take, n: n})
			}
		}
		for range w.rng.IntN(4) {
			checks = append(checks, &check{items: []item{{bucket: b, op: limit.Take, n: w.cost(b, l)}}})
		}
	}
	a.decide(checks...)
}

// callInTurn is one caller. Told to wait, it waits, and then must be admitted (G4).
func (w *World) callInTurn(a *agent, b *bucket, l Load) {
	var call func(n limit.Tokens, until int64)
	next := func() {
		if !w.over() {
			w.after(1+int64(w.rng.ExpFloat64()*1e9/l.PerSecond), func() { call(w.cost(b, &l), 0) })
		}
	}
	call = func(n limit.Tokens, until int64) {
		if a.state != up {
			return
		}
		asked := w.now
		a.decide(&check{items: []item{{bucket: b, op: limit.Take, n: n}}, done: func(d limit.Decision, failed bool) {
			switch {
			case failed:
				w.fail("G6", b, "no answer after %v, with nothing in the way", time.Duration(w.now-asked))
			case d.Admitted || d.RetryAfter == limit.NoRetry:
				next()
			case until > 0 && w.now > until:
				w.fail("G4", b, "a lone caller of %d waited as it was told, and is to wait for another %v", n, d.RetryAfter)
			default:
				w.counts.Waits++
				wait := max(1, int64(d.RetryAfter))
				if until == 0 {
					until = w.now + wait + patience(b, n)
				}
				w.after(wait, func() { call(n, until) })
			}
		}})
	}
	next()
}

// patience is how much longer than it was told a lone caller may have to wait: a lease that was asked for when it was
// told may bring a pause of its own. If the bucket is split meanwhile, the next token comes when a part has refilled one, which may
// take as long as the whole takes to fill; what no part holds comes when the bucket is whole again, and what a whole part holds when
// leases from before the split have ended.
func patience(b *bucket, n limit.Tokens) int64 {
	late := int64(0)
	if b.plan.Mode != limit.Exact {
		late = int64(250 * time.Millisecond)
	}
	if w := b.world; w.plan.Divided && !b.plan.NoSplit {
		late += int64(b.terms.Class.Duration(b.terms.Depth))
		if n > 1 {
			late += int64(2*time.Second + limit.LeaseTTL + limit.MaxSkew)
		}
	}
	return late
}
