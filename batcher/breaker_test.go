package batcher_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillgate/spillgate/batcher"
	"github.com/spillgate/spillgate/limit"
)

// mostPause is the longest time without a probe that docs/guarantees.md tells.
const mostPause = 750 * time.Millisecond

var (
	errGone = fmt.Errorf("%w: connection refused", batcher.ErrNotRun)
	errLost = fmt.Errorf("%w: timeout", batcher.ErrUnknown)
)

// breaks has three calls in a row fail.
func (b *bench) breaks(bucket string) {
	b.Helper()
	for range 3 {
		c := b.take(bucket, 1)
		b.next(b.T).fail(errLost)
		c.got(b.T, 0, batcher.ErrUnknown)
	}
	if h := b.health(bucket); !h.Down || h.Since.IsZero() || !b.Troubled() {
		b.Fatalf("after three failures: %+v, troubled: %v", h, b.Troubled())
	}
}

func (b *bench) health(bucket string) batcher.Health {
	name := b.name(bucket)
	return b.Health(&name, nil)
}

// probe is the next call, which must be a probe at a bucket and come within the longest pause.
func (b *bench) probe(bucket string) *call {
	b.Helper()
	for range mostPause / time.Millisecond {
		if time.Sleep(time.Millisecond); len(b.calls) > 0 {
			break
		}
	}
	return b.next(b.T).wants(b.T, want{bucket, limit.Lease, 0})
}

// TestBreakerRefusesAtOnce: the third call in a row without an answer is the last; who comes later, or is in line then, has
// the answer at once. Nothing of it was sent.
func TestBreakerRefusesAtOnce(t *testing.T) {
	inBubble(t, batcher.Config{}, func(b *bench) {
		for i, err := range []error{errLost, errGone} {
			c := b.take("a", 1)
			b.next(b.T).fail(err)
			c.got(b.T, 0, err)
			if b.health("a").Down {
				b.Fatalf("down after %d failures", i+1)
			}
		}
		last := b.take("a", 1)
		in := b.next(b.T)
		waits, other := b.take("a", 1), b.take("b", 1)
		b.idle(b.T)
		in.fail(errLost)
		last.got(b.T, 0, batcher.ErrUnknown)
		waits.got(b.T, 0, batcher.ErrDown)
		other.got(b.T, 0, batcher.ErrDown)
		late := b.take("c", 1)
		late.got(b.T, 0, batcher.ErrDown)
		late.got(b.T, 0, batcher.ErrNotRun)
		if late.took != 0 {
			b.Errorf("refused after %v", late.took)
		}
		if err := b.Send(&batcher.Claim{Bucket: b.name("a"), Terms: b.ten, Op: limit.Lease, N: 1}); !errors.Is(err, batcher.ErrDown) {
			b.Errorf("a lease: %v", err)
		}
		b.idle(b.T)
		if s := b.Stats(); s.Calls != 3 || s.Refused != 3 || s.Opened != 1 || s.Down != 1 || s.Waiting != 0 {
			b.Errorf("%+v", s)
		}
	})
}

// TestBreakerProbes: one at a time, at pauses that grow to mostPause and no further, and takes nothing. When one is answered
// those who come are served, in one call at a time.
func TestBreakerProbes(t *testing.T) {
	inBubble(t, batcher.Config{Timeout: 50 * time.Millisecond}, func(b *bench) {
		b.breaks("a")
		probes := 0
		for start := time.Now(); time.Since(start) < time.Minute; time.Sleep(10 * time.Millisecond) {
			b.take("z", 1).got(b.T, 0, batcher.ErrDown) // whoever asks changes nothing
			for synctest.Wait(); len(b.calls) > 0; synctest.Wait() {
				(<-b.calls).wants(b.T, want{"a", limit.Lease, 0}) // never answered
				probes++
			}
		}
		// In a minute: at least one for each 750 ms and the 50 ms of a call that times out, at most one for half that pause, and the first few.
		if probes < 60000/800 || probes > 60000/375+8 {
			b.Errorf("%d probes in a minute", probes)
		}
		b.probe("a").run()
		synctest.Wait()
		if h := b.health("a"); h.Down || !h.Recovering {
			b.Fatalf("after an answer: %+v", h)
		}
		first := b.take("a", 1)
		in := b.next(b.T).wants(b.T, want{"a", take, 1})
		var herd []*caller
		for range 100 {
			herd = append(herd, b.take("b", 0))
		}
		b.idle(b.T)
		in.run()
		b.next(b.T).wants(b.T, want{"b", partial, 0}).run()
		first.got(b.T, 1, nil)
		for _, c := range herd {
			c.got(b.T, 0, nil)
		}
		if n := b.taken("a"); n != 1 {
			b.Errorf("%d tokens are taken, want the caller's", n)
		}
		time.Sleep(1050 * time.Millisecond)
		synctest.Wait()
		if h := b.health("a"); h.Recovering || b.Troubled() {
			b.Errorf("a second later: %+v, troubled: %v", h, b.Troubled())
		}
	})
}

// TestBreakerProbesWindows: a bucket that counts in windows is asked for in the terms of a token bucket, which can all be leased.
func TestBreakerProbesWindows(t *testing.T) {
	for _, kind := range []limit.Algorithm{limit.FixedWindow, limit.SlidingWindow, limit.SlidingLog} {
		inBubble(t, batcher.Config{}, func(b *bench) {
			windows, err := limit.Rate{Algorithm: kind, Requests: 10, Period: time.Hour}.Terms()
			if err != nil {
				b.Fatal(err)
			}
			for range 3 {
				c := b.ask(batcher.Claim{Bucket: b.name("a"), Terms: windows, Op: limit.Take, N: 1})
				b.next(b.T).fail(errGone)
				c.got(b.T, 0, batcher.ErrNotRun)
			}
			b.probe("a").run()
			synctest.Wait()
			if h := b.health("a"); h.Down || !h.Recovering {
				b.Errorf("%v: after an answer: %+v", kind, h)
			}
			c := b.ask(batcher.Claim{Bucket: b.name("a"), Terms: windows, Op: limit.Take, N: 10})
			b.next(b.T).run()
			c.got(b.T, 10, nil)
		})
	}
}

// TestBreakerOfAStoreThatTakesNoWrites: it is down at its first refusal, though it would answer who only reads: whoever was denied or looked
// in between would have it taken for well, and then it never is down, and never well.
func TestBreakerOfAStoreThatTakesNoWrites(t *testing.T) {
	inBubble(t, batcher.Config{}, func(b *bench) {
		c := b.take("a", 1)
		b.next(b.T).fail(fmt.Errorf("%w: out of memory", batcher.ErrNoWrites))
		c.got(b.T, 0, batcher.ErrNotRun)
		since := b.health("a").Since
		for range 5 {
			b.take("a", 0).got(b.T, 0, batcher.ErrDown)
			b.probe("a").fail(batcher.ErrNoWrites)
			synctest.Wait()
			if h := b.health("a"); !h.Down || h.Since != since {
				b.Fatalf("%+v, want it down since %v", h, since)
			}
		}
		b.probe("a").run()
		synctest.Wait()
		if h := b.health("a"); h.Down || !h.Recovering {
			b.Errorf("when it takes writes again: %+v", h)
		}
	})
}

// TestBreakerOfOneShard: the others are asked as ever.
func TestBreakerOfOneShard(t *testing.T) {
	inBubble(t, batcher.Config{}, func(b *bench) {
		b.shards = 2
		b.breaks("1")
		for range 3 {
			c := b.take("2", 1)
			b.next(b.T).wants(b.T, want{"2", take, 1}).run()
			c.got(b.T, 1, nil)
		}
		if b.health("2").Down {
			b.Error("the other shard is down as well")
		}
	})
}

// TestBreakerRecovers: while a shard recovers, one failure is enough, and its pauses go on growing; later it takes three.
func TestBreakerRecovers(t *testing.T) {
	inBubble(t, batcher.Config{Recovery: time.Second}, func(b *bench) {
		b.breaks("a")
		b.probe("a").run()
		was := b.health("a").Since
		time.Sleep(time.Millisecond)
		b.take("a", 1)
		b.next(b.T).fail(errLost)
		synctest.Wait()
		if h := b.health("a"); !h.Down || !h.Since.After(was) {
			b.Fatalf("after a failure: %+v; before %v", h, was)
		}
		b.probe("a").run()
		time.Sleep(time.Second + time.Millisecond)
		for range 2 {
			b.take("a", 1)
			b.next(b.T).fail(errLost)
			synctest.Wait()
		}
		if b.health("a").Down {
			b.Error("down after two failures")
		}
		b.take("a", 1)
		b.next(b.T).run()
		synctest.Wait()
		b.breaks("a")
		if s := b.Stats(); s.Opened != 3 || s.Down != 1 {
			b.Errorf("%+v", s)
		}
	})
}

// TestBreakerLateAnswer: a call that is answered after others failed shows that the shard lives.
func TestBreakerLateAnswer(t *testing.T) {
	inBubble(t, batcher.Config{MaxEntries: 1}, func(b *bench) {
		var in []*call
		for i := range 4 {
			b.take(fmt.Sprint(i), 1)
			in = append(in, b.next(b.T))
		}
		for _, c := range in[:3] {
			c.fail(errLost)
			synctest.Wait()
		}
		if !b.health("3").Down {
			b.Fatal("three failures do not count")
		}
		in[3].run()
		synctest.Wait()
		if h := b.health("3"); h.Down || !h.Recovering {
			b.Errorf("after a late answer: %+v", h)
		}
		c := b.take("3", 1)
		b.next(b.T).wants(b.T, want{"3", take, 1}).run()
		c.got(b.T, 1, nil)
	})
}

// TestRefusalsOfEntriesAreAnswers: a damaged cell or a bucket that is divided otherwise is the word of a store that lives.
func TestRefusalsOfEntriesAreAnswers(t *testing.T) {
	inBubble(t, batcher.Config{}, func(b *bench) {
		for range 5 {
			for _, err := range []error{batcher.ErrDamaged, batcher.ErrStale} {
				c := b.take("a", 1)
				b.next(b.T).fail(err)
				c.got(b.T, 0, err)
			}
		}
		first, second := b.take("a", 1), b.take("a", 1)
		b.next(b.T).fail(errGone)
		b.take("b", 1)
		b.next(b.T).fail(errGone, nil) // one of two is answered
		first.got(b.T, 0, errGone)
		second.got(b.T, 0, errGone)
		if h := b.health("a"); h.Down || b.Stats().Opened != 0 {
			b.Errorf("%+v", h)
		}
	})
}

// TestBreakerProbesAPart asks the shard that is down, which is that of the part.
func TestBreakerProbesAPart(t *testing.T) {
	inBubble(t, batcher.Config{}, func(b *bench) {
		part := &limit.Part{Index: 1, Split: limit.Split{Ways: 2, Start: 1}}
		for range 3 {
			b.ask(batcher.Claim{Bucket: b.name("a"), Op: limit.Take, N: 1, Part: part})
			b.next(b.T).fail(errLost)
		}
		c := b.probe("a")
		if c.entries[0].Part != part {
			b.Errorf("a probe at part %v", c.entries[0].Part)
		}
		c.fail(batcher.ErrStale)
		synctest.Wait()
		if b.health("a").Down {
			b.Error("a stale part is an answer")
		}
	})
}

// TestCloseWhileDown: with a probe on its way and without. The bubble sees that nothing is left.
func TestCloseWhileDown(t *testing.T) {
	inBubble(t, batcher.Config{}, func(b *bench) { b.breaks("a") })
	inBubble(t, batcher.Config{}, func(b *bench) {
		b.breaks("a")
		probe := b.probe("a")
		closed := make(chan error)
		go func() { closed <- b.Close(b.Context()) }()
		synctest.Wait()
		probe.fail(errLost)
		if err := <-closed; err != nil {
			b.Errorf("Close: %v", err)
		}
		time.Sleep(time.Minute)
		b.idle(b.T)
	})
}
