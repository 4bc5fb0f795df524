package storetest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/spillgate/spillgate/batcher"
	"github.com/spillgate/spillgate/limit"
)

// admission is a grant and the two moments between which it was made.
type admission struct {
	from, to time.Duration
	n        limit.Tokens
}

// recount looks at every window that begins with an admission and ends with one: those that
// lie in it whole are at most burst + rate * length (G1).
func (b *bench) recount(what string, terms *limit.Terms, all []admission) {
	b.Helper()
	slices.SortFunc(all, func(x, y admission) int { return int(x.to - y.to) })
	for _, first := range all {
		var sum limit.Tokens
		for _, a := range all {
			if a.from < first.from {
				continue
			}
			sum += a.n
			if window := a.to - first.from; sum > terms.Burst+refill(terms, window) {
				b.Errorf("%s: %d admitted within %v", what, sum, window)
				return
			}
		}
	}
}

// refill is the most that a bucket gains in a time. The store's clock and ours may be told
// apart by a thousandth, and by the microsecond to which it is read.
func refill(terms *limit.Terms, d time.Duration) limit.Tokens {
	micros := float64(d+d/1000)/1000 + 10
	return limit.Tokens(micros * terms.Class.PerMicro / float64(terms.Emission))
}

// neverOver: many callers, in calls that share buckets, while time goes on. However slow the store is, they ask for thrice the largest burst.
func neverOver(b *bench) {
	const callers, calls, length = 6, 30, 300 * time.Millisecond
	terms := []*limit.Terms{b.compile(200, time.Second, 20), b.compile(7, 3*time.Second, 3), b.compile(1000, time.Second, 1),
		b.compile(100, time.Hour, 0)}
	names := make([]limit.Bucket, len(terms))
	for i := range names {
		names[i] = b.bucket("contended", fmt.Sprint(i))
	}
	ledgers := make([][]admission, len(terms))
	var mu sync.Mutex
	start := time.Now()
	var all sync.WaitGroup
	for caller := range callers {
		all.Go(func() {
			r := rand.New(rand.NewPCG(3, uint64(caller)))
			for n := 0; n < calls || time.Since(start) < length; n++ {
				var entries []*batcher.Entry
				for i, name := range names {
					op := []limit.Op{limit.Take, limit.TakePartial}[r.IntN(2)]
					entries = append(entries, &batcher.Entry{Bucket: name, Terms: terms[i], Op: op, N: limit.Tokens(1 + r.IntN(3))})
				}
				from := time.Since(start)
				b.apply(entries...)
				to := time.Since(start)
				mu.Lock()
				for i, e := range entries {
					if e.Err != nil {
						b.Error(e.Err)
					} else if e.Out.Granted > 0 {
						ledgers[i] = append(ledgers[i], admission{from, to, e.Out.Granted})
					}
				}
				mu.Unlock()
			}
		})
	}
	all.Wait()
	for i, ledger := range ledgers {
		b.recount(fmt.Sprintf("%d per %v ticks", terms[i].Burst, terms[i].Emission), terms[i], ledger)
		var sum limit.Tokens
		for _, a := range ledger {
			sum += a.n
		}
		if sum < terms[i].Burst {
			b.Errorf("bucket %d: only %d of a burst of %d were admitted", i, sum, terms[i].Burst)
		}
	}
}

// rates is faults 11 and 12: whoever takes all there is, all the time, gets burst + rate *
// time, neither more nor less.
func rates(b *bench) {
	const length = 60 * time.Millisecond
	tests := []limit.Rate{
		{Requests: 1, Period: time.Microsecond, Burst: 1e6},
		{Requests: 100_000, Period: time.Second},
		{Requests: 1, Period: 10 * time.Second},
		{Requests: 7, Period: 3 * time.Second},
		{Requests: 1_000_003, Period: 7 * time.Second},
		{Requests: 50, Period: time.Second},
		{Requests: 1000, Period: 30 * 24 * time.Hour},
		{Requests: 1, Period: 8 * 365 * 24 * time.Hour},
		{Requests: limit.MaxTokens, Period: 8 * 365 * 24 * time.Hour},
		{Requests: 1, Period: time.Microsecond, Burst: limit.MaxTokens}, // takes 12 days to fill
	}
	terms, granted := make([]*limit.Terms, len(tests)), make([]limit.Tokens, len(tests))
	entries := make([]*batcher.Entry, len(tests))
	for i, rate := range tests {
		terms[i] = b.compile(rate.Requests, rate.Period, rate.Burst)
		entries[i] = &batcher.Entry{Bucket: b.bucket("rate", fmt.Sprint(i)), Terms: terms[i], Op: limit.TakePartial, N: limit.MaxTokens}
	}
	start := time.Now()
	var first, last, end time.Duration // the first call's end, the last one's begin and end
	for end < length {
		last = time.Since(start)
		b.apply(entries...)
		end = time.Since(start)
		if first == 0 {
			first = end
		}
		for i, e := range entries {
			if e.Err != nil {
				b.Fatal(e.Err)
			}
			granted[i] += e.Out.Granted
		}
	}
	for i, rate := range tests {
		most := terms[i].Burst + refill(terms[i], end)
		micros := float64(last-first)/1000*0.999 - 10
		least := terms[i].Burst + limit.Tokens(micros*terms[i].Class.PerMicro/float64(terms[i].Emission)) - 1
		if got := granted[i]; got > most || got < least {
			b.Errorf("%d per %v: granted %d, want %d to %d", rate.Requests, rate.Period, got, least, most)
		}
	}
}

// retryIsEnough is G4.
func retryIsEnough(b *bench) {
	for i, rate := range []limit.Rate{
		{Requests: 100, Period: time.Second, Burst: 3}, {Requests: 7, Period: 300 * time.Millisecond, Burst: 5},
		{Requests: 3000, Period: time.Second, Burst: 1},
	} {
		name, terms := b.bucket("retry", fmt.Sprint(i)), b.compile(rate.Requests, rate.Period, rate.Burst)
		for turn := range limit.Tokens(6) {
			n := turn%terms.Burst + 1
			d := terms.Decide(n, b.denied(name, terms, n))
			if d.Reason != limit.OverLimit || d.RetryAfter <= 0 || d.RetryAfter > terms.Class.Duration(terms.Depth) {
				b.Fatalf("%+v: a take of %d: %+v", rate, n, d)
			}
			time.Sleep(d.RetryAfter + d.RetryAfter/1000) // two clocks
			if again := terms.Decide(n, b.op(name, terms, limit.Take, n)); !again.Admitted {
				b.Errorf("%+v: a take of %d, told to wait %v, was then denied: %+v", rate, n, d.RetryAfter, again)
			}
		}
	}
}

// denied empties a bucket and takes n more, at one moment: in calls of their own, tokens may have come in between.
func (b *bench) denied(name limit.Bucket, terms *limit.Terms, n limit.Tokens) limit.Outcome {
	b.Helper()
	all := batcher.Entry{Bucket: name, Terms: terms, Op: limit.TakePartial, N: limit.MaxTokens}
	more := batcher.Entry{Bucket: name, Terms: terms, Op: limit.Take, N: n, Round: 1}
	if b.apply(&all, &more); all.Err != nil || more.Err != nil || more.Out.Granted != 0 {
		b.Fatalf("of an empty bucket: %+v after %+v; %v, %v", more.Out, all.Out, more.Err, all.Err)
	}
	return more.Out
}
