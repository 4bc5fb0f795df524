package lease

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"
	"unsafe"

	"github.com/spillgate/spillgate/agent/split"
	"github.com/spillgate/spillgate/batcher"
	"github.com/spillgate/spillgate/hotkeys"
	"github.com/spillgate/spillgate/limit"
)

// Config of a Desk. All fields but Most and Seed are required.
type Config struct {
	// Tracker says which buckets are hot.
	Tracker *hotkeys.Tracker
	// Memory keeps what the store said of cold buckets.
	Memory Memory
	// Clock is a monotonic clock in nanoseconds.
	Clock func() int64
	// Splits knows which buckets are divided; Desk.Tend tends it too. Default: one that divides nothing.
	Splits *split.Table
	// Send gives a claim to the batcher. An error means that it was not taken.
	Send func(*batcher.Claim) error
	// Most Holdings at a time; a bucket that becomes hot beyond it is decided as a cold one. Default 2,000.
	Most int
	// Seed spreads the pauses of agents.
	Seed uint64
	// Stripes that a large lease is divided over, a power of two: about twice the cores that spend at a time.
	// Default 1.
	Stripes int
}

// Desk decides what an agent can decide without the store, and orders from the store what it will
// need: the table of hot buckets, the memory of denials, the allowances of optimistic rules. Safe
// for concurrent use.
type Desk struct {
	cfg     Config
	table   *table
	credits credits

	mu struct {
		sync.Mutex
		ended  Totals // of Holdings that left longer ago than lingers
		left   []departed
		counts Counts
		all    []*Holding // reused by Tend
	}
}

// departed is a Holding that was released, while replies and checks that began before may still
// change its totals.
type departed struct {
	*Holding
	until int64
}

// lingers is how long that may be: longer than a call to the store takes, or a check.
const lingers = int64(10 * time.Second)

// Counts are totals of a Desk beside those of its Holdings.
type Counts struct {
	Promoted, Demoted uint64 // buckets that became hot, and cold
	KnownDenied       uint64 // checks on cold buckets that were denied from memory
	Charged           uint64 // tokens admitted ahead of the store
	ChargesLost       uint64 // tokens of charges that may not have been counted
}

// NewDesk returns a Desk without Holdings.
func NewDesk(cfg Config) (*Desk, error) {
	if cfg.Most == 0 {
		cfg.Most = 2000
	}
	if cfg.Stripes == 0 {
		cfg.Stripes = 1
	}
	if cfg.Tracker == nil || cfg.Memory == nil || cfg.Clock == nil || cfg.Send == nil {
		return nil, errors.New("lease: Tracker, Memory, Clock and Send are required")
	}
	if cfg.Splits == nil {
		cfg.Splits = split.NewTable(split.Config{Clock: cfg.Clock, Send: cfg.Send, Seed: cfg.Seed})
	}
	if cfg.Most < 1 {
		return nil, fmt.Errorf("lease: Most is %d, it must be at least 1", cfg.Most)
	}
	if cfg.Stripes < 1 || cfg.Stripes&(cfg.Stripes-1) != 0 {
		return nil, fmt.Errorf("lease: Stripes is %d, it must be a power of two", cfg.Stripes)
	}
	return &Desk{cfg: cfg, table: newTable(cfg.Most)}, nil
}

// Check is a check on one bucket, in the terms of its rule.
type Check struct {
	Terms     *limit.Terms
	N         limit.Tokens
	Allowance limit.Tokens // above 0 for optimistic rules, where nothing has to be taken back
	// Whole says that the bucket must not be split.
	Whole bool
	// Active counts the distinct buckets of the rule; nil does not.
	Active *hotkeys.Distinct
}

// Ruling is what a Desk did for a check, for Learn, Undo and the accounts.
type Ruling struct {
	// Decided: the decision stands. Else the check's take goes to the store, and its outcome to Learn.
	Decided bool

	admitted bool
	charged  bool
	rides    bool        // a lease was ordered for the check
	part     *limit.Part // from there
	holding  *Holding
	spent    Spent
}

// Hot decides a check on a bucket, by its id, if it is hot; found is false if it is not. at is the
// time, or 0 to read the clock. With a time that was read before, the caller looks at Ends once it has
// come to the end of what it does: the leases may have ended since.
//
// Hot path: 1 atomic read-modify-write, at most 1 clock read, no lock, 0 allocations.
func (d *Desk) Hot(id []byte, c *Check, at int64, out *limit.Decision) (r Ruling, found bool) {
	h := d.table.find(id)
	if h == nil {
		return r, false
	}
	if terms := h.terms.Load(); terms != c.Terms {
		if *terms != *c.Terms {
			h.other.Store(true) // its tokens are those of another rule; Tend ends it if nobody has that rule any more
			return r, true
		}
		h.terms.Store(c.Terms)
		h.whole.Store(c.Whole) // other terms, another version of the rule
	}
	return d.holds(h, c, whose(id), at, out), true
}

// whose is a number that tells goroutines apart, roughly: where they build the ids that they ask for, on their
// stack or in a buffer of theirs.
func whose(id []byte) uint {
	where := uint(uintptr(unsafe.Pointer(unsafe.SliceData(id))))
	return where>>8 ^ where>>13 ^ where>>18
}

// Local decides a check of n tokens, 1 to the burst, if what is held of its bucket decides it. It orders nothing but
// renewals: what it leaves open is for Hot.
//
// Hot path: 1 atomic read-modify-write, 1 clock read, no lock, 0 allocations.
func (d *Desk) Local(id []byte, t *limit.Terms, n limit.Tokens, out *limit.Decision) bool {
	h := d.table.find(id)
	if h == nil || h.terms.Load() != t {
		return false
	}
	s := h.Spend(n, whose(id))
	now := d.cfg.Clock()
	switch h.Judge(s, now) {
	case AdmitAndRenew:
		d.renew(h, now)
		fallthrough
	case Admit:
		s.Grant.admitted(now, s.n, out)
		return true
	case Deny:
		s.Grant.denied(now, n, out)
		return true
	}
	return false
}

// holds decides a check on a hot bucket.
func (d *Desk) holds(h *Holding, c *Check, whose uint, at int64, out *limit.Decision) Ruling {
	if c.N == 0 || c.N > c.Terms.Burst {
		return Ruling{holding: h} // a look takes nothing from here, and the store knows more
	}
	for range 4 { // others may be faster, but not for ever
		s := h.Spend(c.N, whose)
		now := at
		if now == 0 {
			now = d.cfg.Clock() // after Spend, see there
		}
		switch h.Judge(s, now) {
		case AdmitAndRenew:
			d.renew(h, now)
			fallthrough
		case Admit:
			s.Grant.admitted(now, s.n, out)
			return Ruling{Decided: true, admitted: true, holding: h, spent: s}
		case Deny:
			s.Grant.denied(now, c.N, out)
			return Ruling{Decided: true, holding: h}
		}
		if r, again := d.plan(h, c, now, out); !again {
			return r
		}
	}
	return Ruling{holding: h}
}

// renew orders the next lease ahead of time.
func (d *Desk) renew(h *Holding, now int64) {
	if step, request := h.Plan(now, 0); step == Send {
		d.order(h, request, false)
	}
}

// plan orders what a check on a hot bucket needs that has no tokens here.
func (d *Desk) plan(h *Holding, c *Check, now int64, out *limit.Decision) (r Ruling, again bool) {
	r.holding = h
	step, request := h.Plan(now, c.N)
	if step == Again {
		return r, true
	}
	ahead := d.charge(&r, &h.Bucket, c, now, out)
	if step == Send {
		d.order(h, request, !ahead) // the check's own take follows, and sends it
		r.part, r.rides = request.Part, !ahead
	}
	return r, false
}

// Cold decides a check on a bucket that Hot did not find, if that can be done without the store. It counts the
// check for the tracker, and makes the bucket hot if it is time.
func (d *Desk) Cold(id []byte, b *limit.Bucket, c *Check, out *limit.Decision) (r Ruling) {
	now := d.cfg.Clock()
	if c.Active != nil {
		c.Active.Add(now, b.Sum())
	}
	hot := c.N <= c.Terms.Burst && d.cfg.Tracker.Touch(now, b.Sum(), 1) == hotkeys.Hot
	if k, ok := d.cfg.Memory.Get(b.Sum()); ok && (k.Terms == c.Terms || *k.Terms == *c.Terms) && k.denies(now, c.N, out) {
		d.count(func(n *Counts) { n.KnownDenied++ })
		return Ruling{Decided: true}
	}
	if hot && c.N > 0 && leased(c.Terms) {
		if h := d.promote(id, b, c, now); h != nil {
			return d.holds(h, c, whose(id), now, out)
		}
	}
	d.charge(&r, b, c, now, out)
	return r
}

// leastBurst is the smallest burst that is leased. In smaller ones a pause of some milliseconds, or a token at another agent, is a
// large part of what there is; their denials are remembered until a token refills, so they cost little.
const leastBurst = 5

// leastWindow is the shortest window that is leased: leases end with it, and then all agents ask again.
const leastWindow = time.Second

// leased reports whether buckets of the terms are leased when they are hot.
func leased(t *limit.Terms) bool {
	return t.Burst >= leastBurst && t.Algorithm != limit.SlidingLog && (t.Algorithm == limit.TokenBucket || t.Class.Window >= leastWindow)
}

// promote makes a Holding for a bucket; nil if there are too many.
func (d *Desk) promote(id []byte, b *limit.Bucket, c *Check, now int64) *Holding {
	rate, _ := d.cfg.Tracker.Rate(now, b.Sum())
	h := New(id, b, c.Terms, now, rate, d.cfg.Seed)
	h.active, h.stripes = c.Active, d.cfg.Stripes
	h.whole.Store(c.Whole)
	if c.Terms.Algorithm == limit.TokenBucket {
		h.spread.Store(d.cfg.Splits.Watch(id, b, c.Terms, c.Whole))
	}
	there := d.table.insert(h)
	if there == h {
		d.count(func(n *Counts) { n.Promoted++ })
	}
	if there == nil || *there.terms.Load() != *c.Terms {
		return nil
	}
	return there
}

// charge admits a check of an optimistic rule ahead of the store, if the allowance has room.
func (d *Desk) charge(r *Ruling, b *limit.Bucket, c *Check, now int64, out *limit.Decision) bool {
	if c.Allowance == 0 || c.N == 0 || c.N > c.Allowance || !d.credits.reserve(b.Sum(), c.N, c.Allowance, now) {
		return false
	}
	if d.sendCharge(b, c, now) != nil {
		d.credits.heard(b.Sum(), c.N, now)
		return false
	}
	level := limit.Ticks(c.N) * c.Terms.Emission
	if k, ok := d.cfg.Memory.Get(b.Sum()); ok && (k.Terms == c.Terms || *k.Terms == *c.Terms) {
		level += k.at(now).Level
	}
	*out = c.Terms.Decide(c.N, limit.Outcome{Granted: c.N, Level: level})
	r.Decided, r.admitted, r.charged = true, true, true
	d.count(func(n *Counts) { n.Charged += uint64(c.N) })
	return true
}

// charged is told of the outcome of a charge. The debt is that of the cell that was charged.
func (d *Desk) charged(c *batcher.Claim) {
	now, sum, t := d.cfg.Clock(), c.Bucket.Sum(), c.Terms
	if c.Err != nil {
		d.credits.block(sum, c.N, now, now+int64(t.Class.Duration(t.Depth)))
		d.count(func(n *Counts) { n.ChargesLost += uint64(c.N) })
		return
	}
	if debt := c.Out.Level - t.Depth; debt > 0 {
		d.credits.block(sum, c.N, now, now+int64(t.Class.Duration(debt))+c.Out.Lag)
	} else {
		d.credits.heard(sum, c.N, now)
	}
	if c.Part == nil {
		d.remember(&c.Bucket, c.Terms, c.Out, now)
	}
}

func (d *Desk) remember(b *limit.Bucket, t *limit.Terms, out limit.Outcome, now int64) {
	out.Granted = 0
	d.cfg.Memory.Set(Known{Sum: b.Sum(), Terms: t, Out: out, AsOf: now})
}

// Learn takes the outcome of a take that a ruling left to the store, and gives the decision.
func (d *Desk) Learn(r *Ruling, c *batcher.Claim) limit.Decision {
	b, t, n, out := &c.Bucket, c.Terms, c.N, c.Out
	if r.holding != nil && !c.Rider { // what was held here is not missing
		out.Level = max(0, out.Level-limit.Ticks(r.holding.heldBefore(c.Call))*t.Emission)
	}
	decision := t.Decide(n, out)
	if decision.Reason != limit.OverLimit {
		return decision
	}
	now := d.cfg.Clock()
	if r.holding == nil {
		if c.Part == nil { // else the next token comes when a part has it
			d.remember(b, t, out, now)
		}
		return decision
	}
	if d.late(r, n) {
		left := r.holding.heldBefore(math.MaxUint64)
		level := max(limit.Ticks(n)*t.Emission, c.Out.Level-limit.Ticks(left)*t.Emission)
		out.Granted, out.Level = n, level
		return t.Decide(n, out)
	}
	// Part of what was needed may be on lease here: then it is to be had together, and at once.
	decision.RetryAfter = max(decision.RetryAfter, time.Duration(r.holding.deniedUntil()-now), time.Nanosecond)
	return decision
}

// late admits a check that the store denied from a lease that came meanwhile, and that may be why.
func (d *Desk) late(r *Ruling, n limit.Tokens) bool {
	h := r.holding
	s := h.Spend(n, 0)
	now := d.cfg.Clock()
	if !s.ok {
		return false
	}
	switch h.Judge(s, now) {
	case AdmitAndRenew:
		d.renew(h, now)
	case Admit:
	default:
		return false
	}
	r.Decided, r.admitted, r.spent = true, true, s
	return true
}

// Undo takes back an admission, since another descriptor of its check was denied. Its Holding does not
// count it any more. What is returned is the bucket to which the store has to refund the tokens; nil if nothing is
// to be done.
func (r *Ruling) Undo() *limit.Bucket {
	if r.spent.ok && r.admitted && !r.holding.Unspend(r.spent) {
		return &r.holding.Bucket
	}
	return nil
}

// Reclaim takes back what a claim got of a lease that it rode with, since another descriptor of its check was denied: these tokens go
// back with the lease's account, if that has not been sent yet. They are still on lease to the store, and a full bucket has no room for
// a refund of what is on lease. It returns how many they are; the store has to refund the others.
func (r *Ruling) Reclaim(c *batcher.Claim) limit.Tokens {
	n, epoch := c.Ridden()
	if n == 0 || r.holding == nil || c.Terms.Algorithm != limit.TokenBucket || !r.holding.reclaim(c.Part.At(), epoch, n) {
		return 0
	}
	return n
}

// Part is where the tokens of an admission came from that was undone: the refund goes there. Nil is home.
func (r *Ruling) Part(now int64) *limit.Part {
	if !r.spent.ok {
		return nil
	}
	p, _ := r.holding.named(now, r.spent.Grant.where)
	return p
}

// Epoch is that of an admission that was undone, for the refund.
func (r *Ruling) Epoch() int64 {
	if !r.spent.ok {
		return 0
	}
	return r.spent.Grant.epoch
}

// Rides is where a lease was ordered from for the check, so that its take rides with it; ok is false if none was.
func (r *Ruling) Rides() (p *limit.Part, ok bool) { return r.part, r.rides }

// Pause is how long the bucket's Holding denies yet.
func (r *Ruling) Pause(now int64) time.Duration {
	if r.holding == nil {
		return 0
	}
	return time.Duration(r.holding.deniedUntil() - now)
}

// Ends is when the lease ends from which a check was admitted; ok is false without one.
func (r *Ruling) Ends() (at int64, ok bool) {
	if !r.spent.ok || !r.admitted {
		return 0, false
	}
	return r.spent.Grant.expires, true
}

// Void says that the lease ended before the check did: it is not admitted, and its take goes to the
// store, for the bucket that is returned.
func (r *Ruling) Void() *limit.Bucket {
	r.holding.extra.Add(1) // spent without a check
	*r = Ruling{holding: r.holding}
	return &r.holding.Bucket
}

// Local reports whether a ruling is in the totals of its Holding.
func (r *Ruling) Local() bool { return r.Decided && r.holding != nil && !r.charged }

// Uncount takes a ruling out of the totals of its Holding: its check is counted elsewhere.
func (r *Ruling) Uncount() {
	if !r.Local() {
		return
	}
	r.holding.elsewhere.Add(1)
	if r.admitted {
		r.holding.extra.Add(1)
	} else {
		r.holding.denied.Add(-1)
	}
}

// Forget drops what is known of a bucket that is being reset.
func (d *Desk) Forget(id []byte, b *limit.Bucket) {
	d.cfg.Memory.Forget(b.Sum())
	if h := d.table.find(id); h != nil {
		h.Forget(d.cfg.Clock())
	}
}

// order sends a request of a Holding.
func (d *Desk) order(h *Holding, r Request, lazy bool) {
	c := &batcher.Claim{Bucket: h.Bucket, Terms: h.terms.Load(), Op: limit.Lease, N: r.Want, Ask: r.Ask, Part: r.Part, Lazy: lazy}
	c.Done = func(c *batcher.Claim) {
		a := Answer{Out: c.Out, Rode: c.Rode, Call: c.Call, Failed: c.Err != nil, NotRun: errors.Is(c.Err, batcher.ErrNotRun)}
		d.divided(h, c, &a)
		now := d.cfg.Clock()
		h.Apply(r, a, now)
		d.settle(h, h.Late(now))
	}
	if d.cfg.Send(c) != nil {
		h.Apply(r, Answer{Failed: true, NotRun: true}, d.cfg.Clock())
	}
}

// settle sends requests of a Holding that has ended. What cannot be sent ends by itself in the store.
func (d *Desk) settle(h *Holding, requests []Request) {
	for _, r := range requests {
		_ = d.cfg.Send(&batcher.Claim{Bucket: h.Bucket, Terms: h.terms.Load(), Op: limit.Lease, Ask: r.Ask, Part: r.Part, Lazy: true})
	}
}

// release ends a Holding: all it has goes back.
func (d *Desk) release(h *Holding) {
	now := d.cfg.Clock()
	d.mu.Lock()
	if !d.table.remove(h) {
		d.mu.Unlock()
		return
	}
	requests := h.Release(now)
	d.mu.left = append(d.mu.left, departed{h, now + lingers})
	d.mu.counts.Demoted++
	d.mu.Unlock()
	d.settle(h, requests)
}

// Tend looks after the Holdings, some ten times a second: it tells the tracker what they served, returns
// what nobody wants, and ends those that are not hot any more.
func (d *Desk) Tend() {
	now := d.cfg.Clock()
	d.mu.Lock()
	d.mu.all = d.table.all(d.mu.all[:0])
	all := d.mu.all
	gone := 0
	for ; gone < len(d.mu.left) && now >= d.mu.left[gone].until; gone++ {
		d.mu.ended.Add(d.mu.left[gone].State().Totals)
	}
	d.mu.left = slices.Delete(d.mu.left, 0, gone)
	d.mu.Unlock()
	for _, h := range all {
		checks, request, send := h.Tend(now)
		if checks > 0 {
			d.cfg.Tracker.Touch(now, h.Bucket.Sum(), uint32(min(checks, math.MaxUint32)))
			if h.active != nil {
				h.active.Add(now, h.Bucket.Sum())
			}
		}
		if send {
			d.order(h, request, true)
		}
		d.settle(h, h.Elsewhere(now))
		if _, class := d.cfg.Tracker.Rate(now, h.Bucket.Sum()); class == hotkeys.Cold || // a Touch may be lost
			h.other.Swap(false) && checks == 0 {
			d.release(h)
		}
	}
	d.credits.sweep(now)
	d.cfg.Splits.Tend()
}

// Close ends all Holdings.
func (d *Desk) Close() {
	for _, h := range d.table.all(nil) {
		d.release(h)
	}
}

func (d *Desk) count(f func(*Counts)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f(&d.mu.counts)
}

// Stats are totals since NewDesk, and what is held now.
type Stats struct {
	Counts
	Totals
	Holdings int
	Held     limit.Tokens // on lease, unspent and not sent back yet
}

// Stats returns them.
func (d *Desk) Stats() Stats {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := Stats{Counts: d.mu.counts, Totals: d.mu.ended}
	for _, l := range d.mu.left {
		s.Totals.Add(l.State().Totals)
	}
	for _, h := range d.table.all(nil) {
		state := h.State()
		s.Holdings++
		s.Held += state.Held
		s.Totals.Add(state.Totals)
	}
	return s
}
