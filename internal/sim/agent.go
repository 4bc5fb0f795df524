package sim

import (
	"errors"
	"time"

	"github.com/spillgate/spillgate/agent/lease"
	"github.com/spillgate/spillgate/agent/split"
	"github.com/spillgate/spillgate/batcher"
	"github.com/spillgate/spillgate/hotkeys"
	"github.com/spillgate/spillgate/limit"
)

// agent is one process: the real desk, tracker and lines, and the shell around them.
type agent struct {
	world      *World
	id         int
	generation int // counts its lives; what belongs to an earlier one is dropped
	state      state

	asleep   int64    // suspended until then
	stalled  int      // suspended within a check, so many deep
	deferred []func() // what waits for it to go on
	replies  []func() // of these, replies

	desk    *lease.Desk
	tracker *hotkeys.Tracker
	splits  *split.Table
	memory  map[limit.Sum]lease.Known
	queues  []*queue // by master
	terms   []*limit.Terms
	offset  int64   // of its clock
	rate    float64 // of its clock
	behind  int64   // by a mistake of the test
	tending bool
	ordered []*batcher.Claim // by Tend
	phantom []limit.Tokens   // by bucket, a mistake of the test
	open    []limit.Tokens   // by bucket: admitted ahead of the store, without its answer
	charges int              // sent
	lost    []lost           // charges that may not have been counted

	ended lease.Stats // of earlier lives that ended well
	tally tally
}

// tally counts what an agent did.
type tally struct {
	checks, denied int // denied without the store
	admitted       limit.Tokens
	calls          int
}

type lost struct {
	bucket *bucket
	tokens limit.Tokens
	until  int64
}

// state of an agent.
type state int

const (
	down state = iota
	up
	closing
)

const tendEvery = 100 * time.Millisecond

// start begins a life.
func (a *agent) start() {
	w := a.world
	a.generation++
	a.state, a.asleep, a.deferred, a.replies = up, 0, nil, nil
	a.offset, a.rate, a.behind = 1+w.upTo(1e12), 1, 0
	if w.plan.Drift > 0 {
		a.rate += (2*w.rng.Float64() - 1) * w.plan.Drift
	}
	a.memory = map[limit.Sum]lease.Known{}
	a.terms, a.queues = nil, nil
	a.phantom, a.open, a.lost = make([]limit.Tokens, len(w.buckets)), make([]limit.Tokens, len(w.buckets)), nil
	for _, b := range w.buckets {
		a.terms = append(a.terms, b.terms)
		b.slack += b.plan.Allowance
	}
	for _, m := range w.masters {
		a.queues = append(a.queues, &queue{agent: a, master: m})
	}
	tracker, err := hotkeys.New(hotkeys.Config{Top: 32, MinRate: w.plan.MinRate, HalfLife: w.plan.HalfLife, Seed: w.rng.Uint64()})
	if err != nil {
		panic(err)
	}
	a.tracker = tracker
	a.splits = split.NewTable(split.Config{Threshold: w.plan.SplitOps, Clock: a.clock, Send: a.send, OnEvent: a.event,
		Divisible: func() bool { return w.plan.Divided }, Seed: w.plan.Seed<<16 ^ uint64(a.id*64+a.generation)})
	a.desk, err = lease.NewDesk(lease.Config{Tracker: tracker, Memory: (*memory)(a), Clock: a.clock, Send: a.send,
		Splits: a.splits, Most: w.plan.Most, Seed: w.rng.Uint64()})
	if err != nil {
		panic(err)
	}
	w.note(a, nil, "start", int64(a.generation), 0)
	a.after(w.upTo(tendEvery), a.tend)
}

// event counts what the agent learns of divisions.
func (a *agent) event(e split.Event) {
	c := &a.world.counts.Divided
	a.world.note(a, a.world.bySum[e.Info.Bucket.Sum()], string(e.Kind), int64(e.Info.Ways), 0)
	switch e.Kind {
	case split.EventSplit:
		c.Heard++
	case split.EventMerged:
		c.HeardMerged++
	case split.EventEnded:
		c.HeardEnded++
	}
}

// clock is the agent's monotonic clock; never 0.
func (a *agent) clock() int64 {
	now := a.world.now
	return a.offset + now + int64(float64(now)*(a.rate-1)) - a.behind
}

// after runs f in d, if this life still lasts, and as soon as the agent runs at all.
func (a *agent) after(d int64, f func()) {
	generation := a.generation
	a.world.after(d, func() {
		if a.generation == generation {
			a.do(f)
		}
	})
}

func (a *agent) suspended() bool { return a.stalled > 0 || a.world.now < a.asleep }

// do runs f now, or when the agent goes on.
func (a *agent) do(f func()) {
	if a.suspended() {
		a.deferred = append(a.deferred, f)
		return
	}
	f()
}

// deliver is do for a reply: it may be looked at before the timer of its call, if both wait.
func (a *agent) deliver(f func()) {
	if a.suspended() {
		a.replies = append(a.replies, f)
		return
	}
	f()
}

// suspend stops the agent for a time. Its clock goes on.
func (a *agent) suspend(d int64) {
	w := a.world
	a.asleep = w.now + d
	w.counts.Suspends++
	w.note(a, nil, "suspend", d, 0)
	generation := a.generation
	w.after(d, func() {
		if a.generation == generation {
			a.resume()
		}
	})
}

// resume does what waits.
func (a *agent) resume() {
	if a.suspended() {
		return
	}
	first, then := a.replies, a.deferred
	if a.world.chance(0.5) {
		first, then = then, first
	}
	a.replies, a.deferred = nil, nil
	generation := a.generation
	for _, all := range [...][]func(){first, then} {
		for _, f := range all {
			if a.generation == generation {
				a.do(f)
			}
		}
	}
}

// wake ends a suspension before its time.
func (a *agent) wake() {
	a.asleep = 0
	a.resume()
}

// stall suspends the agent right here, in the middle of what it does, while all others go on.
func (a *agent) stall() {
	w := a.world
	if w.over() || !w.chance(w.plan.Stall) || w.depth >= 2 {
		return
	}
	d := w.upTo(pick(w.rng, 10*time.Millisecond, time.Second, 4*time.Second))
	w.counts.Stalls++
	w.note(a, nil, "stall", d, 0)
	w.depth++
	a.stalled++
	w.run(w.now + d)
	a.stalled--
	w.depth--
	a.after(0, a.resume)
}

// tend is what the desk does ten times a second. It goes through its Holdings in no order; what it sends
// is put in order.
func (a *agent) tend() {
	w := a.world
	if a.state != up {
		return
	}
	a.inOrder(a.desk.Tend)
	for i := range a.lost {
		if l := &a.lost[i]; l.tokens > 0 && a.clock() >= l.until {
			l.tokens = 0
		}
	}
	if s := a.desk.Stats(); s.Holdings > w.plan.Most {
		w.fail("G7", nil, "agent %d has %d Holdings, %d are the most", a.id, s.Holdings, w.plan.Most)
	} else {
		w.counts.MaxHoldings = max(w.counts.MaxHoldings, s.Holdings)
	}
	next := int64(tendEvery)
	if w.chance(w.plan.LateTend) {
		next += w.upTo(time.Second)
	}
	a.after(next, a.tend)
}

func (a *agent) inOrder(f func()) {
	a.tending = true
	f()
	a.tending = false
	all := a.ordered
	a.ordered = nil
	for _, b := range a.world.buckets {
		for _, c := range all {
			if c.Bucket.Sum() == b.name.Sum() {
				a.put(c)
			}
		}
	}
}

// send is the batcher's Send for the desk.
func (a *agent) send(c *batcher.Claim) error {
	b := a.world.bySum[c.Bucket.Sum()]
	if a.tending {
		if a.queue(b, c.Part).closed {
			return batcher.ErrClosed
		}
		a.ordered = append(a.ordered, c)
		return nil
	}
	return a.put(c)
}

// put gives a claim of the desk to its queue.
func (a *agent) put(c *batcher.Claim) error {
	b := a.world.bySum[c.Bucket.Sum()]
	if c.Op == limit.Charge {
		return a.charge(b, c)
	}
	a.spoil(b, c)
	return a.queue(b, c.Part).add(c)
}

// queue is the line for a bucket, or for a part of one.
func (a *agent) queue(b *bucket, p *limit.Part) *queue { return a.queues[b.at(p.At()).id] }

// charge watches a charge: at no time may more than the allowance be open or lost.
func (a *agent) charge(b *bucket, c *batcher.Claim) error {
	w := a.world
	tell := c.Done
	early := w.wires.NoReserve
	mine := *c // the desk may send the same once more, with the same Done
	c = &mine
	c.Done = func(c *batcher.Claim) {
		a.open[b.index] -= c.N
		failure, sent := c.Err, a.charges
		if w.wires.ForgetLost {
			c.Err = nil
		}
		if !early {
			tell(c)
		}
		if failure != nil && a.charges == sent { // it was not sent again, elsewhere
			a.lost = append(a.lost, lost{b, c.N, a.clock() + int64(c.Terms.Class.Duration(c.Terms.Depth))})
			if !w.wires.ForgetLost {
				b.slack += c.N
			}
			if errors.Is(failure, batcher.ErrNotRun) {
				b.uncharged += c.N
			}
		}
	}
	if err := a.queue(b, c.Part).add(c); err != nil {
		return err
	}
	a.charges++
	a.open[b.index] += c.N
	sum := a.open[b.index]
	for _, l := range a.lost {
		if l.bucket == b && a.clock() < l.until {
			sum += l.tokens
		}
	}
	if sum > b.plan.Allowance && *c.Terms == *b.terms {
		w.fail("G2", b, "agent %d has %d admitted that the store has not counted, its allowance is %d", a.id, sum, b.plan.Allowance)
	}
	if early {
		a.after(0, func() { tell(&batcher.Claim{Bucket: c.Bucket, Terms: c.Terms, Op: c.Op, N: c.N}) })
	}
	return nil
}

// crash loses everything.
func (a *agent) crash() {
	w := a.world
	if a.state == down {
		return
	}
	w.counts.Crashes++
	w.note(a, nil, "crash", 0, 0)
	a.generation++
	a.state, a.asleep, a.deferred, a.replies = down, 0, nil, nil
	w.after(w.upTo(time.Second), func() {
		if a.state == down && !w.over() {
			a.start()
		}
	})
}

// stop ends a life gracefully: what is held goes back, and what is in line goes out.
func (a *agent) stop(again bool) {
	w := a.world
	if a.state != up {
		return
	}
	w.note(a, nil, "stop", 0, 0)
	a.state = closing
	a.inOrder(a.desk.Close)
	for _, q := range a.queues {
		q.close()
	}
	if again {
		w.counts.Stopped++
		a.after(int64(time.Second), a.startAgain)
	}
}

// startAgain begins another life once everything has gone out.
func (a *agent) startAgain() {
	for _, q := range a.queues {
		if q.line.Len() > 0 || q.running > 0 {
			a.after(int64(time.Second), a.startAgain)
			return
		}
	}
	a.rest()
	if !a.world.over() {
		a.start()
	} else {
		a.state = down
	}
}

// rest is the end of a life that was stopped: nothing may be left.
func (a *agent) rest() {
	for _, q := range a.queues {
		if q.line.Len() > 0 || q.running > 0 {
			a.world.fail("G7", nil, "agent %d has %d entries in line and %d calls after its end", a.id, q.line.Len(), q.running)
		}
	}
	s := a.desk.Stats()
	if s.Holdings > 0 || s.Held > 0 {
		a.world.fail("G7", nil, "agent %d has %d Holdings after its end", a.id, s.Holdings)
	}
	if s.Granted != s.Spent+s.Returned+s.Expired {
		a.world.fail("G7", nil, "agent %d: granted %d, spent %d, returned %d, expired %d", a.id, s.Granted, s.Spent, s.Returned, s.Expired)
	}
	a.ended.Totals.Add(s.Totals)
}

// memory is what the agent knows of cold buckets. It forgets now and then.
type memory agent

func (m *memory) Get(sum limit.Sum) (lease.Known, bool) {
	if m.world.chance(m.world.plan.Forget) {
		delete(m.memory, sum)
	}
	k, ok := m.memory[sum]
	return k, ok
}

func (m *memory) Set(k lease.Known) { m.memory[k.Sum] = k }

func (m *memory) Forget(sum limit.Sum) { delete(m.memory, sum) }
