package batcher_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillgate/spillgate/batcher"
	"github.com/spillgate/spillgate/limit"
)

// instant is a store that answers at once.
type instant struct{ *fake }

func (s instant) Apply(_ context.Context, _ int, entries []*batcher.Entry) {
	for _, e := range entries {
		s.cells.ApplyAt(s.now, e)
	}
}

// newInstant is a batcher on it.
func newInstant(t testing.TB, cfg batcher.Config) *bench {
	t.Helper()
	f := newFake(t)
	cfg.Store = instant{f}
	inner, err := batcher.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { inner.Close(context.Background()) })
	return &bench{fake: f, Batcher: inner, ten: terms(t, 10, time.Hour, 0)}
}

// wild is a store with a mind of its own: it is slow, refuses, and loses replies of what it ran and of what it did
// not run. It keeps the books.
type wild struct {
	*fake
	mu sync.Mutex
	r  *rand.Rand

	lost     map[limit.Sum]limit.Tokens // taken, and the reply was lost
	kept     map[limit.Sum]limit.Tokens // refunds that did not run
	refunds  limit.Tokens               // tokens of all refunds that arrived
	granted  limit.Tokens               // tokens of all takes that were answered
	inFlight [2]atomic.Int32
	most     [2]atomic.Int32
}

func (w *wild) Apply(ctx context.Context, shard int, entries []*batcher.Entry) {
	if n := w.inFlight[shard].Add(1); n > w.most[shard].Load() {
		w.most[shard].Store(n)
	}
	defer w.inFlight[shard].Add(-1)
	w.mu.Lock()
	before, after := time.Duration(w.r.IntN(3000))*time.Microsecond, time.Duration(w.r.IntN(3000))*time.Microsecond
	w.mu.Unlock()
	pause(ctx, before)
	w.mu.Lock()
	for _, e := range entries {
		w.applyLocked(e)
	}
	w.mu.Unlock()
	pause(ctx, after)
}

// pause takes virtual time.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

func (w *wild) applyLocked(e *batcher.Entry) {
	luck := w.r.IntN(10)
	sum, isRefund := e.Bucket.Sum(), e.Op == refund
	if isRefund {
		w.refunds += e.N
	}
	if luck < 2 { // did not run
		e.Err = []error{batcher.ErrNotRun, batcher.ErrUnknown}[luck]
		if isRefund {
			w.kept[sum] += e.N
		}
		return
	}
	w.cells.ApplyAt(w.now, e)
	if e.Err != nil {
		panic(e.Err)
	}
	switch {
	case luck == 2: // ran, but the reply was lost
		if !isRefund {
			w.lost[sum] += e.Out.Granted
		}
		e.Out, e.Err = limit.Outcome{}, batcher.ErrUnknown
	case !isRefund:
		w.granted += e.Out.Granted
	}
}

// TestStress drives a wild store from many goroutines with random sizes, deadlines and contexts, and then
// audits: tokens in the cells = held by callers + lost replies + refunds that failed; every token that was
// granted is held or was sent back; nothing was sent back twice; no bucket has given more than it had.
func TestStress(t *testing.T) {
	for seed := range uint64(4) {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { stress(t, seed) })
		})
	}
}

func stress(t *testing.T, seed uint64) {
	const goroutines, operations, buckets, burst = 40, 100, 6, 60
	w := &wild{fake: newFake(t), r: rand.New(rand.NewPCG(seed, 0)), lost: map[limit.Sum]limit.Tokens{}, kept: map[limit.Sum]limit.Tokens{}}
	w.shards = 2
	b, err := batcher.New(batcher.Config{Store: w, MaxPending: 50, MaxEntries: 3, MaxInFlight: 3, Timeout: 4 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	rate := terms(t, burst, 24*time.Hour, 0)
	books := make([]book, goroutines)
	var wg sync.WaitGroup
	for g := range goroutines {
		wg.Go(func() {
			books[g].held = map[limit.Sum]limit.Tokens{}
			r := rand.New(rand.NewPCG(seed, uint64(g)+1))
			for range operations {
				books[g].check(t, b, w, r, rate, buckets)
			}
		})
	}
	wg.Wait()
	if err := b.Close(t.Context()); err != nil {
		t.Error(err)
	}

	var all book
	all.held = map[limit.Sum]limit.Tokens{}
	for _, book := range books {
		all.add(&book)
	}
	stats := b.Stats()
	if stats.Waiting != 0 {
		t.Errorf("%d claims wait", stats.Waiting)
	}
	if stats.GivenUp != all.givenUp || stats.Overloaded != all.overloaded {
		t.Errorf("%d given up and %d overloaded, callers say %d and %d", stats.GivenUp, stats.Overloaded, all.givenUp, all.overloaded)
	}
	if got := all.granted + limit.Tokens(stats.Refunded); got != w.granted {
		t.Errorf("the store granted %d, callers got %d and the batcher sent back %d", w.granted, all.granted, stats.Refunded)
	}
	if got := all.refunded + limit.Tokens(stats.Refunded); got != w.refunds {
		t.Errorf("%d tokens were sent back, callers and batcher say %d", w.refunds, got)
	}
	for i := range buckets {
		name := w.name(fmt.Sprint(i))
		sum := name.Sum()
		e := batcher.Entry{Bucket: name, Terms: rate, Op: partial}
		w.cells.ApplyAt(w.now, &e)
		taken := limit.Tokens(e.Out.Level / rate.Emission)
		if want := all.held[sum] + w.lost[sum] + w.kept[sum]; taken != want || taken > burst {
			t.Errorf("bucket %d: %d of %d taken; callers hold %d, lost with replies %d, refunds that failed %d",
				i, taken, burst, all.held[sum], w.lost[sum], w.kept[sum])
		}
	}
	for shard := range w.most {
		if got := w.most[shard].Load(); got > 3 {
			t.Errorf("shard %d: %d calls in flight", shard, got)
		}
	}
}

// book is what a caller knows.
type book struct {
	held                map[limit.Sum]limit.Tokens
	granted, refunded   limit.Tokens
	givenUp, overloaded uint64
}

func (k *book) add(o *book) {
	for sum, n := range o.held {
		k.held[sum] += n
	}
	k.granted += o.granted
	k.refunded += o.refunded
	k.givenUp += o.givenUp
	k.overloaded += o.overloaded
}

// check takes from some buckets at once, and gives part of what it got back.
func (k *book) check(t *testing.T, b *batcher.Batcher, w *wild, r *rand.Rand, rate *limit.Terms, buckets int) {
	ctx := context.Background()
	if r.IntN(5) == 0 {
		short, cancel := context.WithTimeout(ctx, time.Duration(r.IntN(2000))*time.Microsecond)
		defer cancel()
		ctx = short
	}
	g, back := b.Group(), b.Group()
	var claims, returns []*batcher.Claim
	for range 1 + r.IntN(4) {
		c := g.Claim()
		claims = append(claims, c)
		c.Bucket, c.Terms, c.Op = w.name(fmt.Sprint(r.IntN(buckets))), rate, take
		c.N = limit.Tokens(r.IntN(4))
		if r.IntN(50) == 0 {
			c.N = rate.Burst + 1
		}
		c.Deadline = time.Duration(1+r.IntN(8000)) * time.Microsecond
	}
	g.Submit(context.Background())
	g.Wait(ctx)
	for _, c := range claims {
		switch {
		case errors.Is(c.Err, batcher.ErrDeadline):
			k.givenUp++
		case errors.Is(c.Err, batcher.ErrOverloaded):
			k.overloaded++
		case c.Err == nil && c.Out.Granted != 0 && c.Out.Granted != c.N:
			t.Errorf("granted %d of %d", c.Out.Granted, c.N)
		}
		if c.Err != nil && c.Out != (limit.Outcome{}) {
			t.Errorf("%v, and yet %+v", c.Err, c.Out)
		}
		k.granted += c.Out.Granted
		k.held[c.Bucket.Sum()] += c.Out.Granted
		if c.Out.Granted > 0 && r.IntN(3) > 0 {
			again := back.Claim()
			returns = append(returns, again)
			again.Bucket, again.Terms, again.Op, again.N, again.Deadline = c.Bucket, rate, refund, c.Out.Granted, time.Hour
		}
	}
	g.Release()
	back.Submit(context.Background())
	back.Wait(context.Background())
	for _, c := range returns {
		if errors.Is(c.Err, batcher.ErrOverloaded) {
			k.overloaded++
			continue // not sent: still held
		}
		// Sent: it is the store that says whether it ran.
		k.refunded += c.N
		k.held[c.Bucket.Sum()] -= c.N
	}
	back.Release()
}

// TestStressInRealTime is for the race detector: no bubble, an instant store, deadlines that pass while the
// answers arrive.
func TestStressInRealTime(t *testing.T) {
	b := newInstant(t, batcher.Config{MaxEntries: 4, MaxInFlight: 2})
	rate := terms(t, 1_000_000, 24*time.Hour, 0)
	var granted atomic.Int64
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(5, uint64(g)))
			for range 1000 {
				g := b.Group()
				var claims []*batcher.Claim
				for range 1 + r.IntN(3) {
					c := b.claim(g, fmt.Sprint(r.IntN(5)), 1, time.Duration(1+r.IntN(20000)))
					c.Terms = rate
					claims = append(claims, c)
				}
				g.Submit(context.Background())
				g.Wait(context.Background())
				for _, c := range claims {
					granted.Add(int64(c.Out.Granted))
				}
				g.Release()
			}
		})
	}
	wg.Wait()
	if err := b.Close(t.Context()); err != nil {
		t.Error(err)
	}
	var taken int64
	for i := range 5 {
		e := batcher.Entry{Bucket: b.name(fmt.Sprint(i)), Terms: rate, Op: partial}
		b.cells.ApplyAt(b.now, &e)
		taken += int64(e.Out.Level / rate.Emission)
	}
	if taken != granted.Load() || b.Stats().Waiting != 0 {
		t.Errorf("%d tokens are taken, callers hold %d; %d claims wait", taken, granted.Load(), b.Stats().Waiting)
	}
}

func BenchmarkGroup(b *testing.B) {
	rate := terms(b, 1_000_000, time.Second, 0)
	for _, bb := range []struct {
		name            string
		claims, buckets int
	}{
		{"claims=1/buckets=1", 1, 1}, {"claims=1/buckets=4096", 1, 4096}, {"claims=4/buckets=4096", 4, 4096},
	} {
		for _, callers := range []int{1, 64} {
			b.Run(fmt.Sprintf("%s/callers=%d", bb.name, callers), func(b *testing.B) {
				store := newInstant(b, batcher.Config{})
				names := make([]limit.Bucket, bb.buckets)
				for i := range names {
					names[i] = store.name(fmt.Sprint(i))
				}
				var next atomic.Int64
				b.ReportAllocs()
				b.ResetTimer()
				var wg sync.WaitGroup
				for range callers {
					wg.Go(func() {
						for i := next.Add(1); i <= int64(b.N); i = next.Add(1) {
							g := store.Group()
							for k := range bb.claims {
								c := g.Claim()
								c.Bucket, c.Terms, c.Op, c.N = names[(int(i)*7+k)%len(names)], rate, take, 1
								c.Deadline = time.Second
							}
							g.Submit(context.Background())
							g.Wait(context.Background())
							g.Release()
						}
					})
				}
				wg.Wait()
			})
		}
	}
}
