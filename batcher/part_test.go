package batcher_test

import (
	"testing"
	"time"

	"github.com/spillgate/spillgate/batcher"
	"github.com/spillgate/spillgate/limit"
)

// These tests are about claims on parts of a divided bucket.

// divide divides a bucket of ten into so many parts.
func (b *bench) divide(bucket string, ways int) limit.Split {
	b.Helper()
	e := &batcher.Entry{Bucket: b.name(bucket), Terms: b.ten, Op: limit.Touch, Part: &limit.Part{Home: true, Ops: 1 << 20, Threshold: 1, Ways: ways, Stride: 1}}
	b.cells.ApplyAt(b.now, e)
	if e.Err != nil || e.Split == nil || e.Split.Ways != ways {
		b.Fatalf("not divided: %+v, %v", e.Split, e.Err)
	}
	return e.Split.Split
}

// takeOf is a take from a part.
func (b *bench) takeOf(bucket string, part *limit.Part, n limit.Tokens) *caller {
	return b.ask(batcher.Claim{Bucket: b.name(bucket), Op: limit.Take, N: n, Part: part})
}

// at is where an entry goes: -1 is home.
func (c *call) at(i int) int { return c.entries[i].Part.At() - 1 }

// TestPartsAreCellsOfTheirOwn: claims on one part share an entry, those on others and on home do not ride with them; each sees its part,
// and what nobody used goes back to the part that it came from.
func TestPartsAreCellsOfTheirOwn(t *testing.T) {
	inBubble(t, batcher.Config{}, func(b *bench) {
		split := b.divide("a", 2) // five each
		part := func(i int) *limit.Part { return &limit.Part{Index: i, Split: split} }
		in := b.busy()
		x, y, z := b.takeOf("a", part(0), 3), b.takeOf("a", part(1), 1), b.takeOf("a", part(0), 3)
		stale := b.take("a", 1)
		in.run()
		in = b.next(b.T).wants(b.T, want{"a", partial, 6}, want{"a", take, 1}, want{"a", take, 1})
		for i, at := range []int{0, 1, -1} {
			if in.at(i) != at || in.entries[i].Round != 0 {
				b.Errorf("entry %d: %+v, round %d, want part %d", i, in.entries[i].Part, in.entries[i].Round, at)
			}
		}
		in.run()
		x.got(b.T, 3, nil)
		z.got(b.T, 0, nil)
		y.got(b.T, 1, nil)
		stale.got(b.T, 0, batcher.ErrStale)
		if s := stale.claim.Split; s == nil || s.Split != split || s.Left <= 0 {
			b.Errorf("home says %+v, want %+v", s, split)
		}
		p := b.ten.Part(2, 0)
		for i, c := range []struct{ got, want limit.Ticks }{{x.claim.Out.Level, 3}, {z.claim.Out.Level, 3}, {y.claim.Out.Level, 1}} {
			if c.got < c.want*p.Emission || c.got > c.want*p.Emission+2 {
				b.Errorf("claim %d at level %d, want %d tokens of %d", i, c.got, c.want, p.Emission)
			}
		}
		in = b.next(b.T).wants(b.T, want{"a", refund, 2})
		if in.at(0) != 0 {
			b.Errorf("the rest goes back to part %d", in.at(0))
		}
		in.run()
		again := b.takeOf("a", part(0), 2)
		b.next(b.T).run()
		again.got(b.T, 2, nil)
	})
}

// TestPartTakesTheLaterNews: of claims on one part the entry carries the split that lasts the longest, whichever came first: home may have
// moved the end on.
func TestPartTakesTheLaterNews(t *testing.T) {
	for _, laterFirst := range []bool{true, false} {
		inBubble(t, batcher.Config{}, func(b *bench) {
			split := b.divide("a", 2)
			later := split
			later.Until += 100_000
			order := []limit.Split{split, later}
			if laterFirst {
				order[0], order[1] = later, split
			}
			in := b.busy()
			x := b.takeOf("a", &limit.Part{Index: 1, Split: order[0]}, 1)
			y := b.takeOf("a", &limit.Part{Index: 1, Split: order[1]}, 1)
			in.run()
			in = b.next(b.T).wants(b.T, want{"a", partial, 2})
			if in.entries[0].Part.Split != later {
				b.Errorf("the entry carries %+v, want %+v", in.entries[0].Part.Split, later)
			}
			in.run()
			x.got(b.T, 1, nil)
			y.got(b.T, 1, nil)
		})
	}
}

// TestRidersOnAPart: they see its level, and a lease of another part, or of home, is none of theirs.
func TestRidersOnAPart(t *testing.T) {
	inBubble(t, batcher.Config{}, func(b *bench) {
		split := b.divide("a", 2)
		part := func(i int) *limit.Part { return &limit.Part{Index: i, Split: split} }
		in := b.busy()
		o := &order{Claim: &batcher.Claim{Bucket: b.name("a"), Terms: b.ten, Op: limit.Lease, N: 1, Part: part(1)}}
		o.Done = func(*batcher.Claim) { o.told++ }
		if err := b.Send(o.Claim); err != nil {
			b.Fatal(err)
		}
		rider, other := b.takeOf("a", part(1), 2), b.takeOf("a", part(0), 1)
		in.run()
		b.next(b.T).wants(b.T, want{"a", limit.Lease, 1}, want{"a", take, 1}).riders(b.T, 0, 2).run()
		o.got(b.T, 1, 0, nil)
		rider.got(b.T, 2, nil)
		other.got(b.T, 1, nil)
		p := b.ten.Part(2, 1)
		if got := rider.claim.Out.Level; !rider.claim.Rider || p.Remaining(got) != 3 {
			b.Errorf("the rider sees %d tokens left, want 3", p.Remaining(got))
		}
		if other.claim.Rider {
			b.Error("a claim on another part rode")
		}
	})
}

// TestRiderOfShortLease: a claim that takes tokens of a lease in flight is not admitted when that lease is over by the time of the reply, as
// one may soon be that was cut short by the end of a split.
func TestRiderOfShortLease(t *testing.T) {
	term := 640 * time.Millisecond
	for _, tt := range []struct {
		took time.Duration
		term time.Duration // 0: as long as leases are
		err  error
	}{
		{term - term/64 - 1, term, nil},
		{term - term/64, term, batcher.ErrUnknown},
		{limit.LeaseTTL - limit.LeaseTTL/64 - 1, 0, nil},
		{limit.LeaseTTL - limit.LeaseTTL/64, 0, batcher.ErrUnknown},
		{limit.LeaseTTL - limit.LeaseTTL/64, time.Hour, batcher.ErrUnknown},
	} {
		inBubble(t, batcher.Config{}, func(b *bench) {
			o := b.lease("a", 2, false)
			in := b.next(b.T)
			late := b.take("a", 1)
			time.Sleep(tt.took)
			b.cells.ApplyAt(b.now, in.entries[0])
			in.entries[0].Out.Term = tt.term.Nanoseconds()
			close(in.answered)
			o.got(b.T, 1, 1, nil)
			late.got(b.T, 1, tt.err)
		})
	}
}
