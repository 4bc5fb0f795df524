package redisshard

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/redis/go-redis/v9"

	"github.com/spillgate/spillgate/batcher"
	"github.com/spillgate/spillgate/internal/redistest"
	"github.com/spillgate/spillgate/limit"
	"github.com/spillgate/spillgate/memstore"
)

// The script and its twin get the same entries at the same times, and must give the
// same outcomes, bit for bit. The time is carried in the calls (Store.stamp).

// twins is a store on Redis, told its time, next to what it is compared with.
type twins struct {
	store *Store
	admin *redis.Client
	now   int64 // microseconds since 1970

	near []limit.Bucket // in one tag here and under one lock there
	far  []limit.Bucket // anywhere

	leases []grant                        // what the history has had of leases
	splits map[limit.Bucket][]limit.Split // and of divisions, in order
	seen   map[string]int                 // what happened to divided buckets, over all histories
}

// grant is a lease, or what is left of it to settle.
type grant struct {
	epoch, origin int64
	n             limit.Tokens
}

const memstoreLocks = 64

func newTwins(tb testing.TB) *twins {
	_, url := sharedServer(tb)
	w := &twins{admin: adminOf(tb, url), store: openStore(tb, Config{URL: url}), seen: map[string]int{}}
	w.store.stamp = func() int64 { return w.now }
	for i := 0; len(w.near) < 5; i++ {
		b := w.store.bucket(fmt.Sprint("near ", i))
		if len(w.near) == 0 || w.store.tagOf(&b) == w.store.tagOf(&w.near[0]) &&
			b.Sum().Lo%memstoreLocks == w.near[0].Sum().Lo%memstoreLocks {
			w.near = append(w.near, b)
		}
	}
	for i := range 12 {
		w.far = append(w.far, w.store.bucket(fmt.Sprint("far ", i)))
	}
	return w
}

// fresh empties the store and gives an empty twin. The expiry of hashes follows the
// server's clock, so a history must be over within a generation and a second.
func (w *twins) fresh(t *rapid.T) *memstore.Store {
	if err := w.admin.FlushDB(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	mem, err := memstore.New(memstore.Config{})
	if err != nil {
		t.Fatal(err)
	}
	w.leases, w.splits = nil, map[limit.Bucket][]limit.Split{}
	return mem
}

// compare runs the entries on both sides.
func (w *twins) compare(t *rapid.T, mem *memstore.Store, entries []*batcher.Entry) {
	want := make([]batcher.Entry, len(entries))
	for i, e := range entries { // rounds go up
		want[i] = *e
		mem.ApplyAt(w.now*1000, &want[i])
	}
	w.store.Apply(t.Context(), 0, entries)
	var lag int64
	for i := range want {
		lag = max(lag, want[i].Out.Lag) // the script has one for the whole call
	}
	for i, e := range entries {
		x := &want[i]
		if x.Err == nil {
			x.Out.Lag = lag
		}
		if x.Split != nil {
			x.Split.Left = time.Duration(x.Split.Until-w.now)*time.Microsecond - time.Duration(lag)
		}
		if e.Out != x.Out || (e.Err == nil) != (x.Err == nil) || errors.Is(e.Err, batcher.ErrStale) != errors.Is(x.Err, batcher.ErrStale) ||
			(e.Split == nil) != (x.Split == nil) || e.Split != nil && *e.Split != *x.Split {
			t.Fatalf("at %d, entry %d, %+v, op %d of %d, %+v, %+v:\nthe script gives %+v, %v, %+v\nthe twin %+v, %v, %+v",
				w.now, i, *e.Terms, e.Op, e.N, e.Ask, e.Part, e.Out, e.Err, e.Split, x.Out, x.Err, x.Split)
		}
		w.record(e)
	}
}

// drawTerms draws terms of a class, not only those that a rate can have.
func drawTerms(t *rapid.T, class limit.Class) *limit.Terms {
	span := int64(class.Span())
	emission := rapid.OneOf(rapid.Int64Range(1, span), rapid.Int64Range(1, 1000), rapid.Int64Range(span/100, span/10)).Draw(t, "emission")
	burst := rapid.OneOf(rapid.Int64Range(1, span/emission), rapid.Int64Range(1, min(20, span/emission))).Draw(t, "burst")
	terms := &limit.Terms{Class: class, Emission: limit.Ticks(emission), Burst: min(limit.Tokens(burst), limit.MaxTokens)}
	terms.Depth = limit.Ticks(terms.Burst) * terms.Emission
	terms.Ceiling = terms.Depth
	if rapid.IntRange(0, 4).Draw(t, "debt") == 0 {
		terms.Ceiling = rapid.Custom(func(t *rapid.T) limit.Ticks {
			return limit.Ticks(rapid.Int64Range(int64(terms.Depth), span).Draw(t, "ceiling"))
		}).Draw(t, "ceiling")
	}
	return terms
}

func drawClass(t *rapid.T) limit.Class {
	fill := time.Second << (2 * rapid.IntRange(0, 14).Draw(t, "class"))
	class, _ := limit.BucketClass(fill)
	return class
}

func (w *twins) drawEntry(t *rapid.T, b limit.Bucket, terms *limit.Terms, round int) *batcher.Entry {
	e := &batcher.Entry{Bucket: b, Terms: terms, Op: limit.Op(rapid.IntRange(1, 8).Draw(t, "op")),
		N: drawTokens(t, terms, "n"), Round: round}
	if e.Op >= limit.Lease {
		e.Op, e.Ask = limit.Lease, w.drawAsk(t, terms)
	}
	return e
}

func drawTokens(t *rapid.T, terms *limit.Terms, label string) limit.Tokens {
	n := rapid.OneOf(rapid.Int64Range(0, 5), rapid.Int64Range(0, 2*int64(terms.Burst)), rapid.Just(int64(limit.MaxTokens))).Draw(t, label)
	return min(limit.Tokens(n), limit.MaxTokens)
}

// drawAsk draws an account of what was granted, mostly true, or of anything.
func (w *twins) drawAsk(t *rapid.T, terms *limit.Terms) (a limit.Ask) {
	if len(w.leases) > 0 && rapid.IntRange(0, 3).Draw(t, "an account") > 0 {
		i := rapid.IntRange(max(0, len(w.leases)-5), len(w.leases)-1).Draw(t, "lease")
		a.Epoch, a.Origin, a.Settled = w.leases[i].epoch, w.leases[i].origin, w.leases[i].n
		if rapid.Bool().Draw(t, "not of all") {
			a.Settled = limit.Tokens(rapid.Int64Range(0, int64(a.Settled)+3).Draw(t, "settled"))
		}
		a.Returned = limit.Tokens(rapid.Int64Range(0, int64(a.Settled)+1).Draw(t, "returned"))
	} else {
		a.Epoch = w.now/limit.LeaseTTL.Microseconds() + rapid.Int64Range(-3, 1).Draw(t, "epoch")
		a.Settled, a.Returned = drawTokens(t, terms, "settled"), drawTokens(t, terms, "returned")
	}
	if rapid.Bool().Draw(t, "waiting") {
		a.Take = drawTokens(t, terms, "take")
		a.Piece = rapid.OneOf(rapid.Just(limit.Tokens(0)), rapid.Just(a.Take), rapid.Custom(func(t *rapid.T) limit.Tokens {
			return drawTokens(t, terms, "part")
		})).Draw(t, "piece")
	}
	a.Presence = rapid.OneOf(rapid.Int64Range(0, limit.Presence), rapid.Int64Range(0, 1<<26)).Draw(t, "presence")
	return a
}

// drawEntries draws a call: a few buckets, each up to three times.
func (w *twins) drawEntries(t *rapid.T, buckets []limit.Bucket, terms func(i int) *limit.Terms) (entries []*batcher.Entry) {
	count := make([]int, len(buckets))
	for range rapid.IntRange(1, 8).Draw(t, "entries") {
		i := rapid.IntRange(0, len(buckets)-1).Draw(t, "bucket")
		entries = append(entries, w.drawEntry(t, buckets[i], terms(i), count[i]))
		count[i]++
	}
	return entries
}

// backAndForth: one class, and a clock that goes back by less than a generation. Further
// back the two differ: the script only knows the hashes that a call names.
func (w *twins) backAndForth(t *rapid.T) {
	mem, class := w.fresh(t), drawClass(t)
	length, epoch := class.Length.Microseconds(), limit.LeaseTTL.Microseconds()
	terms := []*limit.Terms{drawTerms(t, class), drawTerms(t, class), drawTerms(t, class)}
	w.now = length + rapid.Int64Range(1, 1<<51).Draw(t, "start")
	newest := w.now
	for range rapid.IntRange(1, 40).Draw(t, "calls") {
		emission := int64(float64(terms[0].Emission)/class.PerMicro) + 1
		at := w.now % length
		move := rapid.OneOf(
			rapid.Int64Range(-3, 3),
			rapid.Int64Range(0, 2*emission),
			rapid.Int64Range(-2*emission, 0),
			rapid.Int64Range(-length, length),
			rapid.Int64Range(-length/4096-1, length/4096+1),
			rapid.Int64Range(0, 5*length),
			rapid.Int64Range(-epoch/2, 2*epoch),
			rapid.SampledFrom([]int64{epoch - w.now%epoch, epoch - w.now%epoch - 1, -w.now % epoch, -w.now%epoch - 1, 2 * epoch}),
			rapid.SampledFrom([]int64{length - at, length - at - 1, length - at + 1, -at, -at - 1, -at + 1, length / 4096, length / 16, 2*length - at}),
		).Draw(t, "move")
		w.now = max(w.now+move, newest-length+1)
		newest = max(newest, w.now)
		w.compare(t, mem, w.drawEntries(t, w.near, func(int) *limit.Terms {
			return terms[rapid.IntRange(0, len(terms)-1).Draw(t, "terms")]
		}))
	}
}

// onlyForth: several classes, tags and locks, while the clock goes forward. Each side has its own idea of
// what shares a recorded clock, and nobody sees it.
func (w *twins) onlyForth(t *rapid.T) {
	mem := w.fresh(t)
	terms := make([]*limit.Terms, 4)
	for i := range terms {
		terms[i] = drawTerms(t, drawClass(t))
	}
	w.now = rapid.Int64Range(1, 1<<51).Draw(t, "start")
	for range rapid.IntRange(1, 40).Draw(t, "calls") {
		length := terms[rapid.IntRange(0, len(terms)-1).Draw(t, "length of")].Class.Length.Microseconds()
		w.now += rapid.OneOf(
			rapid.Int64Range(0, 3),
			rapid.Int64Range(0, 2*length),
			rapid.Int64Range(0, 2*limit.LeaseTTL.Microseconds()),
			rapid.SampledFrom([]int64{length - w.now%length, length - w.now%length - 1, 2*length - w.now%length}),
		).Draw(t, "move")
		w.now = min(w.now, 1<<52)
		w.compare(t, mem, w.drawEntries(t, w.far, func(i int) *limit.Terms { return terms[i%len(terms)] }))
	}
}

func (w *twins) any(t *rapid.T) {
	all := []func(*rapid.T){w.backAndForth, w.onlyForth, w.dividedBackAndForth, w.dividedOnlyForth}
	all[rapid.IntRange(0, len(all)-1).Draw(t, "kind")](t)
}

func TestScriptAgainstTwin(t *testing.T) {
	w := newTwins(t)
	t.Run("back and forth", rapid.MakeCheck(w.backAndForth))
	t.Run("only forth", rapid.MakeCheck(w.onlyForth))
	t.Run("divided, back and forth", rapid.MakeCheck(w.dividedBackAndForth))
	t.Run("divided, only forth", rapid.MakeCheck(w.dividedOnlyForth))
	w.checkSeen(t)
}

// FuzzScriptAgainstTwin is best run with -fuzzminimizetime 1x: the store's own goroutines make
// coverage vary, and the fuzzer would spend its time on making such inputs small.
func FuzzScriptAgainstTwin(f *testing.F) {
	w := newTwins(f)
	for i := range byte(8) {
		history := make([]byte, 4096) // a short one ends before it has drawn a call
		rand.NewChaCha8([32]byte{i}).Read(history)
		f.Add(history)
	}
	f.Fuzz(rapid.MakeFuzz(w.any))
}

// TestBackMoreThanAGeneration: as long as the call names a hash of the later time, the script
// either stands still at it or refuses; it never fills a bucket.
func TestBackMoreThanAGeneration(t *testing.T) {
	w := newTwins(t)
	terms := compile(t, 10, time.Second)
	length := terms.Class.Length.Microseconds()
	start := 1000*length + length/2
	redistest.Must(t, w.admin.FlushDB(t.Context()).Err())
	b := w.near[0]
	w.now = start - length
	w.store.must(t, b, terms, limit.Take, 1)
	w.now = start
	if out := w.store.must(t, b, terms, limit.TakePartial, 100); out.Granted != 10 {
		t.Fatalf("granted %d", out.Granted)
	}
	refused := 0
	for _, back := range []int64{1, length / 2, length/2 + 1, length, 3 * length / 2, 3*length/2 + 1, 2 * length} {
		w.now = start - back
		out, err := w.store.do(b, terms, limit.TakePartial, 100)
		switch {
		case errors.Is(err, batcher.ErrNotRun):
			refused++
		case err != nil || out.Granted != 0 || out.Lag != back*1000:
			t.Errorf("back by %d us: %+v, %v", back, out, err)
		}
	}
	if refused != 2 {
		t.Errorf("%d calls were refused, want the 2 that do not name the later hash", refused)
	}
	w.now = start + 100_000
	if out := w.store.must(t, b, terms, limit.TakePartial, 100); out.Granted != 1 {
		t.Errorf("after 100 ms: %+v", out)
	}
}
