package storetest

import (
	"sync"
	"time"

	"github.com/spillgate/spillgate/batcher"
	"github.com/spillgate/spillgate/limit"
)

// lastToken is fault 14.
func lastToken(b *bench) {
	name, terms := b.bucket("last"), b.hourly()
	for i := limit.Tokens(1); i <= 10; i++ {
		out := b.op(name, terms, limit.Take, 1)
		d := terms.Decide(1, out)
		if !d.Admitted || d.Remaining != 10-i || missing(terms, out.Level) != i {
			b.Errorf("take %d: %+v of %+v", i, d, out)
		}
	}
	out := b.op(name, terms, limit.Take, 1)
	d := terms.Decide(1, out)
	if d.Admitted || d.Reason != limit.OverLimit || d.Remaining != 0 || missing(terms, out.Level) != 10 {
		b.Errorf("take 11: %+v of %+v", d, out)
	}
	if d.RetryAfter <= 5*time.Minute || d.RetryAfter > 6*time.Minute {
		b.Errorf("take 11 may come back after %v", d.RetryAfter)
	}
}

func allOrNothing(b *bench) {
	name, terms := b.bucket("all"), b.hourly()
	b.expect(name, terms, limit.Take, 7, 7, 7)
	b.expect(name, terms, limit.Take, 4, 0, 7)
	b.expect(name, terms, limit.TakePartial, 4, 3, 10)
	b.expect(name, terms, limit.TakePartial, 1, 0, 10)
	b.expect(name, terms, limit.Take, 0, 0, 10)
}

// twoPartials is fault 15.
func twoPartials(b *bench) {
	terms := b.compile(5, time.Hour, 0)
	name := b.bucket("in turn")
	b.expect(name, terms, limit.TakePartial, 100, 5, 5)
	b.expect(name, terms, limit.TakePartial, 100, 0, 5)

	both := [2]batcher.Entry{}
	var agents sync.WaitGroup
	for i := range both {
		both[i] = batcher.Entry{Bucket: b.bucket("together"), Terms: terms, Op: limit.TakePartial, N: 100}
		agents.Go(func() { b.apply(&both[i]) })
	}
	agents.Wait()
	if both[0].Err != nil || both[1].Err != nil || both[0].Out.Granted+both[1].Out.Granted != 5 {
		b.Errorf("of five tokens: %+v and %+v", both[0], both[1])
	}
	for _, e := range both {
		if d := terms.Decide(100, e.Out); e.Out.Granted == 0 && terms.Decide(1, e.Out).RetryAfter <= 0 {
			b.Errorf("the loser is not told when to come back: %+v", d)
		}
	}
}

// peek is fault 10.
func peek(b *bench) {
	terms, counter := b.hourly(), b.store
	before := cells(counter)
	for range 3 {
		b.expect(b.bucket("new"), terms, limit.TakePartial, 0, 0, 0)
	}
	if after := cells(counter); after != before {
		b.Errorf("peeks made %d cells", after-before)
	}
	name := b.bucket("known")
	b.expect(name, terms, limit.Take, 4, 4, 4)
	level := b.op(name, terms, limit.TakePartial, 0).Level
	if again := b.op(name, terms, limit.TakePartial, 0).Level; again > level {
		b.Errorf("a peek raised the level from %d to %d", level, again)
	}
	b.expect(name, terms, limit.Take, 6, 6, 10)
}

// cells counts if the store can; else it is always 0.
func cells(s batcher.Store) int {
	if c, ok := s.(Counter); ok {
		return c.Cells()
	}
	return 0
}

// denial is G5.
func denial(b *bench) {
	name, terms := b.bucket("denied"), b.hourly()
	b.expect(name, terms, limit.Take, 8, 8, 8)
	for range 50 {
		b.expect(name, terms, limit.Take, 3, 0, 8)
	}
	b.expect(name, terms, limit.Take, 2, 2, 10)
	before := cells(b.store)
	b.expect(b.bucket("never there"), terms, limit.Take, 11, 0, 0)
	if after := cells(b.store); after != before {
		b.Errorf("a denial made %d cells", after-before)
	}
}

func refund(b *bench) {
	name, terms := b.bucket("refund"), b.hourly()
	b.expect(name, terms, limit.Take, 5, 5, 5)
	b.expect(name, terms, limit.Refund, 2, 2, 3)
	b.expect(name, terms, limit.Refund, 0, 0, 3)
	out := b.op(name, terms, limit.Refund, 1000)
	if out.Level != 0 {
		b.Errorf("after a refund of all: %+v", out)
	}
	b.expect(name, terms, limit.Refund, 1, 0, 0)
	b.expect(name, terms, limit.TakePartial, 100, 10, 10) // and not more
	before := cells(b.store)
	b.expect(b.bucket("full"), terms, limit.Refund, 3, 0, 0)
	if after := cells(b.store); after != before {
		b.Errorf("a refund to a full bucket made %d cells", after-before)
	}
}

func charge(b *bench) {
	name, terms := b.bucket("charge"), b.hourly()
	b.expect(name, terms, limit.Charge, 4, 4, 4)
	b.expect(name, terms, limit.Charge, 100, 6, 10)
	b.expect(name, terms, limit.Charge, 1, 0, 10)

	debt, inDebt := b.bucket("debt"), *terms
	inDebt.Ceiling = 2 * terms.Depth
	b.expect(debt, &inDebt, limit.Charge, 15, 15, 15)
	b.expect(debt, &inDebt, limit.TakePartial, 1, 0, 15)
	if left := inDebt.Remaining(b.op(debt, &inDebt, limit.TakePartial, 0).Level); left != 0 {
		b.Errorf("a bucket in debt has %d tokens", left)
	}
	b.expect(debt, &inDebt, limit.Charge, 100, 5, 20)
	b.expect(debt, &inDebt, limit.Refund, 10, 10, 10)
	b.expect(debt, &inDebt, limit.Take, 1, 0, 10)
	b.expect(debt, &inDebt, limit.Refund, 1, 1, 9)
	b.expect(debt, &inDebt, limit.Take, 1, 1, 10)
}

func reset(b *bench) {
	name, terms := b.bucket("reset"), b.hourly()
	b.expect(name, terms, limit.Take, 10, 10, 10)
	b.expect(name, terms, limit.Reset, 0, 0, 0)
	b.expect(name, terms, limit.TakePartial, 100, 10, 10)
	b.expect(b.bucket("new"), terms, limit.Reset, 0, 0, 0)
}

// costAboveBurst is fault 9, with the greatest cost of all.
func costAboveBurst(b *bench) {
	name, terms := b.bucket("cost"), b.hourly()
	for _, n := range []limit.Tokens{11, 1 << 20, limit.MaxTokens} {
		out := b.op(name, terms, limit.Take, n)
		if d := terms.Decide(n, out); d.Admitted || d.Reason != limit.Never || d.RetryAfter != limit.NoRetry || out.Level != 0 {
			b.Errorf("a cost of %d: %+v of %+v", n, d, out)
		}
	}
	b.expect(name, terms, limit.Take, 10, 10, 10)
	b.expect(b.bucket("partial"), terms, limit.TakePartial, limit.MaxTokens, 10, 10)
	b.expect(b.bucket("charge"), terms, limit.Charge, limit.MaxTokens, 10, 10)
}

// changedTerms: what a bucket owes is a time (its TAT), and new terms count it in
// their own tokens from the next operation on. Nothing of it is forgotten: terms that allow less
// wait until it has come down to what they allow.
func changedTerms(b *bench) {
	terms := b.hourly()
	more, fewer := b.compile(10, time.Hour, 11), b.compile(10, time.Hour, 5)
	faster, slower := b.compile(20, time.Hour, 10), b.compile(9, time.Hour, 10)
	for _, tt := range []struct {
		name           string
		before         limit.Tokens // taken under the old terms
		terms          *limit.Terms
		n, granted     limit.Tokens
		out            limit.Tokens // in tokens of the new terms
		again          limit.Tokens // then granted under the old terms
		outUnderTheOld limit.Tokens
	}{
		{"burst up", 10, more, 5, 1, 11, 0, 11}, // back again: one more than the old terms allow
		{"burst down", 3, fewer, 5, 2, 5, 5, 10},
		{"burst down, below what is out", 8, fewer, 5, 0, 8, 2, 10},
		{"rate up", 10, faster, 5, 0, 20, 0, 10},
		{"rate up, tokens left", 2, faster, 100, 6, 10, 5, 10},
		{"rate down", 9, slower, 5, 1, 10, 0, 11},
	} {
		name := b.bucket("changed", tt.name)
		if tt.terms.Class != terms.Class {
			b.Fatalf("%s: the cell is not kept: class %v", tt.name, tt.terms.Class)
		}
		b.expect(name, terms, limit.Take, tt.before, tt.before, tt.before)
		out := b.op(name, tt.terms, limit.TakePartial, tt.n)
		if out.Granted != tt.granted || missing(tt.terms, out.Level) != tt.out {
			b.Errorf("%s: granted %d, %d are out, want %d and %d", tt.name, out.Granted, missing(tt.terms, out.Level), tt.granted, tt.out)
		}
		out = b.op(name, terms, limit.TakePartial, 100)
		if out.Granted != tt.again || missing(terms, out.Level) != tt.outUnderTheOld {
			b.Errorf("%s, and back: granted %d, %d are out, want %d and %d",
				tt.name, out.Granted, missing(terms, out.Level), tt.again, tt.outUnderTheOld)
		}
	}

	// The wait is told, and a reset ends it.
	wait := b.bucket("changed", "wait")
	b.expect(wait, terms, limit.Take, 8, 8, 8)
	d := fewer.Decide(1, b.op(wait, fewer, limit.Take, 1))
	if d.Admitted || d.Remaining != 0 || d.RetryAfter <= 23*time.Minute || d.RetryAfter > 24*time.Minute {
		b.Errorf("8 of 10 are out, of a burst of 5: %+v, want a retry of four tokens", d)
	}
	b.expect(wait, fewer, limit.Reset, 0, 0, 0)
	b.expect(wait, fewer, limit.TakePartial, 100, 5, 5)

	// Terms of another class find no cell there: the bucket is full, once.
	name, daily := b.bucket("changed", "class"), b.compile(10, 24*time.Hour, 0)
	b.expect(name, terms, limit.Take, 10, 10, 10)
	b.expect(name, daily, limit.TakePartial, 100, 10, 10)
	b.expect(name, terms, limit.TakePartial, 100, 0, 10)
	b.expect(name, daily, limit.TakePartial, 100, 0, 10)
}

// twoTerms: one takes all there is with large terms, the other looks and takes with small ones. Together they get
// no more than the large terms allow: no look makes the bucket forget.
func twoTerms(b *bench) {
	const length = 300 * time.Millisecond
	large, small := b.compile(500, time.Second, 1000), b.compile(500, time.Second, 10)
	if large.Class != small.Class {
		b.Fatalf("cells of %v and %v are not the same", large.Class, small.Class)
	}
	name := b.bucket("two terms")
	var byLarge, bySmall limit.Tokens
	start := time.Now()
	for i := 0; i < 20 || time.Since(start) < length; i++ {
		byLarge += b.op(name, large, limit.TakePartial, limit.MaxTokens).Granted
		b.op(name, small, limit.TakePartial, 0)
		// One call, one moment: what the small terms ask for lies between two looks with the large ones.
		entries := []*batcher.Entry{
			{Terms: large, Op: limit.TakePartial}, {Terms: small, Op: limit.TakePartial}, {Terms: small, Op: limit.Take, N: 1},
			{Terms: small, Op: limit.TakePartial, N: 100}, {Terms: large, Op: limit.TakePartial},
		}
		for round, e := range entries {
			e.Bucket, e.Round = name, round
		}
		b.apply(entries...)
		level := entries[0].Out.Level
		for _, e := range entries {
			if e.Err != nil {
				b.Fatal(e.Err)
			}
			bySmall += e.Out.Granted
			if level += limit.Ticks(e.Out.Granted) * small.Emission; e.Out.Level != level {
				b.Fatalf("turn %d: op %d of %d with a burst of %d: %+v, want level %d", i, e.Op, e.N, e.Terms.Burst, e.Out, level)
			}
		}
		if d := time.Since(start); byLarge+bySmall > large.Burst+refill(large, d) {
			b.Fatalf("turn %d: %d and %d were admitted within %v", i, byLarge, bySmall, d)
		}
	}
	if byLarge < large.Burst {
		b.Errorf("only %d of a burst of %d were admitted", byLarge, large.Burst)
	}
}
