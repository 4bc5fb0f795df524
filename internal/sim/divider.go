package sim

import (
	"time"

	"github.com/spillgate/spillgate/batcher"
	"github.com/spillgate/spillgate/limit"
)

// divider speaks the whole protocol of a divided bucket, and does with it whatever is allowed, not what an agent
// finds sensible. It tells home of any load, asks parts by what it heard long ago, keeps leases to their last
// moment, closes what it likes, and brings home what it found there once, twice or after half a minute. Only this it does as an
// agent must: it settles a token once and where it was granted, and merges what it closed, all of it, after home said Closing.
type divider struct {
	world  *World
	bucket *bucket
	life   int    // counts crashes; what belongs to an earlier one is dropped
	heard  []news // of its home, in the order of arrival, the last few
	whole  bool   // the last news was that the bucket is whole
	leases []grant
	spent  []settlement // to be told
	keeps  bool         // leases, to their last moment
	prompt bool         // its messages are not late
}

// news is how a bucket was divided, as home said it under a rule of that class. Under a rule of another class the bucket is
// another cell, which was never divided so.
type news struct {
	class limit.Class
	limit.Split
}

// grant is a lease of home or of a part.
type grant struct {
	terms   *limit.Terms
	place   place
	epoch   int64
	origin  int64
	left    limit.Tokens
	expires int64
}

// place is a cell of the bucket, numbered as by limit.Part.At: home, or a part by the news of it that the divider had.
type place struct {
	at   int
	news news
}

// parts are all parts of a bucket that is divided so.
func (n news) parts() (all []place) {
	for i := range n.Ways {
		all = append(all, place{i + 1, n})
	}
	return all
}

// settlement is an account of a grant, and where it belongs.
type settlement struct {
	class limit.Class
	place place
	ask   limit.Ask
}

// mood is what all dividers of a bucket make home believe of the load, until they change their minds.
type mood int

const (
	busy mood = iota
	idle
	silent
	random
)

// mostHeard is how much old news a divider keeps.
const mostHeard = 6

// at is the master of a cell, numbered as by limit.Part.At. Part 0 is on that of home.
func (b *bucket) at(at int) *master {
	all := b.world.masters
	return all[(b.master.id+max(0, at-1))%len(all)]
}

func (b *bucket) startDividers() {
	w := b.world
	if b.plan.Scheme && b.plan.Dividers > 0 {
		d := &divider{world: w, bucket: b, prompt: true}
		w.after(w.upTo(3*time.Second), d.scheme)
		return
	}
	for range b.plan.Dividers {
		d := &divider{world: w, bucket: b, keeps: w.chance(0.5)}
		d.wait()
	}
	if b.plan.Dividers > 0 {
		w.often(0.5, func() { b.mood = mood(w.rng.IntN(int(random) + 1)) })
	}
}

// wait is until any moment, or for one that matters: a lease ends, or an epoch.
func (d *divider) wait() {
	w := d.world
	wait := 1 + int64(w.rng.ExpFloat64()*1e9/d.bucket.plan.Pace)
	if n := len(d.leases); n > 0 && w.rng.IntN(4) == 0 {
		d.spendAt(d.leases[w.rng.IntN(n)].expires)
	}
	if w.rng.IntN(12) == 0 {
		ttl := int64(limit.LeaseTTL)
		wait = ttl - d.bucket.at(w.rng.IntN(8)).clock()%ttl + w.upTo(5*time.Millisecond)
	}
	w.after(wait, func() {
		if !w.over() {
			d.act()
			d.wait()
		}
	})
}

// spendAt spends, and takes all that is there as well, just before a lease ends.
func (d *divider) spendAt(expires int64) {
	w := d.world
	in := expires - w.now - w.upTo(5*time.Millisecond)
	if in <= 0 {
		return
	}
	w.after(in, func() {
		d.spend()
		if w.breach == nil && w.chance(0.7) {
			d.drain()
		}
	})
}

func (d *divider) act() {
	w := d.world
	switch w.rng.IntN(16) {
	case 0, 1, 2:
		d.touch()
	case 3:
		d.drain()
	case 4, 5, 6:
		d.lease(d.anywhere())
	case 7, 8:
		d.take(d.anywhere())
	case 9:
		d.close()
	case 10:
		d.odd()
	default:
		d.spend()
	}
	if w.chance(0.002) {
		*d = divider{world: w, bucket: d.bucket, life: d.life + 1, keeps: d.keeps}
		w.counts.Divided.Crashes++
	}
}

// latest is the newest news, sometimes older, and now and then none.
func (d *divider) latest() (n news, ok bool) {
	w := d.world
	if len(d.heard) == 0 || w.chance(0.1) {
		return news{}, false
	}
	n = d.heard[len(d.heard)-1]
	if w.chance(0.15) {
		n = d.heard[w.rng.IntN(len(d.heard))]
	}
	return n, n.class == d.bucket.terms.Class
}

// anywhere is any part; home above all if the bucket is whole.
func (d *divider) anywhere() place {
	n, ok := d.latest()
	if !ok || d.whole && !d.world.chance(0.1) {
		return place{}
	}
	return place{1 + d.world.rng.IntN(n.Ways), n}
}

// touch tells home of a load, which is true or not.
func (d *divider) touch() {
	w, b := d.world, d.bucket
	p := &limit.Part{Home: true, Ways: pick(w.rng, 2, 3, 4, 4, 8), Stride: 1, End: w.chance(0.02)}
	if n, ok := d.latest(); ok {
		p.Split = n.Split
	}
	m := b.mood
	if m == random {
		m = mood(w.rng.IntN(int(random)))
	}
	switch m {
	case busy:
		p.Ops, p.Threshold = pick[int64](w.rng, 1, 100, 10_000), pick[int64](w.rng, 1, 10, 100)
	case idle:
		p.Threshold = 1_000_000
	default:
		p.Ops = w.rng.Int64N(3) // nothing for home to decide
		if w.chance(0.8) {
			return
		}
	}
	d.send(batcher.Entry{Op: limit.Touch, Part: p}, place{}, nil)
}

// drain takes all that is there, everywhere at once.
func (d *divider) drain() {
	d.takeAt(place{}, limit.TakePartial, d.bucket.terms.Burst)
	if n, ok := d.latest(); ok {
		for _, at := range n.parts() {
			d.takeAt(at, limit.TakePartial, d.bucket.terms.Burst)
		}
	}
}

func (d *divider) take(at place) {
	w, burst := d.world, d.bucket.terms.Burst
	d.takeAt(at, pick(w.rng, limit.Take, limit.TakePartial, limit.TakePartial), pick(w.rng, 1, 1+limit.Tokens(w.rng.Int64N(int64(burst))), burst))
}

func (d *divider) takeAt(at place, op limit.Op, n limit.Tokens) {
	w, b := d.world, d.bucket
	d.send(batcher.Entry{Op: op, N: n}, at, func(e *batcher.Entry) {
		if n := e.Out.Granted; n > 0 && w.chance(0.05) {
			b.unused(nil, n)
			d.send(batcher.Entry{Op: limit.Refund, N: n, Terms: e.Terms}, at, nil)
		}
	})
}

// lease asks a part for a lease, and tells it what was spent of earlier ones.
func (d *divider) lease(at place) {
	w, burst := d.world, d.bucket.terms.Burst
	e := batcher.Entry{Op: limit.Lease, N: burst, Ask: limit.Ask{}}
	if w.chance(0.7) {
		for i, s := range d.spent {
			here := s.place.at == at.at && (at.at == 0 || s.place.news.Start == at.news.Start)
			if here && s.class == d.bucket.terms.Class {
				e.Ask = s.ask
				d.spent = append(d.spent[:i], d.spent[i+1:]...)
				break
			}
		}
	}
	e.Ask.Presence = pick[int64](w.rng, 0, 1, limit.Presence)
	if w.chance(0.2) {
		e.Ask.Take = 1 + limit.Tokens(w.rng.Int64N(int64(burst)))
	}
	sent := w.now
	d.send(e, at, func(e *batcher.Entry) {
		term := int64(limit.LeaseTTL)
		if e.Out.Term > 0 {
			term = min(term, e.Out.Term)
		}
		g := grant{e.Terms, at, e.Out.Epoch, 0, e.Out.Granted, sent + term}
		if e.Split != nil {
			g.origin = e.Split.Start
		}
		d.leases = append(d.leases, g)
	})
}

// spend spends of leases that last, or gives of them back.
func (d *divider) spend() {
	w := d.world
	live := d.leases[:0]
	for _, l := range d.leases {
		if w.breach != nil {
			return
		}
		if l.left == 0 || w.now >= l.expires {
			continue
		}
		if !d.keeps && w.chance(0.7) || l.expires-w.now < int64(5*time.Millisecond) {
			d.pay(&l, pick(w.rng, 1, l.left, l.left))
		}
		live = append(live, l)
	}
	d.leases = live
}

// pay spends of a lease, or gives back, and owes home the account.
func (d *divider) pay(l *grant, n limit.Tokens) {
	l.left -= n
	ask := limit.Ask{Epoch: l.epoch, Settled: n, Origin: l.origin}
	if d.world.chance(0.1) {
		ask.Returned = n
	} else {
		d.bucket.debit(nil, l.terms, n, "part spends")
	}
	d.spent = append(d.spent, settlement{l.terms.Class, l.place, ask})
}

// odd is what happens seldom.
func (d *divider) odd() {
	w := d.world
	if d.bucket.plan.Resets && w.chance(0.1) {
		d.send(batcher.Entry{Op: limit.Reset}, d.anywhere(), nil)
		return
	}
	d.send(batcher.Entry{Op: limit.TakePartial}, d.anywhere(), nil)
}

// scheme has leases from before a split and from after it, tells home of the first, and spends the others when everything has
// filled again. Nobody else is there.
func (d *divider) scheme() {
	w := d.world
	if w.over() {
		return
	}
	ttl := int64(limit.LeaseTTL)
	epoch := ttl - d.bucket.master.clock()%ttl
	at := func(at time.Duration, f func()) { w.after(epoch+int64(at)+w.upTo(10*time.Millisecond), f) }
	load := func(end bool) {
		d.send(batcher.Entry{Op: limit.Touch, Part: &limit.Part{Home: true, Ways: 2, Stride: 1, Ops: 1000, Threshold: 1, End: end}}, place{}, nil)
	}
	at(0, func() { d.lease(place{}) })
	at(30*time.Millisecond, func() { load(false) })
	if w.chance(0.7) {
		at(100*time.Millisecond, func() { load(true) }) // and closes, having heard it
		at(200*time.Millisecond, d.close)
	}
	at(1500*time.Millisecond, func() {
		d.lease(d.anywhere())
		d.lease(place{})
	})
	at(1600*time.Millisecond, func() {
		for i := range d.leases {
			if l := &d.leases[i]; l.place.at == 0 && l.origin == 0 && w.now < l.expires && w.breach == nil {
				d.pay(l, l.left)
			}
		}
		d.lease(place{}) // settles
	})
	at(3480*time.Millisecond, func() {
		d.spend()
		if w.breach == nil {
			d.drain()
		}
	})
	at(4*time.Second+time.Duration(w.upTo(2*time.Second)), d.scheme)
}
