package sim

import (
	"fmt"
	"io"
	"math/rand/v2"
	"time"

	"github.com/spillgate/spillgate/limit"
)

// World is one run: a fleet, its stores and the network between them, in virtual time. It belongs to one
// goroutine.
type World struct {
	plan  Plan
	wires Wires
	rng   *rand.Rand

	now    int64 // nanoseconds since the run began
	events events
	serial uint64
	depth  int // of stalls within stalls

	masters []*master
	agents  []*agent
	buckets []*bucket
	bySum   map[limit.Sum]*bucket
	cuts    [][]int64 // by agent and master: until when no message passes
	around  int64     // what stores' clocks are set to where buckets are divided

	trace  trace
	counts Counts
	breach *Breach
	asked  func(limit.Tokens) // told of every check, if a test wants to know
}

// Counts tell what a run has seen: a test of a simulator that does nothing passes.
type Counts struct {
	Events, Checks, Admitted, Denied, Calls    int
	LocalAdmitted, LocalDenied, Charged, Rode  int
	Unknown, NotRun, GivenUp, Refunded, Undone int
	Crashes, Suspends, Stalls, Cuts, Steps     int
	Changes, Resets, Waits, Voided             int
	MaxHoldings, Several, Stopped              int
	Windows, Dropped                           int // entries on windows; refunds that came too late, in part or whole
	Divided                                    Divided
}

// Divided are the counts of runs in which buckets are divided.
type Divided struct {
	Splits, Extended, Closing, Merges, Late, Ends, Adopted int
	Stale, Closes, Parts, Clipped, Failovers, Crashes      int

	// Of agents.
	Heard, HeardMerged, HeardEnded, Overflows int
}

// Breach is a promise that was broken.
type Breach struct {
	Promise string // "G1" and so on
	Bucket  int    // -1: none in particular
	At      time.Duration
	What    string
}

func (b *Breach) Error() string {
	return fmt.Sprintf("%s broken at %v, bucket %d: %s", b.Promise, b.At, b.Bucket, b.What)
}

// Result is what a run came to.
type Result struct {
	Plan   Plan
	Breach *Breach // nil if every promise was kept
	Hash   uint64  // of the trace
	Counts Counts
	Lines  []string // of the trace, if asked for
}

// Wires are where a test makes mistakes on purpose. The zero value makes none.
type Wires struct {
	// Apply stands in for limit.Terms.ApplyLeased, and then only the plain store is asked.
	Apply func(*limit.Terms, limit.Op, limit.Tokens, *limit.Ask, int64, limit.Cell, limit.Ticks) (limit.Cell, limit.Outcome, bool)
	// Window stands in for limit.Terms.ApplyWindow, and then only the plain store is asked.
	Window func(*limit.Terms, limit.Op, limit.Tokens, *limit.Ask, limit.Window, int64) (limit.Window, limit.Outcome, bool)
	// Divide stands in for what a store does with every entry, and then only the plain store is asked.
	Divide func(*operation) (out limit.Outcome, write, ok bool)
	// Terms changes the terms of every rule.
	Terms func(*limit.Terms) *limit.Terms
	// The rest are mistakes of agents; see mutations_test.go.
	LeaseFromReply, SettleTwice, ResendLost, NoRefunds, NoRecheck, SpendAccounted, NoReserve, ForgetLost, RideOld bool
}

// Options of Run.
type Options struct {
	Wires Wires
	// Trace receives a line per event; nil for none.
	Trace io.Writer
	// Keep keeps the lines in the Result.
	Keep bool
}

// Run runs the fleet of a plan to its end, or to the first broken promise.
func Run(p Plan, o Options) Result {
	w := newWorld(p, o)
	w.run(int64(p.Length))
	if w.breach == nil {
		w.quiesce()
	}
	return Result{Plan: p, Breach: w.breach, Hash: w.trace.hash, Counts: w.counts, Lines: w.trace.lines}
}

func newWorld(p Plan, o Options) *World {
	w := &World{plan: p, wires: o.Wires, rng: rand.New(rand.NewPCG(p.Seed, 0x5b111)), bySum: map[limit.Sum]*bucket{}}
	w.trace = trace{out: o.Trace, keep: o.Keep, hash: 14695981039346656037}
	w.build()
	return w
}

// build makes the fleet and its first events.
func (w *World) build() {
	for i := range w.plan.Masters {
		w.masters = append(w.masters, newMaster(w, i))
	}
	for i := range w.plan.Buckets {
		w.buckets = append(w.buckets, newBucket(w, i))
	}
	w.cuts = make([][]int64, w.plan.Agents)
	for i := range w.plan.Agents {
		w.cuts[i] = make([]int64, w.plan.Masters)
		a := &agent{world: w, id: i}
		w.agents = append(w.agents, a)
		a.start()
	}
	w.startLoad()
	w.startFaults()
}

// fail notes the first broken promise; the run ends with it.
func (w *World) fail(promise string, b *bucket, format string, args ...any) {
	if w.breach != nil {
		return
	}
	w.breach = &Breach{Promise: promise, Bucket: -1, At: time.Duration(w.now), What: fmt.Sprintf(format, args...)}
	if b != nil {
		w.breach.Bucket = b.index
	}
	w.note(nil, b, "BREACH", 0, 0)
}

// after runs f in d from now. Never call it with a wait that is negative.
func (w *World) after(d int64, f func()) {
	w.serial++
	w.events.push(event{at: w.now + d, serial: w.serial, run: f})
}

// run lets time pass up to a moment.
func (w *World) run(until int64) {
	for w.breach == nil {
		e, ok := w.events.next(until)
		if !ok {
			break
		}
		w.now = max(w.now, e.at)
		w.counts.Events++
		e.run()
	}
	w.now = max(w.now, until)
}

// quiesce ends the run: faults and load have stopped, agents return what they have, and then the books must
// balance.
func (w *World) quiesce() {
	w.heal()
	for _, a := range w.agents {
		a.wake()
		a.stop(false)
	}
	w.run(w.now + int64(30*time.Second))
	if w.breach == nil {
		w.audit()
	}
}

// chance is true with probability p.
func (w *World) chance(p float64) bool { return p > 0 && w.rng.Float64() < p }

// upTo is a random time up to d, at least a nanosecond.
func (w *World) upTo(d time.Duration) int64 { return 1 + w.rng.Int64N(max(1, int64(d))) }

// event is something that happens at a time; those of one time happen in the order in which they were ordered.
type event struct {
	at     int64
	serial uint64
	run    func()
}

func (e *event) before(o *event) bool { return e.at < o.at || e.at == o.at && e.serial < o.serial }

// events is a binary heap.
type events []event

func (h *events) push(e event) {
	*h = append(*h, e)
	s := *h
	for i := len(s) - 1; i > 0; {
		parent := (i - 1) / 2
		if !s[i].before(&s[parent]) {
			return
		}
		s[i], s[parent] = s[parent], s[i]
		i = parent
	}
}

// next takes the earliest event, if it is not later than until.
func (h *events) next(until int64) (e event, ok bool) {
	s := *h
	if len(s) == 0 || s[0].at > until {
		return e, false
	}
	e = s[0]
	last := len(s) - 1
	s[0], s[last] = s[last], event{}
	s = s[:last]
	for i := 0; ; {
		least := i
		for _, child := range [...]int{2*i + 1, 2*i + 2} {
			if child < last && s[child].before(&s[least]) {
				least = child
			}
		}
		if least == i {
			break
		}
		s[i], s[least] = s[least], s[i]
		i = least
	}
	*h = s
	return e, true
}

// Add adds other counts.
func (c *Counts) Add(o *Counts) {
	to, from := c.fields(), o.fields()
	for i := range to {
		*to[i] += *from[i]
	}
	c.Windows += o.Windows
	c.Dropped += o.Dropped
	to, from = append(c.Divided.fields(), c.Divided.agents()...), append(o.Divided.fields(), o.Divided.agents()...)
	for i := range to {
		*to[i] += *from[i]
	}
}

func (c *Divided) fields() []*int {
	return []*int{&c.Splits, &c.Extended, &c.Closing, &c.Merges, &c.Late, &c.Ends, &c.Adopted, &c.Stale, &c.Closes, &c.Parts, &c.Clipped,
		&c.Failovers, &c.Crashes}
}

func (c *Divided) agents() []*int {
	return []*int{&c.Heard, &c.HeardMerged, &c.HeardEnded, &c.Overflows}
}

func (c *Counts) fields() []*int {
	return []*int{&c.Events, &c.Checks, &c.Admitted, &c.Denied, &c.Calls, &c.LocalAdmitted, &c.LocalDenied, &c.Charged, &c.Rode,
		&c.Unknown, &c.NotRun, &c.GivenUp, &c.Refunded, &c.Undone, &c.Crashes, &c.Suspends, &c.Stalls, &c.Cuts, &c.Steps,
		&c.Changes, &c.Resets, &c.Waits, &c.Voided, &c.MaxHoldings, &c.Several, &c.Stopped}
}
