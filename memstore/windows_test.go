package memstore

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/spillgate/spillgate/batcher"
	"github.com/spillgate/spillgate/limit"
)

var windowKinds = []limit.Algorithm{limit.FixedWindow, limit.SlidingWindow, limit.SlidingLog}

func windowTerms(tb interface{ Fatal(...any) }, a limit.Algorithm, requests limit.Tokens, period time.Duration) *limit.Terms {
	terms, err := limit.Rate{Algorithm: a, Requests: requests, Period: period}.Terms()
	if err != nil {
		tb.Fatal(err)
	}
	return terms
}

func drawWindow(t *rapid.T, label string) *limit.Terms {
	return windowTerms(t, rapid.SampledFrom(windowKinds).Draw(t, label+": algorithm"), limit.Tokens(rapid.Int64Range(1, 50).Draw(t, label+": requests")),
		time.Duration(rapid.Int64Range(1000, 20_000_000).Draw(t, label+": period"))*time.Microsecond)
}

// TestWindowsLikeOneLongTimeline: while time goes forward, generations are invisible. The oracle keeps every cell for ever.
func TestWindowsLikeOneLongTimeline(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, err := New(Config{})
		if err != nil {
			t.Fatal(err)
		}
		terms := drawWindow(t, "window")
		names, oracle := s.neighbours(2), map[limit.Sum]limit.Window{}
		now := rapid.Int64Range(0, 1e15).Draw(t, "start")
		var epochs []int64
		for range rapid.IntRange(1, 60).Draw(t, "operations") {
			now += rapid.OneOf(
				rapid.Int64Range(0, int64(terms.Class.Window)),
				rapid.Int64Range(0, 2*int64(terms.Class.Length)),
				rapid.Just(int64(terms.Class.Window)-now%int64(terms.Class.Window)),
			).Draw(t, "move")
			e := batcher.Entry{Bucket: names[rapid.IntRange(0, 1).Draw(t, "bucket")], Terms: terms}
			e.Op = limit.Op(rapid.IntRange(1, 5).Draw(t, "op"))
			e.N = limit.Tokens(rapid.Int64Range(0, 2*int64(terms.Burst)).Draw(t, "n"))
			if e.Op == limit.Refund && len(epochs) > 0 {
				e.Ask.Epoch = epochs[max(0, len(epochs)-1-rapid.IntRange(0, 3).Draw(t, "of"))]
			}
			next, want, write := terms.ApplyWindow(e.Op, e.N, &e.Ask, oracle[e.Bucket.Sum()], now/1000)
			if write {
				oracle[e.Bucket.Sum()] = next
				epochs = append(epochs, want.Epoch)
			}
			if s.ApplyAt(now, &e); e.Err != nil || e.Out != want {
				t.Fatalf("op %d of %d at %d: %+v, %v; want %+v", e.Op, e.N, now, e.Out, e.Err, want)
			}
		}
	})
}

// TestWindowsNeverOver: several buckets and kinds in one shard, and a clock that jumps at will: no window has more than its
// limit, and of a log none at all.
func TestWindowsNeverOver(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, err := New(Config{})
		if err != nil {
			t.Fatal(err)
		}
		var all [4]*limit.Terms
		var taken [4]map[int64]limit.Tokens // by epoch
		names := s.neighbours(len(all))
		for i := range all {
			all[i], taken[i] = drawWindow(t, fmt.Sprint("bucket ", i)), map[int64]limit.Tokens{}
		}
		now := rapid.Int64Range(1e9, 1e12).Draw(t, "start")
		for range rapid.IntRange(1, 60).Draw(t, "operations") {
			i := rapid.IntRange(0, len(all)-1).Draw(t, "bucket")
			terms := all[i]
			length, window := terms.Class.Length.Microseconds(), terms.Class.Window.Microseconds()
			now = max(0, now+rapid.OneOf(
				rapid.Int64Range(0, 10),
				rapid.Int64Range(0, window),
				rapid.Int64Range(-length/4096, 0),
				rapid.Int64Range(-3*length, 3*length),
				rapid.Just(window-now%window),
				rapid.Just(-now%window-1),
			).Draw(t, "move"))
			e := batcher.Entry{Bucket: names[i], Terms: terms, N: limit.Tokens(rapid.Int64Range(0, int64(terms.Burst)+1).Draw(t, "n"))}
			e.Op = rapid.SampledFrom([]limit.Op{limit.Take, limit.TakePartial, limit.TakePartial, limit.Refund}).Draw(t, "op")
			if e.Op == limit.Refund {
				for epoch, n := range taken[i] {
					if e.Ask.Epoch = epoch; n > 0 {
						e.N = min(e.N, n)
						break
					}
				}
				e.N = min(e.N, taken[i][e.Ask.Epoch])
			}
			if s.ApplyAt(now*1000, &e); e.Err != nil {
				t.Fatal(e.Err)
			}
			if e.Op == limit.Refund {
				taken[i][e.Ask.Epoch] -= e.Out.Granted
				continue
			}
			epoch, sum := e.Out.Epoch, limit.Tokens(0)
			taken[i][epoch] += e.Out.Granted
			if e.Out.Granted == 0 {
				continue
			}
			for at, n := range taken[i] {
				if at == epoch || terms.Algorithm == limit.SlidingLog && at < epoch && at > epoch-window {
					sum += n
				}
			}
			if sum > terms.Burst {
				t.Fatalf("%v: %d of %d in window %d", terms.Algorithm, sum, terms.Burst, epoch)
			}
		}
	})
}

// TestWindowsForgotten: cells of windows that are over take no memory.
func TestWindowsForgotten(t *testing.T) {
	s := newStore(t, Config{})
	now := int64(1e15)
	names := s.neighbours(50)
	for _, a := range windowKinds {
		terms := windowTerms(t, a, 10, time.Second)
		for _, name := range names {
			s.must(t, name, terms, limit.Take, 3, now)
		}
	}
	if n := s.Cells(); n != len(names)*len(windowKinds) {
		t.Fatalf("%d cells", n)
	}
	now += 3 * int64(4*time.Second)
	for _, a := range windowKinds {
		s.must(t, names[0], windowTerms(t, a, 10, time.Second), limit.Take, 1, now)
	}
	if n := s.Cells(); n != len(windowKinds) {
		t.Errorf("%d cells are left", n)
	}
	for _, h := range s.shard[7].mu.hashes {
		if len(h.windows) != 1 {
			t.Errorf("%v: %d windows are left", h.class, len(h.windows))
		}
	}
}
