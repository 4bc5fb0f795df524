package batcher_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillgate/spillgate/batcher"
	"github.com/spillgate/spillgate/limit"
)

// TestDeadlineBeforeTheSend: the claim is taken back and never sent.
func TestDeadlineBeforeTheSend(t *testing.T) {
	inBubble(t, batcher.Config{}, func(b *bench) {
		b.take("a", 1)
		in := b.next(b.T)
		late := b.ask(batcher.Claim{Bucket: b.name("b"), Op: take, N: 1, Deadline: 10 * time.Millisecond, Keep: true})
		other, with := b.take("c", 2), b.ask(batcher.Claim{Bucket: b.name("c"), Op: take, N: 3, Deadline: 10 * time.Millisecond})
		time.Sleep(10*time.Millisecond - 1)
		late.waits(b.T)
		time.Sleep(time.Nanosecond)
		late.got(b.T, 0, batcher.ErrDeadline)
		with.got(b.T, 0, batcher.ErrDeadline)
		if got := b.Stats(); got.Waiting != 2 || got.GivenUp != 2 {
			b.Errorf("%+v", got)
		}
		in.run()
		b.next(b.T).wants(b.T, want{"c", take, 2}).run()
		other.got(b.T, 2, nil)
		if got := b.taken("b"); got != 0 {
			b.Errorf("%d tokens were taken for nobody", got)
		}
	})
}

// TestOneCallForAGroup: what a caller asks of one shard leaves together, however slowly it is handed in.
func TestOneCallForAGroup(t *testing.T) {
	inBubble(t, batcher.Config{}, func(b *bench) {
		b.shards, b.late = 2, true
		g := b.Group()
		for _, name := range []string{"b", "d", "a", "f", "c"} {
			c := g.Claim()
			c.Bucket, c.Terms, c.Op, c.N, c.Deadline = b.name(name), b.ten, take, 1, time.Hour
		}
		g.Submit(b.Context())
		for range 2 {
			if c := b.next(b.T); c.shard == 0 {
				c.wants(b.T, want{"b", take, 1}, want{"d", take, 1}, want{"f", take, 1}).run()
			} else {
				c.wants(b.T, want{"a", take, 1}, want{"c", take, 1}).run()
			}
		}
		g.Wait(b.Context())
		for c := range g.Claims() {
			if c.Out.Granted != 1 || c.Err != nil {
				b.Errorf("%+v, %v", c.Out, c.Err)
			}
		}
		g.Release()
	})
}

// TestGoneBeforeTheSubmit: claims of a caller who is gone are not queued at all.
func TestGoneBeforeTheSubmit(t *testing.T) {
	inBubble(t, batcher.Config{}, func(b *bench) {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		g := b.Group()
		defer g.Release()
		for range 2 {
			c := g.Claim()
			c.Bucket, c.Terms, c.Op, c.N, c.Deadline = b.name("a"), b.ten, take, 1, time.Hour
		}
		g.Submit(ctx)
		g.Wait(ctx)
		for c := range g.Claims() {
			if c.Err != batcher.ErrDeadline || c.Out.Granted != 0 {
				b.Errorf("%+v, %v", c.Out, c.Err)
			}
		}
		synctest.Wait()
		if s := b.Stats(); s.Calls != 0 || s.Waiting != 0 || len(b.calls) != 0 {
			b.Errorf("%+v, %d calls wait for the store", s, len(b.calls))
		}
	})
}

// TestEmptiedEntryIsUsedAgain: a claim on a bucket whose claims were all given up rides in their entry.
func TestEmptiedEntryIsUsedAgain(t *testing.T) {
	inBubble(t, batcher.Config{}, func(b *bench) {
		b.take("a", 1)
		in := b.next(b.T)
		gone := b.ask(batcher.Claim{Bucket: b.name("b"), Op: take, N: 5, Deadline: time.Millisecond})
		time.Sleep(time.Millisecond)
		gone.got(b.T, 0, batcher.ErrDeadline)
		again := b.take("b", 2)
		in.run()
		b.next(b.T).wants(b.T, want{"b", take, 2}).run()
		again.got(b.T, 2, nil)
	})
}

// TestDeadlineAfterTheSend: the tokens are kept, or given back once.
func TestDeadlineAfterTheSend(t *testing.T) {
	for _, tt := range []struct {
		name  string
		keep  bool
		reply error
		taken limit.Tokens
	}{
		{"kept", true, nil, 4},
		{"given back", false, nil, 0},
		{"kept, not run", true, batcher.ErrNotRun, 0},
		{"not run", false, batcher.ErrNotRun, 0},
		{"unknown", false, batcher.ErrUnknown, 0}, // the fake's unknown has not run
	} {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, batcher.Config{}, func(b *bench) {
				c := b.ask(batcher.Claim{Bucket: b.name("a"), Op: take, N: 4, Deadline: 10 * time.Millisecond, Keep: tt.keep})
				in := b.next(b.T)
				time.Sleep(10 * time.Millisecond)
				c.got(b.T, 0, batcher.ErrDeadline)
				if got := b.Stats().Waiting; got != 1 {
					b.Errorf("%d claims wait, want the one that is out", got)
				}
				in.fail(tt.reply)
				if !tt.keep && tt.reply == nil {
					b.next(b.T).wants(b.T, want{"a", refund, 4}).run()
				}
				b.idle(b.T)
				if got := b.taken("a"); got != tt.taken {
					b.Errorf("%d tokens are taken, want %d", got, tt.taken)
				}
			})
		})
	}
}

// TestGivenUpTokensServeOthers: what a claim leaves behind goes to those after it in the same call.
func TestGivenUpTokensServeOthers(t *testing.T) {
	inBubble(t, batcher.Config{}, func(b *bench) {
		b.take("other", 1)
		in := b.next(b.T)
		gone := b.ask(batcher.Claim{Bucket: b.name("a"), Op: take, N: 6, Deadline: 10 * time.Millisecond})
		kept := b.ask(batcher.Claim{Bucket: b.name("a"), Op: take, N: 3, Deadline: 10 * time.Millisecond, Keep: true})
		stays := b.take("a", 5)
		in.run()
		in = b.next(b.T).wants(b.T, want{"a", partial, 10})
		time.Sleep(10 * time.Millisecond)
		gone.got(b.T, 0, batcher.ErrDeadline)
		kept.got(b.T, 0, batcher.ErrDeadline)
		in.run()
		stays.got(b.T, 5, nil)
		b.next(b.T).wants(b.T, want{"a", refund, 2}).run()
		if got := b.taken("a"); got != 8 {
			b.Errorf("%d tokens are taken, want 3 kept and 5", got)
		}
	})
}

// TestContextEnds: as if all deadlines had passed.
func TestContextEnds(t *testing.T) {
	inBubble(t, batcher.Config{}, func(b *bench) {
		ctx, cancel := context.WithCancel(context.Background())
		sent := b.askWith(ctx, batcher.Claim{Bucket: b.name("a"), Op: take, N: 4})
		in := b.next(b.T)
		queued := b.askWith(ctx, batcher.Claim{Bucket: b.name("b"), Op: take, N: 4})
		sent.waits(b.T)
		cancel()
		sent.got(b.T, 0, batcher.ErrDeadline)
		queued.got(b.T, 0, batcher.ErrDeadline)
		ended := b.askWith(ctx, batcher.Claim{Bucket: b.name("b"), Op: take, N: 4})
		ended.got(b.T, 0, batcher.ErrDeadline)
		in.run()
		b.next(b.T).wants(b.T, want{"a", refund, 4}).run()
	})
}

// TestOutcomeBeatsAnEndedContext: what has its outcome keeps it.
func TestOutcomeBeatsAnEndedContext(t *testing.T) {
	inBubble(t, batcher.Config{}, func(b *bench) {
		for range 20 { // select picks at random
			g := b.Group()
			c := b.claim(g, "a", 0, time.Hour)
			g.Submit(context.Background())
			b.next(b.T).run()
			synctest.Wait()
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			g.Wait(ctx)
			if c.Err != nil {
				b.Fatal(c.Err)
			}
			g.Release()
		}
	})
}

// TestDeadlinesOfOneGroup: each claim has its own, and the group waits for the last.
func TestDeadlinesOfOneGroup(t *testing.T) {
	for _, tt := range []struct {
		name  string
		pause time.Duration // from Submit to Wait
		took  time.Duration
	}{
		{"at once", 0, 30 * time.Millisecond},
		{"after the first deadline", 15 * time.Millisecond, 30 * time.Millisecond},
		{"after all", time.Second, time.Second + 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, batcher.Config{}, func(b *bench) {
				g := b.Group()
				for _, ms := range []time.Duration{30, 10, 20} {
					b.claim(g, "a", 1, ms*time.Millisecond)
				}
				start := time.Now()
				g.Submit(context.Background())
				in := b.next(b.T)
				time.Sleep(tt.pause)
				g.Wait(context.Background())
				if got := time.Since(start); got != tt.took {
					b.Errorf("it took %v, want %v", got, tt.took)
				}
				g.Release()
				in.run()
				b.drain()
				if got := b.taken("a"); got != 0 {
					b.Errorf("%d tokens are taken", got)
				}
			})
		})
	}
}

// TestEarlyDeadlineIsNotHeldUpByALateOne is G6 for a caller who comes to Wait late: the claim
// whose deadline has passed must not wait for the other's.
func TestEarlyDeadlineIsNotHeldUpByALateOne(t *testing.T) {
	inBubble(t, batcher.Config{}, func(b *bench) {
		b.take("other", 1)
		in := b.next(b.T)
		g := b.Group()
		early, late := b.claim(g, "a", 1, 2*time.Millisecond), b.claim(g, "b", 1, time.Hour)
		g.Submit(context.Background())
		time.Sleep(5 * time.Millisecond)
		done := make(chan struct{})
		go func() { g.Wait(context.Background()); close(done) }()
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		if got := b.Stats().GivenUp; got != 1 {
			b.Fatalf("%d claims were given up, want the early one", got)
		}
		in.run()
		b.next(b.T).wants(b.T, want{"b", take, 1}).run()
		<-done
		if early.Err != batcher.ErrDeadline || late.Err != nil || late.Out.Granted != 1 {
			b.Errorf("early: %v; late: %+v, %v", early.Err, late.Out, late.Err)
		}
		g.Release()
	})
}

// TestGivenUpRefund: a caller who does not wait for his refund gets it all the same, once sent.
func TestGivenUpRefund(t *testing.T) {
	inBubble(t, batcher.Config{}, func(b *bench) {
		b.take("a", 4)
		b.next(b.T).run()
		c := b.ask(batcher.Claim{Bucket: b.name("a"), Op: refund, N: 4, Deadline: time.Millisecond})
		in := b.next(b.T).wants(b.T, want{"a", refund, 4})
		time.Sleep(time.Millisecond)
		c.got(b.T, 0, batcher.ErrDeadline)
		in.run()
		b.idle(b.T)
		if got := b.taken("a"); got != 0 {
			b.Errorf("%d tokens are taken", got)
		}
	})
}

func TestEmptyGroup(t *testing.T) {
	inBubble(t, batcher.Config{}, func(b *bench) {
		g := b.Group()
		g.Submit(context.Background())
		g.Wait(context.Background())
		if g.Len() != 0 {
			b.Errorf("%d claims", g.Len())
		}
		g.Release()
	})
}

// TestGroupIsReused: nothing of a former use shows, whatever its size and end.
func TestGroupIsReused(t *testing.T) {
	inBubble(t, batcher.Config{Timeout: time.Minute}, func(b *bench) {
		g := b.Group()
		for round, size := range []int{3, 1, 7, 2} {
			var claims []*batcher.Claim
			for range size {
				c := g.Claim()
				if c.Out != (limit.Outcome{}) || c.Err != nil || c.Keep || c.N != 0 || c.Terms != nil {
					b.Fatalf("round %d: a claim begins as %+v", round, c)
				}
				c.Bucket, c.Terms, c.Op, c.Deadline, c.Keep = b.name("a"), b.ten, take, time.Second, true
				claims = append(claims, c)
			}
			if g.Len() != size {
				b.Fatalf("%d claims, want %d", g.Len(), size)
			}
			g.Submit(context.Background())
			in := b.next(b.T)
			answered := round%2 == 0
			if answered { // before Wait; else every claim is given up in it
				in.run()
				b.drain()
			}
			g.Wait(context.Background())
			for _, c := range claims {
				if (c.Err == nil) != answered {
					b.Fatalf("round %d: %v", round, c.Err)
				}
			}
			g.Release()
			if !answered {
				in.run()
				b.drain()
			}
			g = b.Group()
		}
	})
}
