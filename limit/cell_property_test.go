package limit

import (
	"math/big"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// reference is a token bucket in exact arithmetic, the oracle of G1: every admission is
// replayed into it, and it must never go below zero. That is the same as
// admitted <= C + r*w in every window of length w.
//
// It holds the configured rate, not Terms: level counts tokens * den, and num/den are tokens per tick.
type reference struct {
	num, den *big.Int
	level    *big.Int
	most     *big.Int
	last     *big.Int // ticks
}

func newReference(r Rate, t *Terms) *reference {
	// tokens per tick = Requests / (Period * ticks per nanosecond)
	perTick := big.NewRat(int64(r.Requests), int64(r.Period))
	perTick.Quo(perTick, ticksPerNano(t.Class))
	ref := &reference{num: perTick.Num(), den: perTick.Denom()}
	ref.most = new(big.Int).Mul(big.NewInt(int64(t.Burst)), ref.den)
	ref.level = new(big.Int).Set(ref.most)
	return ref
}

// refund gives n tokens back. When is of no consequence: the cap counts at the next admission.
func (r *reference) refund(n Tokens) {
	back := big.NewInt(int64(n))
	r.level.Add(r.level, back.Mul(back, r.den))
}

// admit replays n tokens at a time. It returns false below zero.
func (r *reference) admit(ticks *big.Int, n Tokens) bool {
	if r.last != nil {
		refill := new(big.Int).Sub(ticks, r.last)
		r.level.Add(r.level, refill.Mul(refill, r.num))
	}
	r.last = ticks
	if r.level.Cmp(r.most) > 0 {
		r.level.Set(r.most)
	}
	cost := big.NewInt(int64(n))
	r.level.Sub(r.level, cost.Mul(cost, r.den))
	return r.level.Sign() >= 0
}

// absolute is a place in time in ticks since 1970.
func absolute(c Class, gen int64, now Ticks) *big.Int {
	t := new(big.Int).Mul(big.NewInt(gen), big.NewInt(int64(c.Span())))
	return t.Add(t, big.NewInt(int64(now)))
}

// drawTerms draws a rate that compiles, with its terms.
func drawTerms(t *rapid.T) (Rate, *Terms) {
	for {
		r := drawRate(t)
		if terms, err := r.Terms(); err == nil {
			return r, terms
		}
	}
}

// drawTokens draws counts around a burst as well as of all sizes.
func drawTokens(t *rapid.T, burst Tokens) Tokens {
	return Tokens(rapid.OneOf(
		rapid.Int64Range(0, 3),
		rapid.Int64Range(max(0, int64(burst)-2), int64(burst)+2),
		rapid.Int64Range(0, 2*int64(burst)),
	).Draw(t, "n"))
}

// TestNeverOver is G1 for one cell: any operations, at any times that a store can show to Apply.
// Those run back by less than a step of the recorded clock at most.
func TestNeverOver(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rate, terms := drawTerms(t)
		class, span := terms.Class, terms.Class.Span()
		ref := newReference(rate, terms)
		var c cell
		gen := rapid.Int64Range(-3, 500_000_000).Draw(t, "generation")
		now := Ticks(rapid.Int64Range(0, int64(span)-1).Draw(t, "now"))
		clock := now // recorded; a store never shows a time before it
		newest := gen
		written := absolute(class, gen, now)
		var out Tokens // taken and not refunded
		for range rapid.IntRange(1, 40).Draw(t, "operations") {
			move := rapid.OneOf(
				rapid.Int64Range(0, 3),
				rapid.Int64Range(0, 3*int64(terms.Emission)),
				rapid.Int64Range(0, 2*int64(terms.Depth)),
				rapid.Int64Range(0, 3*int64(span)),
				rapid.Int64Range(1-int64(class.Step()), 0),
			).Draw(t, "move")
			now += Ticks(move)
			for now >= span {
				now, gen = now-span, gen+1
			}
			if now < 0 {
				now, gen = now+span, gen-1
			}
			if gen < newest || gen == newest && now < clock {
				gen, now = newest, clock
			}
			op := rapid.SampledFrom([]Op{Take, TakePartial, Refund}).Draw(t, "op")
			n := drawTokens(t, terms.Burst)
			at := absolute(class, gen, now)
			if op == Refund {
				if at.Cmp(written) < 0 {
					continue // the replay is in order of time; a refund of later tokens has no place in it
				}
				n = min(n, out)
			}
			before := c
			got, wrote := c.apply(terms, op, n, gen, now)
			if !wrote && c != before {
				t.Fatalf("op %d: a cell changed and was not written", op)
			}
			if wrote && (gen != newest || now >= clock+class.Step()) {
				newest, clock = gen, now
			}
			if got.Granted < 0 || got.Granted > max(n, 0) || op == Take && got.Granted != 0 && got.Granted != n {
				t.Fatalf("op %d of %d granted %d", op, n, got.Granted)
			}
			if got.Level < 0 || got.Level > terms.Ceiling+class.Step() {
				t.Fatalf("op %d: level %d, beyond depth %d and a step", op, got.Level, terms.Depth)
			}
			// The reference counts from the latest admission, never from a time that only a denial saw.
			switch {
			case op == Refund:
				out -= n
				ref.refund(n)
			case got.Granted > 0:
				out += got.Granted
				if at.Cmp(written) > 0 {
					written = at
				}
				if !ref.admit(written, got.Granted) {
					t.Fatalf("%+v: op %d granted %d of %d and the reference bucket is below zero", rate, op, got.Granted, n)
				}
			}
		}
	})
}

// TestDeniedOnlyWhenShort is the other half: a reference bucket at the rate of Terms, which
// is the configured one but for less than a tick per token, decides the same.
func TestDeniedOnlyWhenShort(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		_, terms := drawTerms(t)
		var c cell
		gen, now := int64(1000), Ticks(0)
		free := terms.Depth // in ticks, as tokens are whole emissions
		for range rapid.IntRange(1, 40).Draw(t, "operations") {
			move := Ticks(rapid.OneOf(
				rapid.Int64Range(0, 3*int64(terms.Emission)),
				rapid.Int64Range(0, int64(terms.Depth)),
			).Draw(t, "move"))
			for now += move; now >= terms.Class.Span(); now -= terms.Class.Span() {
				gen++
			}
			free = min(free+move, terms.Depth)
			n := drawTokens(t, terms.Burst)
			admit := n > 0 && n <= terms.Burst && Ticks(n)*terms.Emission <= free
			got, _ := c.apply(terms, Take, n, gen, now)
			if (got.Granted > 0) != admit {
				t.Fatalf("%d of %d ticks' worth %d: granted %d, want %v", n, free, terms.Emission, got.Granted, admit)
			}
			if admit {
				free -= Ticks(n) * terms.Emission
			}
			if got.Level != terms.Depth-free {
				t.Fatalf("level %d, want %d", got.Level, terms.Depth-free)
			}
		}
	})
}

// TestDemandIsServed is G3 for one cell: with demand always there, at least 99 % of what is refilled is
// granted. Where a token takes only some ticks, the rounding of the emission costs more (Terms.Emission).
func TestDemandIsServed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rate, terms := drawTerms(t)
		if terms.Emission < 1000 {
			t.Skip("a token takes only some ticks")
		}
		var c cell
		gen, now := int64(7), Ticks(0)
		var granted, elapsed big.Int
		for range 200 {
			out, _ := c.apply(terms, TakePartial, terms.Burst, gen, now)
			granted.Add(&granted, big.NewInt(int64(out.Granted)))
			// Whoever is told to wait comes back on time: a bucket that holds several tokens may rest longer.
			move := Ticks(rapid.Int64Range(1, max(int64(terms.Depth-terms.Emission), 1)).Draw(t, "move"))
			if terms.Burst == 1 {
				move = out.Level
			}
			elapsed.Add(&elapsed, big.NewInt(int64(move)))
			for now += move; now >= terms.Class.Span(); now -= terms.Class.Span() {
				gen++
			}
		}
		out, _ := c.apply(terms, TakePartial, terms.Burst, gen, now)
		granted.Add(&granted, big.NewInt(int64(out.Granted)))
		refilled := new(big.Rat).SetFrac(&elapsed, big.NewInt(1))
		refilled.Mul(refilled, new(big.Rat).Quo(big.NewRat(int64(rate.Requests), int64(rate.Period)), ticksPerNano(terms.Class)))
		refilled.Add(refilled, big.NewRat(int64(terms.Burst), 1))
		all := new(big.Rat).SetInt(&granted)
		if all.Cmp(refilled) > 0 {
			t.Fatalf("%+v: granted %v of %v", rate, &granted, refilled.FloatString(2))
		}
		least := new(big.Rat).Mul(refilled, big.NewRat(99, 100))
		if all.Cmp(least.Sub(least, big.NewRat(1, 1))) < 0 {
			t.Fatalf("%+v: granted only %v of %v", rate, &granted, refilled.FloatString(2))
		}
	})
}

// TestRetryIsExact is G4: with no rival, a take is admitted at the moment of retry_after and
// not a nanosecond before; where ticks are longer than that, not a tick and a nanosecond before.
func TestRetryIsExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		_, terms := drawTerms(t)
		var c cell
		nanos := rapid.Int64Range(0, int64(50*365*24*time.Hour)).Draw(t, "nanos")
		for range 20 {
			n := max(1, drawTokens(t, terms.Burst))
			out := c.at(terms, Take, n, nanos)
			d := terms.Decide(n, out)
			switch {
			case d.Admitted:
				continue
			case n > terms.Burst:
				if d.Reason != Never || d.RetryAfter != NoRetry {
					t.Fatalf("%d of %d: %+v", n, terms.Burst, d)
				}
				continue
			}
			if d.RetryAfter <= 0 || d.RetryAfter > d.ResetAfter {
				t.Fatalf("a denial with retry %d, reset %d", d.RetryAfter, d.ResetAfter)
			}
			early := int64(1)
			if terms.Class.PerMicro < 1000 {
				early += int64(terms.Class.Duration(1))
			}
			if retry := int64(d.RetryAfter); retry > early {
				if out := c.at(terms, Take, n, nanos+retry-early); out.Granted != 0 {
					t.Fatalf("admitted %d ns before the retry of %v", early, d.RetryAfter)
				}
			}
			if nanos += int64(d.RetryAfter); c.at(terms, Take, n, nanos).Granted != n {
				t.Fatalf("denied after the retry of %v", d.RetryAfter)
			}
		}
	})
}

// TestDenialsAreFree is G5 for one cell: denials and peeks, in any number, change
// nothing of what follows.
func TestDenialsAreFree(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		_, terms := drawTerms(t)
		var plain, peeked cell
		nanos := rapid.Int64Range(0, int64(time.Hour)).Draw(t, "nanos")
		for range 20 {
			nanos += rapid.Int64Range(0, 2*int64(terms.Class.Duration(terms.Depth))).Draw(t, "move")
			n := drawTokens(t, terms.Burst)
			peeked.at(terms, TakePartial, 0, nanos)
			peeked.at(terms, Take, 0, nanos)
			peeked.at(terms, Take, terms.Burst+1, nanos)
			a, b := plain.at(terms, Take, n, nanos), peeked.at(terms, Take, n, nanos)
			if a != b || plain != peeked {
				t.Fatalf("alone %+v %+v, among denials %+v %+v", a, plain, b, peeked)
			}
		}
	})
}

// TestRefundRestores: a take that is refunded at once never was, and no refund fills above full.
func TestRefundRestores(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		_, terms := drawTerms(t)
		now := Ticks(rapid.Int64Range(0, int64(terms.Class.Span())-1).Draw(t, "now"))
		level := Ticks(rapid.Int64Range(0, int64(terms.Depth)).Draw(t, "level"))
		n := drawTokens(t, terms.Burst)
		tat, granted, wrote := terms.Apply(TakePartial, n, now+level, now)
		if !wrote {
			return
		}
		back, _, _ := terms.Apply(Refund, granted, tat, now)
		if back != now+level {
			t.Fatalf("took %d at level %d, refunded to %d", granted, level, back-now)
		}
		more, _, _ := terms.Apply(Refund, MaxTokens, tat, now)
		if more != now {
			t.Fatalf("a refund of everything leaves level %d", more-now)
		}
	})
}

// TestTermsChange: whatever the terms were before, the consumed time is kept, and what lies beyond the depth of the
// new terms is waited for: they grant what is left of their own burst, and the first token on the tick.
func TestTermsChange(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		_, old := drawTerms(t)
		_, terms := drawTerms(t)
		if old.Class != terms.Class {
			t.Skip("cells of other classes are not seen")
		}
		var c cell
		gen, now := int64(9), Ticks(rapid.Int64Range(0, int64(terms.Class.Span())-1).Draw(t, "now"))
		c.apply(old, TakePartial, drawTokens(t, old.Burst), gen, now)
		before := max(0, c.tat-now)
		out, _ := c.apply(terms, TakePartial, 0, gen, now)
		if out.Level != before {
			t.Fatalf("the consumed time went from %d to %d, depth %d", before, out.Level, terms.Depth)
		}
		left := max(0, terms.Depth-before) / terms.Emission
		was := c
		if out, _ = c.apply(terms, TakePartial, MaxTokens, gen, now); out.Granted != Tokens(left) {
			t.Fatalf("granted %d of a burst of %d, level %d, want %d", out.Granted, terms.Burst, before, left)
		}
		if left > 0 {
			return
		}
		if c != was {
			t.Fatalf("a denial changed %+v to %+v", was, c)
		}
		at := now + before + terms.Emission - terms.Depth
		try := func(at Ticks) Outcome {
			out, _ := c.apply(terms, Take, 1, gen+int64(at/terms.Class.Span()), at%terms.Class.Span())
			return out
		}
		if early := try(at - 1); early.Granted != 0 {
			t.Fatalf("a tick early: %+v", early)
		}
		if out := try(at); out.Granted != 1 || out.Level > terms.Depth {
			t.Fatalf("on the tick: %+v", out)
		}
	})
}

// FuzzApply: no input makes a result that a store could not hold.
func FuzzApply(f *testing.F) {
	f.Add(uint8(Take), int64(1), int64(0), int64(0), int64(10), int64(time.Second), int64(10))
	f.Add(uint8(Refund), int64(1<<62), int64(MaxTicks), int64(5), int64(1), int64(time.Hour), int64(1))
	f.Add(uint8(Charge), int64(-1), int64(-MaxTicks), int64(1e13), int64(MaxTokens), int64(time.Second), int64(0))
	f.Fuzz(func(t *testing.T, op uint8, n, tat, now, requests, period, burst int64) {
		terms, err := rate(Tokens(requests), time.Duration(period), Tokens(burst)).Terms()
		if err != nil || terms == nil {
			return
		}
		if now < 0 || Ticks(now) >= terms.Class.Span() || tat <= -int64(MaxTicks) || tat >= int64(MaxTicks) {
			return // the script refuses such cells
		}
		next, granted, write := terms.Apply(Op(op), Tokens(n), Ticks(tat), Ticks(now))
		level := next - Ticks(now)
		if level < 0 || level > max(terms.Ceiling, Ticks(tat-now)) || next >= MaxTicks {
			t.Errorf("TAT %d at %d, ceiling %d", next, now, terms.Ceiling)
		}
		if granted < 0 || granted > max(0, Tokens(n)) || granted > terms.Burst {
			t.Errorf("granted %d of %d, burst %d", granted, n, terms.Burst)
		}
		if granted > 0 && !write {
			t.Errorf("granted %d and wrote nothing", granted)
		}
	})
}
