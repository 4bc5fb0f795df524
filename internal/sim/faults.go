package sim

import (
	"time"

	"github.com/spillgate/spillgate/batcher"
	"github.com/spillgate/spillgate/limit"
)

// over reports whether the time for load and faults is over.
func (w *World) over() bool { return w.now >= int64(w.plan.Length) }

// often runs f at random, so many times a second on average, until the run is over.
func (w *World) often(perSecond float64, f func()) {
	if perSecond <= 0 {
		return
	}
	var next func()
	next = func() {
		w.after(1+int64(w.rng.ExpFloat64()*1e9/perSecond), func() {
			if !w.over() {
				f()
				next()
			}
		})
	}
	next()
}

func (w *World) startFaults() {
	p := &w.plan
	for i, a := range w.agents {
		w.often(p.Crash, a.crash)
		w.often(p.Stop, func() { a.do(func() { a.stop(true) }) })
		w.often(p.Suspend, func() {
			if a.state == up && !a.suspended() {
				a.suspend(w.upTo(pick(w.rng, 100*time.Millisecond, time.Second, 10*time.Second)))
			}
		})
		w.often(p.Cut, func() {
			w.counts.Cuts++
			until := w.now + w.upTo(pick(w.rng, 100*time.Millisecond, 3*time.Second, 25*time.Second))
			w.note(a, nil, "cut", until-w.now, 0)
			w.cuts[i][w.rng.IntN(p.Masters)] = until
		})
	}
	for _, m := range w.masters {
		w.often(p.Step, m.step)
		w.often(p.Failover, func() {
			if w.now < int64(p.Length-aftermath) {
				m.failover()
			}
		})
	}
	for _, b := range w.buckets {
		w.often(p.Change, b.change)
		w.often(p.Reset, func() { w.agents[w.rng.IntN(p.Agents)].reset(b) })
	}
}

// heal ends the partitions.
func (w *World) heal() {
	for i := range w.cuts {
		clear(w.cuts[i])
	}
}

// step moves the server's clock by up to a second.
func (m *master) step() {
	w := m.world
	by := w.upTo(pick(w.rng, 10*time.Millisecond, time.Second))
	if w.plan.Divided {
		by /= 10
	}
	w.counts.Steps++
	if !w.plan.StepUp || w.rng.IntN(2) == 0 {
		by = -by
	}
	w.note(nil, nil, "step", by, int64(m.id))
	if w.plan.Divided {
		m.move(by)
	} else {
		m.offset += by
	}
	if by < 0 {
		return
	}
	for _, b := range w.buckets {
		if b.master == m || w.plan.Divided {
			b.steppedUp(time.Duration(by))
		}
	}
}

// change gives the bucket another rule, which agents learn of one after the other.
func (b *bucket) change() {
	w := b.world
	w.counts.Changes++
	r := rate(w.rng)
	if a := b.plan.Rate.Algorithm; a != limit.TokenBucket {
		r = windowRate(w.rng, a)
	}
	r.Debt = b.plan.Rate.Debt
	if b.plan.Mode == limit.Optimistic {
		r.Burst = max(r.Burst, b.plan.Allowance)
	}
	t := b.compile(r)
	b.restart(t)
	w.note(nil, b, "change", int64(r.Burst), int64(r.Requests))
	for _, a := range w.agents {
		a.after(w.upTo(500*time.Millisecond), func() {
			mine := *t
			a.terms[b.index] = &mine
		})
	}
}

// reset fills the bucket, by order of one agent.
func (a *agent) reset(b *bucket) {
	if a.state != up || a.suspended() {
		return
	}
	a.world.counts.Resets++
	a.world.note(a, b, "reset", 0, 0)
	a.decide(&check{items: []item{{bucket: b, op: limit.Reset}}})
}

// spoil makes the mistakes of a test with a claim of the desk's.
func (a *agent) spoil(b *bucket, c *batcher.Claim) {
	w := a.world
	again := *c
	again.N, again.Ask.Presence, again.Lazy, again.Done = 0, 0, true, nil
	if w.wires.SettleTwice && c.Ask.Settled > 0 {
		_ = a.queue(b, again.Part).add(&again)
	}
	tell := c.Done
	if tell == nil {
		return
	}
	asked := w.now
	switch {
	case w.wires.LeaseFromReply:
		c.Done = func(c *batcher.Claim) {
			tell(c)
			a.behind = w.now - asked
		}
	case w.wires.ResendLost && c.Ask.Settled > 0:
		c.Done = func(c *batcher.Claim) {
			if c.Err != nil {
				_ = a.queue(b, again.Part).add(&again)
			}
			tell(c)
		}
	}
}
