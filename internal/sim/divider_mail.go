package sim

import (
	"time"

	"github.com/spillgate/spillgate/batcher"
	"github.com/spillgate/spillgate/limit"
)

// send sends an entry to a part. It arrives at once, or late, or after it was given up, or never, and so does the reply, which
// done gets.
func (d *divider) send(e batcher.Entry, at place, done func(*batcher.Entry)) {
	w, b := d.world, d.bucket
	e.Bucket = b.name
	if e.Terms == nil {
		e.Terms = b.terms
	}
	if at.at > 0 {
		e.Part = &limit.Part{Index: at.at - 1, Split: at.news.Split}
	}
	delay := w.upTo(pick(w.rng, 20*time.Microsecond, time.Millisecond, time.Millisecond, 200*time.Millisecond))
	if d.prompt {
		delay = w.upTo(time.Millisecond)
	} else if w.chance(0.06) {
		if w.chance(0.6) {
			return
		}
		delay += w.upTo(25 * time.Second)
	}
	life := d.life
	w.after(delay, func() {
		d.arrive(&e)
		if w.breach != nil || w.chance(0.06) {
			return
		}
		back := w.upTo(pick(w.rng, 20*time.Microsecond, time.Millisecond, 200*time.Millisecond, 3*time.Second))
		if d.prompt {
			back = w.upTo(time.Millisecond)
		}
		w.after(back, func() {
			if d.life != life {
				return
			}
			d.hear(&e)
			if e.Err == nil && done != nil {
				done(&e)
			}
		})
	})
}

// arrive is an entry at its store, and in the ledger.
func (d *divider) arrive(e *batcher.Entry) {
	w, b := d.world, d.bucket
	b.at(e.Part.At()).apply(e)
	if w.breach != nil {
		return
	}
	how := "part "
	if e.Err != nil {
		how = "stale "
	}
	w.note(nil, b, how+opNames[e.Op], int64(e.Out.Granted), int64(e.Part.At()))
	b.count(e)
	if e.Err != nil {
		return
	}
	b.touched(e.Op, e.Terms)
	switch e.Op {
	case limit.Take, limit.TakePartial:
		b.debit(nil, e.Terms, e.Out.Granted, "part takes")
	case limit.Lease:
		b.debit(nil, e.Terms, e.Out.Taken, "part takes")
		b.leased(e.Out.Granted)
	case limit.Refund:
		b.refunded(nil, e.Terms, e.N)
	}
}

// hear takes in what home says of the division.
func (d *divider) hear(e *batcher.Entry) {
	w := d.world
	if e.Part.At() > 0 || w.chance(0.1) {
		return
	}
	if d.whole = e.Split == nil || e.Split.Ways == 0; d.whole {
		return
	}
	n := news{e.Terms.Class, e.Split.Split}
	if last := len(d.heard) - 1; last >= 0 && d.heard[last] == n {
		return
	}
	d.heard = append(d.heard, n)
	if len(d.heard) > mostHeard {
		d.heard = d.heard[1:]
	}
	if n.Closing && w.chance(0.5) {
		d.close()
	}
	if w.chance(0.2) {
		d.appoint(n)
	}
}

// appoint takes all there is at the last moment of each part, and at the first of the bucket that is whole again.
func (d *divider) appoint(n news) {
	w, b := d.world, d.bucket
	margin := limit.SplitMargin.Microseconds()
	come := func(at place, micros int64) {
		in := 1000*micros - b.at(at.at).clock() + w.upTo(4*time.Millisecond) - int64(3*time.Millisecond)
		if in <= 0 {
			return
		}
		w.after(in, func() {
			if n.class == b.terms.Class {
				e := batcher.Entry{Bucket: b.name, Terms: b.terms, Op: limit.TakePartial, N: b.terms.Burst}
				if at.at > 0 {
					e.Part = &limit.Part{Index: at.at - 1, Split: n.Split}
				}
				d.arrive(&e)
			}
		})
	}
	come(place{}, n.Until+margin)
	for _, at := range n.parts() {
		come(at, n.Until-margin)
		if w.chance(0.3) {
			come(at, n.Start+(limit.LeaseTTL+limit.MaxSkew).Microseconds())
		}
	}
}

// close closes all parts of a split that is about to end, to merge them, or one of them.
func (d *divider) close() {
	w := d.world
	n, ok := d.latest()
	if !ok || !n.Closing {
		return
	}
	if w.chance(0.1) {
		d.send(batcher.Entry{Op: limit.Close}, place{1 + w.rng.IntN(n.Ways), n}, nil)
		return
	}
	m := &merger{divider: d, news: n, life: d.life, have: make([]bool, n.Ways), missing: n.Ways}
	for i := range n.Ways {
		m.ask(i, 3)
	}
}

// merger is a merge that is under way: what each part said as it was closed.
type merger struct {
	*divider
	news    news
	life    int
	have    []bool
	missing int
	leased  limit.Tokens
	free    limit.Ticks
}

// ask closes a part, so many times until it answers.
func (m *merger) ask(index, times int) {
	w := m.world
	if m.have[index] || times == 0 || m.divider.life != m.life || m.news.class != m.bucket.terms.Class {
		return
	}
	m.send(batcher.Entry{Op: limit.Close}, place{index + 1, m.news}, func(e *batcher.Entry) {
		if m.have[index] {
			return
		}
		m.have[index] = true
		m.leased += e.Out.Granted
		p := e.Terms.Part(m.news.Ways, index)
		m.free += e.Terms.FromPart(&p, e.Out.Level)
		if m.missing--; m.missing == 0 {
			m.merge()
		}
	})
	w.after(w.upTo(500*time.Millisecond), func() { m.ask(index, times-1) })
}

func (m *merger) merge() {
	w := m.world
	if m.news.class != m.bucket.terms.Class {
		return
	}
	p := &limit.Part{Home: true, Split: m.news.Split, Free: m.free, End: w.chance(0.05)}
	for range pick(w.rng, 1, 1, 2) {
		m.send(batcher.Entry{Op: limit.Merge, N: m.leased, Part: p}, place{}, nil)
	}
}
