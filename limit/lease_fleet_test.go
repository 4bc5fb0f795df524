package limit

import (
	"fmt"
	"math/big"
	"math/rand/v2"

	"pgregory.net/rapid"
)

// step is what a fleet does to its cell: ApplyLeased, or something that is wrong on purpose.
type step func(t *Terms, op Op, n Tokens, ask *Ask, generation int64, cell Cell, now Ticks) (Cell, Outcome, bool)

// dice decide what happens in a history.
type dice interface {
	between(least, most int64) int64
}

type rapidDice struct{ *rapid.T }

func (d rapidDice) between(least, most int64) int64 {
	return rapid.Int64Range(least, most).Draw(d.T, "")
}

type seededDice struct{ *rand.Rand }

func (d seededDice) between(least, most int64) int64 { return least + d.Int64N(most-least+1) }

// loan is a grant in an agent's hands.
type loan struct {
	epoch int64
	left  Tokens // unspent
	spent Tokens // and not settled
	end   int64  // by the agent's clock, in ticks
}

// fleet is one cell in a store, over generations, and some agents that are honest: each settles a token
// once at most, spends within LeaseTTL of before its ask, and may crash. A ledger replays
// every admission into a reference bucket at the moment when its token leaves the cell or the lease.
type fleet struct {
	dice
	terms *Terms
	step  step
	owes  bool // charges may run into debt; then nothing is replayed
	watch bool // look at the cell itself too, not at admissions only

	cell       Cell
	generation int64 // in which it was written
	found      bool

	base, gen int64 // the first generation and that of now
	now       Ticks
	newest    int64 // generation and ticks of the recorded clock
	clock     Ticks
	elapsed   int64 // the clock of agents and ledger: when the store's is set back, it goes on
	lastMove  int64

	events   []func() // that may happen, some more often
	moves    []int64  // by which time may pass
	callers  bool     // ask for callers that wait, sometimes
	presence int64    // of an ask at most
	prompt   bool     // settle loans while they last, or never

	loans    [][]loan // by agent
	taken    Tokens   // from the cell, and not refunded
	ledger   *reference
	leased   int // loans that were given
	admitted Tokens
	breach   string
}

func newFleet(d dice, rate Rate, terms *Terms, s step) *fleet {
	f := &fleet{dice: d, terms: terms, step: s, ledger: newReference(rate, terms), base: 1000, gen: 1000, newest: 1000}
	f.now = Ticks(f.between(0, int64(terms.Class.Span())-1))
	f.clock = f.now
	// Histories in which everything happens all the time are all alike: each has some events and some agents.
	f.loans = make([][]loan, f.between(1, 3))
	f.events = []func(){f.ask, f.hurry}
	for _, event := range []func(){f.ask, f.askAndAsk, f.spend, f.take, f.takePartial, f.refund, f.charge, f.reset, f.crash, f.rush} {
		if f.between(0, 1) == 0 {
			f.events = append(f.events, event)
		}
	}
	f.moves = []int64{0}
	for move := range int64(setBack) {
		if f.between(0, 1) == 0 {
			f.moves = append(f.moves, move)
		}
	}
	f.callers = f.between(0, 1) == 0
	f.presence = f.between(0, 1) * Presence
	return f
}

// withSetBacks lets the store's clock be set back. In long classes a step is longer than an epoch, so the number of an epoch
// can come again, and an account of the first one would be taken for one of the second: agents are prompt.
func (f *fleet) withSetBacks() { f.moves, f.prompt = append(f.moves, setBack), true }

// at is now in ticks since the first generation.
func (f *fleet) at() int64 { return (f.gen-f.base)*int64(f.terms.Class.Span()) + int64(f.now) }

func (f *fleet) failf(format string, args ...any) {
	if f.breach == "" {
		f.breach = fmt.Sprintf(format, args...)
	}
}

// run plays so many events and a rush in the end, until a breach.
func (f *fleet) run(events int) string {
	for i := range events {
		f.pass()
		if i < events-1 {
			f.events[f.between(0, int64(len(f.events))-1)]()
		} else {
			f.rush()
		}
		if f.watch {
			f.look()
		}
		if f.breach != "" {
			return f.breach
		}
	}
	return ""
}

// setBack is the move by which the store's clock is set back, by less than Class.Step.
const setBack = 8

// pass lets time go by: a little, to around the end of an epoch or generation, or a lot.
func (f *fleet) pass() {
	class := f.terms.Class
	ttl, span := int64(class.EpochTicks()), int64(class.Span())
	var move int64
	switch f.moves[f.between(0, int64(len(f.moves))-1)] {
	case 0:
		move = f.between(0, 3)
	case 1:
		move = f.between(0, 3*int64(f.terms.Emission))
	case 2:
		move = f.between(0, int64(f.terms.Depth))
	case 3:
		move = f.between(0, ttl)
	case 4:
		move = max(0, ttl-int64(f.now)%ttl+f.between(-1, 1))
	case 5:
		move = max(0, span-int64(f.now)+f.between(-1, 1))
	case 6:
		move = f.between(0, 2*span)
	case 7:
		move = f.untilALoanEnds()
	case setBack:
		move = -f.between(0, int64(class.Step())-1)
	}
	before := f.at()
	f.now += Ticks(move)
	for ; f.now >= class.Span(); f.now -= class.Span() {
		f.gen++
	}
	if f.now < 0 {
		f.now, f.gen = f.now+class.Span(), f.gen-1
	}
	// A store shows no time before the one that it has recorded.
	if f.gen < f.newest || f.gen == f.newest && f.now < f.clock {
		f.gen, f.now = f.newest, f.clock
	}
	f.lastMove = max(0, f.at()-before)
	f.elapsed += f.lastMove
}

// untilALoanEnds is the time for which a loan can still be spent.
func (f *fleet) untilALoanEnds() int64 {
	for _, loans := range f.loans {
		for i := range loans {
			if f.live(&loans[i]) > 0 {
				return loans[i].end - f.elapsed
			}
		}
	}
	return 0
}

// stored is the cell as an operation finds it now: full if it is missing or two generations old.
func (f *fleet) stored() Cell {
	age := f.gen - f.generation
	if !f.found || age > 1 {
		return Cell{TAT: f.now}
	}
	c := f.cell
	c.TAT -= Ticks(age) * f.terms.Class.Span()
	c.Epoch -= age * f.terms.Class.Epochs()
	return c
}

// do runs an operation on the cell.
func (f *fleet) do(op Op, n Tokens, ask *Ask) Outcome {
	next, out, write := f.step(f.terms, op, n, ask, f.gen, f.stored(), f.now)
	if write {
		f.cell, f.generation, f.found = next, f.gen, true
		if f.gen != f.newest || f.now >= f.clock+f.terms.Class.Step() {
			f.newest, f.clock = f.gen, f.now
		}
	}
	if out.Level < 0 || out.Level > f.terms.Ceiling+f.terms.Class.Step() {
		f.failf("op %d: level %d, ceiling %d", op, out.Level, f.terms.Ceiling)
	}
	if out.Granted < 0 || out.Granted > n || op == Take && out.Granted != 0 && out.Granted != n {
		f.failf("op %d of %d granted %d", op, n, out.Granted)
	}
	if ask != nil && (out.Taken < 0 || out.Taken > ask.Take || out.Contenders < 1) {
		f.failf("an ask for %d took %d, with %d contenders", ask.Take, out.Taken, out.Contenders)
	}
	return out
}

// peek is the cell at this moment, and its whole free tokens.
func (f *fleet) peek() (Cell, Tokens) {
	c, out, _ := f.step(f.terms, TakePartial, 0, nil, f.gen, f.stored(), f.now)
	return c, f.terms.Remaining(out.Level)
}

// admit replays n tokens into the ledger.
func (f *fleet) admit(what string, n Tokens) {
	if n == 0 || f.owes {
		return
	}
	f.admitted += n
	if !f.ledger.admit(big.NewInt(f.elapsed), n) {
		f.failf("%s admitted %d and the reference bucket is below zero", what, n)
	}
}

// tokens draws a count, often around the burst.
func (f *fleet) tokens() Tokens {
	burst := int64(f.terms.Burst)
	switch f.between(0, 3) {
	case 0:
		return Tokens(f.between(0, 3))
	case 1:
		return Tokens(max(0, burst+f.between(-2, 2)))
	}
	return Tokens(f.between(0, 2*burst))
}

func (f *fleet) take() {
	out := f.do(Take, f.tokens(), nil)
	f.taken += out.Granted
	f.admit("a take", out.Granted)
}

func (f *fleet) takePartial() {
	out := f.do(TakePartial, f.tokens(), nil)
	f.taken += out.Granted
	f.admit("a partial take", out.Granted)
}

func (f *fleet) crash() { *f.agent() = nil }

// agent draws the one that does something.
func (f *fleet) agent() *[]loan { return &f.loans[f.between(0, int64(len(f.loans))-1)] }

func (f *fleet) refund() {
	out := f.do(Refund, min(f.tokens(), f.taken), nil)
	f.taken -= out.Granted
	f.ledger.refund(out.Granted)
}

// charge debits what was admitted without asking: here no more than was there, so that the ledger allows for it.
func (f *fleet) charge() {
	n := f.tokens()
	if _, free := f.peek(); !f.owes {
		n = min(n, free)
	}
	f.admit("a charge", f.do(Charge, n, nil).Granted)
}

// reset is a gift: whatever was free before, the bucket is full but for what is out.
func (f *fleet) reset() {
	f.do(Reset, 0, nil)
	f.ledger.fill(big.NewInt(f.elapsed))
}

// fill makes the reference full.
func (r *reference) fill(ticks *big.Int) { r.level, r.last = new(big.Int).Set(r.most), ticks }

// ask settles a loan, all of it or a part, and asks for another. Request and reply can be lost.
func (f *fleet) ask() {
	loans := f.agent()
	ask := &Ask{Presence: f.between(0, f.presence)}
	if f.callers && f.between(0, 1) == 0 {
		ask.Take = f.tokens()
		ask.Piece = Tokens(f.between(0, 3))
	}
	if len(*loans) > 0 {
		l := &(*loans)[f.between(0, int64(len(*loans))-1)]
		if f.prompt && f.elapsed > l.end {
			l.left, l.spent = 0, 0 // it expires by itself
		}
		back := Tokens(0)
		if f.between(0, 2) == 0 {
			back = Tokens(f.between(0, int64(l.left)))
		}
		spent := l.spent
		if f.between(0, 3) == 0 {
			spent = Tokens(f.between(0, int64(spent)))
		}
		l.left, l.spent = l.left-back, l.spent-spent
		ask.Epoch, ask.Settled, ask.Returned = l.epoch, spent+back, back
	}
	sent := f.elapsed
	if f.between(0, 3) == 0 {
		sent -= f.between(0, f.lastMove)
	}
	fate := f.between(0, 15)
	if fate == 0 {
		return // the request is lost, and what it settled is never settled again
	}
	out := f.do(Lease, f.tokens(), ask)
	f.taken += out.Taken
	f.admit("an ask", out.Taken)
	if out.Granted > 0 && fate > 1 {
		*loans = append(*loans, loan{epoch: out.Epoch, left: out.Granted, end: sent + int64(f.terms.Class.EpochTicks())})
		f.leased++
	}
}

func (f *fleet) askAndAsk() {
	for range 3 {
		f.ask()
	}
}

// spend admits from a loan that has not ended.
func (f *fleet) spend() {
	loans := *f.agent()
	if len(loans) == 0 {
		return
	}
	l := &loans[f.between(0, int64(len(loans))-1)]
	if n := f.live(l); n > 0 {
		f.spendOf(l, Tokens(f.between(1, int64(n))))
	}
}

// live is what of a loan can be spent now.
func (f *fleet) live(l *loan) Tokens {
	if f.elapsed > l.end {
		return 0
	}
	return l.left
}

func (f *fleet) spendOf(l *loan, n Tokens) {
	l.left, l.spent = l.left-n, l.spent+n
	f.admit("a lease", n)
}

// hurry spends all that the agents hold.
func (f *fleet) hurry() {
	for _, loans := range f.loans {
		for i := range loans {
			f.spendOf(&loans[i], f.live(&loans[i]))
		}
	}
}

// rush takes all that there is, from agents and cell: if there is too much, that shows.
func (f *fleet) rush() {
	f.hurry()
	out := f.do(TakePartial, MaxTokens, nil)
	f.taken += out.Granted
	f.admit("a partial take", out.Granted)
}

// look holds what is true of the cell at every moment.
func (f *fleet) look() {
	c, free := f.peek()
	out := c.out()
	switch {
	case !c.Valid():
		f.failf("the record %+v is not valid", c.Leases)
	case free+out > f.terms.Burst:
		f.failf("%d free and %d out, of a burst of %d", free, out, f.terms.Burst)
	case c.TAT-f.now < Ticks(out)*f.terms.Emission:
		f.failf("%d are out at a level of %d ticks", out, c.TAT-f.now)
	case out >= f.terms.Burst:
		f.failf("all %d are out: nothing is left for a newcomer", out)
	}
	var unspent Tokens
	for _, loans := range f.loans {
		for _, l := range loans {
			unspent += f.live(&l)
		}
	}
	if unspent > out {
		f.failf("%d can be spent and %d are out", unspent, out)
	}
}
