package storetest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/spillgate/spillgate/batcher"
	"github.com/spillgate/spillgate/limit"
)

var windowKinds = []limit.Algorithm{limit.FixedWindow, limit.SlidingWindow, limit.SlidingLog}

var windowCases = []testCase{
	{"last of a window", eachWindow(windowLast)},
	{"all or nothing of a window", eachWindow(windowPartial)},
	{"peek and denial of a window", eachWindow(windowFree)},
	{"refund to a window", eachWindow(windowRefund)},
	{"reset of a window", eachWindow(windowReset)},
	{"changed limit of a window", eachWindow(windowChanged)},
	{"what windows do not have", eachWindow(windowRefused)},
	{"leases of windows", windowLeases},
	{"leases end with their window", leasesEndWithWindows},
	{"algorithms apart", algorithmsApart},
	{"one after another", eachWindow(windowAfterWindow)},
	{"never over in a window", eachWindow(windowNeverOver)},
	{"retry of a window is enough", eachWindow(windowRetry)},
}

// eachWindow runs a case for each window kind.
func eachWindow(run func(*bench, limit.Algorithm)) func(*bench) {
	return func(b *bench) {
		for _, a := range windowKinds {
			run(b, a)
		}
	}
}

// window gives the terms of a window kind.
func (b *bench) window(a limit.Algorithm, requests limit.Tokens, period time.Duration) *limit.Terms {
	b.Helper()
	terms, err := limit.Rate{Algorithm: a, Requests: requests, Period: period}.Terms()
	if err != nil {
		b.Fatal(err)
	}
	return terms
}

// yearly is a window of 10 that no test sees the end of.
func (b *bench) yearly(a limit.Algorithm) *limit.Terms {
	b.Helper()
	return b.window(a, 10, limit.MaxWindow)
}

// windowLast is fault 14.
func windowLast(b *bench, a limit.Algorithm) {
	name, terms := b.bucket("window last"), b.yearly(a)
	for i := limit.Tokens(1); i <= 11; i++ {
		out := b.op(name, terms, limit.Take, 1)
		d := terms.Decide(1, out)
		left := max(0, 10-i)
		if d.Admitted != (i <= 10) || d.Remaining != left || d.Limit != 10 || d.ResetAfter <= 0 || d.ResetAfter > 2*limit.MaxWindow {
			b.Errorf("%v: take %d: %+v of %+v", a, i, d, out)
		}
		if i == 11 && (d.Reason != limit.OverLimit || d.RetryAfter <= 0 || d.RetryAfter > 2*limit.MaxWindow) {
			b.Errorf("%v: take 11 may come back after %v", a, d.RetryAfter)
		}
	}
}

func windowPartial(b *bench, a limit.Algorithm) {
	name, terms := b.bucket("window partial"), b.yearly(a)
	b.expect(name, terms, limit.Take, 7, 7, 7)
	b.expect(name, terms, limit.Take, 4, 0, 7)
	b.expect(name, terms, limit.TakePartial, 2, 2, 9)
	b.expect(name, terms, limit.TakePartial, limit.MaxTokens, 1, 10)
	b.expect(name, terms, limit.TakePartial, 1, 0, 10)
	b.expect(name, terms, limit.Charge, 5, 0, 10)
	b.expect(b.bucket("window charge"), terms, limit.Charge, limit.MaxTokens, 10, 10)
}

// windowFree is faults 9 and 10, and G5.
func windowFree(b *bench, a limit.Algorithm) {
	name, terms := b.bucket("window free"), b.yearly(a)
	before := cells(b.store)
	b.expect(name, terms, limit.TakePartial, 0, 0, 0)
	for _, n := range []limit.Tokens{11, 1 << 20, limit.MaxTokens} {
		d := terms.Decide(n, b.op(name, terms, limit.Take, n))
		if d.Admitted || d.Reason != limit.Never || d.RetryAfter != limit.NoRetry || d.Remaining != 10 {
			b.Errorf("%v: a cost of %d: %+v", a, n, d)
		}
	}
	b.expect(name, terms, limit.Refund, 3, 0, 0)
	if after := cells(b.store); after != before {
		b.Errorf("%v: peeks and denials made %d cells", a, after-before)
	}
	b.expect(name, terms, limit.Take, 8, 8, 8)
	for range 20 {
		b.expect(name, terms, limit.Take, 3, 0, 8)
	}
	b.expect(name, terms, limit.Take, 2, 2, 10)
}

func windowRefund(b *bench, a limit.Algorithm) {
	name, terms := b.bucket("window refund"), b.yearly(a)
	refund := func(epoch int64, n, granted, out limit.Tokens) {
		b.Helper()
		e := batcher.Entry{Bucket: name, Terms: terms, Op: limit.Refund, N: n, Ask: limit.Ask{Epoch: epoch}}
		if b.apply(&e); e.Err != nil || e.Out.Granted != granted || e.Out.Level != limit.Ticks(out) {
			b.Errorf("%v: a refund of %d: %+v, %v; want %d, and %d out", a, n, e.Out, e.Err, granted, out)
		}
	}
	epoch := b.op(name, terms, limit.Take, 5).Epoch
	refund(epoch-1, 2, 0, 5) // of another window
	refund(epoch+1, 2, 0, 5)
	refund(epoch, 0, 0, 5)
	refund(epoch, 2, 2, 3)
	refund(epoch, limit.MaxTokens, 3, 0)
	refund(epoch, 1, 0, 0)
	b.expect(name, terms, limit.TakePartial, 100, 10, 10) // and not more
}

func windowReset(b *bench, a limit.Algorithm) {
	name, terms := b.bucket("window reset"), b.yearly(a)
	b.expect(name, terms, limit.Take, 10, 10, 10)
	b.expect(name, terms, limit.Reset, 0, 0, 0)
	b.expect(name, terms, limit.TakePartial, 100, 10, 10)
	b.expect(b.bucket("window reset", "new"), terms, limit.Reset, 0, 0, 0)
}

// windowChanged: a limit that is lowered below what is used, and raised again. Another window starts anew.
func windowChanged(b *bench, a limit.Algorithm) {
	name, high, low := b.bucket("window changed"), b.window(a, 20, limit.MaxWindow), b.yearly(a)
	b.expect(name, high, limit.Take, 15, 15, 15)
	d := low.Decide(1, b.op(name, low, limit.Take, 1))
	if d.Admitted || d.Reason != limit.OverLimit || d.Remaining != 0 || d.RetryAfter <= 0 {
		b.Errorf("%v: 15 are used of 10: %+v", a, d)
	}
	b.expect(name, high, limit.TakePartial, 100, 5, 20)
	b.expect(name, b.window(a, 10, limit.MaxWindow-time.Second), limit.TakePartial, 100, 10, 10)
	for _, period := range []time.Duration{time.Second, 2 * time.Second, 500 * time.Millisecond} {
		b.expect(name, b.window(a, 10, period), limit.TakePartial, 100, 10, 10) // they share lengths of generations
	}
}

func windowRefused(b *bench, a limit.Algorithm) {
	name, terms := b.bucket("window lease"), b.yearly(a)
	part := &limit.Part{Index: 1, Split: limit.Split{Start: 1, Until: 1, Ways: 2}}
	entries := []*batcher.Entry{
		{Bucket: name, Terms: b.yearly(limit.SlidingLog), Op: limit.Lease, N: 1},
		{Bucket: name, Terms: terms, Op: limit.Touch, Part: &limit.Part{Home: true}, Round: 1},
		{Bucket: name, Terms: terms, Op: limit.Merge, Part: &limit.Part{Home: true}, Round: 2},
		{Bucket: name, Terms: terms, Op: limit.Take, N: 1, Round: 3},
	}
	b.apply(entries...)
	for _, e := range entries[:3] {
		if !errors.Is(e.Err, batcher.ErrNotRun) {
			b.Errorf("%v: op %d: %+v, %v", a, e.Op, e.Out, e.Err)
		}
	}
	if e := entries[3]; e.Err != nil || e.Out.Granted != 1 {
		b.Errorf("%v: a take beside them: %+v, %v", a, e.Out, e.Err)
	}
	e := batcher.Entry{Bucket: name, Terms: terms, Op: limit.Take, N: 1, Part: part}
	if b.apply(&e); !errors.Is(e.Err, batcher.ErrNotRun) {
		b.Errorf("%v: a part: %+v, %v", a, e.Out, e.Err)
	}
}

// windowLeases: what is leased counts at once, callers that wait come first, and what comes back is there again.
func windowLeases(b *bench) {
	for _, a := range []limit.Algorithm{limit.FixedWindow, limit.SlidingWindow} {
		name, terms := b.bucket("window leases", a.String()), b.window(a, 100, limit.MaxWindow)
		ask := func(n limit.Tokens, ask limit.Ask) limit.Outcome {
			b.Helper()
			e := batcher.Entry{Bucket: name, Terms: terms, Op: limit.Lease, N: n, Ask: ask}
			if b.apply(&e); e.Err != nil {
				b.Fatal(e.Err)
			}
			return e.Out
		}
		out := ask(30, limit.Ask{Take: 7, Piece: 7, Presence: 1})
		if out.Taken != 7 || out.Granted != 30 || out.Level != 37 || out.Term != int64(limit.LeaseTTL) || out.Contenders != 1 {
			b.Errorf("%v: %+v", a, out)
		}
		if again := ask(100, limit.Ask{Presence: 1}); again.Granted != 31 || again.Level != 68 {
			b.Errorf("%v: half of what is left: %+v", a, again)
		}
		if back := ask(0, limit.Ask{Epoch: out.Epoch, Settled: 20, Returned: 11, Presence: 1}); back.Level != 57 || back.Granted != 0 {
			b.Errorf("%v: eleven come back: %+v", a, back)
		}
		if void := ask(0, limit.Ask{Epoch: out.Epoch - 1, Settled: 20, Returned: 20, Presence: 1}); void.Level != 57 {
			b.Errorf("%v: of another window nothing comes back: %+v", a, void)
		}
		b.expect(name, terms, limit.TakePartial, 100, 43, 100)
		if none := ask(10, limit.Ask{Take: 3, Piece: 3, Presence: 1}); none.Taken != 0 || none.Granted != 0 || none.Level != 100 {
			b.Errorf("%v: nothing is left: %+v", a, none)
		}
	}
}

// leasesEndWithWindows: the term of a lease is over when its window is.
func leasesEndWithWindows(b *bench) {
	var entries []*batcher.Entry
	for _, a := range []limit.Algorithm{limit.FixedWindow, limit.SlidingWindow} {
		entries = append(entries, &batcher.Entry{Bucket: b.bucket("window term"), Terms: b.window(a, 1000, time.Second), Op: limit.Lease,
			N: 1, Ask: limit.Ask{Presence: 1}, Round: len(entries)})
	}
	b.apply(entries...)
	longest := time.Duration(0)
	for _, e := range entries {
		if e.Err != nil || e.Out.Granted != 1 || e.Out.Term != int64(e.Out.Left)*1000 || e.Out.Term <= 0 || e.Out.Term > int64(time.Second) {
			b.Fatalf("%v: %+v, %v", e.Terms.Algorithm, e.Out, e.Err)
		}
		longest = max(longest, time.Duration(e.Out.Term))
	}
	time.Sleep(longest + longest/64) // two clocks
	for _, e := range entries {
		if out := b.op(e.Bucket, e.Terms, limit.TakePartial, 0); out.Epoch == e.Out.Epoch {
			b.Errorf("%v: a lease of %v is over, its window is not: %+v", e.Terms.Algorithm, time.Duration(e.Out.Term), out)
		}
	}
}

// algorithmsApart: in one call, the same bucket under each algorithm is another cell.
func algorithmsApart(b *bench) {
	names := []limit.Bucket{b.bucket("apart", "0"), b.bucket("apart", "1")}
	all := []*limit.Terms{b.hourly()}
	for _, a := range windowKinds {
		all = append(all, b.yearly(a), b.window(a, 3, 300*24*time.Hour))
	}
	for turn, want := range []limit.Tokens{2, 1, 0} {
		var entries []*batcher.Entry
		for i, terms := range all {
			for _, name := range names {
				entries = append(entries, &batcher.Entry{Bucket: name, Terms: terms, Op: limit.TakePartial, N: 2, Round: i})
			}
		}
		b.apply(entries...)
		for _, e := range entries {
			if e.Terms.Burst != 3 {
				if e.Err != nil || e.Out.Granted != 2 || missing(e.Terms, e.Out.Level) != 2*limit.Tokens(turn+1) {
					b.Errorf("turn %d, %v: %+v, %v", turn, e.Terms.Class, e.Out, e.Err)
				}
			} else if e.Err != nil || e.Out.Granted != want {
				b.Errorf("turn %d, %v: %+v, %v, want %d", turn, e.Terms.Class, e.Out, e.Err, want)
			}
		}
	}
}

// windowAfterWindow is fault 12: whoever takes all there is, all the time, gets the limit in each window, and not more.
func windowAfterWindow(b *bench, a limit.Algorithm) {
	const length = 60 * time.Millisecond
	for _, rate := range []struct {
		n      limit.Tokens
		period time.Duration
	}{{7, time.Millisecond}, {1000, 3 * time.Millisecond}, {1, 20 * time.Millisecond}, {limit.MaxLog, time.Second}} {
		name, terms := b.bucket("window after window", fmt.Sprint(rate.n)), b.window(a, rate.n, rate.period)
		taken := hits{terms: terms, taken: map[int64]limit.Tokens{}}
		start := time.Now()
		for time.Since(start) < length {
			taken.add(b.op(name, terms, limit.TakePartial, limit.MaxTokens))
		}
		taken.check(b)
		var sum limit.Tokens
		for _, n := range taken.taken {
			sum += n
		}
		if a == limit.FixedWindow {
			for window, n := range taken.taken {
				if n != rate.n {
					b.Errorf("%d per %v: window %d had %d", rate.n, rate.period, window, n)
				}
			}
		}
		if sum < rate.n {
			b.Errorf("%v: %d per %v: %d in %v", a, rate.n, rate.period, sum, length)
		}
	}
}

// hits are what was taken from a bucket of a window kind, by the epoch that the store gave it.
type hits struct {
	terms *limit.Terms
	taken map[int64]limit.Tokens
}

func (l *hits) add(out limit.Outcome) {
	if out.Granted > 0 {
		l.taken[out.Epoch] += out.Granted
	}
}

// check recounts: no window has more than the limit, and of a log none that ends at a hit.
func (l *hits) check(b *bench) {
	b.Helper()
	for epoch, n := range l.taken {
		if l.terms.Algorithm == limit.SlidingLog {
			n = 0
			for at, m := range l.taken {
				if at <= epoch && at > epoch-l.terms.Class.Window.Microseconds() {
					n += m
				}
			}
		}
		if n > l.terms.Burst {
			b.Errorf("%v: %d of %d per %v in window %d", l.terms.Algorithm, n, l.terms.Burst, l.terms.Class.Window, epoch)
		}
	}
}

// windowNeverOver: many callers, in calls that share buckets, while windows come and go.
func windowNeverOver(b *bench, a limit.Algorithm) {
	const callers, length = 4, 200 * time.Millisecond
	terms := []*limit.Terms{b.window(a, 200, 50*time.Millisecond), b.window(a, 5, time.Millisecond), b.window(a, 7, 70*time.Millisecond)}
	names := make([]limit.Bucket, len(terms))
	ledgers := make([]hits, len(terms))
	for i := range names {
		names[i] = b.bucket("windows contended", fmt.Sprint(i))
		ledgers[i] = hits{terms: terms[i], taken: map[int64]limit.Tokens{}}
	}
	var mu sync.Mutex
	start := time.Now()
	var all sync.WaitGroup
	for caller := range callers {
		all.Go(func() {
			r := rand.New(rand.NewPCG(4, uint64(caller)))
			for time.Since(start) < length {
				var entries []*batcher.Entry
				for i, name := range names {
					op := []limit.Op{limit.Take, limit.TakePartial}[r.IntN(2)]
					entries = append(entries, &batcher.Entry{Bucket: name, Terms: terms[i], Op: op, N: limit.Tokens(1 + r.IntN(3))})
				}
				b.apply(entries...)
				mu.Lock()
				for i, e := range entries {
					if e.Err != nil {
						b.Error(e.Err)
					}
					ledgers[i].add(e.Out)
				}
				mu.Unlock()
			}
		})
	}
	all.Wait()
	for i := range ledgers {
		ledgers[i].check(b)
	}
	if len(ledgers[0].taken) == 0 {
		b.Errorf("%v: nothing was admitted", a)
	}
}

// windowRetry is G4.
func windowRetry(b *bench, a limit.Algorithm) {
	for i, terms := range []*limit.Terms{b.window(a, 5, 40*time.Millisecond), b.window(a, 100, 15*time.Millisecond)} {
		name := b.bucket("window retry", fmt.Sprint(i))
		for turn := range limit.Tokens(4) {
			n := (1+turn*terms.Burst/3)%terms.Burst + 1
			d := terms.Decide(n, b.denied(name, terms, n))
			if d.Reason != limit.OverLimit || d.RetryAfter <= 0 || d.RetryAfter > 2*terms.Class.Window {
				b.Fatalf("%v: a take of %d: %+v", a, n, d)
			}
			time.Sleep(d.RetryAfter + d.RetryAfter/1000) // two clocks
			if again := terms.Decide(n, b.op(name, terms, limit.Take, n)); !again.Admitted {
				b.Errorf("%v: a take of %d, told to wait %v, was then denied: %+v", a, n, d.RetryAfter, again)
			}
		}
	}
}
