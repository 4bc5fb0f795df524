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
	k.chooses(1, 0, 0)
	k.chooses(1, 1, -1) // there is nothing else
	k.reply(limit.Take, nil, k.divided(8), 10)
	k.chooses(1, 0, 0)
	home := k.chooses(1, 0, 0)
	if home != nil {
		t.Errorf("home is %+v, want nil", home)
	}
	three, _ := k.Named(k.now, 3, k.mu.split.Start)
	five, _ := k.Named(k.now, 5, k.mu.split.Start)
	if three.Split.Ways != 8 || five.Index != 5 {
		t.Fatalf("%+v, %+v", three, five)
	}
	for i := range 8 {
		p, _ := k.Named(k.now, i, k.mu.split.Start)
		k.reply(limit.Take, p, k.divided(8), 2)
	}
	k.reply(limit.Take, three, nil, 4)
	k.reply(limit.Take, five, nil, 6)
	k.chooses(1, 0, 0) // has enough
	k.chooses(1, 1, 5)
	k.chooses(1, 1|1<<5, 3)
	k.chooses(1, 1|1<<5|1<<3, 1)
	k.chooses(3, 1|1<<5|1<<3, -1)
	k.chooses(3, 0, 5)  // the own one has too little
	k.chooses(8, 0, 5)  // nobody has that: the one that will first
	k.chooses(8, 1, -1) // and then nobody is asked any more
	k.chooses(11, 0, 0) // more than any part holds is for home
	k.chooses(11, 1, -1)

	// The own part moves on.
	k.now += second
	k.reply(limit.Take, nil, k.divided(8), 2)
	k.chooses(1, 0, 1)
}

// TestChooseRefills: what refilled since the last reply counts.
func TestChooseRefills(t *testing.T) {
	k := spread(t, 80)
	k.reply(limit.Take, nil, k.divided(8), 0)
	for i := 1; i < 8; i++ {
		p, _ := k.Named(k.now, i, k.mu.split.Start)
		k.reply(limit.Take, p, nil, 0)
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
	if level := k.Level(k.now+wait, 0, k.terms.Part(8, 0).Depth); k.terms.Remaining(level) != 7 {
		t.Errorf("%d tokens in all but the first, want 7", k.terms.Remaining(level))
	}
}

// TestFailingPart is passed over for a second, and asked again then; if all fail, the own one is asked.
func TestFailingPart(t *testing.T) {
	k := spread(t, 80)
	k.reply(limit.Take, nil, k.divided(4), 20)
	k.fails(nil, batcher.ErrNotRun)
	k.chooses(1, 0, 1)
	k.now += second - 1
	k.chooses(1, 0, 1)
	k.now++ // 129 s: the own part is the next one
	k.chooses(1, 0, 1)
	for i := range 4 {
		p, _ := k.Named(k.now, i, k.mu.split.Start)
		k.fails(p, batcher.ErrUnknown)
	}
	k.chooses(1, 0, 1)
	k.chooses(1, 2, -1)
	if got := k.Wait(k.now, 1); got <= 0 {
		t.Errorf("wait %v", got)
	}
	// A cell that is damaged, or a queue that is full here, says nothing of the master.
	k.now += second
	p, _ := k.Named(k.now, 2, k.mu.split.Start)
	k.fails(p, batcher.ErrDamaged)
	k.fails(p, batcher.ErrOverloaded)
	k.chooses(1, 0, 2)
}

// TestLateReplies: what an earlier call brings later changes nothing, neither of a part nor of the division.
func TestLateReplies(t *testing.T) {
	k := spread(t, 80)
	split := k.divided(4)
	k.replyOf(10, limit.Take, nil, split, 7)
	one, _ := k.Named(k.now, 1, split.Start)
	k.replyOf(5, limit.Take, one, nil, 3)
	k.replyOf(4, limit.Take, one, nil, 9)
	if n := k.mu.parts[1].tokens(k.now); n != 3 {
		t.Errorf("part 1 has %d tokens, want 3", n)
	}
	k.replyOf(5, limit.Take, one, nil, 2) // another claim of that call, after it
	if n := k.mu.parts[1].tokens(k.now); n != 2 {
		t.Errorf("part 1 has %d tokens, want 2", n)
	}
	if e := k.replyOf(9, limit.Take, nil, nil, 80); e != "" || k.Ways() != 4 {
		t.Errorf("an old reply of home: %q, %d ways", e, k.Ways())
	}
	if e := k.replyOf(11, limit.Take, nil, nil, 80); e != EventEnded || k.Ways() != 1 {
		t.Errorf("a new one: %q, %d ways", e, k.Ways())
	}
}

// TestEvents: each change is an event once.
func TestEvents(t *testing.T) {
	k := spread(t, 80)
	split := k.divided(4)
	closing := *split
	closing.Closing = true
	whole := *split
	whole.Ways = 0
	later := *split
	later.Start += 5_000_000
	later.Until += 5_000_000
	for i, step := range []struct {
		say  *batcher.Split
		want EventKind
		ways int
	}{
		{nil, "", 1}, {split, EventSplit, 4}, {split, "", 4}, {&whole, EventEnded, 1}, {&whole, "", 1}, {nil, "", 1},
		{&later, EventSplit, 4}, {&later, "", 4},
	} {
		if e := k.reply(limit.Take, nil, step.say, 1); e != step.want || k.Ways() != step.ways {
			t.Errorf("step %d: %q and %d ways, want %q and %d", i, e, k.Ways(), step.want, step.ways)
		}
	}
	k = spread(t, 80)
	k.reply(limit.Take, nil, split, 1)
	k.reply(limit.Take, nil, &closing, 1)
	if e := k.reply(limit.Take, nil, &whole, 1); e != EventMerged {
		t.Errorf("after it was closing: %q", e)
	}
}

// TestRefusedGoesHome: after a sub-bucket refused, home is asked, and asked for news at once; what it says counts.
func TestRefusedGoesHome(t *testing.T) {
	k := spread(t, 80)
	split := k.divided(4)
	k.reply(limit.Take, nil, split, 0)
	one := k.chooses(1, 0, 1)
	k.now += touchPause
	if p := k.due(k.now, 100); p != nil {
		t.Fatalf("it touches home %v after it was divided", time.Duration(touchPause))
	}
	k.fails(one, batcher.ErrStale)
	k.chooses(1, 2, 0)
	if p := k.due(k.now, 100); p == nil || p.Split.Start != split.Start {
		t.Errorf("no touch after a refusal: %+v", p)
	}
	if _, ok := k.Named(k.now, 1, split.Start); ok {
		t.Error("a part that refused is named")
	}
	k.reply(limit.Touch, nil, split, 0)
	k.chooses(1, 0, 1)
	// A refusal of an older split is no news.
	old := *one
	old.Split.Start--
	k.fails(&old, batcher.ErrStale)
	k.chooses(1, 0, 1)
}

// TestEndIsKnown: from the end on by home's clock, less the margin, sub-buckets are not asked.
func TestEndIsKnown(t *testing.T) {
	k := spread(t, 80)
	split := k.divided(4)
	k.reply(limit.Take, nil, split, 0)
	k.now += int64(limit.SplitTTL) - 1
	k.fails(nil, batcher.ErrNotRun) // home does not answer
	k.chooses(1, 0, 2)              // the own part, in that second
	k.now++
	k.chooses(1, 0, 0)
	if _, ok := k.Untried(k.now, 1); ok {
		t.Error("a part is named after the end")
	}
	if p := k.due(k.now, 100); p == nil {
		t.Error("home is not asked for news")
	}
}

// TestTouchWhole: home hears of the load after 32 entries, at most every 20 ms.
func TestTouchWhole(t *testing.T) {
	k := spread(t, 80)
	split := (*batcher.Split)(nil)
	k.now += second
	for range touchOps - 1 {
		k.reply(limit.Take, nil, split, 1)
	}
	if p := k.due(k.now, 100); p != nil {
		t.Fatalf("after %d entries: %+v", touchOps-1, p)
	}
	k.replyOf(k.call, limit.Take, nil, split, 1) // another claim of that entry
	if p := k.due(k.now, 100); p != nil {
		t.Fatalf("a second claim counts as an entry: %+v", p)
	}
	k.reply(limit.Take, nil, split, 1)
	if p := k.due(k.now, 0); p != nil {
		t.Errorf("without a threshold: %+v", p)
	}
	k.KeepWhole(true)
	if p := k.due(k.now, 100); p != nil {
		t.Errorf("of a rule that is not to be split: %+v", p)
	}
	k.KeepWhole(false)
	if p := k.due(k.now, 100); p == nil || p.Ops != touchOps || p.Threshold != 100 || p.End || p.Split != (limit.Split{}) {
		t.Fatalf("after %d entries: %+v", touchOps, p)
	}
	for range 2 * touchOps {
		k.reply(limit.Take, nil, split, 1)
	}
	k.now += touchPause - 1
	if p := k.due(k.now, 100); p != nil {
		t.Errorf("too soon: %+v", p)
	}
	k.now++
	if p := k.due(k.now, 100); p == nil || p.Ops != 2*touchOps {
		t.Errorf("in time: %+v", p)
	}
}

// TestTouchDivided: twice a second, as long as somebody uses it, with the entries on all parts.
func TestTouchDivided(t *testing.T) {
	k := spread(t, 80)
	split := k.divided(4)
	k.reply(limit.Take, nil, split, 20)
	k.due(k.now+second, 100)
	k.now += second
	for i := range 4 {
		p, _ := k.Named(k.now, i, split.Start)
		k.reply(limit.Take, p, split, 20)
	}
	k.chooses(1, 0, 1)
	k.now += touchEvery - 1
	if p := k.due(k.now, 100); p != nil {
		t.Errorf("too soon: %+v", p)
	}
	k.now++
	if p := k.due(k.now, 100); p == nil || p.Ops != 4 || p.Split != split.Split {
		t.Errorf("in time: %+v", p)
	}
	k.now += second
	k.KeepWhole(true)
	if p := k.due(k.now, 100); p == nil || !p.End {
		t.Errorf("of a rule that is not to be split any more: %+v", p)
	}
	k.KeepWhole(false)
	// Nobody uses it any more: it ends by itself.
	still := *split
	still.Left = time.Hour
	k.reply(limit.Take, nil, &still, 20)
	k.now += idleAfter
	if p := k.due(k.now, 100); p != nil {
		t.Errorf("unused: %+v", p)
	}
}

// TestMerge: of a closing split all other parts are closed, once; what they had is told home when all have answered. A part that
// does not makes it come to nothing, and it is tried again.
func TestMerge(t *testing.T) {
	k := spread(t, 80)
	split := k.divided(4)
	k.reply(limit.Take, nil, split, 0)
	if parts := k.beginMerge(k.now); parts != nil {
		t.Fatalf("it closes %v of a split that is not closing", parts)
	}
	closing := *split
	closing.Closing = true
	k.reply(limit.Touch, nil, &closing, 0)
	at := k.now + mergeSpread
	parts := k.beginMerge(at)
	var indexes []int
	for _, p := range parts {
		indexes = append(indexes, p.At())
	}
	if !slices.Equal(indexes, []int{1, 2, 3}) {
		t.Fatalf("it closes %v", indexes)
	}
	if again := k.beginMerge(at + second); again != nil {
		t.Errorf("it closes %v while it closes", again)
	}
	closed := func(i int, err error) (*limit.Part, limit.Tokens) {
		c := &batcher.Claim{Terms: k.terms, Op: limit.Close, Part: parts[i], Err: err}
		if err == nil {
			c.Out = limit.Outcome{Granted: 2, Level: 1000}
		}
		return k.closed(c, at, 100)
	}
	for i, err := range []error{nil, batcher.ErrUnknown, nil} {
		if p, _ := closed(i, err); p != nil {
			t.Fatalf("answer %d: it tells home %+v", i, p)
		}
	}
	if p, _ := closed(2, nil); p != nil {
		t.Errorf("an answer more: %+v", p)
	}
	if parts = k.beginMerge(at + mergeAgain - 1); parts != nil {
		t.Errorf("it tries again too soon")
	}
	if parts = k.beginMerge(at + mergeAgain); len(parts) != 3 {
		t.Fatalf("it does not try again: %v", parts)
	}
	closed(0, nil)
	closed(1, nil)
	p, out := closed(2, nil)
	if p == nil || p.Free != 3000 || out != 6 || p.Split.Start != split.Start || p.End {
		t.Errorf("it tells home %+v and %d on lease", p, out)
	}
}

// TestOver: a Spread is forgotten when nobody uses it, and not before its split is over.
func TestOver(t *testing.T) {
	k := spread(t, 80)
	if k.over(k.now + idleAfter) {
		t.Error("it is over too soon")
	}
	if !k.over(k.now + idleAfter + 1) {
		t.Error("unused, and not over")
	}
	long := k.divided(4)
	long.Left = 10*time.Second + limit.SplitMargin
	k.reply(limit.Take, nil, long, 1)
	end := k.now + 10*second + int64(limit.SplitMargin)
	if k.over(end-1) || !k.over(end) {
		t.Error("it is over when its split is, and the margin")
	}
}

// TestOtherTerms of the same class leave the bucket divided, each part with its share of them; of another class it is another cell.
func TestOtherTerms(t *testing.T) {
	k := spread(t, 80)
	k.reply(limit.Take, nil, k.divided(4), 20)
	less := termsOf(t, 3, time.Hour)
	if less.Class != k.terms.Class {
		t.Fatalf("%v and %v", less.Class, k.terms.Class)
	}
	k.Choose(k.now, less, 1, 0)
	if k.Ways() != 4 || k.mu.parts[0].terms.Burst != 1 || k.mu.parts[3].terms.Burst != 0 {
		t.Errorf("%d ways, bursts of %d and %d", k.Ways(), k.mu.parts[0].terms.Burst, k.mu.parts[3].terms.Burst)
	}
	for tried := range uint64(8) {
		if p, ok := k.Choose(k.now, less, 1, tried); ok && p.At() == 3 {
			t.Errorf("tried %b: the part without burst is asked", tried)
		}
	}
	k.Choose(k.now, termsOf(t, 80, time.Second), 1, 0)
	if k.Ways() != 1 {
		t.Errorf("%d ways of another cell", k.Ways())
	}
}
