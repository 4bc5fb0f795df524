package batcher_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillgate/spillgate/batcher"
	"github.com/spillgate/spillgate/limit"
)

// order is a lease that was asked for by Send.
type order struct {
	*batcher.Claim
	told int // how often Done was called
}

// lease asks for a lease of a bucket of ten.
func (b *bench) lease(bucket string, n limit.Tokens, lazy bool) *order {
	b.Helper()
	o := &order{Claim: &batcher.Claim{Bucket: b.name(bucket), Terms: b.ten, Op: limit.Lease, N: n, Lazy: lazy}}
	o.Done = func(*batcher.Claim) { o.told++ }
	if err := b.Send(o.Claim); err != nil {
		b.Fatal(err)
	}
	return o
}

// got checks what a lease brought.
func (o *order) got(t testing.TB, granted, rode limit.Tokens, err error) {
	t.Helper()
	synctest.Wait()
	if o.told != 1 || o.Out.Granted != granted || o.Rode != rode || !errors.Is(o.Err, err) {
		t.Errorf("told %d times: granted %d, %d rode, %v; want %d, %d, %v", o.told, o.Out.Granted, o.Rode, o.Err, granted, rode, err)
	}
}

// riders checks how many tokens the i-th entry asks for callers that ride.
func (c *call) riders(t testing.TB, i int, take limit.Tokens) *call {
	t.Helper()
	if got := c.entries[i].Ask.Take; got != take {
		t.Errorf("entry %d: %d tokens for riders, want %d", i, got, take)
	}
	return c
}

// busy occupies the queue with a call in flight, so that what follows gathers.
func (b *bench) busy() *call {
	b.Helper()
	b.take("other", 1)
	return b.next(b.T)
}

// TestRidersAreServedFirst, in order, from what was taken for them; each sees the bucket as it was at his place.
func TestRidersAreServedFirst(t *testing.T) {
	inBubble(t, batcher.Config{}, func(b *bench) {
		in := b.busy()
		before := b.take("a", 3) // came before the lease: an entry of its own
		o := b.lease("a", 4, true)
		x, y := b.take("a", 2), b.take("a", 1)
		in.run()
		b.next(b.T).wants(b.T, want{"a", take, 3}, want{"a", limit.Lease, 4}).riders(b.T, 1, 3).run()
		before.got(b.T, 3, nil)
		x.got(b.T, 2, nil)
		y.got(b.T, 1, nil)
		o.got(b.T, 2, 0, nil) // half of the four that are left
		for i, c := range []struct{ got, want limit.Ticks }{{x.claim.Out.Level, 5}, {y.claim.Out.Level, 6}, {o.Out.Level, 8}} {
			if c.got != c.want*b.ten.Emission {
				b.Errorf("outcome %d at level %d, want %d tokens of %d", i, c.got, c.want, b.ten.Emission)
			}
		}
		if got, s := b.taken("a"), b.Stats(); got != 8 || s.Refunded != 0 || s.Claims != 5 {
			b.Errorf("%d tokens are taken, want 8; %+v", got, s)
		}
	})
}

// TestRidersFindTooLittle: what was taken for them and makes up no claim goes back, and is not the lease's.
func TestRidersFindTooLittle(t *testing.T) {
	inBubble(t, batcher.Config{}, func(b *bench) {
		b.take("a", 6)
		b.next(b.T).run()
		in := b.busy()
		o := b.lease("a", 4, true)
		x, y := b.take("a", 3), b.take("a", 2)
		in.run()
		b.next(b.T).wants(b.T, want{"a", limit.Lease, 4}).riders(b.T, 0, 5).run()
		x.got(b.T, 3, nil)
		y.got(b.T, 0, nil)
		o.got(b.T, 0, 0, nil)
		if d := b.ten.Decide(2, y.claim.Out); d.Remaining != 1 || d.RetryAfter != 6*time.Minute {
			b.Errorf("the second is told %+v, want 1 remaining and 1 token's wait", d)
		}
		b.next(b.T).wants(b.T, want{"a", refund, 1}).run()
		if got := b.taken("a"); got != 9 {
			b.Errorf("%d tokens are taken, want 9", got)
		}
	})
}

// TestRidersAreServedWhole: where all need as much, nothing is taken that makes up no claim.
func TestRidersAreServedWhole(t *testing.T) {
	inBubble(t, batcher.Config{}, func(b *bench) {
		b.take("a", 6)
		b.next(b.T).run()
		in := b.busy()
		o := b.lease("a", 4, true)
		x, y := b.take("a", 3), b.take("a", 3)
		in.run()
		b.next(b.T).wants(b.T, want{"a", limit.Lease, 4}).riders(b.T, 0, 6).run()
		x.got(b.T, 3, nil)
		y.got(b.T, 0, nil)
		o.got(b.T, 0, 0, nil) // the one that is left is part of what y needs
		b.idle(b.T)
		if got := b.taken("a"); got != 9 {
			b.Errorf("%d tokens are taken, want 9", got)
		}
	})
}

// TestLateRiders came when the lease was in flight: they take what was left over of Taken, then of the lease; who
// finds too little asks the store again, if it has what he needs.
func TestLateRiders(t *testing.T) {
	inBubble(t, batcher.Config{}, func(b *bench) {
		o := b.lease("a", 4, false)
		in := b.next(b.T).wants(b.T, want{"a", limit.Lease, 4}).riders(b.T, 0, 0)
		x, big, y, z := b.take("a", 1), b.take("a", 5), b.take("a", 2), b.take("a", 2)
		b.idle(b.T)
		in.run()
		x.got(b.T, 1, nil)
		y.got(b.T, 2, nil)
		o.got(b.T, 1, 3, nil)
		if e := b.ten.Emission; x.claim.Out.Level != e || y.claim.Out.Level != 3*e {
			b.Errorf("levels %d, %d, want 1 and 3 tokens of %d", x.claim.Out.Level, y.claim.Out.Level, e)
		}
		big.waits(b.T)
		z.waits(b.T)
		b.next(b.T).wants(b.T, want{"a", partial, 7}).run()
		big.got(b.T, 5, nil)
		z.got(b.T, 0, nil)
		b.next(b.T).wants(b.T, want{"a", refund, 1}).run()
		if got := b.taken("a"); got != 9 {
			b.Errorf("%d tokens are taken, want 9: 8 with callers and 1 on lease", got)
		}
	})
}

func TestLateRidersOfAnEmptyBucketAreDenied(t *testing.T) {
	inBubble(t, batcher.Config{}, func(b *bench) {
		b.take("a", 8)
		b.next(b.T).run()
		in := b.busy()
		o := b.lease("a", 4, true)
		x := b.take("a", 3)
		in.run()
		in = b.next(b.T).riders(b.T, 0, 3)
		y, z := b.take("a", 3), b.take("a", 1)
		in.run()
		x.got(b.T, 0, nil)
		y.got(b.T, 0, nil)
		z.waits(b.T) // nothing was taken for x, who needs three
		o.got(b.T, 0, 0, nil)
		if d := b.ten.Decide(3, y.claim.Out); d.Remaining != 2 || d.RetryAfter != 6*time.Minute {
			b.Errorf("told %+v, want 2 remaining and 1 token's wait: as at his place in the order", d)
		}
		b.next(b.T).wants(b.T, want{"a", take, 1}).run()
		z.got(b.T, 1, nil)
		if got := b.taken("a"); got != 9 {
			b.Errorf("%d tokens are taken, want 9", got)
		}
	})
}

// TestWhoDoesNotRide: other terms, other operations; and a request that wants no
// tokens takes riders only until it leaves.
func TestWhoDoesNotRide(t *testing.T) {
	inBubble(t, batcher.Config{}, func(b *bench) {
		changed, again := terms(b.T, 20, time.Hour, 0), *b.ten
		ask := func(bucket string, op limit.Op, n limit.Tokens, t *limit.Terms) {
			b.ask(batcher.Claim{Bucket: b.name(bucket), Terms: t, Op: op, N: n})
		}
		in := b.busy()
		for bucket, add := range map[string]func(){
			"2": func() { ask("2", take, 1, changed) }, "3": func() { ask("3", limit.Charge, 1, b.ten) },
			"4": func() { ask("4", refund, 1, b.ten) }, "5": func() { ask("5", reset, 0, b.ten) },
			"6": func() { b.lease("6", 1, false) },
		} {
			b.lease(bucket, 2, true)
			add()
		}
		b.lease("7", 0, true)
		ask("7", take, 10, &again)
		in.run()
		in = b.next(b.T)
		if len(in.entries) != 11 {
			b.Errorf("%d entries, want two for each of five, and one", len(in.entries))
		}
		for _, e := range in.entries {
			if rides := string(e.Bucket.ID()[1:]) == "7"; (e.Ask.Take > 0) != rides {
				b.Errorf("bucket %s: %d tokens for riders", e.Bucket.ID()[1:], e.Ask.Take)
			}
		}
		late := b.take("7", 1)
		in.run()
		late.waits(b.T)
		b.next(b.T).wants(b.T, want{"7", take, 1}).run()
		late.got(b.T, 0, nil)
	})
}

// TestSecondLease: a bucket can have one lease in flight and one in line; each has its own riders.
func TestSecondLease(t *testing.T) {
	inBubble(t, batcher.Config{}, func(b *bench) {
		first := b.lease("a", 2, false)
		in := b.next(b.T)
		second := b.lease("a", 2, false)
		x := b.take("a", 1)
		in.run()
		first.got(b.T, 2, 0, nil)
		in = b.next(b.T).wants(b.T, want{"a", limit.Lease, 2}).riders(b.T, 0, 1)
		y := b.take("a", 1)
		in.run()
		x.got(b.T, 1, nil)
		y.got(b.T, 1, nil)
		second.got(b.T, 1, 1, nil)
	})
}

// TestLeaseFails: the error reaches whoever rides, early or late, and Done.
func TestLeaseFails(t *testing.T) {
	for _, failure := range []error{batcher.ErrNotRun, batcher.ErrUnknown, batcher.ErrDamaged} {
		inBubble(t, batcher.Config{}, func(b *bench) {
			in := b.busy()
			o := b.lease("a", 4, true)
			x := b.take("a", 3)
			in.run()
			in = b.next(b.T)
			y := b.take("a", 3)
			in.fail(failure)
			x.got(b.T, 0, failure)
			y.got(b.T, 0, failure)
			o.got(b.T, 0, 0, failure)
			b.idle(b.T)
			if got := b.Stats(); got.Refunded != 0 || got.NotRun+got.Unknown+got.Damaged != 1 {
				b.Errorf("%+v", got)
			}
			// The bucket is not stuck to what failed.
			z := b.take("a", 1)
			b.next(b.T).wants(b.T, want{"a", take, 1}).run()
			z.got(b.T, 1, nil)
		})
	}
}

// TestDoneComesBeforeTheCallersWake: who is told the outcome finds what the lease brought.
func TestDoneComesBeforeTheCallersWake(t *testing.T) {
	inBubble(t, batcher.Config{}, func(b *bench) {
		in := b.busy()
		g, late := b.Group(), b.Group()
		b.claim(g, "a", 1, time.Hour)
		b.claim(late, "a", 1, time.Hour)
		told := false
		o := &batcher.Claim{Bucket: b.name("a"), Terms: b.ten, Op: limit.Lease, N: 2, Lazy: true}
		o.Done = func(*batcher.Claim) {
			time.Sleep(time.Second) // long enough for anybody to wake
			told = true
		}
		if err := b.Send(o); err != nil {
			b.Fatal(err)
		}
		g.Submit(context.Background())
		in.run()
		in = b.next(b.T)
		late.Submit(context.Background())
		in.run()
		for _, g := range []*batcher.Group{g, late} {
			g.Wait(context.Background())
			if !told {
				b.Error("a caller woke before Done was called")
			}
			g.Release()
		}
	})
}

// TestGivenUpRiders: who had not left leaves the lease's entry; the tokens of who had are kept or go back, and a late
// one who gave up takes tokens of the lease only if he keeps them.
func TestGivenUpRiders(t *testing.T) {
	for _, tt := range []struct {
		name                 string
		late, keep           bool
		granted, rode, taken limit.Tokens // the lease's, and out of the bucket in the end
		refunded             limit.Tokens
	}{
		{"sent", false, false, 2, 0, 2, 3},
		{"sent, kept", false, true, 2, 0, 5, 0},
		{"late", true, false, 2, 0, 2, 0},
		{"late, kept", true, true, 0, 2, 2, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, batcher.Config{}, func(b *bench) {
				n := limit.Tokens(3)
				if tt.late {
					n = 2
				}
				ride := func() *caller {
					return b.ask(batcher.Claim{Bucket: b.name("a"), Op: take, N: n, Keep: tt.keep, Deadline: time.Millisecond})
				}
				in := b.busy()
				o := b.lease("a", 2, !tt.late) // an early rider makes it urgent
				var c *caller
				if !tt.late {
					c = ride()
				}
				in.run()
				in = b.next(b.T).wants(b.T, want{"a", limit.Lease, 2})
				if tt.late {
					c = ride()
				}
				time.Sleep(time.Millisecond)
				c.got(b.T, 0, batcher.ErrDeadline)
				in.run()
				o.got(b.T, tt.granted, tt.rode, nil)
				if tt.refunded > 0 {
					b.next(b.T).wants(b.T, want{"a", refund, tt.refunded}).run()
				}
				if got, s := b.taken("a"), b.Stats(); got != tt.taken || s.GivenUp != 1 || limit.Tokens(s.Refunded) != tt.refunded {
					b.Errorf("%d tokens are taken, want %d; %+v", got, tt.taken, s)
				}
			})
		})
	}
	inBubble(t, batcher.Config{}, func(b *bench) {
		in := b.busy()
		o := b.lease("a", 2, true)
		c := b.ask(batcher.Claim{Bucket: b.name("a"), Op: take, N: 3, Keep: true, Deadline: time.Millisecond})
		time.Sleep(time.Millisecond)
		c.got(b.T, 0, batcher.ErrDeadline)
		in.run()
		b.next(b.T).wants(b.T, want{"a", limit.Lease, 2}).riders(b.T, 0, 0).run()
		o.got(b.T, 2, 0, nil)
		if got := b.taken("a"); got != 2 {
			b.Errorf("%d tokens are taken, want 2: who gave up in line never left", got)
		}
	})
}

// TestLeaseBeyondTheBound: leases are not counted among what waits, and riders find room next to them.
func TestLeaseBeyondTheBound(t *testing.T) {
	inBubble(t, batcher.Config{MaxPending: 2}, func(b *bench) {
		in := b.busy()
		for _, bucket := range []string{"a", "b", "c", "d"} {
			b.lease(bucket, 1, true)
		}
		rider := b.take("a", 1)
		b.take("e", 1).got(b.T, 0, batcher.ErrOverloaded) // one in flight and the rider
		in.run()
		b.next(b.T).run()
		rider.got(b.T, 1, nil)
		if got := b.Stats().Overloaded; got != 1 {
			b.Errorf("%d claims were refused, want 1", got)
		}
		// They make no room for others, neither in line nor afterwards.
		in = b.busy()
		o := b.lease("a", 1, true)
		for i := range 3 {
			c := b.ask(batcher.Claim{Bucket: b.name(fmt.Sprint(i)), Op: take, N: 1, Deadline: time.Millisecond})
			time.Sleep(time.Millisecond)
			if i < 2 {
				c.got(b.T, 0, batcher.ErrDeadline)
			} else {
				c.got(b.T, 0, batcher.ErrOverloaded)
			}
		}
		in.run()
		time.Sleep(linger)
		b.next(b.T).wants(b.T, want{"a", limit.Lease, 1}).run()
		o.got(b.T, 1, 0, nil)
	})
}
