package split

import (
	"slices"
	"testing"
	"time"

	"github.com/spillgate/spillgate/batcher"
	"github.com/spillgate/spillgate/limit"
)

// TestChoose: home while the bucket is whole; then the own part, if it may have what is needed, then the fullest that was not asked.
func TestChoose(t *testing.T) {
	k := spread(t, 80) // ten for each of eight
	for asked := range homeTries {
		if p := k.chooses(1, Asked{Home: asked}, home); p != nil {
			t.Errorf("home is %+v, want nil", p)
		}
	}
	k.chooses(1, Asked{Home: homeTries}, nowhere) // there is nothing else
	k.reply(limit.Take, nil, k.divided(8), 0)
	k.chooses(1, Asked{Home: 1}, 0)
	three, five := k.part(3), k.part(5)
	if three.Split != k.mu.split || three.Split.Ways != 8 || three.Home || five.Index != 5 {
		t.Fatalf("%+v, %+v", three, five)
	}
	for i := range 8 {
		k.has(i, 2)
	}
	k.has(3, 4)
	k.has(5, 6)
	k.chooses(1, tried(), 0) // has enough
	k.chooses(1, tried(0), 5)
	k.chooses(1, tried(0, 5), 3)
	k.chooses(1, tried(0, 5, 3), 1)
	k.chooses(3, tried(0, 5, 3), nowhere)
	k.chooses(3, tried(), 5)         // the own one has too little
	k.chooses(8, tried(), 5)         // nobody has that: the one that will first
	k.chooses(8, tried(0), nowhere)  // and then nobody is asked any more
	k.chooses(11, tried(), 0)        // more than any part holds: one says no for all
	k.chooses(11, tried(0), nowhere) // once
}

// TestOwnPartMoves: an agent begins at a part for one Pace, and then at the next one; each agent moves at moments of its own, and they
// spread over the parts.
func TestOwnPartMoves(t *testing.T) {
	const ways = 8
	for _, pace := range []Pace{Moving, Staying} {
		at, moments := map[int]bool{}, map[int64]bool{}
		for seed := range uint64(64) {
			k := spread(t, 80)
			k.seed = seed * 0x9e3779b97f4a7c15
			k.reply(limit.Take, nil, k.divided(ways), 0)
			own := func(after int64) int {
				p, _ := k.Choose(k.now+after, k.terms, 0, pace, tried())
				return p.Index
			}
			first, moved := own(0), int64(-1)
			for after := int64(0); after < int64(pace); after += 5 * ms {
				switch is := own(after); {
				case is == first && moved < 0:
				case is == (first+1)%ways:
					if moved < 0 {
						moved = after
					}
				default:
					t.Fatalf("seed %d: after %v at part %d, began at %d", seed, time.Duration(after), is, first)
				}
			}
			if next := own(int64(pace)); next != (first+1)%ways {
				t.Errorf("seed %d: after %v at part %d, began at %d", seed, time.Duration(pace), next, first)
			}
			at[first], moments[moved] = true, true
		}
		if len(at) < ways-1 || len(moments) < 16 {
			t.Errorf("64 agents begin at %d parts, and move at %d moments", len(at), len(moments))
		}
	}
}

// TestPromises: what is on its way to a part counts as taken, until a reply says what is there. So the claims of one batch line up at
// several parts.
func TestPromises(t *testing.T) {
	k := spread(t, 8)
	k.reply(limit.Take, nil, k.divided(4), 0)
	for i, want := range []int{0, 0, 1, 2, 3, 1, 2, 3} {
		if p := k.sends(1, tried(), want); p.Index != want {
			t.Errorf("claim %d: part %d", i, p.Index)
		}
	}
	k.chooses(1, tried(0), nowhere)
	k.has(2, 1) // two came back, and left one
	k.chooses(1, tried(), 2)
	k.fails(k.part(3), batcher.ErrOverloaded) // did not get there
	k.chooses(2, tried(), 3)
}

// TestEmptyIsBelievedForAWhile: tokens may come back in ways that an agent does not see. A part of which nothing was heard for
// 250 ms may have any number.
func TestEmptyIsBelievedForAWhile(t *testing.T) {
	k := spread(t, 80)
	k.reply(limit.Take, nil, k.divided(4), 0)
	for i := range 4 {
		k.has(i, 0)
	}
	k.now += knownFor
	k.chooses(1, tried(0), nowhere)
	k.now++
	k.has(2, 0)
	k.chooses(1, tried(), 1) // the own one now
	k.chooses(1, tried(1), 0)
	k.chooses(1, tried(0, 1), 3)
	k.chooses(1, tried(0, 1, 3), nowhere)
	k.chooses(20, tried(0, 1), 3)
	k.chooses(21, tried(), 0) // more than any holds
}

// TestUntried: a reset asks every part, whatever it may have.
func TestUntried(t *testing.T) {
	k := spread(t, 80)
	if p, ok := k.Untried(k.now, tried()); p != nil || !ok {
		t.Errorf("of a whole bucket: %+v, %v", p, ok)
	}
	if _, ok := k.Untried(k.now, Asked{Home: homeTries}); ok {
		t.Error("home is asked without end")
	}
	k.reply(limit.Reset, nil, k.divided(4), 0)
	k.has(2, 20)
	k.fails(k.part(3), batcher.ErrNotRun)
	asked := Asked{Home: 1}
	for i := range 4 {
		p, ok := k.Untried(k.now, asked)
		if !ok || p.At() != i+1 {
			t.Fatalf("after %d parts: %+v, %v", i, p, ok)
		}
		asked.Add(p)
	}
	if p, ok := k.Untried(k.now, asked); ok {
		t.Errorf("after all: %+v", p)
	}
}

// TestChooseRefills: what refilled since the last reply counts.
func TestChooseRefills(t *testing.T) {
	k := spread(t, 80)
	k.reply(limit.Take, nil, k.divided(8), 0)
	for i := range 8 {
		k.has(i, 0)
	}
	each := 6 * time.Minute // ten an hour
	if got := k.Wait(k.now, 1); got < each || got > each+time.Microsecond {
		t.Errorf("wait %v, want %v", got, each)
	}
	if got := k.Wait(k.now, 3); got < 3*each || got > 3*each+time.Microsecond {
		t.Errorf("wait for three %v, want %v", got, 3*each)
	}
	wait := int64(k.Wait(k.now, 1))
	if n := k.mu.parts[2].tokens(k.now + wait - ms); n != 0 {
		t.Errorf("%d tokens before the wait is over", n)
	}
	if n := k.mu.parts[2].tokens(k.now + wait); n != 1 {
		t.Errorf("%d tokens when the wait is over, want 1", n)
	}
}

// TestWaitForMore than a part holds: the bucket has to be whole, which takes a moment, and to have it then.
func TestWaitForMore(t *testing.T) {
	const burst, part = 28_800_000, 3_600_000 // 8,000 a second
	for _, tt := range []struct {
		missing limit.Tokens
		want    time.Duration
	}{{8000, time.Second}, {4000, 500 * time.Millisecond}, {1000, WholeSoon}, {1, WholeSoon}, {0, WholeSoon}, {-4000, WholeSoon}} {
		k := spread(t, burst)
		k.reply(limit.Take, nil, k.divided(8), 0)
		for i := range 8 {
			k.has(i, 100_000)
		}
		k.has(5, part+1-7*100_000-tt.missing)
		if got := k.Wait(k.now, part+1); got < tt.want || got > tt.want+time.Microsecond {
			t.Errorf("with %d too few in all parts: %v, want %v", tt.missing, got, tt.want)
		}
	}
}

// TestLevel is that of the whole bucket with what all parts have: of the one that was asked by what it said, if it did.
func TestLevel(t *testing.T) {
	k := spread(t, 80)
	if got := k.Level(k.now, nil, 5, true); got != 5 {
		t.Errorf("while it is whole: %d, want 5", got)
	}
	k.reply(limit.Take, nil, k.divided(8), 0)
	for i := range 8 {
		k.has(i, 1)
	}
	p := k.part(3)
	part := k.terms.Part(8, 3)
	for _, tt := range []struct {
		level limit.Ticks
		heard bool
		want  limit.Tokens
	}{{part.Depth, true, 7}, {0, true, 17}, {0, false, 8}, {part.Depth, false, 8}} {
		if got := k.terms.Remaining(k.Level(k.now, p, tt.level, tt.heard)); got != tt.want {
			t.Errorf("at level %d, heard %v: %d tokens, want %d", tt.level, tt.heard, got, tt.want)
		}
	}
	if got := k.Level(k.now, nil, 5, true); got != 5 {
		t.Errorf("of home: %d, want 5", got)
	}
	for i := range 8 {
		k.has(i, 0)
	}
	if got := k.Level(k.now, p, part.Depth+7, true); got != part.Depth+7 {
		t.Errorf("in debt: %d, want %d", got, part.Depth+7)
	}
	if got := k.Level(k.now, p, part.Depth+7, false); got != k.terms.Depth {
		t.Errorf("not heard, and all others empty: %d, want %d", got, k.terms.Depth)
	}
}

// TestFailingPart is passed over for a second, and asked again then, by one entry; if all fail, the own one is asked.
func TestFailingPart(t *testing.T) {
	k := spread(t, 80)
	k.reply(limit.Take, nil, k.divided(4), 0)
	k.fails(k.part(0), batcher.ErrNotRun)
	k.chooses(1, tried(), 1)
	k.now += second - 1
	k.chooses(1, tried(1, 2, 3), nowhere)
	k.now++ // 129 s: the own part is the first one again
	probe := k.sends(1, tried(), 0)
	k.chooses(1, tried(), 1) // one is enough to find out
	k.chooses(1, tried(1, 2, 3), nowhere)
	k.reply(limit.Take, probe, nil, 19)
	k.chooses(1, tried(), 0)
	for i := range 4 {
		k.fails(k.part(i), batcher.ErrUnknown)
	}
	k.chooses(1, tried(), 0)
	k.chooses(1, tried(0), nowhere)
	if got := k.Wait(k.now, 1); got <= 0 {
		t.Errorf("wait %v", got)
	}
	// A cell that is damaged, or a queue that is full here, says nothing of the master.
	k.now += second
	for _, err := range []error{batcher.ErrDamaged, batcher.ErrOverloaded, batcher.ErrClosed} {
		k.has(0, 10)
		k.fails(k.part(0), err)
		k.chooses(1, tried(), 0)
	}
}

// TestLateReplies: what an earlier call brings later changes nothing, neither of a part nor of the division.
func TestLateReplies(t *testing.T) {
	k := spread(t, 80)
	k.replyOf(10, limit.Take, nil, k.divided(4), 0)
	one := k.part(1)
	k.replyOf(5, limit.Take, one, nil, 3)
	k.replyOf(4, limit.Take, one, nil, 9)
	if n := k.mu.parts[1].tokens(k.now); n != 3 {
		t.Errorf("part 1 has %d tokens, want 3", n)
	}
	k.replyOf(5, limit.Take, one, nil, 2) // another claim of that call, after it
	k.replyOf(5, limit.Take, one, nil, 3) // and one before it
	if n := k.mu.parts[1].tokens(k.now); n != 2 {
		t.Errorf("part 1 has %d tokens, want 2", n)
	}
	if e := k.replyOf(9, limit.Take, nil, nil, 80); e != "" || k.Ways() != 4 {
		t.Errorf("an old reply of home: %q, %d ways", e, k.Ways())
	}
	if e := k.replyOf(11, limit.Take, nil, nil, 80); e != EventEnded || k.Ways() != 1 {
		t.Errorf("a new one: %q, %d ways", e, k.Ways())
	}
	if n := k.mu.ops; n != 4 { // home refused the first; the last two claims on the part were of a call that had counted
		t.Errorf("%d entries, want 4", n)
	}
}

// TestRefusalsAreNoLoad: an entry that a part or home refused goes on to where it counts.
func TestRefusalsAreNoLoad(t *testing.T) {
	k := spread(t, 80)
	split := k.divided(4)
	k.reply(limit.Take, nil, split, 0)
	one := k.part(1)
	for range 3 {
		k.fails(one, batcher.ErrStale)
		k.reply(limit.Take, nil, split, 0)
	}
	if k.mu.ops != 0 || k.mu.parts[1].ops != 0 {
		t.Errorf("%d entries, %d on the part, want none", k.mu.ops, k.mu.parts[1].ops)
	}
	k.has(1, 5)
	k.fails(nil, batcher.ErrNotRun) // may have come through
	if k.mu.ops != 2 || k.mu.parts[1].ops != 1 {
		t.Errorf("%d entries, %d on the part, want 2 and 1", k.mu.ops, k.mu.parts[1].ops)
	}
}

// TestUpkeepIsNoLoad: touches, looks, closes and merges count neither at home nor on parts, however the bucket is divided.
func TestUpkeepIsNoLoad(t *testing.T) {
	k := spread(t, 80)
	first := k.divided(4)
	k.reply(limit.Touch, nil, nil, 80)
	k.reply(limit.Touch, nil, first, 80)
	one := k.part(1)
	k.reply(limit.TakePartial, one, nil, 20)
	k.reply(limit.Close, one, nil, 20)
	k.reply(limit.Merge, nil, nil, 80)
	k.reply(limit.Touch, nil, k.dividedAt(second), 80)
	k.reply(limit.Close, one, nil, 20) // of the split before
	if k.mu.ops != 0 || k.mu.parts[1].ops != 0 {
		t.Errorf("%d entries, %d on the part, want none", k.mu.ops, k.mu.parts[1].ops)
	}
	for _, op := range []limit.Op{limit.Take, limit.Lease, limit.Charge, limit.Refund} {
		before := k.mu.ops
		k.reply(op, k.part(1), nil, 20)
		k.reply(op, one, nil, 20)
		if n := k.mu.ops - before; n != 2 {
			t.Errorf("op %d counts for %d entries, want 2", op, n)
		}
	}
}

// TestRepliesOfOneCall may be learned in any order: home said first that the bucket is whole, then that it is divided; or first that it
// is divided, then that this is over.
func TestRepliesOfOneCall(t *testing.T) {
	const call = 7
	for _, touchFirst := range []bool{false, true} {
		k := spread(t, 80)
		split := k.divided(4)
		replies := []func(){
			func() { k.replyOf(call, limit.Take, nil, nil, 5) },
			func() { k.replyOf(call, limit.Touch, nil, split, 0) },
		}
		if touchFirst {
			slices.Reverse(replies)
		}
		for _, reply := range replies {
			reply()
		}
		if got := k.told(); k.Ways() != 4 || !slices.Equal(got, []EventKind{EventSplit}) {
			t.Errorf("split, touch first %v: %d ways, told of %q", touchFirst, k.Ways(), got)
		}
		replies = []func(){
			func() { k.replyOf(call+1, limit.Take, nil, closing(split), 0) },
			func() { k.replyOf(call+1, limit.Merge, nil, over(split), 0) },
		}
		if touchFirst {
			slices.Reverse(replies)
		}
		k.replyOf(call, limit.Touch, nil, closing(split), 0)
		for _, reply := range replies {
			reply()
		}
		if got := k.told(); k.Ways() != 1 || !slices.Equal(got, []EventKind{EventMerged}) {
			t.Errorf("merge, last first %v: %d ways, told of %q", touchFirst, k.Ways(), got)
		}
		k.replyOf(call+2, limit.Touch, nil, k.dividedAt(10*second), 0)
		if e := k.replyOf(call+3, limit.Take, nil, nil, 5); e != EventEnded {
			t.Errorf("of a later call, without a split: %q", e)
		}
	}
}

// TestOverIsOver: what is heard again of a split that was seen to be over is no news; of the next one it is.
func TestOverIsOver(t *testing.T) {
	k := spread(t, 80)
	split := k.divided(4)
	k.reply(limit.Take, nil, split, 0)
	k.reply(limit.Take, nil, over(split), 0)
	k.told()
	for _, say := range []*batcher.Split{split, closing(split), over(split), split} {
		if e := k.reply(limit.Take, nil, say, 0); e != "" || k.Ways() != 1 || len(k.told()) != 0 {
			t.Errorf("%+v: %q, %d ways", say.Split, e, k.Ways())
		}
		k.chooses(1, tried(), home)
	}
	if e := k.reply(limit.Take, nil, k.dividedAt(second), 0); e != EventSplit || k.Ways() != 4 {
		t.Errorf("the next one: %q, %d ways", e, k.Ways())
	}
}

// TestClosingIsKept: a home that forgot in a failover that the split is about to end hears it again, for parts may be closed. The next
// split does not begin so.
func TestClosingIsKept(t *testing.T) {
	k := spread(t, 80)
	split := k.divided(4)
	k.touched(split)
	k.touched(closing(split))
	at := k.mu.merge.at
	k.now += second
	k.touched(split)
	k.touched(closing(split)) // which is no news
	if i, _ := k.info(k.now); !i.Closing || !k.part(1).Split.Closing || k.mu.merge.at != at {
		t.Errorf("closing is forgotten: %+v, merge at %d, was %d", i, k.mu.merge.at, at)
	}
	if p := k.due(100); p == nil || !p.Split.Closing {
		t.Errorf("home hears %+v", p)
	}
	next := k.dividedAt(10 * second)
	k.touched(next)
	if i, _ := k.info(k.now); i.Closing || k.part(1).Split.Closing || k.beginMerge(k.now+mergeSpread) != nil {
		t.Errorf("the next one is closing: %+v", i)
	}
	// Of one that is closing when it is first heard of the merge has a moment of its own, also after another one that was closing.
	k.touched(closing(next))
	k.now += 20 * second
	k.touched(closing(k.divided(4)))
	if after := k.mu.merge.at - k.now; after < 0 || after >= mergeSpread {
		t.Errorf("it merges after %v", time.Duration(after))
	}
}

// TestMergedInTime: a split that was closing ended by a merge, unless its time was over.
func TestMergedInTime(t *testing.T) {
	const last = int64(limit.SplitTTL) + int64(2*limit.SplitMargin)
	for _, tt := range []struct {
		closing bool
		after   int64
		want    EventKind
	}{{false, second, EventEnded}, {true, second, EventMerged}, {true, last - 1, EventMerged}, {true, last, EventEnded}} {
		for _, next := range []bool{false, true} {
			k := spread(t, 80)
			split, say := k.divided(4), (*batcher.Split)(nil)
			if k.touched(split); tt.closing {
				k.touched(closing(split))
			}
			if k.now += tt.after; next {
				say = k.divided(8)
			}
			k.touched(say)
			if got := k.told(); len(got) < 2 || got[1] != tt.want {
				t.Errorf("closing %v, after %v, another one %v: %q, want %q", tt.closing, time.Duration(tt.after), next, got, tt.want)
			}
		}
	}
}

// TestEvents: each change is an event once, in order. Of a split that another one follows the end is told too.
func TestEvents(t *testing.T) {
	k := spread(t, 80)
	split := k.divided(4)
	whole := over(split) // in time: somebody merged it, and this agent had not heard that it was closing
	late := over(split)
	late.Left = -limit.SplitMargin
	later := *split
	later.Start += 5_000_000
	later.Until += 5_000_000
	last := later
	last.Start, last.Ways = later.Start+5_000_000, 8
	for i, step := range []struct {
		say  *batcher.Split
		want []EventKind
		ways int
	}{
		{nil, nil, 1}, {split, []EventKind{EventSplit}, 4}, {split, nil, 4}, {whole, []EventKind{EventMerged}, 1}, {whole, nil, 1}, {nil, nil, 1},
		{&later, []EventKind{EventSplit}, 4}, {&later, nil, 4}, {&last, []EventKind{EventEnded, EventSplit}, 8}, {nil, []EventKind{EventEnded}, 1},
		{split, []EventKind{EventSplit}, 4}, {closing(split), nil, 4}, {&last, []EventKind{EventMerged, EventSplit}, 8}, {nil, []EventKind{EventEnded}, 1},
		{split, []EventKind{EventSplit}, 4}, {closing(split), nil, 4}, {whole, []EventKind{EventMerged}, 1}, {nil, nil, 1},
		{split, []EventKind{EventSplit}, 4}, {closing(split), nil, 4}, {late, []EventKind{EventEnded}, 1},
	} {
		e, all := k.reply(limit.Take, nil, step.say, 1), k.told()
		if !slices.Equal(all, step.want) || k.Ways() != step.ways {
			t.Errorf("step %d: %q and %d ways, want %q and %d", i, all, k.Ways(), step.want, step.ways)
		}
		if len(all) > 0 && e != all[len(all)-1] || len(all) == 0 && e != "" {
			t.Errorf("step %d: %q is what it is now, of %q", i, e, all)
		}
	}
	if got, want := k.totals(), (Totals{Split: 7, Merged: 3, Ended: 4}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// TestEventsSayOfWhich: what is told of an end is what was known of the split that ended.
func TestEventsSayOfWhich(t *testing.T) {
	k := spread(t, 80)
	first := k.divided(4)
	k.reply(limit.Take, nil, first, 0)
	k.has(1, 7)
	k.now += second
	k.touched(closing(first))
	then := k.divided(8)
	k.reply(limit.Touch, nil, then, 0)
	all := k.Untold()
	if len(all) != 3 {
		t.Fatalf("%d events", len(all))
	}
	for i, want := range []struct {
		kind    EventKind
		ways    int
		since   int64
		closing bool
	}{{EventSplit, 4, first.Start, false}, {EventMerged, 4, first.Start, true}, {EventSplit, 8, then.Start, false}} {
		e := all[i]
		if e.Kind != want.kind || e.Info.Ways != want.ways || len(e.Info.Parts) != want.ways || !e.Info.Since.Equal(time.UnixMicro(want.since)) || e.Info.Closing != want.closing {
			t.Errorf("event %d: %+v, want %+v", i, e, want)
		}
		if string(e.Info.ID) != "b" || e.Info.Bucket != k.Bucket {
			t.Errorf("event %d is of %q", i, e.Info.ID)
		}
	}
	if p := all[1].Info.Parts[1]; p.Remaining != 7 || p.Ops != 1 || p.Part.Split.Start != first.Start {
		t.Errorf("part 1 in the end: %+v", p)
	}
}

// TestRefusedGoesHome: after a part refused, home is asked, and asked for news at once; what it says counts.
func TestRefusedGoesHome(t *testing.T) {
	k := spread(t, 80)
	split := k.divided(4)
	k.reply(limit.Take, nil, split, 0)
	one := k.part(1)
	k.now += touchPause
	if p := k.due(100); p != nil {
		t.Fatalf("it touches home %v after it was divided", time.Duration(touchPause))
	}
	k.fails(one, batcher.ErrStale)
	k.chooses(1, tried(1), home)
	if got := k.totals().Refused; got != 1 {
		t.Errorf("refused %d times, want once", got)
	}
	if p := k.due(100); p == nil || p.Split.Start != split.Start || !p.Home || p.At() != 0 {
		t.Errorf("no touch after a refusal: %+v", p)
	}
	if _, ok := k.Named(k.now, 1, split.Start); ok {
		t.Error("a part that refused is named")
	}
	k.touched(split)
	k.chooses(1, tried(), 0)
	// A refusal of an older split is no news.
	old := *one
	old.Split.Start--
	k.fails(&old, batcher.ErrStale)
	k.chooses(1, tried(), 0)
	if _, ok := k.Named(k.now, 1, old.Split.Start); ok {
		t.Error("a part of another split is named")
	}
}

// TestEndIsKnown: from the end on by home's clock, less the margin, parts are not asked.
func TestEndIsKnown(t *testing.T) {
	k := spread(t, 80)
	split := k.divided(4)
	k.reply(limit.Take, nil, split, 0)
	k.now += int64(limit.SplitTTL) - 1
	k.fails(nil, batcher.ErrNotRun) // home does not answer
	k.chooses(1, tried(), 3)        // the own part, at that time
	k.now++
	k.chooses(1, tried(), home)
	if p, ok := k.Untried(k.now, tried(0)); p != nil || !ok {
		t.Errorf("after the end, untried is %+v", p)
	}
	if _, ok := k.Named(k.now, 1, split.Start); ok {
		t.Error("a part is named after the end")
	}
	if p := k.due(100); p == nil {
		t.Error("home is not asked for news")
	}
}

// TestOtherTerms of the same class leave the bucket divided, each part with its share of them.
func TestOtherTerms(t *testing.T) {
	k := spread(t, 80)
	k.reply(limit.Take, nil, k.divided(4), 20)
	less := termsOf(t, 3, time.Hour)
	if less.Class != k.terms.Class {
		t.Fatalf("%v and %v", less.Class, k.terms.Class)
	}
	k.Choose(k.now, less, 1, Moving, tried())
	if k.Ways() != 4 || k.mu.parts[0].terms.Burst != 1 || k.mu.parts[3].terms.Burst != 0 {
		t.Errorf("%d ways, bursts of %d and %d", k.Ways(), k.mu.parts[0].terms.Burst, k.mu.parts[3].terms.Burst)
	}
	for mask := range uint64(8) {
		if p, ok := k.Choose(k.now, less, 1, Moving, Asked{Parts: mask}); ok && p.At() > 0 && p.Index == 3 {
			t.Errorf("tried %b: the part without burst is asked", mask)
		}
	}
	if got := k.told(); !slices.Equal(got, []EventKind{EventSplit}) {
		t.Errorf("%v, want it divided still", got)
	}
}
