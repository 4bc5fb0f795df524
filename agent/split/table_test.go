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

func bucketOf(i int) (id []byte, b limit.Bucket) {
	id = fmt.Appendf(nil, "bucket %d", i)
	new(limit.Secret).Name(&b, id)
	return id, b
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
	terms := termsOf(t, 80, time.Hour)
	c := count(Config{Threshold: 100})
	id, b := bucketOf(0)
	s := c.Watch(id, &b, terms, false)
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
	if all := c.Divided(); len(all) != 1 || all[0].Ways != 4 || len(all[0].Parts) != 4 || string(all[0].ID) != string(id) || c.Stats().Active != 1 {
		t.Errorf("%+v, %+v", all, c.Stats())
	}
	closing := *split
	closing.Closing = true
	c.now.Add(touchEvery)
	c.Tend()
	if sent = c.take(); len(sent) != 1 || sent[0].Op != limit.Touch {
		t.Fatalf("sent %+v", sent)
	}
	done(sent[0], &closing)
	c.now.Add(mergeSpread)
	c.Tend()
	if sent = c.take(); len(sent) != 4 || sent[0].Op != limit.Close {
		t.Fatalf("sent %+v", sent)
	}
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
	whole := *split
	whole.Ways = 0
	done(sent[0], &whole)
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

// TestTableTellsTheRest: an agent that slept through the end of a split hears of the next one, and tells of both; one whose rule has
// terms of another class now tells of the end with the next tending, and one that forgets a split tells of its end.
func TestTableTellsTheRest(t *testing.T) {
	terms := termsOf(t, 80, time.Hour)
	c := count(Config{Threshold: 100})
	id, b := bucketOf(0)
	s := c.Watch(id, &b, terms, false)
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
	s.Choose(c.now.Load(), termsOf(t, 80, time.Second), 1, Moving, tried())
	c.Tend()
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

// TestTouchesNeedDivision: a store that cannot divide is told of no load, and what it would have been told is told once it can.
func TestTouchesNeedDivision(t *testing.T) {
	terms := termsOf(t, 80, time.Hour)
	can := false
	c := count(Config{Threshold: 100, Divisible: func() bool { return can }})
	id, b := bucketOf(0)
	s := c.Watch(id, &b, terms, false)
	c.now.Add(second)
	for i := range touchOps {
		c.Learn(s, &batcher.Claim{Terms: terms, Op: limit.Take, Call: uint64(i + 1)})
	}
	c.Tend()
	if sent := c.take(); c.Stats().Touches != 0 || len(sent) != 0 {
		t.Errorf("%d touches counted, %d sent", c.Stats().Touches, len(sent))
	}
	can = true
	c.Tend()
	if sent := c.take(); c.Stats().Touches != 1 || len(sent) != 1 || sent[0].Part.Ops != touchOps {
		t.Errorf("%d touches counted, sent %+v", c.Stats().Touches, sent)
	}
}

// TestLearnAllocates nothing while nothing is due: it is called for every reply on a watched bucket.
func TestLearnAllocates(t *testing.T) {
	terms := termsOf(t, 80, time.Hour)
	c := count(Config{Threshold: 100})
	id, b := bucketOf(0)
	s := c.Watch(id, &b, terms, false)
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

// TestTableCannotSend: a merge whose closes are not taken is tried again.
func TestTableCannotSend(t *testing.T) {
	terms := termsOf(t, 80, time.Hour)
	c := count(Config{Threshold: 100})
	id, b := bucketOf(0)
	s := c.Watch(id, &b, terms, false)
	k := &known{Spread: s, T: t, terms: terms, now: 128 * second}
	closing := k.divided(4)
	closing.Closing = true
	c.Learn(s, &batcher.Claim{Terms: terms, Op: limit.Take, Split: closing, Call: 1})
	refusal := error(batcher.ErrOverloaded)
	c.refuse.Store(&refusal)
	c.now.Add(mergeSpread)
	c.Tend()
	c.refuse.Store(nil)
	c.now.Add(mergeAgain)
	c.Tend()
	closes := 0
	for _, claim := range c.take() {
		if claim.Op == limit.Close {
			closes++
		}
	}
	if closes != 4 {
		t.Errorf("%d closes, want 4", closes)
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
