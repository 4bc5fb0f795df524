package batcher_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/spillgate/spillgate/batcher"
	"github.com/spillgate/spillgate/limit"
	"github.com/spillgate/spillgate/memstore"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fake is a store under control: every call stops and waits to be answered, or for its context's
// end. Its cells live in a memory store, at one fixed moment.
type fake struct {
	cells  *memstore.Store
	now    int64
	calls  chan *call
	shards int  // 0 stands for 1
	late   bool // to say the shard takes until all others are at rest
}

// call is one call of the batcher that waits for its answer.
type call struct {
	store    *fake
	shard    int
	entries  []*batcher.Entry
	answered chan struct{}
}

func newFake(t testing.TB) *fake {
	t.Helper()
	cells, err := memstore.New(memstore.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return &fake{cells: cells, now: 1_000_000 * int64(time.Second), calls: make(chan *call, 100)}
}

func (f *fake) Secret() (*limit.Secret, bool) { return f.cells.Secret() }

func (f *fake) Shard(b *limit.Bucket, _ *limit.Part) int {
	if f.late {
		synctest.Wait()
	}
	if f.shards == 0 {
		return 0
	}
	id := b.ID()
	return int(id[len(id)-1]) % f.shards
}

func (f *fake) Apply(ctx context.Context, shard int, entries []*batcher.Entry) {
	c := &call{store: f, shard: shard, entries: entries, answered: make(chan struct{})}
	f.calls <- c
	select {
	case <-c.answered:
	case <-ctx.Done():
		for _, e := range entries {
			e.Err = batcher.ErrUnknown
		}
	}
}

// next is the call that waits for its answer, at once; there must be one.
func (f *fake) next(t testing.TB) *call {
	t.Helper()
	synctest.Wait()
	select {
	case c := <-f.calls:
		return c
	default:
		t.Fatal("the batcher has made no call")
		return nil
	}
}

// idle fails if a call waits.
func (f *fake) idle(t testing.TB) {
	t.Helper()
	synctest.Wait()
	select {
	case c := <-f.calls:
		t.Fatalf("the batcher has made a call of %d entries", len(c.entries))
	default:
	}
}

// drain answers calls until none is made any more.
func (f *fake) drain() {
	for synctest.Wait(); len(f.calls) > 0; synctest.Wait() {
		(<-f.calls).run()
	}
}

// run answers a call by running its entries in their order.
func (c *call) run() {
	for _, e := range c.entries {
		c.store.cells.ApplyAt(c.store.now, e)
	}
	close(c.answered)
}

// fail answers with an error for each entry; nil runs the entry.
func (c *call) fail(errs ...error) {
	for i, e := range c.entries {
		if e.Err = errs[i]; e.Err == nil {
			c.store.cells.ApplyAt(c.store.now, e)
		}
	}
	close(c.answered)
}

// want describes an entry that a call must have.
type want struct {
	bucket string
	op     limit.Op
	n      limit.Tokens
}

// wants checks the entries of a call, in order.
func (c *call) wants(t testing.TB, want ...want) *call {
	t.Helper()
	if len(c.entries) != len(want) {
		t.Errorf("a call of %d entries, want %d", len(c.entries), len(want))
		for _, e := range c.entries {
			t.Logf("op %d of %d on %q", e.Op, e.N, e.Bucket.ID()[1:])
		}
		t.FailNow()
	}
	for i, w := range want {
		if e := c.entries[i]; string(e.Bucket.ID()[1:]) != w.bucket || e.Op != w.op || e.N != w.n {
			t.Errorf("entry %d: op %d of %d on %q, want %+v", i, e.Op, e.N, e.Bucket.ID()[1:], w)
		}
	}
	return c
}

// bench is a batcher on a fake store, with terms of ten tokens an hour.
type bench struct {
	*testing.T
	*fake
	*batcher.Batcher
	ten *limit.Terms
}

// inBubble runs a test with virtual time. The batcher is closed at its end, and must be at rest.
func inBubble(t *testing.T, cfg batcher.Config, test func(b *bench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := &bench{T: t, fake: newFake(t), ten: terms(t, 10, time.Hour, 0)}
		if cfg.Timeout == 0 {
			cfg.Timeout = time.Hour
		}
		cfg.Store = b.fake
		var err error
		if b.Batcher, err = batcher.New(cfg); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { // after a failure, so that the bubble can end
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			b.Close(ctx)
		})
		test(b)
		b.idle(t)
		if err := b.Close(t.Context()); err != nil {
			t.Errorf("Close: %v", err)
		}
		if got := b.Stats().Waiting; got != 0 {
			t.Errorf("at rest, %d claims wait", got)
		}
	})
}

func terms(t testing.TB, requests limit.Tokens, period time.Duration, burst limit.Tokens) *limit.Terms {
	t.Helper()
	terms, err := limit.Rate{Requests: requests, Period: period, Burst: burst}.Terms()
	if err != nil {
		t.Fatal(err)
	}
	return terms
}

// name is the bucket of that name.
func (f *fake) name(name string) (b limit.Bucket) {
	secret, _ := f.Secret()
	secret.Name(&b, limit.AppendPart(nil, name))
	return b
}

// caller waits for one claim on a goroutine of its own.
type caller struct {
	claim batcher.Claim // a copy, once done
	took  time.Duration
	done  chan struct{}
}

// ask submits a claim and waits for it on a goroutine. It returns when the claim is submitted.
func (b *bench) ask(claim batcher.Claim) *caller { return b.askWith(context.Background(), claim) }

func (b *bench) askWith(ctx context.Context, claim batcher.Claim) *caller {
	if claim.Terms == nil {
		claim.Terms = b.ten
	}
	if claim.Deadline == 0 {
		claim.Deadline = 24 * time.Hour
	}
	g, c := b.Group(), &caller{done: make(chan struct{})}
	own := g.Claim()
	own.Bucket, own.Terms, own.Op, own.N = claim.Bucket, claim.Terms, claim.Op, claim.N
	own.Deadline, own.Keep, own.Part = claim.Deadline, claim.Keep, claim.Part
	start := time.Now()
	g.Submit(context.Background())
	go func() {
		g.Wait(ctx)
		c.claim, c.took = *own, time.Since(start)
		g.Release()
		close(c.done)
	}()
	return c
}

// take is a take of n tokens.
func (b *bench) take(bucket string, n limit.Tokens) *caller {
	return b.ask(batcher.Claim{Bucket: b.name(bucket), Op: limit.Take, N: n})
}

// got waits until everything is at rest and checks what a caller was told; the caller must be done.
func (c *caller) got(t testing.TB, granted limit.Tokens, err error) {
	t.Helper()
	synctest.Wait()
	select {
	case <-c.done:
	default:
		t.Fatal("the caller still waits")
	}
	if c.claim.Out.Granted != granted || !errors.Is(c.claim.Err, err) {
		t.Errorf("granted %d, %v; want %d, %v", c.claim.Out.Granted, c.claim.Err, granted, err)
	}
}

// waits checks that a caller has no answer yet.
func (c *caller) waits(t testing.TB) {
	t.Helper()
	synctest.Wait()
	select {
	case <-c.done:
		t.Errorf("the caller was answered: %+v, %v", c.claim.Out, c.claim.Err)
	default:
	}
}

// taken is how many tokens a bucket of ten is short of.
func (b *bench) taken(bucket string) limit.Tokens {
	e := batcher.Entry{Bucket: b.name(bucket), Terms: b.ten, Op: limit.TakePartial}
	b.cells.ApplyAt(b.now, &e)
	return limit.Tokens(e.Out.Level / b.ten.Emission)
}
