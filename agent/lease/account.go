package lease

import (
	"slices"
	"time"

	"github.com/spillgate/spillgate/limit"
)

// owed is the account of one grant, which the store has not been told yet.
type owed struct {
	where             where
	epoch             int64
	settled, returned limit.Tokens
	// until is when the account is void: the leases it is of have ended, and should the store's clock have been set
	// back, their epoch may come again.
	until int64
}

// where a grant came from: which cell of the bucket (limit.Part.At), and the start of the record there.
type where struct {
	at    int
	start int64
}

// Totals count tokens and requests of a Holding, or of many.
type Totals struct {
	Granted  uint64 // tokens that came on lease, without those of Rode
	Rode     uint64 // tokens of leases that callers took who waited for them
	Spent    uint64 // tokens spent here
	Returned uint64 // tokens sent back unspent
	Expired  uint64 // tokens that ended unspent
	Asks     uint64 // requests to the store
	Admitted uint64 // checks admitted here
	Denied   uint64 // checks denied here
}

// Add adds other totals.
func (t *Totals) Add(o Totals) {
	t.Granted += o.Granted
	t.Rode += o.Rode
	t.Spent += o.Spent
	t.Returned += o.Returned
	t.Expired += o.Expired
	t.Asks += o.Asks
	t.Admitted += o.Admitted
	t.Denied += o.Denied
}

// retireLocked ends a grant. What is left goes back, or has expired.
func (h *Holding) retireLocked(g *Grant, now int64) {
	left := g.purse.close()
	h.accountLocked(g, left)
	switch {
	case left == 0:
	case now < g.expires:
		h.oweLocked(g.where, g.epoch, left, left, g.expires)
	default:
		h.mu.totals.Expired += uint64(left)
	}
	g.accounted += left
}

// accountLocked takes down what was spent of a grant of which left are left.
func (h *Holding) accountLocked(g *Grant, left limit.Tokens) {
	spent := g.tokens - left - g.accounted
	if spent <= 0 {
		return
	}
	g.accounted += spent
	h.mu.spent += spent
	h.mu.totals.Spent += uint64(spent)
	h.oweLocked(g.where, g.epoch, spent, 0, g.expires)
}

// oweLocked adds to what the store is to be told.
func (h *Holding) oweLocked(at where, epoch int64, settled, returned limit.Tokens, until int64) {
	if settled == 0 {
		return
	}
	for i := range h.mu.owed {
		if o := &h.mu.owed[i]; o.where == at && o.epoch == epoch && o.until == until {
			o.settled += settled
			o.returned += returned
			return
		}
	}
	h.mu.owed = append(h.mu.owed, owed{at, epoch, settled, returned, until})
}

// reclaim makes spent tokens of a lease that a claim rode with into such as go back, if their account has not been sent yet. They have
// then been granted to this agent, as far as its totals go.
func (h *Holding) reclaim(at int, epoch int64, n limit.Tokens) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	yes := h.reclaimLocked(n, func(o *owed) bool { return o.where.at == at && o.epoch == epoch })
	if yes {
		h.mu.totals.Granted += uint64(n)
	}
	return yes
}

// reclaimLocked makes n spent tokens of one account into such as go back. It is false if there is no such account with
// as many: it has been sent.
func (h *Holding) reclaimLocked(n limit.Tokens, of func(*owed) bool) bool {
	for i := range h.mu.owed {
		if o := &h.mu.owed[i]; o.settled-o.returned >= n && of(o) {
			o.returned += n
			return true
		}
	}
	return false
}

// harvestLocked brings the account of the grants up to date.
func (h *Holding) harvestLocked(now int64) {
	for _, g := range [...]*Grant{h.cur.Load(), h.mu.next} {
		if g == nil || g.purse.isClosed() {
			continue
		}
		h.accountLocked(g, g.held())
		if now >= g.expires {
			h.retireLocked(g, now)
		}
	}
}

// giveBackLocked returns of a lease that is about to end what will not be spent before the new one comes.
func (h *Holding) giveBackLocked(g *Grant) {
	keep := 1 + limit.Tokens(h.mu.demand*float64(roundTrips*h.mu.roundTrip))
	back := g.purse.drain(g.held() - keep)
	g.back.Add(int64(back))
	g.accounted += back
	h.oweLocked(g.where, g.epoch, back, back, g.expires)
}

// takeOwedLocked moves the account of one epoch into a request, of those of the part that it goes to: for a caller who needs
// them, that with tokens that come back; else the largest. The others go with the next requests, or end by themselves.
func (h *Holding) takeOwedLocked(r *Request, need limit.Tokens) {
	h.dropVoidLocked(r.Sent)
	var best *owed
	for i := range h.mu.owed {
		o := &h.mu.owed[i]
		switch {
		case o.where.at != r.Part.At():
		case best == nil, need > 0 && o.returned > best.returned,
			(need == 0 || o.returned == best.returned) && o.settled > best.settled:
			best = o
		}
	}
	if best == nil {
		return
	}
	from, epoch := best.where, best.epoch
	r.from, r.until, r.Ask.Epoch = from, best.until, epoch
	if from.at == 0 {
		r.Ask.Origin = from.start
	}
	for _, o := range h.mu.owed {
		if o.where == from && o.epoch == epoch {
			r.Ask.Settled += o.settled
			r.Ask.Returned += o.returned
			r.until = min(r.until, o.until)
		}
	}
	h.mu.totals.Returned += uint64(r.Ask.Returned)
	h.mu.owed = slices.DeleteFunc(h.mu.owed, func(o owed) bool { return o.where == from && o.epoch == epoch })
}

// dropVoidLocked forgets accounts that no store would take: their leases have ended, or the part that they are of.
func (h *Holding) dropVoidLocked(now int64) {
	h.mu.owed = slices.DeleteFunc(h.mu.owed, func(o owed) bool {
		if _, lives := h.named(now, o.where); now < o.until && lives {
			return false
		}
		h.mu.totals.Expired += uint64(o.returned) // it came too late
		return true
	})
}

// named names the part that a grant came from to the store; ok is false if it is no more.
func (h *Holding) named(now int64, at where) (p *limit.Part, ok bool) {
	s := h.spread.Load()
	switch {
	case at.at == 0: // while the bucket is divided it has no record
		return nil, s == nil || s.Ways() == 1
	case s != nil:
		return s.Named(now, at.at-1, at.start)
	}
	return nil, false
}

// State is what a Holding has at the moment.
type State struct {
	Held   limit.Tokens // on lease, unspent and not sent back yet
	Demand float64      // tokens per second
	Totals Totals
}

// State returns the state.
func (h *Holding) State() State {
	h.mu.Lock()
	defer h.mu.Unlock()
	// Before what was spent: a check that comes in between counts as admitted, and not as less than none.
	extra := h.extra.Load()
	s := State{Demand: h.mu.demand * float64(time.Second), Totals: h.mu.totals}
	for _, g := range [...]*Grant{h.cur.Load(), h.mu.next} {
		if g != nil && !g.purse.isClosed() {
			held := g.held()
			s.Held += held
			s.Totals.Spent += uint64(g.tokens - held - g.accounted)
		}
	}
	for i := range h.mu.owed {
		s.Held += h.mu.owed[i].returned
	}
	s.Totals.Admitted = s.Totals.Spent - uint64(extra)
	s.Totals.Denied = uint64(h.denied.Load())
	return s
}
