package sim

import (
	"time"

	"github.com/spillgate/spillgate/batcher"
	"github.com/spillgate/spillgate/limit"
)

// hoarder takes leases and does with them whatever the protocol allows, not what a desk finds sensible: it keeps them
// to their last moment, settles some and never others, and takes all that is there when nobody expects it. What
// it sends arrives at once, or late, or never.
type hoarder struct {
	world  *World
	bucket *bucket
	leases []hoard
	spent  []limit.Ask // to be told
}

type hoard struct {
	terms   *limit.Terms
	epoch   int64
	left    limit.Tokens
	expires int64
}

// startHoarders gives the bucket its hoarders and dividers.
func (b *bucket) startHoarders() {
	b.startDividers()
	if b.plan.Scheme && b.plan.Dividers == 0 {
		h := &hoarder{world: b.world, bucket: b}
		b.world.after(b.world.upTo(3*time.Second), h.scheme)
	}
	for range b.plan.Hoarders {
		h := &hoarder{world: b.world, bucket: b}
		h.wait()
	}
}

// scheme takes as much on lease as it can while the bucket is full, spends it at the last moment, and comes back when the
// store may have forgotten: right after the epochs that the leases counted in, or the generations of the cell.
func (h *hoarder) scheme() {
	w, b := h.world, h.bucket
	ttl := int64(limit.LeaseTTL)
	until := func(every int64) int64 { return every - b.master.clock()%every }
	start := until(ttl)
	w.after(start-w.rng.Int64N(min(start, int64(100*time.Millisecond))), func() {
		for range 5 {
			h.send(batcher.Entry{Op: limit.Lease, N: b.terms.Burst, Ask: limit.Ask{Presence: 1}})
		}
		w.after(ttl-w.upTo(20*time.Millisecond), h.spend)
	})
	back := start + ttl
	if length := int64(b.terms.Class.Length); w.rng.IntN(2) == 0 && length <= 4*ttl {
		back = until(length) + length
	}
	w.after(back+w.upTo(60*time.Millisecond), func() {
		h.spend()
		h.send(batcher.Entry{Op: limit.TakePartial, N: b.terms.Burst})
	})
}

// wait is for a moment, or until a lease is about to end, or for the next epoch.
func (h *hoarder) wait() {
	w := h.world
	d := w.upTo(pick(w.rng, 50*time.Millisecond, 500*time.Millisecond, 5*time.Second))
	if n := len(h.leases); n > 0 && w.rng.IntN(3) == 0 {
		d = max(1, h.leases[n-1].expires-w.now-w.upTo(20*time.Millisecond))
	}
	if w.rng.IntN(6) == 0 {
		ttl := int64(limit.LeaseTTL)
		d = ttl - h.bucket.master.clock()%ttl + w.upTo(5*time.Millisecond)
	}
	w.after(d, func() {
		if !w.over() {
			h.act()
			h.wait()
		}
	})
}

func (h *hoarder) act() {
	w, t := h.world, h.bucket.terms
	switch w.rng.IntN(5) {
	case 0:
		h.send(batcher.Entry{Op: limit.TakePartial, N: pick(w.rng, 1, t.Burst)})
	case 1, 2:
		e := batcher.Entry{Op: limit.Lease, N: t.Burst, Ask: limit.Ask{Presence: 1}}
		if n := len(h.spent); n > 0 && w.rng.IntN(2) == 0 {
			e.Ask, h.spent = h.spent[n-1], h.spent[:n-1]
		}
		h.send(e)
	default:
		h.spend()
	}
}

// spend spends of a lease, or gives of it back, if it lasts.
func (h *hoarder) spend() {
	w := h.world
	for i := range h.leases {
		l := &h.leases[i]
		if l.left == 0 || w.now >= l.expires {
			continue
		}
		n := l.left
		if !h.bucket.plan.Scheme {
			n = pick(w.rng, 1, l.left)
		}
		l.left -= n
		ask := limit.Ask{Epoch: l.epoch, Settled: n}
		if w.rng.IntN(8) == 0 && !h.bucket.plan.Scheme {
			ask.Returned = n
		} else {
			h.bucket.debit(nil, l.terms, n, "hoard spends")
		}
		h.spent = append(h.spent, ask)
	}
}

func (h *hoarder) send(e batcher.Entry) {
	w, b := h.world, h.bucket
	e.Bucket, e.Terms = b.name, b.terms
	if w.chance(0.1) {
		return
	}
	sent := w.now
	w.after(w.upTo(pick(w.rng, time.Millisecond, 200*time.Millisecond)), func() {
		b.master.apply(&e)
		b.touched(e.Op, e.Terms)
		if w.breach != nil {
			return
		}
		w.note(nil, b, "hoard "+opNames[e.Op], int64(e.Out.Granted), int64(e.Out.Level))
		if e.Op == limit.TakePartial {
			b.debit(nil, e.Terms, e.Out.Granted, "hoard takes")
			return
		}
		b.leased(e.Out.Granted)
		if w.chance(0.1) {
			return
		}
		late := w.upTo(time.Millisecond)
		w.after(late, func() {
			from := sent
			if w.wires.LeaseFromReply {
				from = w.now
			}
			h.leases = append(h.leases, hoard{e.Terms, e.Out.Epoch, e.Out.Granted, from + int64(limit.LeaseTTL)})
		})
	})
}
