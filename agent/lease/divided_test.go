package lease

import (
	"testing"
	"time"

	"github.com/spillgate/spillgate/agent/split"
	"github.com/spillgate/spillgate/batcher"
	"github.com/spillgate/spillgate/limit"
)

// dividedHolding is a Holding whose bucket was divided at the time that its test begins at. Its own part is then that of index 2, of four, for two
// seconds.
func dividedHolding(t *testing.T) (*one, limit.Split) {
	t.Helper()
	o := hold(t, rate(t, 4000, time.Second, 0), 1000)
	s := split.New([]byte("b"), &o.Bucket, o.terms, o.now, 0)
	o.spread.Store(s)
	return o, o.divides(4)
}

// divides is the news from home that the bucket is divided as of now.
func (o *one) divides(ways int) limit.Split {
	o.t.Helper()
	micros := o.now / 1000
	news := limit.Split{Start: micros, Until: micros + (time.Minute).Microseconds(), Ways: ways, Stride: 1}
	o.says(&batcher.Split{Split: news, Left: time.Minute + limit.SplitMargin})
	if o.spread.Load().Ways() != ways {
		o.t.Fatalf("%d ways", o.spread.Load().Ways())
	}
	return news
}

// says is what home says when it is asked.
func (o *one) says(news *batcher.Split) {
	c := &batcher.Claim{Terms: o.terms, Op: limit.Take, Split: news}
	if news != nil {
		c.Err = batcher.ErrStale
	}
	o.spread.Load().Learn(o.now, c)
}

// brings is the reply of a part, or of home.
func (o *one) brings(r Request, granted limit.Tokens, epoch, start int64) {
	o.t.Helper()
	o.Apply(r, Answer{Out: limit.Outcome{Granted: granted, Level: o.terms.Depth / 2, Epoch: epoch, Contenders: 1}, Ways: 4, Start: start}, o.now)
}

// goesTo checks where a request goes, -1 being home, and that its account is of a record there.
func (o *one) goesTo(r Request, index int, origin int64) {
	o.t.Helper()
	if got := r.Part.At() - 1; got != index || r.Ask.Origin != origin {
		o.t.Errorf("a request to part %d, of the record of %d; want %d, %d", got, r.Ask.Origin, index, origin)
	}
}

// TestPartsHaveAccounts: what a part granted is settled there, and nowhere else.
func TestPartsHaveAccounts(t *testing.T) {
	o, s := dividedHolding(t)
	r := o.plans(1, Send)
	o.goesTo(r, 2, 0)
	if r.Part.Split != s {
		t.Errorf("the part is of %+v, want %+v", r.Part.Split, s)
	}
	o.settles(r, 0, 0, 0)
	o.brings(r, 5, 77, 0)
	o.wants(5, Admit)
	o.now += 1900 * ms
	r = o.plans(1, Send)
	o.goesTo(r, 2, 0)
	o.settles(r, 77, 5, 0)
	o.brings(r, 3, 77, 0)
	o.wants(3, Admit)

	// The own part moves on. What is asked there tells nothing of the other one, which is told apart.
	o.now = 102 * second
	r = o.plans(1, Send)
	o.goesTo(r, 3, 0)
	o.settles(r, 0, 0, 0)
	others := o.Elsewhere(o.now) // also while a request is in flight
	if len(others) != 1 || others[0].Want != 0 {
		t.Fatalf("the account of the other part: %+v", others)
	}
	o.goesTo(others[0], 2, 0)
	o.settles(others[0], 77, 3, 0)
	o.brings(r, 4, 78, 0)
	if others = o.Elsewhere(o.now); len(others) > 0 {
		t.Errorf("told twice: %+v", others)
	}
	o.addsUp()
}

// TestAccountOfHome: what home granted before it was divided is void from then on: its record has begun anew.
func TestAccountOfHome(t *testing.T) {
	o := hold(t, rate(t, 4000, time.Second, 0), 1000)
	o.spread.Store(split.New([]byte("b"), &o.Bucket, o.terms, o.now, 0))
	r := o.plans(1, Send)
	o.goesTo(r, -1, 0)
	o.brings(r, 5, 77, 1234)
	o.wants(5, Admit)
	o.divides(4)
	r = o.plans(1, Send)
	o.goesTo(r, 2, 0)
	o.settles(r, 0, 0, 0)
	o.brings(r, 2, 77, 0)
	o.says(nil) // whole
	o.wants(2, Admit)
	r = o.plans(1, Send)
	o.goesTo(r, -1, 0)
	o.settles(r, 0, 0, 0)
	o.brings(r, 1, 77, 0)
	if all := o.Release(o.now); len(all) != 1 || all[0].Part != nil || all[0].Ask.Settled != 1 || all[0].Ask.Origin != 0 {
		t.Errorf("what is left to tell: %+v, want the token of home, and none of the part that is no more", all)
	}
	o.addsUp()
}

// TestAccountsAreVoidAfterTheSplit: of parts that are no more nothing is told, be the bucket whole or divided anew.
func TestAccountsAreVoidAfterTheSplit(t *testing.T) {
	for _, again := range []bool{false, true} {
		o, _ := dividedHolding(t)
		r := o.plans(1, Send)
		o.brings(r, 5, 77, 0)
		o.wants(3, Admit)
		o.now += ms
		if again {
			o.divides(4)
		} else {
			o.says(nil)
		}
		for range 2 { // leases outlive the split: what comes after it leaves room for them
			if v := o.check(1); v != Admit && v != AdmitAndRenew {
				t.Fatalf("verdict %d", v)
			}
		}
		r = o.plans(1, Send)
		if (r.Part.At() > 0) != again {
			t.Errorf("divided again: %v: a request to %+v", again, r.Part)
		}
		o.settles(r, 0, 0, 0)
		o.brings(r, 0, 77, 0)
		if all := o.Release(o.now); len(all) > 0 {
			t.Errorf("divided again: %v: it tells %+v", again, all)
		}
		o.addsUp()
	}
}

// TestFailedAccountOfAPart: what a part was certainly not told is told again, as long as there is that part.
func TestFailedAccountOfAPart(t *testing.T) {
	for _, ended := range []bool{false, true} {
		o, _ := dividedHolding(t)
		o.brings(o.plans(1, Send), 5, 77, 0)
		o.wants(5, Admit)
		r := o.plans(1, Send)
		o.settles(r, 77, 5, 0)
		if ended {
			o.says(nil)
		}
		o.Apply(r, Answer{Failed: true, NotRun: true}, o.now)
		all := o.Release(o.now)
		switch {
		case ended && len(all) > 0:
			t.Errorf("it tells %+v of a split that is over", all)
		case !ended && len(all) != 1:
			t.Errorf("it tells %+v", all)
		case !ended:
			o.goesTo(all[0], 2, 0)
			o.settles(all[0], 77, 5, 0)
		}
	}
}

// TestShortLeases: a lease that the end of a split cuts short is spent for a little less than its term.
func TestShortLeases(t *testing.T) {
	for _, tt := range []struct{ term, spendable time.Duration }{
		{640 * time.Millisecond, 630 * time.Millisecond},
		{64 * time.Millisecond, 63 * time.Millisecond},
		{0, time.Duration(spendable)},
		{limit.LeaseTTL, time.Duration(spendable)},
		{time.Hour, time.Duration(spendable)},
	} {
		o, _ := dividedHolding(t)
		r := o.plans(1, Send)
		sent := o.now
		o.now += 10 * ms
		o.Apply(r, Answer{Out: limit.Outcome{Granted: 100, Level: o.terms.Depth / 2, Epoch: 77, Contenders: 1, Term: tt.term.Nanoseconds()}, Rode: 2, Ways: 4}, o.now)
		o.now = sent + int64(tt.spendable) - 1
		if v := o.check(1); v != Admit && v != AdmitAndRenew {
			t.Errorf("term %v: verdict %d before its end", tt.term, v)
		}
		o.now++
		if v := o.check(1); v == Admit || v == AdmitAndRenew {
			t.Errorf("term %v: verdict %d at its end", tt.term, v)
		}
		if all := o.Release(o.now); len(all) > 0 {
			t.Errorf("term %v: after its end it tells %+v", tt.term, all)
		}
		if n := o.addsUp(); n.Expired < 97 {
			t.Errorf("term %v: %+v, want the rest expired", tt.term, n)
		}
	}
}

// TestReleaseOfSeveralParts: each part is told of its own.
func TestReleaseOfSeveralParts(t *testing.T) {
	o, _ := dividedHolding(t)
	o.now = 101*second + 900*ms
	o.brings(o.plans(1, Send), 5, 77, 0)
	o.wants(5, Admit)
	o.now = 102 * second
	o.brings(o.plans(1, Send), 7, 78, 0)
	o.wants(4, Admit)
	o.now += ms
	all := o.Release(o.now)
	if len(all) != 2 {
		t.Fatalf("it tells %+v", all)
	}
	for _, r := range all {
		switch r.Part.At() - 1 {
		case 2:
			o.settles(r, 77, 5, 0)
		case 3:
			o.settles(r, 78, 7, 3)
		default:
			t.Errorf("it tells %+v of %+v", r.Part, r.Ask)
		}
	}
	if all[0].Part.Index == all[1].Part.Index {
		t.Error("one part is told twice")
	}
	o.addsUp()
}

// dividedOffice is an office whose Desk is told of divisions.
func dividedOffice(t *testing.T) *office {
	t.Helper()
	o := open(t, 10)
	o.cfg.Splits = split.NewTable(split.Config{Threshold: 1, Clock: o.cfg.Clock, Send: o.cfg.Send, Seed: 1})
	return o
}

// divides has the home of a bucket divide it.
func (o *office) divides(id string, terms *limit.Terms, ways int) limit.Split {
	o.t.Helper()
	e := &batcher.Entry{Bucket: o.name(id), Terms: terms, Op: limit.Touch, Part: &limit.Part{Home: true, Ops: 1 << 20, Threshold: 1, Ways: ways, Stride: 1}}
	o.cells.ApplyAt(o.now, e)
	if e.Split == nil || e.Split.Ways != ways {
		o.t.Fatalf("divided as %+v, %v", e.Split, e.Err)
	}
	return e.Split.Split
}

// merges has it made whole.
func (o *office) merges(id string, terms *limit.Terms, s limit.Split) {
	o.t.Helper()
	b, end := o.name(id), &limit.Part{Home: true, End: true, Threshold: 1}
	o.cells.ApplyAt(o.now, &batcher.Entry{Bucket: b, Terms: terms, Op: limit.Touch, Part: end})
	merge := &limit.Part{Home: true, Split: s}
	for i := range s.Ways {
		e := &batcher.Entry{Bucket: b, Terms: terms, Op: limit.Close, Part: &limit.Part{Index: i, Split: s}}
		o.cells.ApplyAt(o.now, e)
		p := terms.Part(s.Ways, i)
		merge.Free += terms.FromPart(&p, e.Out.Level)
	}
	e := &batcher.Entry{Bucket: b, Terms: terms, Op: limit.Merge, Part: merge}
	if o.cells.ApplyAt(o.now, e); e.Err != nil || e.Out.Granted != 1 {
		o.t.Fatalf("not merged: %+v, %v", e.Out, e.Err)
	}
}

// has is what the cells of a bucket have, which may be divided.
func (o *office) has(id string, terms *limit.Terms, s limit.Split) (n limit.Tokens) {
	o.t.Helper()
	if s.Ways == 0 {
		return terms.Remaining(o.run(&batcher.Claim{Bucket: o.name(id), Terms: terms, Op: limit.TakePartial}).Level)
	}
	for i := range s.Ways {
		e := &batcher.Entry{Bucket: o.name(id), Terms: terms, Op: limit.TakePartial, Part: &limit.Part{Index: i, Split: s}}
		if o.cells.ApplyAt(o.now, e); e.Err != nil {
			o.t.Fatal(e.Err)
		}
		p := terms.Part(s.Ways, i)
		n += p.Remaining(e.Out.Level)
	}
	return n
}

// TestChargesFollowTheBucket: a charge that finds its bucket divided, or made whole, is charged where it is now, once, and its part of the
// allowance is free then.
func TestChargesFollowTheBucket(t *testing.T) {
	terms := rate(t, 40, time.Hour, 0)
	o := dividedOffice(t)
	admits := func() {
		t.Helper()
		var d limit.Decision
		b := o.name("a")
		if r := o.Cold([]byte("a"), &b, &Check{Terms: terms, N: 2, Allowance: 10}, &d); !r.Decided || !d.Admitted {
			t.Fatalf("%+v", d)
		}
	}
	admits()
	s := o.divides("a", terms, 4) // before it arrives
	o.answer()
	if n := o.has("a", terms, s); n != 38 || o.credits.entries() != 0 {
		t.Errorf("after the bucket was divided: %d of 40 left, %d buckets with open charges", n, o.credits.entries())
	}
	admits() // for a part now
	o.merges("a", terms, s)
	o.answer()
	if n := o.has("a", terms, limit.Split{}); n != 35 && n != 36 || o.credits.entries() != 0 { // a fraction is lost in the merge
		t.Errorf("after it was made whole: %d of 40 left, %d buckets with open charges", n, o.credits.entries())
	}
	if got := o.Stats(); got.Charged != 4 || got.ChargesLost != 0 {
		t.Errorf("%+v", got.Counts)
	}
}

// TestChargeWithoutAPlace: of a bucket whose parts are closed and that is not whole yet nobody takes a charge. That comes to an end, and the
// charge counts as lost.
func TestChargeWithoutAPlace(t *testing.T) {
	terms := rate(t, 40, time.Hour, 0)
	o := dividedOffice(t)
	s := o.divides("a", terms, 4)
	for i := range s.Ways {
		o.cells.ApplyAt(o.now, &batcher.Entry{Bucket: o.name("a"), Terms: terms, Op: limit.Close, Part: &limit.Part{Index: i, Split: s}})
	}
	var d limit.Decision
	b := o.name("a")
	o.Cold([]byte("a"), &b, &Check{Terms: terms, N: 2, Allowance: 10}, &d)
	o.answer()
	if got := o.Stats(); got.Charged != 2 || got.ChargesLost != 2 || o.credits.entries() != 1 {
		t.Errorf("%+v, and %d buckets with blocked charges", got.Counts, o.credits.entries())
	}
}

// TestRefundsFollowTheBucket: what a cell would not take back, since its bucket was divided or made whole meanwhile, goes to where it is now, once.
func TestRefundsFollowTheBucket(t *testing.T) {
	terms := rate(t, 40, time.Hour, 0)
	o := dividedOffice(t)
	o.run(&batcher.Claim{Bucket: o.name("a"), Terms: terms, Op: limit.TakePartial, N: 30})
	s := o.divides("a", terms, 4)
	refund := func(part *limit.Part) {
		t.Helper()
		c := &batcher.Claim{Bucket: o.name("a"), Terms: terms, Op: limit.Refund, N: 3, Part: part}
		o.line.Add(c)
		o.answer()
		if c.Err == nil {
			t.Fatal("it was taken back")
		}
		o.Refund(c)
		o.answer()
	}
	refund(nil)
	if n := o.has("a", terms, s); n != 13 {
		t.Errorf("%d left of the parts, want 10 and the 3 that came back", n)
	}
	o.merges("a", terms, s)
	refund(&limit.Part{Index: 1, Split: s})
	if n := o.has("a", terms, limit.Split{}); n != 15 && n != 16 {
		t.Errorf("%d left, want 13 and the 3 that came back, or a fraction less", n)
	}
}
