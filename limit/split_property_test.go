package limit

import (
	"math/big"
	"testing"

	"pgregory.net/rapid"
)

// TestSharesAddUp: of any number of tokens, in any number of ways.
func TestSharesAddUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		total := Tokens(rapid.Int64Range(0, int64(MaxTokens)).Draw(t, "total"))
		ways := rapid.IntRange(1, MaxWays).Draw(t, "ways")
		sum := Tokens(0)
		for i := range ways {
			share := Share(total, ways, i)
			if low := total / Tokens(ways); share != low && share != low+1 || i > 0 && share > Share(total, ways, i-1) {
				t.Fatalf("part %d has %d of %d", i, share, total)
			}
			sum += share
		}
		if sum != total {
			t.Fatalf("%d parts of %d are %d", ways, total, sum)
		}
	})
}

// TestPartsAddUp: the bursts of the parts are that of the whole, their rates at most its rate, and each fills in the time
// in which the whole does, but for what is rounded.
func TestPartsAddUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		_, terms := drawTerms(t)
		ways := rapid.IntRange(1, MaxWays).Draw(t, "ways")
		burst, rate := Tokens(0), new(big.Rat)
		for i := range ways {
			p := terms.Part(ways, i)
			burst += p.Burst
			if p.Class != terms.Class || p.Depth != Ticks(p.Burst)*p.Emission || p.Ceiling-p.Depth != terms.Ceiling-terms.Depth {
				t.Fatalf("part %d: %+v of %+v", i, p, terms)
			}
			if p.Burst == 0 {
				if _, granted, _ := p.Apply(TakePartial, 1, 0, 0); granted > 0 {
					t.Fatalf("part %d has no burst and grants %d", i, granted)
				}
				continue
			}
			if p.Depth < terms.Depth || p.Depth >= terms.Depth+Ticks(p.Burst) {
				t.Fatalf("part %d fills in %d ticks, the whole in %d", i, p.Depth, terms.Depth)
			}
			rate.Add(rate, big.NewRat(1, int64(p.Emission)))
		}
		if whole := big.NewRat(1, int64(terms.Emission)); burst != terms.Burst || rate.Cmp(whole) > 0 {
			t.Fatalf("%d ways of %+v: burst %d, rate %v", ways, terms, burst, rate)
		}
	})
}

// TestFromPartNeverRoundsUp: it is the same tokens, less one tick or two.
func TestFromPartNeverRoundsUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		_, terms := drawTerms(t)
		ways := rapid.IntRange(1, MaxWays).Draw(t, "ways")
		p := terms.Part(ways, rapid.IntRange(0, ways-1).Draw(t, "index"))
		free := Ticks(rapid.Int64Range(-int64(p.Ceiling), int64(p.Depth)).Draw(t, "free"))
		got := terms.FromPart(&p, free)
		// Exact: free * Emission / p.Emission.
		exact := new(big.Rat).Mul(big.NewRat(int64(free), int64(p.Emission)), new(big.Rat).SetInt64(int64(terms.Emission)))
		lost := exact.Sub(exact, new(big.Rat).SetInt64(int64(got)))
		if lost.Sign() <= 0 || lost.Cmp(big.NewRat(3, 1)) >= 0 {
			t.Fatalf("%d ticks of %+v are %d of %+v: %v are lost", free, p, got, terms, lost.FloatString(3))
		}
	})
}

// drawHome draws terms, and the cell of a bucket that may have leases, as of a moment of a generation.
func drawHome(t *rapid.T) (terms *Terms, cell Cell, generation int64, now Ticks) {
	_, terms = drawLeasable(rapidDice{t})
	length := terms.Class.Length.Microseconds()
	generation = 1_700_000_000_000_000 / length
	now = Ticks(rapid.Int64Range(0, int64(terms.Class.Span())-1).Draw(t, "now"))
	epoch := int64(now / terms.Class.EpochTicks())
	cell.TAT = now - Ticks(rapid.Int64Range(0, int64(terms.Depth)).Draw(t, "idle"))
	if rapid.Bool().Draw(t, "used") {
		cell.TAT = now + Ticks(rapid.Int64Range(0, int64(terms.Ceiling)).Draw(t, "level"))
	}
	cell.Leases = Leases{Epoch: epoch - rapid.Int64Range(0, 3).Draw(t, "epochs ago")}
	if rapid.Bool().Draw(t, "leased") {
		cell.Out = Tokens(rapid.Int64Range(0, int64(terms.Burst)).Draw(t, "out"))
		cell.Before = Tokens(rapid.Int64Range(0, int64(terms.Burst)).Draw(t, "out before"))
	}
	return terms, cell, generation, now
}

// TestSplitLosesNothing: a bucket that is split, and made whole again at once, has what it had, less some ticks for each
// part; or less than a token, if part 0 is full and cannot keep the fraction. It never has more, but for ticks of a debt.
func TestSplitLosesNothing(t *testing.T) {
	split := 0
	rapid.Check(t, func(t *rapid.T) {
		terms, cell, gen, now := drawHome(t)
		ways := rapid.IntRange(2, MaxWays).Draw(t, "ways")
		whole, _, before := terms.ApplyTouch(&Part{}, Load{}, gen, cell, now)
		if whole.Split != (Split{}) {
			t.Fatalf("split by nobody: %+v", whole.Split)
		}
		next, _, _ := terms.ApplyTouch(&Part{Ops: 1, Threshold: 1, Ways: ways}, Load{}, gen, whole, now)
		s := next.Split
		if s.Ways == 0 {
			if terms.Burst > 1 {
				t.Fatalf("not split: %+v", next)
			}
			return
		}
		split++
		next, _, _ = terms.ApplyTouch(&Part{End: true}, Load{}, gen, next, now)
		part := Part{Split: next.Split}
		leased, tokens, full := Tokens(0), new(big.Rat), false
		for i := range s.Ways {
			part.Index = i
			sub, out, _, ok := terms.ApplySub(Close, 0, nil, &part, gen, Cell{TAT: now}, false, now)
			if !ok || !sub.Closing {
				t.Fatalf("part %d of %+v is not closed: %+v", i, s, sub)
			}
			p := terms.Part(s.Ways, i)
			leased += out.Granted
			part.Free += terms.FromPart(&p, out.Level)
			tokens.Add(tokens, big.NewRat(int64(min(out.Level, p.Depth)), int64(p.Emission)))
			full = full || i == 0 && sub.TAT <= p.filled(now, terms.HeldBy(&s, 0))
		}
		if there := big.NewRat(int64(terms.Depth-before.Level), int64(terms.Emission)); terms.Depth >= before.Level && tokens.Cmp(there) > 0 {
			t.Fatalf("the parts have %v tokens, the whole had %v", tokens.FloatString(9), there.FloatString(9))
		}
		merged, out, write := terms.ApplyMerge(leased, &part, gen, next, now)
		if out.Granted != 1 || !write || merged.Ways != 0 || leased != 0 {
			t.Fatalf("not merged: %+v, %+v", merged, out)
		}
		lost := merged.TAT - max(whole.TAT, now)
		most := 3*Ticks(s.Ways) + 3
		if full {
			most += terms.Emission
		}
		least := Ticks(0)
		if before.Level > terms.Depth { // what a debt is rounded by
			least = -Ticks(terms.Burst) * (before.Level / terms.Depth)
			most += Ticks(terms.Burst)
		}
		if lost < least || lost > most && merged.TAT-now < terms.Ceiling {
			t.Fatalf("%d ticks are lost of %+v in %d ways of %+v at %d; split %+v, free %d", lost, whole, s.Ways, *terms, now, next, part.Free)
		}
	})
	if split == 0 {
		t.Error("nothing was split")
	}
}

// FuzzDivide: whatever is in range goes in, what comes out is in range, and no part grants more than it may have.
func FuzzDivide(f *testing.F) {
	f.Fuzz(rapid.MakeFuzz(divideAtRandom))
}

// TestDivideAtRandom is FuzzDivide for every day.
func TestDivideAtRandom(t *testing.T) { rapid.Check(t, divideAtRandom) }

func divideAtRandom(t *rapid.T) {
	terms, cell, gen, now := drawHome(t)
	micros := terms.Class.micros(gen, now)
	drawSplit := func(name string) Split {
		if rapid.IntRange(0, 3).Draw(t, name) == 0 {
			return Split{}
		}
		return Split{
			Start:   micros + rapid.Int64Range(-8_000_000, 1_500_000).Draw(t, "start"),
			Until:   micros + rapid.Int64Range(-8_000_000, 5_000_000).Draw(t, "until"),
			Ways:    rapid.IntRange(0, MaxWays).Draw(t, "ways"),
			Stride:  rapid.IntRange(0, 100).Draw(t, "stride"),
			Held:    Tokens(rapid.Int64Range(0, int64(terms.Burst)*2).Draw(t, "held")),
			Level:   Ticks(rapid.Int64Range(0, int64(terms.Ceiling)).Draw(t, "level")),
			Closing: rapid.Bool().Draw(t, "closing"),
		}
	}
	cell.Split = drawSplit("home's")
	part := Part{Split: drawSplit("the agent's"), Ops: rapid.Int64Range(0, 1<<40).Draw(t, "ops"), Threshold: rapid.Int64Range(0, 1000).Draw(t, "threshold"),
		Ways: rapid.IntRange(0, 100).Draw(t, "wanted"), End: rapid.Bool().Draw(t, "end"),
		Free: Ticks(rapid.Int64Range(-int64(terms.Ceiling), int64(terms.Depth)).Draw(t, "free"))}
	n := Tokens(rapid.Int64Range(0, int64(terms.Burst)*2).Draw(t, "n"))
	ask := Ask{Epoch: gen*terms.Class.Epochs() + cell.Epoch - rapid.Int64Range(0, 2).Draw(t, "epoch"), Settled: n / 2, Returned: n / 3, Take: n / 4,
		Presence: Presence, Origin: rapid.SampledFrom([]int64{0, cell.Start, 1}).Draw(t, "origin")}
	load := Load{Window: micros / 1_000_000, Ops: rapid.Int64Range(0, maxOps).Draw(t, "load"), Before: rapid.Int64Range(0, maxOps).Draw(t, "load before")}
	op := rapid.SampledFrom([]Op{Take, TakePartial, Charge, Refund, Reset, Lease, Touch, Close, Merge}).Draw(t, "op")
	next, out, ok := cell, Outcome{}, true
	have := terms.Burst
	switch {
	case op == Touch:
		next, load, out = terms.ApplyTouch(&part, load, gen, cell, now)
	case op == Merge:
		next, out, _ = terms.ApplyMerge(n, &part, gen, cell, now)
	case op == Close || rapid.Bool().Draw(t, "sub"):
		part.Index = rapid.IntRange(0, MaxWays).Draw(t, "index")
		cell.Split = Split{Closing: cell.Closing}
		if next, out, _, ok = terms.ApplySub(op, n, &ask, &part, gen, cell, rapid.Bool().Draw(t, "exists"), now); ok {
			have = Share(terms.Burst, part.Split.Ways, part.Index)
		}
	default:
		next, out, _ = terms.ApplyLeased(op, n, &ask, gen, cell, now)
		if next.Ways > 0 {
			have = 0 // divided
		}
	}
	if !ok && (next != cell || out != (Outcome{})) {
		t.Fatalf("refused, with %+v, %+v", next, out)
	}
	if !next.Valid() || !load.Valid() {
		t.Fatalf("op %d on %+v, with %+v: %+v, %+v", op, cell, part, next, load)
	}
	// A part's burst may be a tick per token deeper than the whole. What was in range stays in range.
	if next.TAT > max(cell.TAT, now+2*(terms.Ceiling+terms.Depth+Ticks(terms.Burst))) || next.TAT < cell.TAT-Ticks(n)*terms.Depth && next.TAT < now {
		t.Fatalf("op %d on %+v, with %+v: TAT %d, now %d, ceiling %d", op, cell, part, next.TAT, now, terms.Ceiling)
	}
	if taken := out.Granted + out.Taken; (op == Take || op == TakePartial || op == Lease) && (taken < 0 || taken > have) {
		t.Fatalf("op %d on %+v, with %+v: granted %d and %d of %d", op, cell, part, out.Granted, out.Taken, have)
	}
}
