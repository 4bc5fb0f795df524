package limit

import (
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// drawLeasable draws a rate and terms of any class, with a burst of 1 to 1000. Half are of the two shortest classes, where
// a bucket refills while leases last.
func drawLeasable(d dice) (Rate, *Terms) {
	for {
		i := d.between(0, 1)
		if d.between(0, 1) == 0 {
			i = d.between(0, int64(len(classes))-1)
		}
		longest, shortest := int64(classes[i].Length-LeaseTTL), int64(time.Microsecond)
		if i > 0 {
			shortest = int64(classes[i-1].Length - LeaseTTL)
		}
		fill := longest
		if d.between(0, 2) > 0 {
			fill = d.between(shortest, longest)
		}
		r := Rate{Burst: Tokens(d.between(1, 10)), Requests: Tokens(d.between(1, 1000))}
		if d.between(0, 1) == 0 {
			r.Burst = Tokens(d.between(1, 1000))
		}
		if d.between(0, 2) == 0 {
			r.Debt = Tokens(d.between(0, 100))
		}
		r.Period = time.Duration(float64(fill) * float64(r.Requests) / float64(r.Burst+r.Debt))
		if t, err := r.Terms(); err == nil {
			return r, t
		}
	}
}

// TestLeasesNeverOver is G1 for one cell with leases: whatever honest agents do, and whatever is
// lost or late, no window admits more than the burst and what is refilled in it.
func TestLeasesNeverOver(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := rapidDice{t}
		rate, terms := drawLeasable(d)
		f := newFleet(d, rate, terms, (*Terms).ApplyLeased)
		f.watch = true
		if rapid.Bool().Draw(t, "set back") {
			f.withSetBacks()
		}
		if breach := f.run(rapid.IntRange(1, 60).Draw(t, "events")); breach != "" {
			t.Fatalf("%+v: %s", rate, breach)
		}
	})
}

// TestLeasesNeverOverInLongHistories is the same with plain dice, which find other histories than rapid's.
func TestLeasesNeverOverInLongHistories(t *testing.T) {
	var leased, admitted int
	for seed := range uint64(scaled(1000)) {
		f := seededFleet(seed, drawLeasable, (*Terms).ApplyLeased)
		f.watch = true
		if seed%4 == 0 {
			f.withSetBacks()
		}
		if breach := f.run(200); breach != "" {
			t.Fatalf("seed %d, %+v: %s", seed, *f.terms, breach)
		}
		leased += f.leased
		if f.admitted > 0 {
			admitted++
		}
	}
	// Histories in which nothing happens would prove nothing.
	if leased < scaled(1000)*5 || admitted < scaled(1000)*9/10 {
		t.Errorf("%d leases, and %d histories that admitted anything", leased, admitted)
	}
}

// scaled is a number of histories: less of them with -short.
func scaled(n int) int {
	if testing.Short() {
		return n / 10
	}
	return n
}

// seededFleet has its dice, its terms and its start from the seed.
func seededFleet(seed uint64, draw func(dice) (Rate, *Terms), s step) *fleet {
	d := seededDice{rand.New(rand.NewPCG(seed, 1))}
	rate, terms := draw(d)
	return newFleet(d, rate, terms, s)
}

// mistake is a way to get ApplyLeased wrong.
type mistake string

const (
	none          mistake = "none"
	noClamp       mistake = "free tokens are not clamped to what is not out"
	lateClamp     mistake = "the end of an epoch clamps as of now only"
	settleFirst   mistake = "settle before the clamp"
	oneEpoch      mistake = "a grant counts until the end of its epoch"
	leaseForFree  mistake = "what is granted is not debited"
	takeIsNotSeen mistake = "a take does not see leases"
)

// step is ApplyLeased again, less the mistake.
func (m mistake) step(t *Terms, op Op, n Tokens, ask *Ask, generation int64, cell Cell, now Ticks) (next Cell, out Outcome, write bool) {
	ttl, next := t.Class.EpochTicks(), cell
	clamp := func(at Ticks, is bool) {
		if is {
			next.TAT = max(next.TAT, t.filled(at, next.out()))
		}
	}
	settled := false
	if m == settleFirst && op == Lease {
		t.settle(&next, ask, generation, now)
		settled = true
	}
	epoch := int64(now / ttl)
	for ; next.Epoch < epoch && !next.none(); next.Epoch++ {
		clamp(Ticks(next.Epoch+1)*ttl, m != noClamp && m != lateClamp)
		next.Out, next.Before, next.Seen, next.SeenBefore = 0, next.Out, 0, next.Seen
		if m == oneEpoch {
			next.Before = 0
		}
	}
	if next.none() {
		next.Epoch = epoch
	}
	next.TAT = max(next.TAT, now)
	clamp(now, m != noClamp && !(m == takeIsNotSeen && op != Lease))
	if op != Lease {
		next.TAT, out.Granted, write = t.Apply(op, n, next.TAT, now)
		clamp(now, m != noClamp && m != takeIsNotSeen)
	} else {
		before := next
		if !settled {
			t.settle(&next, ask, generation, now)
		}
		if m == noClamp {
			next.TAT = max(now, before.TAT-Ticks(min(ask.Returned, before.out()-next.out(), t.Burst))*t.Emission)
		}
		t.grant(n, ask, generation, &next, now, &out)
		if m == leaseForFree {
			next.TAT -= Ticks(out.Granted) * t.Emission
		}
		write = true
	}
	out.Level = max(0, next.TAT-now)
	return next, out, write
}

// drawShortClass draws a rate that fills in just the length of its class, as if a class were not longer by an epoch.
func drawShortClass(d dice) (Rate, *Terms) {
	for {
		class := classes[d.between(0, 1)]
		burst := Tokens(d.between(8, 1000))
		r := Rate{Requests: burst, Period: class.Length}
		t := &Terms{Class: class, Emission: r.emission(class), Burst: burst}
		t.Depth = Ticks(burst) * t.Emission
		if t.Ceiling = t.Depth; t.Depth <= class.Span() {
			return r, t
		}
	}
}

// TestMistakesAreCaught: the ledger alone, which knows admissions and nothing of cells, tells each wrong order from
// the right one. So it would tell if ApplyLeased became one of them.
func TestMistakesAreCaught(t *testing.T) {
	for _, tt := range []struct {
		name   string
		draw   func(dice) (Rate, *Terms)
		step   step
		within int // so many seeds
	}{
		{string(noClamp), drawLeasable, noClamp.step, 50},
		{string(lateClamp), drawLeasable, lateClamp.step, 500},
		{string(settleFirst), drawLeasable, settleFirst.step, 500},
		{string(oneEpoch), drawLeasable, oneEpoch.step, 50},
		{string(leaseForFree), drawLeasable, leaseForFree.step, 50},
		{string(takeIsNotSeen), drawLeasable, takeIsNotSeen.step, 50},
		{"a class is as long as the fill", drawShortClass, (*Terms).ApplyLeased, 500},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for seed := range uint64(tt.within) {
				f := seededFleet(seed, tt.draw, tt.step)
				if f.terms.Ceiling > f.terms.Class.Span()-f.terms.Class.EpochTicks() {
					// It takes a cell that nobody writes from the end of one generation to the start of the next but one.
					f.events = []func(){f.askAndAsk, f.hurry, f.rush}
					f.moves = []int64{0, 5, 7}
				}
				if f.run(200) != "" {
					return
				}
			}
			t.Errorf("%d histories and no breach", tt.within)
		})
	}
}

// slow is a leased cell as one would tell it: free tokens, in ticks of refill, and all grants that have not ended yet.
// Time passes from one end of an epoch to the next. It knows no generations and never forgets a cell.
type slow struct {
	terms *Terms
	free  Ticks // below 0 in debt
	last  int64 // ticks since 1970, in the fleet's generations
	out   map[int64]Tokens
	seen  map[int64]int64
}

func (s *slow) ttl() int64 { return int64(s.terms.Class.EpochTicks()) }

// room is the most that can be free.
func (s *slow) room() Ticks {
	room := s.terms.Burst
	for _, n := range s.out {
		room -= n
	}
	return Ticks(room) * s.terms.Emission
}

// pass lets time go by until at.
func (s *slow) pass(at int64) {
	for s.last < at {
		end := (s.last/s.ttl() + 1) * s.ttl()
		if len(s.out) == 0 && len(s.seen) == 0 {
			end = at // no end means anything
		}
		stop := min(end, at)
		s.free = min(s.free+Ticks(stop-s.last), s.room())
		s.last = stop
		if stop == end {
			delete(s.out, end/s.ttl()-2)
			delete(s.seen, end/s.ttl()-2)
		}
	}
}

// op is what happens at a moment.
func (s *slow) op(op Op, n Tokens, ask *Ask, at int64) (out Outcome) {
	s.pass(at)
	e := s.terms.Emission
	debt := s.terms.Ceiling - s.terms.Depth
	switch whole := Tokens(max(0, s.free) / e); op {
	case Take:
		if n <= whole {
			out.Granted = n
		}
	case TakePartial:
		out.Granted = min(n, whole)
	case Charge:
		out.Granted = min(n, Tokens((s.free+debt)/e))
	case Refund:
		if s.free < s.terms.Depth {
			out.Granted = min(n, s.terms.Burst)
			s.free = min(s.free+Ticks(out.Granted)*e, s.room())
		}
		out.Level = s.terms.Depth - s.free
		return out
	case Reset:
		s.free = s.room()
	case Lease:
		s.lease(n, ask, &out)
	}
	s.free -= Ticks(out.Granted+out.Taken) * e
	out.Level = s.terms.Depth - s.free
	return out
}

func (s *slow) lease(n Tokens, ask *Ask, out *Outcome) {
	epoch := s.last / s.ttl()
	if ask.Epoch == epoch || ask.Epoch == epoch-1 {
		settled := min(ask.Settled, s.out[ask.Epoch])
		s.out[ask.Epoch] -= settled
		s.free = min(s.free+Ticks(min(ask.Returned, settled))*s.terms.Emission, s.room())
	}
	s.seen[epoch] += ask.Presence
	part := (s.last % s.ttl()) * Presence / s.ttl() // of the epoch that is over
	out.Contenders = max(1, (s.seen[epoch]*Presence+s.seen[epoch-1]*(Presence-part))/(Presence*Presence))
	out.Epoch = epoch
	whole := Tokens(max(0, s.free) / s.terms.Emission)
	for out.Taken = min(whole, ask.Take); ask.Piece > 1 && out.Taken%ask.Piece != 0; {
		out.Taken--
	}
	whole -= out.Taken
	if out.Taken == ask.Take {
		out.Granted = min(n, whole/Tokens(out.Contenders+1))
		if n > 0 && whole > 0 && out.Taken > 0 {
			out.Granted = max(1, out.Granted)
		}
	}
	s.out[epoch] += out.Granted
}

// TestLeasesAreTheSlowCell: a cell that is read when somebody asks, two generations back at most, answers
// as one that lives through every moment: never too much, and never too little.
func TestLeasesAreTheSlowCell(t *testing.T) {
	run := func(d dice, rate Rate, terms *Terms, events int, twin step) string {
		cell := &slow{terms: terms, free: terms.Depth, out: make(map[int64]Tokens), seen: make(map[int64]int64)}
		f := newFleet(d, rate, terms, nil)
		cell.last = f.base*int64(terms.Class.Span()) + f.at()
		f.owes = true
		f.step = func(t *Terms, op Op, n Tokens, ask *Ask, generation int64, c Cell, now Ticks) (Cell, Outcome, bool) {
			next, out, write := twin(t, op, n, ask, generation, c, now)
			want := cell.op(op, n, ask, generation*int64(t.Class.Span())+int64(now))
			if out != want {
				f.failf("op %d of %d, %+v: got %+v, want %+v", op, n, ask, out, want)
			}
			return next, out, write
		}
		return f.run(events)
	}
	for _, twin := range []step{(*Terms).ApplyLeased, none.step} {
		rapid.Check(t, func(t *rapid.T) {
			d := rapidDice{t}
			rate, terms := drawLeasable(d)
			if breach := run(d, rate, terms, rapid.IntRange(1, 60).Draw(t, "events"), twin); breach != "" {
				t.Fatalf("%+v: %s", rate, breach)
			}
		})
		for seed := range uint64(scaled(1000)) {
			d := seededDice{rand.New(rand.NewPCG(seed, 2))}
			rate, terms := drawLeasable(d)
			if breach := run(d, rate, terms, 200, twin); breach != "" {
				t.Fatalf("seed %d, %+v: %s", seed, rate, breach)
			}
		}
	}
}

// TestWithoutLeasesIsApply: on a cell of which nothing is out, every other operation is what it was.
func TestWithoutLeasesIsApply(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		_, terms := drawLeasable(rapidDice{t})
		now := Ticks(rapid.Int64Range(0, int64(terms.Class.Span())-1).Draw(t, "now"))
		tat := Ticks(rapid.Int64Range(-int64(terms.Class.Span()), 2*int64(terms.Class.Span())).Draw(t, "tat"))
		op := rapid.SampledFrom([]Op{Take, TakePartial, Charge, Refund, Reset, 0, 200}).Draw(t, "op")
		n := drawTokens(t, terms.Burst)
		next, granted, write := terms.Apply(op, n, tat, now)
		cell, out, wrote := terms.ApplyLeased(op, n, nil, 5, Cell{TAT: tat}, now)
		if cell.TAT != next || out.Granted != granted || out.Level != next-now || wrote != write || !cell.none() {
			t.Fatalf("op %d of %d: %+v %+v %v, want TAT %d, %d, %v", op, n, cell, out, wrote, next, granted, write)
		}
	})
}

// FuzzApplyLeased: of any record that is valid and any ask in range, nothing comes that a store could not hold.
func FuzzApplyLeased(f *testing.F) {
	f.Add(uint8(Lease), int64(5), int64(0), int64(10), int64(0), int64(3), int64(2), int64(100), int64(0), int64(1), int64(4), int64(1), int64(1), int64(128))
	f.Add(uint8(Reset), int64(0), int64(MaxTicks-1), int64(0), int64(-2), int64(maxOut), int64(maxOut), int64(maxSeen), int64(maxSeen), int64(0), int64(0), int64(0), int64(0), int64(0))
	f.Fuzz(func(t *testing.T, op uint8, n, tat, now, epoch, out, before, seen, seenBefore, settledEpoch, settled, returned, take, presence int64) {
		terms := mustTerms(t, Tokens(1+uint64(now)%1000), time.Second, Tokens(uint64(tat)%3000))
		class := terms.Class
		cell := Cell{TAT: Ticks(tat), Leases: Leases{epoch, Tokens(out), Tokens(before), seen, seenBefore}}
		ask := &Ask{settledEpoch, Tokens(settled), Tokens(returned), Tokens(take), Tokens(take) % 5, presence, 0}
		switch {
		case now < 0 || Ticks(now) >= class.Span() || tat <= -int64(MaxTicks) || tat >= int64(MaxTicks) || !cell.Valid(),
			epoch < -2*class.Epochs() || epoch >= class.Epochs(), min(n, settled, returned, take) < 0,
			Tokens(max(n, settled, returned, take)) > MaxTokens, presence < 0 || presence > Presence:
			return // refused before they come here
		}
		next, got, write := terms.ApplyLeased(Op(op), Tokens(n), ask, 7, cell, Ticks(now))
		switch {
		case !next.Valid() || next.TAT >= MaxTicks || next.TAT < Ticks(now) || got.Level != next.TAT-Ticks(now) || got.Level > max(terms.Ceiling, Ticks(tat-now)):
			t.Errorf("%+v at %d: %+v, level %d", cell, now, next, got.Level)
		case got.Granted < 0 || got.Granted > Tokens(n) || got.Taken < 0 || got.Taken > Tokens(take) || got.Taken+got.Granted > terms.Burst:
			t.Errorf("granted %d of %d, taken %d of %d, burst %d", got.Granted, n, got.Taken, take, terms.Burst)
		case got.Granted > 0 && !write:
			t.Errorf("granted %d and wrote nothing", got.Granted)
		}
	})
}
