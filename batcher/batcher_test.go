package batcher_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillgate/spillgate/batcher"
	"github.com/spillgate/spillgate/limit"
)

const (
	take    = limit.Take
	partial = limit.TakePartial
	refund  = limit.Refund
	reset   = limit.Reset
)

func TestConfig(t *testing.T) {
	store := newFake(t)
	for _, tt := range []struct {
		cfg  batcher.Config
		want string // "" for none
	}{
		{batcher.Config{Store: store}, ""},
		{batcher.Config{}, "batcher: Store is missing"},
		{batcher.Config{Store: store, MaxPending: -1}, "batcher: MaxPending is -1"},
		{batcher.Config{Store: store, MaxEntries: -1}, "batcher: MaxEntries is -1"},
		{batcher.Config{Store: store, MaxEntries: 2049}, "batcher: MaxEntries is 2049, it must be 1 to 2048"},
		{batcher.Config{Store: store, MaxEntries: 2048}, ""},
		{batcher.Config{Store: store, MaxInFlight: -1}, "batcher: MaxInFlight is -1"},
		{batcher.Config{Store: store, Timeout: -1}, "batcher: Timeout is -1ns"},
	} {
		_, err := batcher.New(tt.cfg)
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%+v: %v, want %q", tt.cfg, err, tt.want)
		}
	}
}

func TestFirstClaimLeavesAtOnce(t *testing.T) {
	inBubble(t, batcher.Config{}, func(b *bench) {
		c := b.take("a", 3)
		b.next(b.T).wants(b.T, want{"a", take, 3}).run()
		c.got(b.T, 3, nil)
		if c.took != 0 {
			b.Errorf("it took %v", c.took)
		}
	})
}

// TestWhatGathersRidesInOneCall: merged per bucket, in the order in which the buckets came.
func TestWhatGathersRidesInOneCall(t *testing.T) {
	inBubble(t, batcher.Config{}, func(b *bench) {
		first := b.take("a", 1)
		in := b.next(b.T)
		b1, a1, a2 := b.take("b", 2), b.take("a", 1), b.take("a", 4)
		c0, a3 := b.take("c", 0), b.take("a", 2)
		b.idle(b.T)
		in.run()
		first.got(b.T, 1, nil)
		in = b.next(b.T).wants(b.T, want{"b", take, 2}, want{"a", partial, 7}, want{"c", partial, 0})
		b1.waits(b.T)
		in.run()
		b1.got(b.T, 2, nil)
		a1.got(b.T, 1, nil)
		a2.got(b.T, 4, nil)
		a3.got(b.T, 2, nil)
		c0.got(b.T, 0, nil)
		if got, e := a2.claim.Out.Level, b.ten.Emission; got != 6*e {
			b.Errorf("the third on a is at level %d, want %d", got, 6*e)
		}
		if s := b.Stats(); s.Calls != 2 || s.Entries != 4 || s.Claims != 6 {
			b.Errorf("%+v", s)
		}
	})
}

func TestMaxEntries(t *testing.T) {
	inBubble(t, batcher.Config{MaxEntries: 2, MaxInFlight: 1}, func(b *bench) {
		b.take("0", 1)
		in := b.next(b.T)
		for i := 1; i <= 5; i++ {
			b.take(fmt.Sprint(i), 1)
		}
		b.idle(b.T)
		for _, w := range [][]want{{{"1", take, 1}, {"2", take, 1}}, {{"3", take, 1}, {"4", take, 1}}, {{"5", take, 1}}} {
			in.run()
			in = b.next(b.T).wants(b.T, w...)
		}
		in.run()
	})
}

// TestMaxInFlight: a further call leaves only when it is full, and no more than MaxInFlight are out. A rest
// waits for a call to come back.
func TestMaxInFlight(t *testing.T) {
	inBubble(t, batcher.Config{MaxEntries: 2, MaxInFlight: 3}, func(b *bench) {
		b.take("0", 1)
		first := b.next(b.T).wants(b.T, want{"0", take, 1})
		b.take("1", 1)
		b.idle(b.T)
		// Three in one go: only two make a full call.
		b.take("2", 1)
		b.take("3", 1)
		second := b.next(b.T).wants(b.T, want{"1", take, 1}, want{"2", take, 1})
		b.idle(b.T)
		b.take("4", 1)
		third := b.next(b.T).wants(b.T, want{"3", take, 1}, want{"4", take, 1})
		for i := 5; i <= 9; i++ {
			b.take(fmt.Sprint(i), 1)
		}
		b.idle(b.T) // three are out
		first.run()
		fourth := b.next(b.T).wants(b.T, want{"5", take, 1}, want{"6", take, 1})
		third.run()
		fifth := b.next(b.T).wants(b.T, want{"7", take, 1}, want{"8", take, 1})
		fifth.run()
		second.run()
		b.idle(b.T) // one claim is no full call while another is out
		fourth.run()
		b.next(b.T).wants(b.T, want{"9", take, 1}).run()
	})
}

func TestWaitersAreServedInOrder(t *testing.T) {
	inBubble(t, batcher.Config{}, func(b *bench) {
		b.take("other", 1)
		in := b.next(b.T)
		var callers []*caller
		for range 5 {
			callers = append(callers, b.take("a", 3))
		}
		last := b.take("a", 1)
		in.run()
		b.next(b.T).wants(b.T, want{"a", partial, 10}).run()
		for i, granted := range []limit.Tokens{3, 3, 3, 0, 0} {
			callers[i].got(b.T, granted, nil)
		}
		last.got(b.T, 1, nil)
	})
}

// TestUnusedTokensReturn: a partial grant that does not make up a claim goes back with the next call.
func TestUnusedTokensReturn(t *testing.T) {
	inBubble(t, batcher.Config{}, func(b *bench) {
		b.take("other", 1)
		in := b.next(b.T)
		x, y := b.take("a", 7), b.take("a", 7)
		in.run()
		b.next(b.T).wants(b.T, want{"a", partial, 10}).run()
		x.got(b.T, 7, nil)
		y.got(b.T, 0, nil)
		if d := b.ten.Decide(7, y.claim.Out); d.Remaining != 3 || d.RetryAfter != 24*time.Minute {
			b.Errorf("the second is told %+v, want 3 remaining and 4 tokens' wait", d)
		}
		b.next(b.T).wants(b.T, want{"a", refund, 3}).run()
		if got, s := b.taken("a"), b.Stats(); got != 7 || s.Refunded != 3 || s.NotRun+s.Unknown+s.Damaged != 0 {
			b.Errorf("%d tokens are taken, want 7; %+v", got, s)
		}
	})
}

// TestCostAboveBurst is fault 9: the bucket is untouched, also for a moment, and whoever asks for ten gets them.
func TestCostAboveBurst(t *testing.T) {
	inBubble(t, batcher.Config{}, func(b *bench) {
		alone := b.take("a", 11)
		in := b.next(b.T).wants(b.T, want{"a", partial, 0})
		more, all := b.take("a", limit.MaxTokens), b.take("a", 10)
		in.run()
		b.next(b.T).wants(b.T, want{"a", partial, 10}).run()
		alone.got(b.T, 0, nil)
		more.got(b.T, 0, nil)
		all.got(b.T, 10, nil)
		if d := b.ten.Decide(11, alone.claim.Out); d.Reason != limit.Never || d.RetryAfter != limit.NoRetry {
			b.Errorf("%+v", d)
		}
	})
}

// TestHerd is fault 26: a thousand callers on one bucket with one token are one entry of one call.
func TestHerd(t *testing.T) {
	inBubble(t, batcher.Config{}, func(b *bench) {
		b.take("a", 9)
		in := b.next(b.T)
		callers := make([]*caller, 1000)
		for i := range callers {
			callers[i] = b.take("a", 1)
		}
		in.run()
		b.next(b.T).wants(b.T, want{"a", partial, 10}).run()
		callers[0].got(b.T, 1, nil)
		for _, c := range callers[1:] {
			c.got(b.T, 0, nil)
		}
		if s := b.Stats(); s.Calls != 2 || s.Claims != 1001 {
			b.Errorf("%+v", s)
		}
	})
}

// TestRounds: what cannot merge on one bucket goes in one call, in order.
func TestRounds(t *testing.T) {
	inBubble(t, batcher.Config{}, func(b *bench) {
		changed, again := terms(b.T, 20, time.Hour, 0), *b.ten
		b.take("other", 1)
		in := b.next(b.T)
		ask := func(op limit.Op, n limit.Tokens, terms *limit.Terms) *caller {
			return b.ask(batcher.Claim{Bucket: b.name("a"), Terms: terms, Op: op, N: n})
		}
		all := ask(take, 10, b.ten)
		back1, back2 := ask(refund, 2, b.ten), ask(refund, 1, &again)
		b.take("b", 1)
		three, none := ask(take, 3, &again), ask(take, 1, b.ten)
		full := ask(reset, 0, b.ten)
		twenty := ask(take, 20, changed)
		in.run()

		in = b.next(b.T)
		in.wants(b.T, want{"a", take, 10}, want{"a", refund, 3}, want{"b", take, 1}, want{"a", partial, 4},
			want{"a", reset, 0}, want{"a", take, 20})
		last := -1
		for _, e := range in.entries {
			switch {
			case e.Bucket == b.name("b"):
				if e.Round != 0 {
					b.Errorf("b alone has round %d", e.Round)
				}
			case e.Round <= last:
				b.Errorf("round %d after %d", e.Round, last)
			default:
				last = e.Round
			}
		}
		in.run()
		all.got(b.T, 10, nil)
		back1.got(b.T, 3, nil)
		back2.got(b.T, 3, nil)
		three.got(b.T, 3, nil)
		none.got(b.T, 0, nil)
		full.got(b.T, 0, nil)
		twenty.got(b.T, 20, nil)
	})
}

// TestRoundsBeginAgain: a bucket whose entries have left begins with round 0, and one that had
// an entry left behind by MaxEntries goes on above it.
func TestRoundsBeginAgain(t *testing.T) {
	inBubble(t, batcher.Config{MaxEntries: 2, MaxInFlight: 1}, func(b *bench) {
		b.take("other", 1)
		in := b.next(b.T)
		ask := func(op limit.Op) { b.ask(batcher.Claim{Bucket: b.name("a"), Op: op, N: 1}) }
		for _, op := range []limit.Op{take, refund, take, refund} {
			ask(op)
		}
		in.run()
		in = b.next(b.T).wants(b.T, want{"a", take, 1}, want{"a", refund, 1})
		ask(take)
		in.run()
		in = b.next(b.T).wants(b.T, want{"a", take, 1}, want{"a", refund, 1})
		if x, y := in.entries[0].Round, in.entries[1].Round; x >= y {
			b.Errorf("rounds %d, %d", x, y)
		}
		in.run()
		in = b.next(b.T).wants(b.T, want{"a", take, 1})
		ask(take)
		in.run()
		in = b.next(b.T).wants(b.T, want{"a", take, 1})
		if in.entries[0].Round != 0 {
			b.Errorf("round %d", in.entries[0].Round)
		}
		in.run()
	})
}

// TestErrorsReachTheirClaims, and nobody else's.
func TestErrorsReachTheirClaims(t *testing.T) {
	inBubble(t, batcher.Config{}, func(b *bench) {
		var infos []batcher.CallInfo
		cfg := batcher.Config{Store: b.fake, Timeout: time.Hour, OnCall: func(i batcher.CallInfo) { infos = append(infos, i) }}
		watched, err := batcher.New(cfg)
		if err != nil {
			b.Fatal(err)
		}
		b.Batcher = watched
		b.take("other", 1)
		in := b.next(b.T)
		lost1, lost2, broken, refused, fine := b.take("lost", 1), b.take("lost", 2), b.take("broken", 1), b.take("refused", 1), b.take("fine", 1)
		strange := b.take("strange", 1)
		in.run()
		cause := errors.New("no route")
		b.next(b.T).fail(fmt.Errorf("%w: %w", batcher.ErrUnknown, cause), batcher.ErrDamaged, batcher.ErrNotRun, nil, cause)
		lost1.got(b.T, 0, batcher.ErrUnknown)
		lost2.got(b.T, 0, cause)
		broken.got(b.T, 0, batcher.ErrDamaged)
		refused.got(b.T, 0, batcher.ErrNotRun)
		fine.got(b.T, 1, nil)
		strange.got(b.T, 0, cause)
		if s := b.Stats(); s.Unknown != 1 || s.Damaged != 1 || s.NotRun != 2 || s.Refunded != 0 {
			b.Errorf("%+v", s)
		}
		last := batcher.CallInfo{Entries: 5, Claims: 6, Unknown: 1, Damaged: 1, NotRun: 2}
		if len(infos) != 2 || infos[1] != last {
			b.Errorf("OnCall: %+v, want the second to be %+v", infos, last)
		}
	})
}

// TestFailedRefundIsNotSentAgain: tokens that cannot be given back stay debited.
func TestFailedRefundIsNotSentAgain(t *testing.T) {
	for _, failure := range []error{batcher.ErrNotRun, batcher.ErrUnknown} {
		inBubble(t, batcher.Config{}, func(b *bench) {
			b.take("other", 1)
			in := b.next(b.T)
			b.take("a", 7)
			b.take("a", 7)
			in.run()
			b.next(b.T).run()
			b.next(b.T).wants(b.T, want{"a", refund, 3}).fail(failure)
			b.idle(b.T)
			if got := b.taken("a"); got != 10 {
				b.Errorf("%d tokens are taken, want 10", got)
			}
		})
	}
}

func TestTimeout(t *testing.T) {
	inBubble(t, batcher.Config{Timeout: 50 * time.Millisecond}, func(b *bench) {
		c := b.take("a", 1)
		b.next(b.T)
		c.waits(b.T)
		time.Sleep(50 * time.Millisecond)
		c.got(b.T, 0, batcher.ErrUnknown)
		if c.took != 50*time.Millisecond {
			b.Errorf("it took %v", c.took)
		}
		d := b.take("a", 1)
		b.next(b.T).run() // the queue goes on
		d.got(b.T, 1, nil)
	})
}

// TestRefundPassesOverload: a full queue refuses new claims, not what gives tokens back.
func TestRefundPassesOverload(t *testing.T) {
	inBubble(t, batcher.Config{MaxPending: 1}, func(b *bench) {
		first := b.take("a", 4)
		in := b.next(b.T)
		back := b.ask(batcher.Claim{Bucket: b.name("b"), Op: limit.Refund, N: 2})
		b.take("c", 1).got(b.T, 0, batcher.ErrOverloaded)
		in.run()
		first.got(b.T, 4, nil)
		b.next(b.T).wants(b.T, want{"b", limit.Refund, 2}).run()
		back.got(b.T, 0, nil)
	})
}

// TestOverload: at MaxPending claims are refused at once, and as soon as one was answered the next is let in.
func TestOverload(t *testing.T) {
	inBubble(t, batcher.Config{MaxPending: 3}, func(b *bench) {
		first := b.take("a", 1)
		in := b.next(b.T)
		second, third := b.take("b", 1), b.take("b", 1)
		refused := b.take("a", 1)
		refused.got(b.T, 0, batcher.ErrOverloaded)
		if refused.took != 0 {
			b.Errorf("it took %v", refused.took)
		}
		in.run()
		first.got(b.T, 1, nil)
		fourth := b.take("a", 1)
		b.take("a", 1).got(b.T, 0, batcher.ErrOverloaded)
		b.next(b.T).run()
		second.got(b.T, 1, nil)
		third.got(b.T, 1, nil)
		b.next(b.T).run()
		fourth.got(b.T, 1, nil)
		if got := b.Stats().Overloaded; got != 2 {
			b.Errorf("%d claims were refused, want 2", got)
		}
	})
}

// TestAnsweredCallerIsLetInAgain: who was answered does not count any more, even if he comes back at once.
func TestAnsweredCallerIsLetInAgain(t *testing.T) {
	b := newInstant(t, batcher.Config{MaxPending: 1})
	for range 2000 {
		g := b.Group()
		c := b.claim(g, "a", 0, time.Hour)
		g.Submit(context.Background())
		g.Wait(t.Context())
		if c.Err != nil {
			t.Fatal(c.Err)
		}
		g.Release()
	}
}

// TestOverloadOfGivenUpClaims: claims that were given up leave empty entries behind until the next
// call. They are bounded too.
func TestOverloadOfGivenUpClaims(t *testing.T) {
	inBubble(t, batcher.Config{MaxPending: 3}, func(b *bench) {
		b.take("a", 1)
		in := b.next(b.T)
		for i := range 5 {
			c := b.ask(batcher.Claim{Bucket: b.name(fmt.Sprint(i)), Op: take, N: 1, Deadline: time.Millisecond})
			time.Sleep(time.Millisecond)
			if i < 3 {
				c.got(b.T, 0, batcher.ErrDeadline)
			} else {
				c.got(b.T, 0, batcher.ErrOverloaded)
			}
		}
		in.run()
		b.idle(b.T)
		c := b.take("b", 1)
		b.next(b.T).wants(b.T, want{"b", take, 1}).run()
		c.got(b.T, 1, nil)
	})
}

// TestShardsAreApart: a shard that hangs does not hold up another, also in one group.
func TestShardsAreApart(t *testing.T) {
	inBubble(t, batcher.Config{}, func(b *bench) {
		b.shards = 2
		even, odd := b.take("2", 1), b.take("1", 1)
		x, y := b.next(b.T), b.next(b.T)
		if x.shard == y.shard {
			b.Fatalf("two calls on shard %d", x.shard)
		}
		if x.shard == 1 {
			x, y = y, x
		}
		y.run()
		odd.got(b.T, 1, nil)
		even.waits(b.T)

		g := b.Group()
		for _, bucket := range []string{"3", "4"} {
			b.claim(g, bucket, 1, time.Hour)
		}
		g.Submit(context.Background())
		done := make(chan struct{})
		go func() { g.Wait(context.Background()); close(done) }()
		b.next(b.T).wants(b.T, want{"3", take, 1}).run()
		b.idle(b.T)
		x.run()
		b.next(b.T).wants(b.T, want{"4", take, 1}).run()
		<-done
		g.Release()
		even.got(b.T, 1, nil)
	})
}

// claim adds a take to a group.
func (b *bench) claim(g *batcher.Group, bucket string, n limit.Tokens, deadline time.Duration) *batcher.Claim {
	c := g.Claim()
	c.Bucket, c.Terms, c.Op, c.N, c.Deadline = b.name(bucket), b.ten, take, n, deadline
	return c
}

func TestCloseDrains(t *testing.T) {
	inBubble(t, batcher.Config{}, func(b *bench) {
		first := b.take("a", 1)
		in := b.next(b.T)
		second, third := b.take("b", 7), b.take("b", 7)
		closed := make(chan error)
		go func() { closed <- b.Close(context.Background()) }()
		synctest.Wait()
		b.take("a", 1).got(b.T, 0, batcher.ErrClosed)
		b.shards = 3
		b.take("2", 1).got(b.T, 0, batcher.ErrClosed) // on a shard that was never used
		in.run()
		first.got(b.T, 1, nil)
		b.next(b.T).wants(b.T, want{"b", partial, 10}).run()
		second.got(b.T, 7, nil)
		third.got(b.T, 0, nil)
		b.next(b.T).wants(b.T, want{"b", refund, 3}).run() // refunds of its own go out too
		if err := <-closed; err != nil {
			b.Error(err)
		}
		b.take("a", 1).got(b.T, 0, batcher.ErrClosed)
	})
}

// TestCloseOnADeadStore: Close returns when its context ends, every caller is answered and no
// goroutine is left (or the bubble would not end).
func TestCloseOnADeadStore(t *testing.T) {
	inBubble(t, batcher.Config{}, func(b *bench) {
		sent := b.take("a", 1)
		b.next(b.T)
		queued := b.take("b", 1)
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		start := time.Now()
		err := b.Close(ctx)
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != time.Second {
			b.Errorf("%v after %v", err, time.Since(start))
		}
		sent.got(b.T, 0, batcher.ErrUnknown)
		queued.got(b.T, 0, batcher.ErrUnknown)
		b.next(b.T) // the queued one was offered, on a context that had ended
	})
}

func TestCloseOfAnIdleBatcher(t *testing.T) {
	inBubble(t, batcher.Config{}, func(b *bench) {
		for range 2 {
			if err := b.Close(context.Background()); err != nil {
				b.Error(err)
			}
		}
	})
}
