package redisshard

import (
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/spillgate/spillgate/batcher"
	"github.com/spillgate/spillgate/limit"
)

var windowKinds = []limit.Algorithm{limit.FixedWindow, limit.SlidingWindow, limit.SlidingLog}

func drawWindow(t *rapid.T, a limit.Algorithm, period time.Duration) *limit.Terms {
	most := int64(limit.MaxTokens)
	if a == limit.SlidingLog {
		most = int64(limit.MaxLog)
	}
	requests := rapid.OneOf(rapid.Int64Range(1, 20), rapid.Int64Range(1, most)).Draw(t, "requests")
	terms, err := limit.Rate{Algorithm: a, Requests: limit.Tokens(requests), Period: period}.Terms()
	if err != nil {
		t.Fatal(err)
	}
	return terms
}

func drawPeriod(t *rapid.T) time.Duration {
	return time.Microsecond * time.Duration(rapid.OneOf(
		rapid.Int64Range(1000, 10_000_000),
		rapid.SampledFrom([]int64{1000, 4095, 4096, 4097, 1_000_000, 60_000_000, 86_400_000_000}),
		rapid.Int64Range(1000, limit.MaxWindow.Microseconds()),
	).Draw(t, "period"))
}

// windowEntry draws an entry on a window; refunds are mostly of what was granted.
func (w *twins) windowEntry(t *rapid.T, b limit.Bucket, terms *limit.Terms, round int) *batcher.Entry {
	e := &batcher.Entry{Bucket: b, Terms: terms, Op: rapid.SampledFrom([]limit.Op{limit.Take, limit.Take, limit.TakePartial,
		limit.TakePartial, limit.Charge, limit.Refund, limit.Reset, limit.Lease}).Draw(t, "op"), N: drawTokens(t, terms, "n"), Round: round}
	if rapid.IntRange(0, 15).Draw(t, "negative") == 0 {
		e.N = -e.N // an agent never sends it
	}
	if e.Op == limit.Refund && len(w.leases) > 0 {
		g := w.leases[rapid.IntRange(max(0, len(w.leases)-6), len(w.leases)-1).Draw(t, "of")]
		e.Ask.Epoch = g.epoch
	}
	if rapid.Bool().Draw(t, "with a piece") {
		e.Ask.Piece = drawTokens(t, terms, "piece")
	}
	if e.Op == limit.Lease {
		e.N, e.Ask = max(0, e.N), w.drawAsk(t, terms)
	}
	return e
}

// windows draws calls on windows of all kinds and on token buckets. The clock goes back by less than a generation if back is set; the
// buckets are those that share a clock then, and one of each class.
func (w *twins) windows(t *rapid.T, back bool) {
	mem, buckets := w.fresh(t), w.far
	period := drawPeriod(t)
	var terms []*limit.Terms
	if back {
		buckets = w.near
		a := rapid.SampledFrom(windowKinds).Draw(t, "algorithm")
		for range 3 {
			terms = append(terms, drawWindow(t, a, period))
		}
	} else {
		for _, a := range windowKinds {
			terms = append(terms, drawWindow(t, a, period), drawWindow(t, a, drawPeriod(t)))
		}
		terms = append(terms, drawTerms(t, drawClass(t)))
	}
	class := terms[0].Class
	length, window := class.Length.Microseconds(), class.Window.Microseconds()
	w.now = length + rapid.Int64Range(1, 1<<51).Draw(t, "start")
	newest := w.now
	for range rapid.IntRange(1, 30).Draw(t, "calls") {
		least := int64(0)
		if back {
			least = -length
		}
		into, of := w.now%window, w.now%length
		w.now += max(least, rapid.OneOf(
			rapid.Int64Range(-3, 3),
			rapid.Int64Range(0, window),
			rapid.Int64Range(-window, window),
			rapid.Int64Range(least, 3*length),
			rapid.Int64Range(-length/4096-1, length/4096+1),
			rapid.SampledFrom([]int64{window - into, window - into - 1, window, window - 1, 2*window - into, -into, -into - 1}),
			rapid.SampledFrom([]int64{length - of, length - of - 1, 2*length - of, -of, -of - 1}),
		).Draw(t, "move"))
		w.now = max(w.now, newest-length+1)
		newest = max(newest, w.now)
		var entries []*batcher.Entry
		count := make([]int, len(buckets))
		for range rapid.IntRange(1, 8).Draw(t, "entries") {
			i := rapid.IntRange(0, len(buckets)-1).Draw(t, "bucket")
			of := terms[i%len(terms)]
			if back {
				of = terms[rapid.IntRange(0, len(terms)-1).Draw(t, "terms")]
			}
			if of.Algorithm == limit.TokenBucket {
				entries = append(entries, w.drawEntry(t, buckets[i], of, count[i]))
			} else {
				entries = append(entries, w.windowEntry(t, buckets[i], of, count[i]))
			}
			count[i]++
		}
		w.compare(t, mem, entries)
		for _, e := range entries {
			if e.Terms.Algorithm != limit.TokenBucket && e.Err == nil && e.Op != limit.Refund && e.Out.Granted > 0 {
				w.leases = append(w.leases, grant{epoch: e.Out.Epoch, n: e.Out.Granted})
			}
		}
	}
}

func (w *twins) windowsBackAndForth(t *rapid.T) { w.windows(t, true) }
func (w *twins) windowsOnlyForth(t *rapid.T)    { w.windows(t, false) }

func TestScriptAgainstTwinWindows(t *testing.T) {
	w := newTwins(t)
	t.Run("back and forth", rapid.MakeCheck(w.windowsBackAndForth))
	t.Run("only forth", rapid.MakeCheck(w.windowsOnlyForth))
}

// FuzzWindowsAgainstTwin is FuzzScriptAgainstTwin for the window kinds.
func FuzzWindowsAgainstTwin(f *testing.F) {
	w := newTwins(f)
	for i := range byte(8) {
		history := make([]byte, 4096)
		rand.NewChaCha8([32]byte{100 + i}).Read(history)
		f.Add(history)
	}
	f.Fuzz(rapid.MakeFuzz(func(t *rapid.T) { w.windows(t, rapid.Bool().Draw(t, "back")) }))
}
