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

const linger = 25 * time.Millisecond // the default

// charge sends a lazy charge on a bucket of ten and counts what its Done is told.
func (b *bench) charge(bucket string, n limit.Tokens, told *[]error) {
	b.Helper()
	if err := b.Send(&batcher.Claim{Bucket: b.name(bucket), Terms: b.ten, Op: limit.Charge, N: n, Lazy: true,
		Done: func(c *batcher.Claim) { *told = append(*told, c.Err) }}); err != nil {
		b.Fatal(err)
	}
}

// TestLazyClaimsWait for Linger, and leave in one call. Charges of a bucket merge, and every one is told.
func TestLazyClaimsWait(t *testing.T) {
	inBubble(t, batcher.Config{}, func(b *bench) {
		var told []error
		for i := range 5 {
			b.charge(fmt.Sprint(i%2), 1, &told)
			time.Sleep(linger / 5)
			if i < 4 {
				b.idle(b.T)
			}
		}
		b.next(b.T).wants(b.T, want{"0", limit.Charge, 3}, want{"1", limit.Charge, 2}).run()
		b.idle(b.T)
		if len(told) != 5 || errors.Join(told...) != nil {
			b.Errorf("told %v, want five without an error", told)
		}
		// The next one begins a time of its own.
		b.charge("0", 1, &told)
		time.Sleep(linger - 1)
		b.idle(b.T)
		time.Sleep(time.Nanosecond)
		b.next(b.T).wants(b.T, want{"0", limit.Charge, 1}).fail(batcher.ErrUnknown)
		synctest.Wait()
		if len(told) != 6 || told[5] != batcher.ErrUnknown {
			b.Errorf("told %v", told)
		}
	})
}

// TestLazyClaimsGoWithAnUrgentOne, at once, and what was sent is not sent again when the time is up.
func TestLazyClaimsGoWithAnUrgentOne(t *testing.T) {
	inBubble(t, batcher.Config{}, func(b *bench) {
		var told []error
		b.charge("a", 1, &told)
		b.charge("b", 1, &told)
		time.Sleep(linger / 2)
		b.idle(b.T)
		b.take("c", 1)
		b.next(b.T).wants(b.T, want{"a", limit.Charge, 1}, want{"b", limit.Charge, 1}, want{"c", take, 1}).run()
		time.Sleep(linger)
		b.idle(b.T)
		// An urgent claim makes a lazy entry urgent that it shares.
		b.charge("a", 1, &told)
		b.ask(batcher.Claim{Bucket: b.name("a"), Op: limit.Charge, N: 2})
		b.next(b.T).wants(b.T, want{"a", limit.Charge, 3}).run()
		b.idle(b.T)
		if len(told) != 3 {
			b.Errorf("%d were told, want 3", len(told))
		}
	})
}

// TestFullCallOfLazyClaims leaves at once; what is left over goes when its time has come.
func TestFullCallOfLazyClaims(t *testing.T) {
	inBubble(t, batcher.Config{MaxEntries: 3}, func(b *bench) {
		var told []error
		b.charge("0", 1, &told)
		b.charge("1", 1, &told)
		b.idle(b.T)
		b.charge("2", 1, &told)
		in := b.next(b.T).wants(b.T, want{"0", limit.Charge, 1}, want{"1", limit.Charge, 1}, want{"2", limit.Charge, 1})
		b.charge("3", 1, &told)
		in.run()
		b.idle(b.T)
		time.Sleep(linger)
		b.next(b.T).wants(b.T, want{"3", limit.Charge, 1}).run()
		b.idle(b.T)
		if len(told) != 4 {
			b.Errorf("%d were told, want 4", len(told))
		}
	})
}

// TestLazyClaimsDuringACall: they wait their time even if calls come and go, and not longer: a call in flight
// that comes back later takes none that is not due, and leaves none that is.
func TestLazyClaimsDuringACall(t *testing.T) {
	inBubble(t, batcher.Config{}, func(b *bench) {
		var told []error
		in := b.busy()
		b.charge("a", 1, &told)
		in.run()
		b.idle(b.T)
		time.Sleep(linger)
		b.next(b.T).wants(b.T, want{"a", limit.Charge, 1}).run()

		in = b.busy()
		b.charge("a", 1, &told)
		time.Sleep(2 * linger)
		b.idle(b.T) // no second call while one is out
		in.run()
		b.next(b.T).wants(b.T, want{"a", limit.Charge, 1}).run()
		b.idle(b.T)
		if len(told) != 2 {
			b.Errorf("%d were told, want 2", len(told))
		}
	})
}

// TestLazyClaimsAreFewCalls: a steady trickle makes a call per Linger, and an idle queue makes none.
func TestLazyClaimsAreFewCalls(t *testing.T) {
	b := newInstant(t, batcher.Config{}) // outside: what it makes is used below
	synctest.Test(t, func(t *testing.T) {
		inner, err := batcher.New(batcher.Config{Store: instant{b.fake}})
		if err != nil {
			t.Fatal(err)
		}
		told := 0
		for range 1000 {
			c := &batcher.Claim{Bucket: b.name("a"), Terms: b.ten, Op: limit.Charge, N: 1, Lazy: true}
			c.Done = func(*batcher.Claim) { told++ }
			if err := inner.Send(c); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Millisecond)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if s := inner.Stats(); told != 1000 || s.Calls < 1000/26 || s.Calls > 1000/25+1 || s.Waiting != 0 {
			t.Errorf("%d told; %+v, want about 40 calls", told, s)
		}
		if err := inner.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// TestCloseSendsLazyClaims at once.
func TestCloseSendsLazyClaims(t *testing.T) {
	inBubble(t, batcher.Config{}, func(b *bench) {
		var told []error
		b.charge("a", 1, &told)
		o := b.lease("b", 1, true)
		start, closed := time.Now(), make(chan error)
		go func() { closed <- b.Close(context.Background()) }()
		b.next(b.T).wants(b.T, want{"a", limit.Charge, 1}, want{"b", limit.Lease, 1}).run()
		if err := <-closed; err != nil || time.Since(start) != 0 || len(told) != 1 {
			b.Errorf("%v after %v, %d told", err, time.Since(start), len(told))
		}
		o.got(b.T, 1, 0, nil)
	})
}

// TestSendAfterClose is refused, but for leases and refunds that Done sends while the queue drains.
func TestSendAfterClose(t *testing.T) {
	inBubble(t, batcher.Config{}, func(b *bench) {
		claim := func(op limit.Op, bucket string) *batcher.Claim {
			return &batcher.Claim{Bucket: b.name(bucket), Terms: b.ten, Op: op, N: 1, Lazy: true}
		}
		var errs []error
		first := claim(limit.Lease, "a")
		first.Done = func(*batcher.Claim) {
			errs = append(errs, b.Send(claim(limit.Lease, "a")), b.Send(claim(limit.Refund, "b")),
				b.Send(claim(limit.Charge, "c")), b.Send(claim(take, "d")))
		}
		if err := b.Send(first); err != nil {
			b.Fatal(err)
		}
		closed := make(chan error)
		go func() { closed <- b.Close(context.Background()) }()
		in := b.next(b.T)
		if err := b.Send(claim(limit.Charge, "c")); err != batcher.ErrClosed {
			b.Errorf("a charge while the queue drains: %v", err)
		}
		in.run()
		b.next(b.T).wants(b.T, want{"a", limit.Lease, 1}, want{"b", refund, 1}).run()
		if err := <-closed; err != nil {
			b.Error(err)
		}
		if want := []error{nil, nil, batcher.ErrClosed, batcher.ErrClosed}; fmt.Sprint(errs) != fmt.Sprint(want) {
			b.Errorf("in Done: %v, want %v", errs, want)
		}
		for _, op := range []limit.Op{limit.Lease, limit.Charge, limit.Refund} {
			if err := b.Send(claim(op, "a")); err != batcher.ErrClosed {
				b.Errorf("op %d after Close: %v", op, err)
			}
		}
	})
}
