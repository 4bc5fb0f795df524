package memstore

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/spillgate/spillgate/batcher"
	"github.com/spillgate/spillgate/limit"
)

// reference is a token bucket in exact integers: level counts tokens * period, and refills by requests per
// nanosecond. Admissions replayed into it must never take it below zero (G1).
type reference struct {
	rate  limit.Rate
	level int64
	last  int64
}

const longAgo = -1 << 60

func newReference(r limit.Rate) *reference {
	return &reference{rate: r, level: int64(r.Burst) * int64(r.Period), last: longAgo}
}

func (r *reference) admit(nanos int64, n limit.Tokens) bool {
	full := int64(r.rate.Burst) * int64(r.rate.Period)
	if since := nanos - r.last; since > full/int64(r.rate.Requests) {
		r.level = full
	} else {
		r.level = min(full, r.level+since*int64(r.rate.Requests))
	}
	r.last = nanos
	r.level -= int64(n) * int64(r.rate.Period)
	return r.level >= 0
}

// refund gives tokens back; the cap counts at the next admission.
func (r *reference) refund(n limit.Tokens) { r.level += int64(n) * int64(r.rate.Period) }

func drawRate(t *rapid.T, label string) limit.Rate {
	return limit.Rate{
		Requests: limit.Tokens(rapid.Int64Range(1, 1000).Draw(t, label+": requests")),
		Period:   time.Duration(rapid.Int64Range(1000, int64(20*time.Second)).Draw(t, label+": period")),
		Burst:    limit.Tokens(rapid.Int64Range(1, 100).Draw(t, label+": burst")),
	}
}

// TestNeverOver is G1: several buckets and classes in one shard, and a clock that jumps at will. The
// time of an admission is the store's: where the clock was set back, its lag is added.
func TestNeverOver(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, err := New(Config{})
		if err != nil {
			t.Fatal(err)
		}
		var (
			all   = s.neighbours(4)
			rates [4]limit.Rate
			comp  [4]*limit.Terms
			refs  [4]*reference
			taken [4]limit.Tokens
			seen  [4]int64 // the latest time of an admission
		)
		for i := range all {
			rates[i] = drawRate(t, fmt.Sprint("bucket ", i))
			if comp[i], err = rates[i].Terms(); err != nil {
				t.Skip(err)
			}
			refs[i], seen[i] = newReference(rates[i]), longAgo
		}
		now := rapid.Int64Range(0, 1e12).Draw(t, "start")
		ahead := now // the latest time that was shown
		for range rapid.IntRange(1, 60).Draw(t, "operations") {
			i := rapid.IntRange(0, len(all)-1).Draw(t, "bucket")
			length := int64(comp[i].Class.Length)
			// In microseconds, so that the lag is exact.
			now += rapid.OneOf(
				rapid.Int64Range(0, 10),
				rapid.Int64Range(0, 2*int64(rates[i].Period)/1000),
				rapid.Int64Range(-length/4096/1000, 0),
				rapid.Int64Range(-3*length/1000, 3*length/1000),
				rapid.Just(length/1000-now%(length/1000)), // a boundary
				rapid.Just(-now%(length/1000)-1),
			).Draw(t, "move")
			ahead = max(ahead, now)
			op := rapid.SampledFrom([]limit.Op{limit.Take, limit.TakePartial, limit.Refund}).Draw(t, "op")
			n := limit.Tokens(rapid.Int64Range(0, int64(rates[i].Burst)+1).Draw(t, "n"))
			if op == limit.Refund {
				if n = min(n, taken[i]); now*1000 < seen[i] {
					continue // the replay is in order of time; a refund of later tokens has no place in it
				}
			}
			out, err := s.op(all[i], comp[i], op, n, now*1000)
			if err != nil {
				t.Fatal(err)
			}
			if most := 1000 * (ahead - now); out.Lag < 0 || out.Lag > most {
				t.Fatalf("lag %d, the clock was never further ahead than %d", out.Lag, most)
			}
			switch {
			case op == limit.Refund:
				taken[i] -= n
				refs[i].refund(n)
			case out.Granted > 0:
				taken[i] += out.Granted
				seen[i] = max(seen[i], now*1000+out.Lag)
				if !refs[i].admit(seen[i], out.Granted) {
					t.Fatalf("%+v: granted %d of %d, and the reference bucket is below zero", rates[i], out.Granted, n)
				}
			}
		}
	})
}

// TestLikeOneLongTimeline: while time goes forward, generations are invisible. The oracle keeps
// every TAT for ever, in ticks since 1970.
func TestLikeOneLongTimeline(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, err := New(Config{})
		if err != nil {
			t.Fatal(err)
		}
		rate := drawRate(t, "rate")
		terms, err := rate.Terms()
		if err != nil {
			t.Skip(err)
		}
		names := s.neighbours(2)
		oracle := map[limit.Sum]limit.Ticks{}
		now := rapid.Int64Range(0, 1e12).Draw(t, "start")
		for range rapid.IntRange(1, 60).Draw(t, "operations") {
			now += rapid.OneOf(
				rapid.Int64Range(0, 2*int64(rate.Period)),
				rapid.Int64Range(0, 2*int64(terms.Class.Length)),
			).Draw(t, "move")
			b := names[rapid.IntRange(0, 1).Draw(t, "bucket")]
			op := limit.Op(rapid.IntRange(1, 5).Draw(t, "op"))
			n := limit.Tokens(rapid.Int64Range(0, 2*int64(rate.Burst)).Draw(t, "n"))

			gen, ticks := terms.Class.At(now)
			at := limit.Ticks(gen)*terms.Class.Span() + ticks
			tat, found := oracle[b.Sum()]
			if !found {
				tat = at
			}
			next, granted, write := terms.Apply(op, n, tat, at)
			if write {
				oracle[b.Sum()] = next
			}
			want := limit.Outcome{Granted: granted, Level: max(0, next-at)}
			if got, err := s.op(b, terms, op, n, now); err != nil || got != want {
				t.Fatalf("op %d of %d at %d: %+v, %v; want %+v", op, n, now, got, err, want)
			}
		}
	})
}

// TestRecount: goroutines take and refund at one moment; what the cell says equals what
// they hold, and never was it more than the burst.
func TestRecount(t *testing.T) {
	const goroutines, operations, burst = 8, 2000, 500
	s, rate := newStore(t, Config{}), terms(t, burst, time.Hour, 0)
	b, now := s.bucket("b"), s.Now()
	held := make([]limit.Tokens, goroutines)
	var wg sync.WaitGroup
	for g := range goroutines {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(1, uint64(g)))
			e := batcher.Entry{Bucket: b, Terms: rate}
			for range operations {
				e.Op, e.N = []limit.Op{limit.Take, limit.TakePartial}[r.IntN(2)], limit.Tokens(r.IntN(20))
				if back := limit.Tokens(r.IntN(20)); back <= held[g] && r.IntN(2) == 0 {
					e.Op, e.N = limit.Refund, back
				}
				s.ApplyAt(now, &e)
				switch {
				case e.Err != nil:
					t.Error(e.Err)
				case e.Op == limit.Refund:
					held[g] -= e.N
				default:
					held[g] += e.Out.Granted
				}
				if held[g] > burst {
					t.Errorf("one goroutine holds %d of %d", held[g], burst)
				}
			}
		})
	}
	wg.Wait()
	var all limit.Tokens
	for _, n := range held {
		all += n
	}
	if out := s.must(t, b, rate, limit.TakePartial, 0, now); all > burst || out.Level != limit.Ticks(all)*rate.Emission {
		t.Errorf("the goroutines hold %d tokens, the cell says %d", all, out.Level/rate.Emission)
	}
}

// TestConcurrentGenerations: many goroutines, buckets and classes while time moves over boundaries; in
// all, no bucket admits more than burst + rate * time (G1).
func TestConcurrentGenerations(t *testing.T) {
	const goroutines, steps, buckets = 6, 400, 5
	const step = second / 10
	s := newStore(t, Config{})
	rates := []*limit.Terms{terms(t, 20, time.Second, 0), terms(t, 10, 10*time.Second, 20), terms(t, 7, 3*time.Second, 5)}
	type key struct{ rate, bucket int }
	var mu sync.Mutex
	granted := map[key]limit.Tokens{}
	start := s.Now()
	var wg sync.WaitGroup
	for g := range goroutines {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(2, uint64(g)))
			own := map[key]limit.Tokens{}
			for i := range int64(steps) {
				k := key{r.IntN(len(rates)), r.IntN(buckets)}
				e := batcher.Entry{Bucket: s.bucket(fmt.Sprint(k)), Terms: rates[k.rate], Op: limit.TakePartial, N: 3}
				s.ApplyAt(start+i*step, &e)
				if e.Err != nil {
					t.Error(e.Err)
				}
				own[k] += e.Out.Granted
			}
			mu.Lock()
			defer mu.Unlock()
			for k, n := range own {
				granted[k] += n
			}
		})
	}
	wg.Wait()
	for k, n := range granted {
		rate := rates[k.rate]
		// The rate of terms is at most the configured one.
		most := rate.Burst + limit.Tokens(int64(steps-1)*step/int64(rate.Class.Duration(rate.Emission)-1))
		if n > most {
			t.Errorf("bucket %v admitted %d, want at most %d", k, n, most)
		}
	}
}
