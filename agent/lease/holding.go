package lease

import (
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spillgate/spillgate/agent/split"
	"github.com/spillgate/spillgate/hotkeys"
	"github.com/spillgate/spillgate/limit"
)

// Times in nanoseconds.
const (
	ttl = int64(limit.LeaseTTL)
	// spendable is for how long the tokens of a lease may be spent: a little less, in case this clock is
	// slow, or the store's fast, by up to 1 part in 64.
	spendable = ttl - ttl/64
	// A lease is meant to last for a horizon: the shortest where the bucket is near its limit, the
	// longest where it is full.
	leastHorizon = int64(20 * time.Millisecond)
	mostHorizon  = ttl
	// The pause after an answer that was not enough.
	leastHint = int64(20 * time.Millisecond)
	mostHint  = int64(250 * time.Millisecond)
	// Tokens without demand go back after this.
	idleAfter = int64(500 * time.Millisecond)
	// All leases longer than the shortest are at most this part of the burst.
	leaseRoom = 8
	// Tokens are scarce below this part of the burst.
	scarce = 8
	// Demand forgets half of itself in this.
	halfLife = float64(500 * time.Millisecond)
	// Demand is measured over at least this.
	leastSpan = int64(20 * time.Millisecond)
	// A new request goes out when what is left lasts for less than this many round trips.
	roundTrips = 4
)

// Holding is what an agent holds of one hot bucket. Spend and Judge are the hot path and lock
// nothing; the rest is short and takes the lock. Safe for concurrent use. All times are
// nanoseconds of one monotonic clock.
type Holding struct {
	Bucket limit.Bucket

	id     string            // of the bucket, as the caller builds it
	active *hotkeys.Distinct // of its rule; may be nil
	whole  atomic.Bool       // its rule forbids to split
	// stripes of large grants, a power of two.
	stripes int
	terms   atomic.Pointer[limit.Terms] // replaced by equal ones only
	cur     atomic.Pointer[Grant]       // never nil
	other   atomic.Bool                 // somebody came with other terms
	// spread knows whether the bucket is divided; nil if nobody said so.
	spread atomic.Pointer[split.Spread]
	asked  atomic.Bool // a request is due or in flight: Judge reports Renew once

	missed atomic.Int64 // tokens asked for and not spent here, since the last request
	denied atomic.Int64 // checks denied here, in all
	extra  atomic.Int64 // tokens above one per check, of those spent here, in all
	// elsewhere are checks decided here that the totals do not count, and the demand does.
	elsewhere atomic.Int64

	mu struct {
		sync.Mutex
		next       *Grant // what to spend when cur is used up
		owed       []owed // what the store is to be told, oldest epoch first
		inFlight   bool
		lastAsk    int64
		measured   int64   // when demand was measured last
		pauseTo    int64   // no request before, unless a caller waits
		demand     float64 // tokens per nanosecond
		checks     int64   // as of the last Tend
		waited     int64   // checks that went to the store, or were undone
		contenders int64   // how many agents asked at a time, as the store said
		fill       float64 // how full the store said the bucket is, 0 to 1
		roundTrip  int64
		seenDemand int64 // when somebody last wanted a token
		random     uint64
		gone       bool
		totals     Totals
		spent      limit.Tokens // by cur and next, as far as harvested
	}
}

// New returns a Holding without tokens. perSecond is the demand that made the bucket hot; seed
// spreads the pauses of agents.
func New(id []byte, b *limit.Bucket, t *limit.Terms, now int64, perSecond float64, seed uint64) *Holding {
	h := &Holding{Bucket: *b, id: string(id), stripes: 1}
	h.terms.Store(t)
	h.cur.Store(&Grant{terms: t, low: -1, renewAt: math.MaxInt64, asOf: now})
	h.mu.demand = perSecond / float64(time.Second)
	h.mu.lastAsk, h.mu.measured, h.mu.seenDemand = now-ttl/4, now, now
	h.mu.random = seed ^ b.Sum().Lo | 1
	return h
}

// Spend takes n tokens from what is held, for a caller with a number of its own (see purse). The caller reads the clock AFTER it, and then asks Judge: a
// process that was stopped in between must not spend an old lease.
//
// Hot path: 1 atomic read-modify-write, no lock.
func (h *Holding) Spend(n limit.Tokens, at uint) Spent {
	g := h.cur.Load()
	left, ok := g.purse.spend(n, at)
	return Spent{g, n, left, at, ok}
}

// Spent is the result of Spend.
type Spent struct {
	Grant *Grant
	n     limit.Tokens
	Left  int64 // tokens left in the grant afterwards; an estimate of a large number
	at    uint
	ok    bool
}

// Verdict is what can be said locally about a check.
type Verdict uint8

const (
	// Ask: only the store knows.
	Ask Verdict = iota
	// Admit: the tokens are spent.
	Admit
	// AdmitAndRenew: the same, and it is time for Plan.
	AdmitAndRenew
	// Deny: there are none, until the grant says so.
	Deny
)

// Judge says what follows from a Spend, at a time read after it.
//
// Hot path: no lock; a denial is 2 atomic additions.
func (h *Holding) Judge(s Spent, now int64) Verdict {
	g := s.Grant
	switch {
	case s.ok && now < g.expires:
		if s.n != 1 {
			h.extra.Add(int64(s.n) - 1)
		}
		if (s.Left < g.low || now >= g.renewAt) && !h.asked.Load() && h.asked.CompareAndSwap(false, true) {
			return AdmitAndRenew
		}
		return Admit
	case s.ok:
		h.extra.Add(int64(s.n)) // spent for nothing: the lease has ended
	case now < g.denyUntil:
		h.missed.Add(int64(s.n))
		h.denied.Add(1)
		return Deny
	}
	return Ask
}

// Unspend takes back tokens that a check spent and did not need after all: they can be spent again, or go back with the account
// of their lease if it has them already. It is false if that was sent: then it is the store that has to take them back.
func (h *Holding) Unspend(s Spent) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	g := s.Grant
	switch {
	case !g.purse.isClosed() && g.tokens-g.held()-g.accounted >= s.n:
		g.purse.stripe(s.at).left.Add(int64(s.n))
	case h.reclaimLocked(s.n, func(o *owed) bool { return o.where == g.where && o.epoch == g.epoch && o.until == g.expires }):
		// The store counts them as on lease still: a refund would find no room in a full bucket.
		g.back.Add(int64(s.n))
		h.mu.totals.Spent -= uint64(s.n)
	default:
		h.extra.Add(1)
		return false
	}
	h.extra.Add(1 - int64(s.n))
	h.mu.waited++ // it was asked for all the same
	return true
}

// Request is an order to the store.
type Request struct {
	Want limit.Tokens // the N of the entry
	Ask  limit.Ask
	Part *limit.Part // where it goes; nil is home
	Sent int64       // when it was planned: the lease counts from here

	from  where // of the account in Ask
	until int64 // the same
}

// Step is what to do for a check that Judge left to the store.
type Step uint8

const (
	// Wait: the check's claim goes to the store, or rides with the request in flight.
	Wait Step = iota
	// Send: send the request first; the claim rides with it.
	Send
	// Again: there are tokens now, or a denial; begin with Spend.
	Again
)

// Plan says what to do when somebody needs tokens that cur does not have: need of them, or 0 for a renewal
// ahead of time.
func (h *Holding) Plan(now int64, need limit.Tokens) (Step, Request) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if next := h.mu.next; need == 0 && next.held() > 0 {
		// The renewal is here already.
		h.retireLocked(h.cur.Load(), now)
		h.mu.next = nil
		h.cur.Store(next)
		h.asked.Store(false)
		return Wait, Request{}
	}
	if need > 0 && h.rotateLocked(now, need) {
		return Again, Request{}
	}
	h.missed.Add(int64(need))
	if need > 0 {
		h.mu.waited++
	}
	if h.mu.gone || h.mu.inFlight || now < h.mu.pauseTo {
		if need == 0 && !h.mu.inFlight {
			h.asked.Store(false)
		}
		return Wait, Request{}
	}
	return Send, h.requestLocked(now, need)
}

// rotateLocked puts next in the place of cur if cur has not what is needed. It is true when what is there now
// decides: that may be a reply that came after Spend.
func (h *Holding) rotateLocked(now int64, need limit.Tokens) bool {
	cur, next := h.cur.Load(), h.mu.next
	if cur.decides(now, need) {
		return true
	}
	if next == nil {
		return false
	}
	h.retireLocked(cur, now)
	h.mu.next = nil
	h.cur.Store(next)
	return next.decides(now, need)
}

// requestLocked makes a request: the account of one epoch, and what the demand needs.
func (h *Holding) requestLocked(now int64, need limit.Tokens) Request {
	cur := h.cur.Load()
	h.harvestLocked(now)
	h.measureLocked(now)
	if need > 0 && cur.held() > 0 {
		// A caller needs more than is left: it may be that the bucket has it only together with that.
		h.retireLocked(cur, now)
	}
	want := h.wantLocked()
	if now >= h.endingLocked(cur) && now < cur.expires {
		h.giveBackLocked(cur)
	}
	want -= float64(cur.held() + h.mu.next.held())
	r := Request{Want: limit.Tokens(max(0, min(want, float64(h.terms.Load().Burst)))), Sent: now}
	if s := h.spread.Load(); s != nil {
		r.Part, _ = s.Choose(now, h.terms.Load(), max(1, need), split.Staying, split.Asked{})
	}
	r.Ask.Presence = max(1, min(limit.Presence, (now-h.mu.lastAsk)*limit.Presence/ttl))
	h.takeOwedLocked(&r, need)
	h.mu.lastAsk, h.mu.inFlight = now, true
	h.asked.Store(true)
	h.mu.totals.Asks++
	return r
}

// Answer is the store's reply to a request.
type Answer struct {
	Out    limit.Outcome // Granted without the tokens of Rode; of a divided bucket, the level of the whole
	Start  int64         // of home's record, as the reply said it; 0 if it said none
	May    bool          // some part may have a token, as far as is known
	Ways   int64         // parts of the bucket; 0 or 1 while it is whole
	Wait   time.Duration // until some part has a token, if it is divided
	Rode   limit.Tokens  // tokens of the lease that callers took who had waited for them
	Call   uint64        // that carried it
	Failed bool          // there is no reply
	NotRun bool          // and the store certainly did not run the request
}

// where says where the tokens of a reply came from.
func (r *Request) where(a *Answer) where {
	if at := r.Part.At(); at > 0 {
		return where{at, r.Part.Split.Start}
	}
	return where{0, a.Start}
}

// expires is when the tokens of a reply may not be spent any more.
func (r *Request) expires(a *Answer) int64 {
	if term := a.Out.Term; term > 0 && term < ttl {
		return r.Sent + term - term/64
	}
	return r.Sent + spendable
}

// Apply takes the reply.
func (h *Holding) Apply(r Request, a Answer, now int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.inFlight = false
	h.mu.roundTrip = now - r.Sent
	if a.Failed {
		// A settlement is sent at most once: of one that may have run nothing is known, and the
		// store's record ends by itself. What was to come back ends with it.
		if spent := r.Ask.Settled - r.Ask.Returned; a.NotRun && spent > 0 {
			h.oweLocked(r.from, r.Ask.Epoch, spent, 0, r.until)
		}
		h.mu.pauseTo = now + h.jitterLocked(leastHint)
		h.asked.Store(false)
		return
	}
	h.oweLocked(r.where(&a), a.Out.Epoch, a.Rode, 0, r.expires(&a))
	h.mu.totals.Granted += uint64(a.Out.Granted)
	h.mu.totals.Rode += uint64(a.Rode)
	g := h.grantLocked(r, &a, now)
	h.asked.Store(false)
	if h.mu.gone {
		h.cur.Load().purse.close()
		h.cur.Store(g)
		h.retireLocked(g, now)
		return
	}
	if cur := h.cur.Load(); cur.held() > 0 && now < cur.expires {
		if h.mu.next != nil {
			h.retireLocked(h.mu.next, now)
		}
		h.mu.next = g
		return
	}
	h.retireLocked(h.cur.Load(), now)
	h.cur.Store(g)
}

// grantLocked makes a Grant of a reply.
func (h *Holding) grantLocked(r Request, a *Answer, now int64) *Grant {
	t, out := h.terms.Load(), &a.Out
	g := &Grant{terms: t, call: a.Call, tokens: out.Granted, where: r.where(a), epoch: out.Epoch, expires: r.expires(a), asOf: now, out: *out,
		fullAt: now + int64(t.Full(*out))}
	g.purse.fill(out.Granted, h.stripes)
	if a.Ways > 1 {
		g.spread = h.spread.Load()
	}
	free := t.Remaining(out.Level)
	h.mu.fill, h.mu.contenders = float64(free)/float64(t.Burst), out.Contenders*max(1, a.Ways) // agents spread over the parts
	hint := h.hintLocked(h.mu.contenders)
	short := free == 0 || free < min(limit.Tokens(out.Contenders), t.Burst/scarce)
	if short && !a.May {
		// Less than one for each who asks, and not because the bucket is that small. Deny until there may be one more, and
		// ask then.
		truth := int64(0)
		if free == 0 {
			truth = int64(t.Wait(1, *out)) + out.Lag
			if a.Ways > 1 {
				truth = int64(a.Wait)
			}
		}
		pause := hint
		if truth >= leastHint {
			pause = truth // no need to wait for more than one
		}
		g.denyUntil = now + min(pause, mostHint)
	}
	g.renewAt = max(now+1, h.endingLocked(g))
	g.low = int64(h.mu.demand * float64(roundTrips*h.mu.roundTrip))
	if out.Granted+a.Rode < r.Want {
		g.low, g.renewAt = -1, min(g.renewAt, now+hint)
		if a.Ways > 1 && g.denyUntil == 0 {
			g.renewAt = now + 1 // another part has more
		}
	}
	h.mu.pauseTo = 0
	return g
}

// Tend is the regular look at a Holding, some ten times a second. It returns the checks since the last look, and a
// request if tokens should go back: those of a bucket that nobody asks for.
func (h *Holding) Tend(now int64) (checks int64, r Request, send bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.harvestLocked(now)
	h.mu.spent += limit.Tokens(h.missed.Swap(0))
	all := int64(h.mu.totals.Spent) - h.extra.Load() + h.denied.Load() + h.elsewhere.Load() + h.mu.waited
	checks = max(0, all-h.mu.checks)
	h.mu.checks = all
	if checks > 0 {
		h.mu.seenDemand = now
	}
	if h.mu.inFlight || now-h.mu.seenDemand < idleAfter {
		return checks, r, false
	}
	return checks, r, h.settleLocked(now, &r)
}

// Elsewhere returns the requests that settle the accounts of other parts than the one in use. Their replies need no Apply.
func (h *Holding) Elsewhere(now int64) (all []Request) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.spread.Load()
	if s == nil || len(h.mu.owed) == 0 {
		return nil
	}
	here := s.Here(now, split.Staying)
	h.dropVoidLocked(now)
	for i := 0; i < len(h.mu.owed); {
		var r Request
		if at := h.mu.owed[i].where; at.at == here || !h.accountOfLocked(now, at, &r) {
			i++
			continue
		}
		all = append(all, r)
	}
	return all
}

// settleLocked makes a request that wants nothing: all that is held goes back. It is false if there is
// nothing to tell.
func (h *Holding) settleLocked(now int64, r *Request) bool {
	h.retireLocked(h.cur.Load(), now)
	if h.mu.next != nil {
		h.retireLocked(h.mu.next, now)
		h.mu.next = nil
	}
	h.dropVoidLocked(now)
	if len(h.mu.owed) == 0 || !h.accountOfLocked(now, h.mu.owed[0].where, r) {
		return false
	}
	h.mu.inFlight = true
	h.asked.Store(true)
	return true
}

// accountOfLocked makes a request that wants nothing and tells the account of one part. It is false if that is no more.
func (h *Holding) accountOfLocked(now int64, at where, r *Request) bool {
	part, ok := h.named(now, at)
	if !ok {
		return false
	}
	*r = Request{Sent: now, Part: part}
	h.takeOwedLocked(r, 0)
	if r.Ask.Settled == 0 {
		return false
	}
	h.mu.totals.Asks++
	return true
}

// Release ends the Holding: nothing is spent any more, and the requests tell the store what was and what
// comes back. Their replies need no Apply. A reply that is still to come is settled by
// the requests that Late returns.
func (h *Holding) Release(now int64) []Request {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.gone = true
	return h.restLocked(now)
}

// Late is Release for the reply of a request that was in flight at that time. Call it after Apply.
func (h *Holding) Late(now int64) []Request {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.mu.gone {
		return nil
	}
	return h.restLocked(now)
}

func (h *Holding) restLocked(now int64) (all []Request) {
	var r Request
	for h.settleLocked(now, &r) {
		all = append(all, r)
	}
	h.mu.inFlight = false
	return all
}

// Forget drops what is known of a denial: the bucket was reset.
func (h *Holding) Forget(now int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if next := h.mu.next; next != nil && now < next.denyUntil {
		h.retireLocked(next, now)
		h.mu.next = nil
	}
	cur := h.cur.Load()
	if cur.denyUntil <= now {
		return
	}
	h.retireLocked(cur, now)
	h.cur.Store(&Grant{terms: h.terms.Load(), low: -1, renewAt: math.MaxInt64, asOf: now})
}

// heldBefore is what can be spent here of the grants that came before a call.
func (h *Holding) heldBefore(call uint64) (n limit.Tokens) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, g := range [...]*Grant{h.cur.Load(), h.mu.next} {
		if g != nil && g.call < call {
			n += g.held()
		}
	}
	return n
}

// deniedUntil is until when checks are denied without tokens.
func (h *Holding) deniedUntil() int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.mu.next != nil {
		return h.mu.next.denyUntil
	}
	return h.cur.Load().denyUntil
}
