package split

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spillgate/spillgate/batcher"
	"github.com/spillgate/spillgate/limit"
)

// counter is a Table with a clock, and what it sent.
type counter struct {
	*Table
	now    atomic.Int64
	refuse atomic.Pointer[error]
	mu     sync.Mutex
	sent   []*batcher.Claim
	events []Event
}

func count(cfg Config) *counter {
	c := &counter{}
	c.now.Store(128 * second)
	cfg.Clock = c.now.Load
	cfg.Send = func(claim *batcher.Claim) error {
		if err := c.refuse.Load(); err != nil {
			return *err
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.sent = append(c.sent, claim)
		return nil
	}
	cfg.OnEvent = func(e Event) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.events = append(c.events, e)
	}
	c.Table = NewTable(cfg)
	return c
}

// take returns what was sent since the last call.
func (c *counter) take() (all []*batcher.Claim) {
	c.mu.Lock()
	defer c.mu.Unlock()
	all, c.sent = c.sent, nil
	return all
}

// takeAll returns what was sent since the last call, which must be an entry of that op for each of four parts.
func (c *counter) takeAll(t *testing.T, op limit.Op) []*batcher.Claim {
	t.Helper()
	all := c.take()
	if len(all) != 4 {
		t.Fatalf("sent %d claims, want 4 of op %v", len(all), op)
	}
	for i, claim := range all {
		if claim.Op != op || claim.N != 0 || claim.Part.At() != i+1 {
			t.Fatalf("claim %d: %+v of %+v, want op %v", i, claim, claim.Part, op)
		}
	}
	return all
}

func bucketOf(i int) (id []byte, b limit.Bucket) {
	id = fmt.Appendf(nil, "bucket %d", i)
	new(limit.Secret).Name(&b, id)
	return id, b
}

// watched is a table with a threshold of 100 that watches one bucket, whole, of 80 tokens an hour.
func watched(t *testing.T) (c *counter, s *Spread, b limit.Bucket, terms *limit.Terms) {
	t.Helper()
	terms = termsOf(t, 80, time.Hour)
	c = count(Config{Threshold: 100})
	id, b := bucketOf(0)
	return c, c.Watch(id, &b, terms, false), b, terms
}

// TestTableIsBounded: beyond Most buckets are left whole, and what nobody uses makes room.
func TestTableIsBounded(t *testing.T) {
	terms := termsOf(t, 80, time.Hour)
	c := count(Config{Threshold: 100, Most: 3})
	for i := range 5 {
		id, b := bucketOf(i)
		s := c.Watch(id, &b, terms, false)
		if (s != nil) != (i < 3) || c.Find(&b, terms) != s {
			t.Errorf("bucket %d: %v", i, s)
		}
		if again := c.Watch(id, &b, terms, false); again != s {
			t.Errorf("bucket %d has two Spreads", i)
		}
	}
	c.now.Add(idleAfter + 1)
	c.Tend()
	if c.count.Load() != 0 || len(c.all()) != 0 {
		t.Errorf("%d left when nobody uses them", len(c.all()))
	}
	id, b := bucketOf(4)
	if c.Watch(id, &b, terms, false) == nil {
		t.Error("no room after that")
	}
}

// TestTableSplitsAndMerges: the touch that split a bucket is followed by a look at every part; a closing split by closes and
// a merge; and each change is told once.
func TestTableSplitsAndMerges(t *testing.T) {
	c, s, b, terms := watched(t)
	k := &known{Spread: s, T: t, terms: terms, now: 128 * second}
	done := func(claim *batcher.Claim, say *batcher.Split) {
		k.call++
		claim.Split, claim.Call = say, k.call
		claim.Done(claim)
	}
	c.now.Add(touchPause)
	for range touchOps {
		k.call++
		c.Learn(s, &batcher.Claim{Terms: terms, Op: limit.Take, Call: k.call})
	}
	sent := c.take()
	if len(sent) != 1 || sent[0].Op != limit.Touch || sent[0].Part.Ops != touchOps || sent[0].Bucket != b {
		t.Fatalf("sent %+v", sent)
	}
	split := k.divided(4)
	done(sent[0], split)
	if sent = c.take(); len(sent) != 4 {
		t.Fatalf("after the split %d claims", len(sent))
	}
	for i, claim := range sent {
		if claim.Op != limit.TakePartial || claim.N != 0 || claim.Part.At() != i+1 || claim.Part.Split != split.Split {
			t.Errorf("look %d: %+v of %+v", i, claim, claim.Part)
		}
		done(claim, nil)
	}
	if all := c.Divided(); len(all) != 1 || all[0].Ways != 4 || len(all[0].Parts) != 4 || string(all[0].ID) != string(s.id) || c.Stats().Active != 1 {
		t.Errorf("%+v, %+v", all, c.Stats())
	}
	c.now.Add(touchEvery)
	c.Tend()
	if sent = c.take(); len(sent) != 1 || sent[0].Op != limit.Touch {
		t.Fatalf("sent %+v", sent)
	}
	done(sent[0], closing(split))
	c.now.Add(mergeSpread)
	c.Tend()
	sent = c.takeAll(t, limit.TakePartial)
	for i, claim := range sent {
		if early := c.take(); len(early) != 0 {
			t.Fatalf("after %d looks it sends %+v", i, early)
		}
		done(claim, nil)
	}
	sent = c.takeAll(t, limit.Close)
	free := limit.Ticks(0)
	for _, claim := range sent {
		claim.Out = limit.Outcome{Granted: 1, Level: 5}
		part := terms.Part(4, claim.Part.Index)
		free += terms.FromPart(&part, 5)
		done(claim, nil)
	}
	if sent = c.take(); len(sent) != 1 || sent[0].Op != limit.Merge || sent[0].N != 4 || sent[0].Part.Free != free || sent[0].Part.At() != 0 {
		t.Fatalf("sent %+v", sent)
	}
	done(sent[0], over(split))
	if got := c.Stats(); got.Split != 1 || got.Merged != 1 || got.Ended != 0 || got.Active != 0 || len(c.Divided()) != 0 {
		t.Errorf("%+v", got)
	}
	if len(c.events) != 2 || c.events[0].Kind != EventSplit || c.events[1].Kind != EventMerged {
		t.Errorf("%+v", c.events)
	}
	for _, e := range c.events {
		if e.Info.Ways != 4 || !e.Info.Since.Equal(time.UnixMicro(split.Start)) {
			t.Errorf("%s tells of %+v", e.Kind, e.Info)
		}
	}
}

// TestTableTellsTheRest: an agent that slept through the end of a split hears of the next one, and tells of both; and one that forgets a
// split tells of its end.
func TestTableTellsTheRest(t *testing.T) {
	c, s, _, terms := watched(t)
	k := &known{terms: terms, now: 128 * second}
	first := k.divided(4)
	k.now += 10 * second
	next := k.divided(8)
	k.now += 10 * second
	last := k.divided(4)
	call := uint64(0)
	says := func(say *batcher.Split) {
		call++
		c.Learn(s, &batcher.Claim{Terms: s.terms(), Op: limit.Take, Split: say, Call: call, Err: batcher.ErrStale})
	}
	says(first)
	says(next)
	says(last)
	c.Clear()
	want := []struct {
		kind EventKind
		of   *batcher.Split
	}{{EventSplit, first}, {EventEnded, first}, {EventSplit, next}, {EventEnded, next}, {EventSplit, last}, {EventEnded, last}}
	if len(c.events) != len(want) {
		t.Fatalf("%d events, want %d: %+v", len(c.events), len(want), c.events)
	}
	for i, w := range want {
		if e := c.events[i]; e.Kind != w.kind || e.Info.Ways != w.of.Ways || !e.Info.Since.Equal(time.UnixMicro(w.of.Start)) {
			t.Errorf("event %d: %s of %+v, want %s of %+v", i, e.Kind, e.Info, w.kind, w.of.Split)
		}
	}
	if got := c.Stats(); got.Split != 3 || got.Ended != 3 || got.Merged != 0 || got.Active != 0 {
		t.Errorf("%+v", got)
	}
}

// TestTouchesNeedDivision: a store that cannot divide is told of no load, and once it can it is told of what has come since.
func TestTouchesNeedDivision(t *testing.T) {
	terms := termsOf(t, 80, time.Hour)
	can := false
	c := count(Config{Threshold: 100, Divisible: func() bool { return can }})
	id, b := bucketOf(0)
	s := c.Watch(id, &b, terms, false)
	c.now.Add(second)
	call := uint64(0)
	load := func() {
		for range touchOps {
			call++
			c.Learn(s, &batcher.Claim{Terms: terms, Op: limit.Take, Call: call})
		}
	}
	load()
	c.Tend()
	if sent := c.take(); c.Stats().Touches != 0 || len(sent) != 0 {
		t.Errorf("%d touches counted, %d sent", c.Stats().Touches, len(sent))
	}
	can = true
	c.Tend()
	if sent := c.take(); len(sent) != 0 {
		t.Errorf("of what was before it is told %+v", sent)
	}
	load()
	if sent := c.take(); c.Stats().Touches != 1 || len(sent) != 1 || sent[0].Part.Ops != touchOps {
		t.Errorf("%d touches counted, sent %+v", c.Stats().Touches, sent)
	}
}

// TestLearnAllocates nothing while nothing is due: it is called for every reply on a watched bucket.
func TestLearnAllocates(t *testing.T) {
	c, s, _, terms := watched(t)
	k := &known{Spread: s, T: t, terms: terms, now: c.now.Load()}
	claim := &batcher.Claim{Terms: terms, Op: limit.Take, Call: 1}
	check := func(what string) {
		t.Helper()
		if got := testing.AllocsPerRun(10, func() { c.Learn(s, claim) }); got != 0 {
			t.Errorf("%s: %v allocations", what, got)
		}
	}
	check("whole")
	split := k.divided(4)
	c.Learn(s, &batcher.Claim{Terms: terms, Op: limit.Take, Call: 2, Split: split, Err: batcher.ErrStale})
	claim = &batcher.Claim{Terms: terms, Op: limit.Take, Call: 1, Part: k.part(2)}
	check("a part")
	claim = &batcher.Claim{Terms: terms, Op: limit.Take, Call: 3, Split: split, Err: batcher.ErrStale}
	check("home")
}

// TestTableCannotSend: a merge whose looks, or whose closes, are not taken is tried again.
func TestTableCannotSend(t *testing.T) {
	c, s, _, terms := watched(t)
	k := &known{Spread: s, T: t, terms: terms, now: 128 * second}
	c.Learn(s, &batcher.Claim{Terms: terms, Op: limit.Take, Split: closing(k.divided(4)), Call: 1, Err: batcher.ErrStale})
	refusal := error(batcher.ErrOverloaded)
	c.refuse.Store(&refusal)
	c.now.Add(mergeSpread)
	c.Tend()
	c.refuse.Store(nil)
	c.now.Add(mergeAgain)
	c.Tend()
	looks := c.takeAll(t, limit.TakePartial)
	for i, claim := range looks {
		if i == 3 {
			c.refuse.Store(&refusal)
		}
		claim.Done(claim)
	}
	c.refuse.Store(nil)
	c.now.Add(mergeAgain - 1)
	c.Tend()
	for _, claim := range c.take() {
		if claim.Op != limit.Touch {
			t.Errorf("too soon it sends %+v", claim)
		}
	}
	c.now.Add(1)
	c.Tend()
	for _, claim := range c.takeAll(t, limit.TakePartial) {
		claim.Done(claim)
	}
	c.takeAll(t, limit.Close)
}

// TestTableCannotTouch: a touch that is not taken is not waited for.
func TestTableCannotTouch(t *testing.T) {
	c, s, _, terms := watched(t)
	call := uint64(0)
	load := func() {
		c.now.Add(touchPause)
		for range touchOps {
			call++
			c.Learn(s, &batcher.Claim{Terms: terms, Op: limit.Take, Call: call})
		}
	}
	refusal := error(batcher.ErrOverloaded)
	c.refuse.Store(&refusal)
	load()
	c.refuse.Store(nil)
	load()
	if sent := c.take(); len(sent) != 1 || sent[0].Op != limit.Touch {
		t.Fatalf("sent %+v", sent)
	}
	c.refuse.Store(&refusal)
	c.send(s, &batcher.Claim{Op: limit.TakePartial}, nil) // nor is another claim an answer
	c.refuse.Store(nil)
	load()
	if sent := c.take(); len(sent) != 0 {
		t.Errorf("before the answer it sends %+v", sent)
	}
}

// TestTableLooksFirst: while the master of a part does not answer no part is closed.
func TestTableLooksFirst(t *testing.T) {
	c, s, _, terms := watched(t)
	k := &known{Spread: s, T: t, terms: terms, now: 128 * second}
	c.Learn(s, &batcher.Claim{Terms: terms, Op: limit.Take, Split: closing(k.divided(4)), Call: 1, Err: batcher.ErrStale})
	c.now.Add(mergeSpread)
	for _, failing := range []bool{true, true, false} {
		c.Tend()
		for i, claim := range c.takeAll(t, limit.TakePartial) {
			claim.Call = uint64(c.now.Load())
			if failing && i == 1 {
				claim.Err = batcher.ErrUnknown
			}
			claim.Done(claim)
		}
		c.now.Add(mergeAgain)
		if failing {
			if sent := c.take(); len(sent) != 0 {
				t.Fatalf("while a master fails it sends %+v", sent)
			}
			c.Learn(s, &batcher.Claim{Terms: terms, Op: limit.Take, Split: k.divided(4), Call: uint64(c.now.Load()), Err: batcher.ErrStale}) // it lasts
		}
		s.mu.touched = c.now.Load() // no touch is due
	}
	c.takeAll(t, limit.Close)
}

// TestTableSweeps: when a split has been over for a while its parts are closed once more, which removes them; only then is it forgotten.
func TestTableSweeps(t *testing.T) {
	c, s, b, terms := watched(t)
	k := &known{Spread: s, T: t, terms: terms, now: 128 * second}
	split := k.divided(4)
	c.Learn(s, &batcher.Claim{Terms: terms, Op: limit.Take, Split: split, Call: 1, Err: batcher.ErrStale})
	c.Learn(s, &batcher.Claim{Terms: terms, Op: limit.Take, Split: over(split), Call: 2})
	c.now.Add(int64(split.Left) + sweepAfter - 1)
	c.Tend()
	if sent := c.take(); len(sent) != 0 {
		t.Fatalf("too soon it sends %+v", sent)
	}
	c.now.Add(1)
	c.Tend()
	for _, claim := range c.takeAll(t, limit.Close) {
		if claim.Part.Split != split.Split || claim.Bucket != b || *claim.Terms != *terms || !claim.Lazy {
			t.Errorf("it sends %+v of %+v", claim, claim.Part)
		}
	}
	c.now.Add(idleAfter)
	c.Tend()
	if sent := c.take(); len(sent) != 0 || c.Find(&b, terms) != nil {
		t.Errorf("after that it sends %+v, or is not forgotten", sent)
	}
}

// TestTableKeepsSpreadsPerClass: rules whose classes differ count a bucket in two cells, and each of them is divided or not. Other terms of the
// same class are the same cell.
func TestTableKeepsSpreadsPerClass(t *testing.T) {
	hour, fewer, brief := termsOf(t, 80, time.Hour), termsOf(t, 40, time.Hour), termsOf(t, 80, time.Second)
	if hour.Class != fewer.Class || hour.Class == brief.Class {
		t.Fatalf("classes %v, %v, %v", hour.Class, fewer.Class, brief.Class)
	}
	c := count(Config{Threshold: 100, Most: 2})
	id, b := bucketOf(0)
	one := c.Watch(id, &b, hour, false)
	if c.Find(&b, brief) != nil {
		t.Error("what nobody watches is found")
	}
	two := c.Watch(id, &b, brief, true)
	if one == nil || two == nil || one == two || c.Find(&b, hour) != one || c.Find(&b, brief) != two || c.Find(&b, fewer) != one || c.Watch(id, &b, fewer, false) != one {
		t.Fatalf("%p and %p", one, two)
	}
	if one.mu.off || !two.mu.off {
		t.Error("what one rule forbids counts for the other one")
	}
	otherID, other := bucketOf(1)
	if c.Watch(otherID, &other, hour, false) != nil {
		t.Error("two cells count as one")
	}
	k := &known{Spread: one, T: t, terms: hour, now: 128 * second}
	c.Learn(one, &batcher.Claim{Terms: hour, Op: limit.Take, Split: k.divided(4), Call: 1, Err: batcher.ErrStale})
	if one.Ways() != 4 || two.Ways() != 1 || len(c.Divided()) != 1 {
		t.Errorf("%d and %d ways", one.Ways(), two.Ways())
	}
	// Of other terms the claims of the Table are of the cell still.
	one.Choose(k.now, fewer, 1, Moving, tried())
	c.now.Add(touchEvery)
	c.Tend()
	if sent := c.take(); len(sent) != 1 || sent[0].Op != limit.Touch || *sent[0].Terms != *fewer {
		t.Errorf("sent %+v", sent)
	}
	c.now.Add(idleAfter - touchEvery)
	one.Choose(c.now.Load(), hour, 1, Moving, tried())
	c.now.Add(1)
	c.Tend()
	if c.Find(&b, hour) != one || c.Find(&b, brief) != nil {
		t.Error("the one that is used is forgotten, or the other one is not")
	}
}

// TestTableStress: many goroutines on few buckets, whose homes say all kinds of things, for the race detector; in the end every split that was
// told of has its end told.
func TestTableStress(t *testing.T) {
	terms := termsOf(t, 80, time.Hour)
	c := count(Config{Threshold: 100, Most: 6})
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(1, uint64(g)))
			for range 500 {
				id, b := bucketOf(r.IntN(8))
				now := c.now.Add(int64(r.IntN(3)) * ms)
				s := c.Watch(id, &b, terms, r.IntN(50) == 0)
				if s == nil {
					c.Tend()
					continue
				}
				k := &known{terms: terms, now: now}
				claim := &batcher.Claim{Terms: terms, Op: limit.Take, Call: uint64(now)}
				pace := []Pace{Moving, Staying}[r.IntN(2)]
				claim.Part, _ = s.Choose(now, terms, limit.Tokens(r.IntN(12)), pace, Asked{Home: r.IntN(3), Parts: uint64(r.IntN(16))})
				if claim.Part == nil {
					claim.Split = k.divided(4)
					switch claim.Split.Closing = r.IntN(10) == 0; r.IntN(5) {
					case 0:
						claim.Split.Ways = 0
					case 1:
						claim.Split = nil
					}
				}
				switch claim.Err = []error{nil, nil, nil, batcher.ErrStale, batcher.ErrNotRun, batcher.ErrUnknown}[r.IntN(6)]; {
				case claim.Part == nil && claim.Split != nil && claim.Split.Ways > 0 && claim.Err == nil:
					claim.Err = batcher.ErrStale
				case claim.Part == nil && claim.Err == batcher.ErrStale:
					claim.Err = nil // home refuses nobody while it is whole
				}
				c.Learn(s, claim)
				s.Level(now, claim.Part, 5, claim.Err == nil)
				s.Named(now, r.IntN(4), 0)
				s.Untried(now, Asked{})
				s.Wait(now, 1)
				c.Divided()
				for _, sent := range c.take() {
					if r.IntN(2) == 0 && sent.Part.At() > 0 {
						sent.Err = batcher.ErrStale
					}
					sent.Done(sent)
				}
				if r.IntN(20) == 0 {
					c.Tend()
				}
			}
		})
	}
	wg.Wait()
	c.Clear()
	if got := c.Stats(); got.Active != 0 || c.count.Load() != 0 || got.Split == 0 || got.Split != got.Merged+got.Ended {
		t.Errorf("%+v", got)
	}
	open := map[limit.Sum]time.Time{}
	for _, e := range c.events {
		since, is := open[e.Info.Bucket.Sum()]
		if is == (e.Kind == EventSplit) || is && !since.Equal(e.Info.Since) {
			t.Fatalf("%s of %v, with a split of %v, %v", e.Kind, e.Info.Since, since, is)
		}
		if delete(open, e.Info.Bucket.Sum()); !is {
			open[e.Info.Bucket.Sum()] = e.Info.Since
		}
	}
	if len(open) > 0 {
		t.Errorf("%d splits have no end", len(open))
	}
}
