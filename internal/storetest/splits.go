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

// touch runs one entry of op Touch.
func (b *bench) touch(name limit.Bucket, terms *limit.Terms, p limit.Part) (*batcher.Split, limit.Outcome) {
	b.Helper()
	p.Home = true
	e := batcher.Entry{Bucket: name, Terms: terms, Op: limit.Touch, Part: &p}
	if b.apply(&e); e.Err != nil {
		b.Fatalf("a touch, %+v: %v", p, e.Err)
	}
	return e.Split, e.Out
}

// divide splits a bucket. The parts lie on one shard and the next ones.
func (b *bench) divide(name limit.Bucket, terms *limit.Terms, ways int) limit.Split {
	b.Helper()
	s, _ := b.touch(name, terms, limit.Part{Ops: 10, Threshold: 10, Ways: ways, Stride: 1})
	if s == nil || s.Ways == 0 || s.Closing {
		b.Fatalf("the load is at the threshold: %+v", s)
	}
	return s.Split
}

// part is an entry on a part.
func part(name limit.Bucket, terms *limit.Terms, s limit.Split, index int, op limit.Op, n limit.Tokens) *batcher.Entry {
	return &batcher.Entry{Bucket: name, Terms: terms, Op: op, N: n, Part: &limit.Part{Index: index, Split: s}}
}

// merge is an entry that makes a bucket whole.
func merge(name limit.Bucket, terms *limit.Terms, s limit.Split) *batcher.Entry {
	return &batcher.Entry{Bucket: name, Terms: terms, Op: limit.Merge, Part: &limit.Part{Split: s, Home: true}}
}

// onPart runs one entry on a part, which must run.
func (b *bench) onPart(name limit.Bucket, terms *limit.Terms, s limit.Split, index int, op limit.Op, n limit.Tokens) limit.Outcome {
	b.Helper()
	e := part(name, terms, s, index, op, n)
	if b.apply(e); e.Err != nil {
		b.Fatalf("op %d of %d on part %d: %v", op, n, index, e.Err)
	}
	return e.Out
}

// onAll runs an entry on each part, and adds up what they grant.
func (b *bench) onAll(name limit.Bucket, terms *limit.Terms, s limit.Split, op limit.Op, n limit.Tokens) (sum limit.Tokens) {
	b.Helper()
	for i := range s.Ways {
		sum += b.onPart(name, terms, s, i, op, n).Granted
	}
	return sum
}

// refused runs one entry on a part, which must not run.
func (b *bench) refused(what string, name limit.Bucket, terms *limit.Terms, s limit.Split, index int) {
	b.Helper()
	e := part(name, terms, s, index, limit.TakePartial, 1)
	if b.apply(e); !errors.Is(e.Err, batcher.ErrStale) || e.Out != (limit.Outcome{}) || e.Split != nil {
		b.Errorf("%s: %+v, %v, %+v", what, e.Out, e.Err, e.Split)
	}
}

// end makes a bucket whole: closing, every part closed, merged.
func (b *bench) end(name limit.Bucket, terms *limit.Terms, s limit.Split) *batcher.Entry {
	b.Helper()
	if now, _ := b.touch(name, terms, limit.Part{Split: s, End: true}); now == nil || !now.Closing {
		b.Fatalf("ordered to end: %+v", now)
	}
	e := merge(name, terms, s)
	if !b.closeAll(e) {
		b.Fatal("a part refuses to be closed")
	}
	if b.apply(e); e.Err != nil || e.Out.Granted != 1 || e.Split == nil || e.Split.Ways != 0 {
		b.Fatalf("a merge: %+v, %v, %+v", e.Out, e.Err, e.Split)
	}
	return e
}

// splitAtThreshold: home splits at the threshold, not below, and never what has one token or no threshold.
func splitAtThreshold(b *bench) {
	terms := b.hourly()
	for i, p := range []limit.Part{
		{Ops: 9, Threshold: 10, Ways: 4, Stride: 1}, {Ops: 1000, Ways: 4, Stride: 1}, {Ops: 10, Threshold: 10, Ways: 1, Stride: 1},
		{Ops: 10, Threshold: 10, Ways: 4, Stride: 1, End: true},
	} {
		if s, out := b.touch(b.bucket("not split", fmt.Sprint(i)), terms, p); s != nil || out.Granted != 0 || out.Level != 0 {
			b.Errorf("%+v: %+v, %+v", p, s, out)
		}
	}
	name := b.bucket("split")
	b.expect(name, terms, limit.Take, 4, 4, 4)
	before := time.Now()
	s, out := b.touch(name, terms, limit.Part{Ops: 10, Threshold: 10, Ways: 3, Stride: 2})
	if s == nil || s.Ways != 3 || s.Stride != 2 || s.Closing || s.Held != 0 || missing(terms, s.Level) != 4 || out.Lag != 0 {
		b.Fatalf("%+v, %+v", s, out)
	}
	if ttl := time.Duration(s.Until-s.Start) * time.Microsecond; ttl != limit.SplitTTL || s.Left > ttl || s.Left < ttl-time.Since(before) {
		b.Errorf("it lasts %v, of which %v are left", ttl, s.Left)
	}
	again, _ := b.touch(name, terms, limit.Part{Ops: 10, Threshold: 10, Ways: 8, Stride: 1, Split: s.Split})
	if again.Start != s.Start || again.Ways != 3 || again.Stride != 2 || again.Until < s.Until {
		b.Errorf("split again: %+v, before %+v", again, s)
	}
	for _, op := range []limit.Op{limit.Take, limit.TakePartial, limit.Charge, limit.Refund, limit.Reset, limit.Lease} {
		e := &batcher.Entry{Bucket: name, Terms: terms, Op: op, N: 1}
		if b.apply(e); !errors.Is(e.Err, batcher.ErrStale) || e.Out != (limit.Outcome{}) || e.Split == nil || e.Split.Split != again.Split {
			b.Errorf("op %d at home: %+v, %v, %+v; want %+v", op, e.Out, e.Err, e.Split, again)
		}
	}
}

// indivisible is faults 6 and 14, divided: the parts have together what the bucket has, for a lone agent too.
func indivisible(b *bench) {
	for _, tt := range []struct {
		burst, taken limit.Tokens
		asked, ways  int
	}{{7, 0, 8, 7}, {7, 3, 8, 7}, {997, 0, 16, 16}, {997, 5, 16, 16}, {64, 63, 64, 64}, {2, 1, 2, 2}} {
		name, terms := b.bucket("indivisible", fmt.Sprint(tt.burst, tt.taken)), b.compile(tt.burst, 30*24*time.Hour, 0)
		b.expect(name, terms, limit.TakePartial, tt.taken, tt.taken, tt.taken)
		s := b.divide(name, terms, tt.asked)
		if s.Ways != tt.ways {
			b.Errorf("%d tokens asked in %d ways: %d", tt.burst, tt.asked, s.Ways)
		}
		if sum := b.onAll(name, terms, s, limit.TakePartial, limit.MaxTokens); sum != tt.burst-tt.taken {
			b.Errorf("%d tokens, %d taken, then in %d ways: %d more were granted", tt.burst, tt.taken, s.Ways, sum)
		}
		if sum := b.onAll(name, terms, s, limit.TakePartial, 1); sum != 0 {
			b.Errorf("%d tokens in %d ways: %d too many", tt.burst, s.Ways, sum)
		}
	}
	if s, _ := b.touch(b.bucket("one token"), b.compile(1, time.Hour, 0), limit.Part{Ops: 1000, Threshold: 10, Ways: 8, Stride: 1}); s != nil {
		b.Errorf("one token is divided: %+v", s)
	}

	name, terms, passed := b.bucket("last of parts"), b.hourly(), limit.Tokens(0)
	s := b.divide(name, terms, 4)
	for i := range 4 * 11 {
		passed += b.onPart(name, terms, s, i%4, limit.Take, 1).Granted
	}
	if passed != 10 {
		b.Errorf("of ten tokens %d were granted one by one", passed)
	}
}

// refusedParts: who knows a wrong split gets nothing, and makes no cell.
func refusedParts(b *bench) {
	name, terms := b.bucket("refused"), b.hourly()
	s := b.divide(name, terms, 4)
	before := cells(b.store)
	wrong := func(what string, index int, change func(s *limit.Split)) {
		b.Helper()
		w := s
		change(&w)
		b.refused(what, name, terms, w, index)
	}
	wrong("no such part", 4, func(*limit.Split) {})
	wrong("not divided", 1, func(w *limit.Split) { w.Ways = 1 })
	wrong("nothing known", 1, func(w *limit.Split) { *w = limit.Split{} })
	wrong("over", 1, func(w *limit.Split) { w.Until = w.Start + limit.SplitMargin.Microseconds() - 1 })
	wrong("too long", 1, func(w *limit.Split) { w.Until += 2 * limit.SplitTTL.Microseconds() })
	wrong("of a time to come", 1, func(w *limit.Split) { w.Start += 10e6 })
	if after := cells(b.store); after != before {
		b.Errorf("refused entries made %d cells", after-before)
	}
	b.onPart(name, terms, s, 2, limit.Take, 1)
	first := b.onPart(name, terms, s, 2, limit.Close, 0)
	b.refused("closed", name, terms, s, 2)
	if again := b.onPart(name, terms, s, 2, limit.Close, 0); again.Granted != first.Granted || again.Level < first.Level {
		b.Errorf("closed twice: %+v, then %+v", first, again)
	}
	b.onPart(name, terms, s, 3, limit.Close, 0)
	b.refused("closed before its first use", name, terms, s, 3)
}

// merged: what the parts have comes home, once, and nothing is lost.
func merged(b *bench) {
	name, terms := b.bucket("merged"), b.compile(100, 24*time.Hour, 0)
	b.expect(name, terms, limit.Take, 7, 7, 7)
	s := b.divide(name, terms, 4)
	for i := range s.Ways {
		if out := b.onPart(name, terms, s, i, limit.Take, 5); out.Granted != 5 {
			b.Errorf("part %d: %+v", i, out)
		}
	}
	early := merge(name, terms, s)
	early.Part.Free = terms.Depth
	if b.apply(early); early.Err != nil || early.Out.Granted != 0 {
		b.Errorf("merged before it was closing: %+v, %v", early.Out, early.Err)
	}
	last := b.end(name, terms, s)
	b.expect(name, terms, limit.TakePartial, 0, 0, 27)
	again := *last
	if b.apply(&again); again.Err != nil || again.Out.Granted != 0 {
		b.Errorf("merged twice: %+v, %v", again.Out, again.Err)
	}
	b.refused("merged", name, terms, s, 1)
	b.expect(name, terms, limit.TakePartial, 200, 73, 100)
}

// mergedLeases: what is out on lease when the parts are closed stays out, and can be settled only where it was granted.
func mergedLeases(b *bench) {
	name, terms := b.bucket("merged leases"), b.compile(100, 24*time.Hour, 0)
	held := b.lease(name, terms, 10, limit.Ask{})
	s := b.divide(name, terms, 4)
	if s.Held != held.Granted || held.Granted != 10 {
		b.Errorf("%d were leased, the split holds %d", held.Granted, s.Held)
	}
	e := part(name, terms, s, 2, limit.Lease, 6)
	if b.apply(e); e.Err != nil || e.Out.Granted != 6 || e.Out.Term <= 0 || e.Out.Term > int64(limit.LeaseTTL) {
		b.Fatalf("a lease of a part: %+v, %v", e.Out, e.Err)
	}
	b.end(name, terms, s)
	b.expect(name, terms, limit.TakePartial, 0, 0, 16)
	b.lease(name, terms, 0, limit.Ask{Epoch: held.Epoch, Settled: 10, Returned: 10}) // of the record before
	b.expect(name, terms, limit.TakePartial, 0, 0, 16)
	b.expect(name, terms, limit.Reset, 0, 0, 16)
}

// resetParts: each part is reset for itself.
func resetParts(b *bench) {
	name, terms := b.bucket("reset parts"), b.hourly()
	s := b.divide(name, terms, 4)
	for range 2 {
		if sum := b.onAll(name, terms, s, limit.TakePartial, 100); sum != 10 {
			b.Errorf("granted %d of 10", sum)
		}
		b.onAll(name, terms, s, limit.Reset, 0)
	}
	b.onPart(name, terms, s, 1, limit.TakePartial, 100)
	if sum := b.onAll(name, terms, s, limit.TakePartial, 100); sum != 7 {
		b.Errorf("all but part 1 were reset: granted %d, want 7", sum)
	}
}

// fewerThanWays: a burst that is lowered below the ways leaves some parts without any, and the others with a token.
func fewerThanWays(b *bench) {
	terms, fewer := b.compile(10, time.Hour, 7), b.compile(10, time.Hour, 3)
	if terms.Class != fewer.Class {
		b.Fatalf("cells of %v and %v are not the same", terms.Class, fewer.Class)
	}
	name := b.bucket("fewer than ways")
	s := b.divide(name, terms, 8)
	if sum := b.onAll(name, fewer, s, limit.TakePartial, 100); sum > 3 {
		b.Errorf("granted %d of a burst of 3", sum)
	}
	for i := 3; i < s.Ways; i++ {
		for _, op := range []limit.Op{limit.Take, limit.TakePartial, limit.Charge, limit.Refund} {
			if out := b.onPart(name, fewer, s, i, op, 1); out.Granted != 0 {
				b.Errorf("op %d on part %d, which has no burst: %+v", op, i, out)
			}
		}
	}
	b.end(name, fewer, s)
	if sum := b.op(name, fewer, limit.TakePartial, 100).Granted; sum > 3 {
		b.Errorf("granted %d of a burst of 3 after the merge", sum)
	}
}

// dividedIDs is fault 2, divided: what is in a name moves no part.
func dividedIDs(b *bench) {
	terms := b.hourly()
	ids := []string{"}{", "{}", "{}a", "{{x}}", "{", "}", "\xfe\x01", "\xfd", "~", "\x00"}
	for i := range 50 {
		ids = append(ids, fmt.Sprintf("{t}u%d", i))
	}
	for _, id := range ids {
		name := b.bucket(id)
		s := b.divide(name, terms, 3)
		if sum := b.onAll(name, terms, s, limit.TakePartial, 100); sum != 10 {
			b.Errorf("%q: granted %d of 10", id, sum)
		}
		var shards [3]int
		for i := range shards {
			shards[i] = b.store.Shard(&name, &limit.Part{Index: i, Split: s})
		}
		one := shards[0] == 0 && shards[1] == 0 && shards[2] == 0
		if shards[0] != b.store.Shard(&name, nil) || !one && (shards[0] == shards[1] || shards[1] == shards[2] || shards[2] == shards[0]) {
			b.Errorf("%q: parts on the shards %d", id, shards)
		}
	}
}

// splitPatience bounds the wait for a second split and a merge.
const splitPatience = time.Minute

// naturalEnd: nobody asks any more. Parts refuse first, then home is whole again, and empty. It takes 3.5 s.
func naturalEnd(b *bench) {
	name, terms := b.bucket("natural end"), b.hourly()
	s := b.divide(name, terms, 4)
	start := time.Now()
	b.onAll(name, terms, s, limit.Take, 1)
	time.Sleep(limit.SplitTTL - limit.SplitMargin - time.Since(start) + 10*time.Millisecond)
	b.refused("a margin before the end", name, terms, s, 1)
	time.Sleep(limit.SplitTTL + limit.SplitMargin - time.Since(start) + 10*time.Millisecond)
	b.expect(name, terms, limit.TakePartial, 1, 0, 10)
	s = b.divide(name, terms, 4)
	if sum := b.onAll(name, terms, s, limit.TakePartial, 100); sum != 0 {
		b.Errorf("an empty bucket gave %d when it was split", sum)
	}
}

// splitFleet: agents that take here and there, some with an old split, while the bucket is split, ends by itself, or is merged. They go on
// until each of that has been.
func splitFleet(b *bench) {
	const agents, length = 5, 5 * time.Second
	terms, name := b.compile(300, time.Second, 61), b.bucket("split fleet")
	var mu sync.Mutex
	var ledger []admission
	splits, merges := map[int64]bool{}, 0
	start := time.Now()
	on := func() bool {
		mu.Lock()
		defer mu.Unlock()
		passed := time.Since(start)
		return passed < length || passed < splitPatience && (len(splits) < 2 || merges < 1)
	}
	var all sync.WaitGroup
	for agent := range agents {
		all.Go(func() {
			r := rand.New(rand.NewPCG(7, uint64(agent)))
			var s limit.Split
			for on() {
				e := &batcher.Entry{Bucket: name, Terms: terms, Op: limit.TakePartial, N: limit.Tokens(1 + r.IntN(3))}
				if s.Ways > 0 {
					e.Part = &limit.Part{Index: r.IntN(s.Ways), Split: s}
				}
				dice := r.IntN(100)
				switch {
				case dice < 4:
					p := &limit.Part{Split: s, Ops: 50, Threshold: 10, Ways: 2 + r.IntN(5), Stride: 1, End: dice == 0, Home: true}
					e = &batcher.Entry{Bucket: name, Terms: terms, Op: limit.Touch, Part: p}
				case dice < 20 && s.Closing && s.Ways > 0:
					e = merge(name, terms, s)
					if !b.closeAll(e) {
						s = limit.Split{}
						continue
					}
				}
				from := time.Since(start)
				b.apply(e)
				to := time.Since(start)
				if e.Split != nil {
					s = e.Split.Split
				}
				mu.Lock()
				switch {
				case errors.Is(e.Err, batcher.ErrStale):
					if e.Split == nil && dice%2 == 0 { // or it goes on with what it knows
						s = limit.Split{}
					}
				case e.Err != nil:
					b.Error(e.Err)
				case e.Op == limit.Merge:
					merges += int(e.Out.Granted)
				case e.Out.Granted > 0:
					ledger = append(ledger, admission{from, to, e.Out.Granted})
				}
				if s.Ways > 0 {
					splits[s.Start] = true
				}
				mu.Unlock()
			}
		})
	}
	all.Wait()
	b.recount("split fleet", terms, ledger)
	var sum limit.Tokens
	for _, a := range ledger {
		sum += a.n
	}
	if sum < terms.Burst || len(splits) < 2 || merges < 1 {
		b.Errorf("granted %d, %d splits, %d merges", sum, len(splits), merges)
	}
}

// closeAll closes the parts of a merge's split, and puts into the merge what they had. It is false if one refuses.
func (b *bench) closeAll(merge *batcher.Entry) bool {
	s := merge.Part.Split
	for i := range s.Ways {
		e, p := part(merge.Bucket, merge.Terms, s, i, limit.Close, 0), merge.Terms.Part(s.Ways, i)
		if b.apply(e); e.Err != nil {
			return false
		}
		merge.N += e.Out.Granted
		merge.Part.Free += merge.Terms.FromPart(&p, e.Out.Level)
	}
	return true
}
