package sim

import (
	"fmt"
	"math"
	"time"

	"github.com/spillgate/spillgate/batcher"
	"github.com/spillgate/spillgate/limit"
)

// bucket is one bucket, with the ledger that recounts every token admitted from it.
//
// The ledger is a reference bucket of the same burst and rate, in true time, that every admission is taken
// from at the moment when its token left the cell or the lease. If it would go below zero, some window
// holds more than burst + rate * length: that is G1. What documents allow beyond it is counted in slack (for
// as long as the run lasts) and gift (used up as it is needed).
type bucket struct {
	world  *World
	index  int
	plan   BucketPlan
	id     []byte
	name   limit.Bucket
	terms  *limit.Terms // the newest rule's
	master *master

	tat    limit.Ticks  // of the reference, in ticks of terms.Class since the run began
	slack  limit.Tokens // optimistic: an allowance for each agent that ever was, and the charges reported lost
	gift   limit.Tokens // a store's clock stepped forward; refunds came late
	owed   limit.Tokens // taken and not admitted: may be refunded
	early  limit.Ticks  // clocks drift
	leases []out        // what is out, for a step forward

	windows   windowed    // instead of the reference, if it counts in windows
	mood      mood        // of dividers
	split     limit.Split // as its home last said
	aftermath int64       // of a failover: until when

	// For the balance at the end: out of the cell; admitted; of these, from leases; ahead of the store and never charged; refunded; from
	// a lease that had ended when its reply was looked at.
	taken, admitted, spent, uncharged, back, late limit.Tokens
}

// out are tokens that an agent may spend until a time.
type out struct {
	until  int64
	tokens limit.Tokens
}

// secret names buckets the same way in every run.
var secret = limit.Secret{'s', 'i', 'm'}

func newBucket(w *World, index int) *bucket {
	b := &bucket{world: w, index: index, plan: w.plan.Buckets[index], windows: windowed{}}
	b.id = limit.AppendPart(limit.AppendPart(nil, "sim"), fmt.Sprint(index))
	secret.Name(&b.name, b.id)
	w.bySum[b.name.Sum()] = b
	b.master = w.masters[b.plan.Master]
	b.restart(b.compile(b.plan.Rate))
	return b
}

func (b *bucket) compile(r limit.Rate) *limit.Terms {
	t, err := r.Terms()
	if err != nil {
		panic(err)
	}
	if wrong := b.world.wires.Terms; wrong != nil {
		return wrong(t)
	}
	return t
}

// drift is how much faster than true time a store may refill, or a lease run longer than the store's epochs.
func (b *bucket) drift() float64 { return 4 * b.world.plan.Drift }

// now is the time of the reference bucket.
func (b *bucket) now() limit.Ticks {
	now := b.world.now
	return b.terms.Class.Ticks(now + int64(math.Ceil(float64(now)*b.drift())))
}

// restart fills the reference: the rule has changed, or the bucket was reset.
func (b *bucket) restart(t *limit.Terms) {
	b.terms = t
	b.tat = b.now()
	b.windows.restart()
	b.early = limit.Ticks(math.Ceil(float64(t.Class.EpochTicks()) * b.drift()))
}

// admit takes the tokens of an admission.
func (b *bucket) admit(a *agent, t *limit.Terms, n limit.Tokens, how string) {
	b.admitted += n
	b.debit(a, t, n, how)
}

// debit takes tokens from the reference. [7]
func (b *bucket) debit(a *agent, t *limit.Terms, n limit.Tokens, how string) {
	if n == 0 || t.Algorithm != limit.TokenBucket {
		return
	}
	if *t != *b.terms {
		b.restart(b.terms) // a token of an older rule
		return
	}
	now := b.now()
	b.tat = max(b.tat, now) + limit.Ticks(n)*b.terms.Emission
	over := b.tat - now - b.terms.Depth - limit.Ticks(b.slack)*b.terms.Emission - b.early
	b.world.note(a, b, how, int64(n), int64(b.tat-now))
	if over <= 0 {
		return
	}
	tokens := limit.Tokens((over + b.terms.Emission - 1) / b.terms.Emission)
	if tokens <= b.gift {
		b.gift -= tokens
		b.tat -= limit.Ticks(tokens) * b.terms.Emission
		return
	}
	promise := "G1"
	if b.plan.Mode == limit.Optimistic {
		promise = "G2"
	}
	b.world.fail(promise, b, "%d admitted (%s) are %.3f tokens over burst %d, one per %v, slack %d", n, how,
		float64(over)/float64(b.terms.Emission), b.terms.Burst, b.terms.Class.Duration(b.terms.Emission), b.slack)
}

// unspend gives back tokens that a lease has again.
func (b *bucket) unspend(a *agent, t *limit.Terms, n limit.Tokens) {
	b.refill(a, t, n, "unspend")
}

// unused notes tokens that left the cell, or a lease, and were not admitted: so much may be refunded. They
// count until the refund is there. If the bucket runs full before that, they refill, and are then refunded
// once more; the reference does the same.
func (b *bucket) unused(a *agent, n limit.Tokens) {
	if n > 0 {
		b.owed += n
		b.world.note(a, b, "unused", int64(n), int64(b.owed))
	}
}

// refunded is a refund that came to the store.
func (b *bucket) refunded(a *agent, t *limit.Terms, n limit.Tokens) {
	if n > b.owed {
		b.world.fail("G1", b, "%d refunded, and %d were taken and not used", n, b.owed)
		return
	}
	b.owed -= n
	b.refill(a, t, n, "back")
}

func (b *bucket) refill(a *agent, t *limit.Terms, n limit.Tokens, how string) {
	if *t != *b.terms || n == 0 || t.Algorithm != limit.TokenBucket {
		return
	}
	now := b.now()
	b.tat = max(now, b.tat-limit.Ticks(n)*b.terms.Emission)
	b.world.note(a, b, how, int64(n), int64(b.tat-now))
}

// touched is told of every entry that a store ran on the bucket.
func (b *bucket) touched(op limit.Op, t *limit.Terms) {
	if *t != *b.terms || op == limit.Reset {
		b.restart(b.terms)
	}
}

// steppedUp allows for what a step forward of the store's clock does: it refills, and leases that are
// out stop counting before their time.
func (b *bucket) steppedUp(by time.Duration) {
	refill := limit.Tokens(b.terms.Class.Ticks(int64(by))/b.terms.Emission + 1)
	b.gift += min(b.terms.Burst, refill)
	now := b.world.now
	for _, l := range b.leases {
		if l.until > now {
			b.gift += l.tokens
		}
	}
}

// leased notes what an agent may now spend, while a clock may step.
func (b *bucket) leased(n limit.Tokens) {
	if !b.world.plan.StepUp || n == 0 {
		return
	}
	live := b.leases[:0]
	for _, l := range b.leases {
		if l.until > b.world.now {
			live = append(live, l)
		}
	}
	b.leases = append(live, out{b.world.now + int64(2*limit.LeaseTTL), n})
}

// count counts what became of an entry on a divided bucket.
func (b *bucket) count(e *batcher.Entry) {
	c := &b.world.counts.Divided
	switch {
	case e.Err != nil:
		c.Stale++
	case e.Part.At() > 0:
		if e.Out.Granted > 0 {
			c.Parts++
		}
		if e.Op == limit.Close {
			c.Closes++
		}
		if e.Out.Term > 0 && e.Out.Term < int64(limit.LeaseTTL) {
			c.Clipped++
		}
	}
	if e.Part.At() > 0 {
		return
	}
	switch {
	case e.Op != limit.Merge || e.Err != nil:
	case e.Out.Granted == 0:
		c.Late++
	default:
		c.Merges++
	}
	var now limit.Split
	if e.Split != nil {
		now = e.Split.Split
	}
	was := b.split
	b.split = now
	switch {
	case now.Ways > 0 && now.Start != was.Start && e.Part != nil && e.Part.Split.Start == now.Start:
		c.Adopted++
	case now.Ways > 0 && now.Start != was.Start:
		c.Splits++
	case now.Ways > 0 && now.Closing && !was.Closing:
		c.Closing++
	case now.Ways > 0 && now.Until > was.Until:
		c.Extended++
	case now.Ways == 0 && was.Ways > 0 && e.Op != limit.Merge:
		c.Ends++
	}
}
