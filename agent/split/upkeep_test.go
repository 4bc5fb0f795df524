package split

import (
	"slices"
	"testing"
	"time"

	"github.com/spillgate/spillgate/batcher"
	"github.com/spillgate/spillgate/limit"
)

// TestTouchWhole: home hears of the load after 32 entries, at most every 20 ms, and again only once it has answered.
func TestTouchWhole(t *testing.T) {
	k := spread(t, 80)
	k.now += second
	for range touchOps - 1 {
		k.reply(limit.Take, nil, nil, 1)
	}
	if p := k.due(100); p != nil {
		t.Fatalf("after %d entries: %+v", touchOps-1, p)
	}
	k.replyOf(k.call, limit.Take, nil, nil, 1) // another claim of that entry
	if p := k.due(100); p != nil {
		t.Fatalf("a second claim counts as an entry: %+v", p)
	}
	k.reply(limit.Take, nil, nil, 1)
	if p := k.due(100); p == nil || p.Ops != touchOps || p.Threshold != 100 || p.End || p.Split != (limit.Split{}) {
		t.Fatalf("after %d entries: %+v", touchOps, p)
	}
	k.touched(nil)
	for range 2 * touchOps {
		k.reply(limit.Take, nil, nil, 1)
	}
	k.now += touchPause - 1
	if p := k.due(100); p != nil {
		t.Errorf("too soon: %+v", p)
	}
	k.now++
	if p := k.due(100); p == nil || p.Ops != 2*touchOps {
		t.Errorf("in time: %+v", p)
	}
}

// TestTouchesOneAtATime: while home has not answered a touch the load is kept for the next one. An answer that is late, and one that is an
// error, are answers; entries of other kinds are not.
func TestTouchesOneAtATime(t *testing.T) {
	for _, tt := range []struct {
		what   string
		answer batcher.Claim
	}{
		{"an answer", batcher.Claim{Call: 1000}},
		{"a late one", batcher.Claim{Call: 1}},
		{"an error", batcher.Claim{Call: 1000, Err: batcher.ErrUnknown}},
	} {
		k := spread(t, 80)
		k.now += second
		load := func() {
			for range touchOps {
				k.reply(limit.Take, nil, nil, 1)
			}
		}
		load()
		if p := k.due(100); p == nil {
			t.Fatal("no touch")
		}
		load()
		k.now += second
		if p := k.due(100); p != nil {
			t.Errorf("%s: before it a touch of %+v", tt.what, p)
		}
		tt.answer.Op, tt.answer.Terms = limit.Touch, k.terms
		k.Learn(k.now, &tt.answer)
		if p := k.due(100); p == nil || p.Ops != touchOps {
			t.Errorf("%s: after it a touch of %+v", tt.what, p)
		}
	}
	// Nor of a divided bucket, whatever there is to find out.
	k := spread(t, 80)
	k.reply(limit.Take, nil, k.divided(4), 0)
	one := k.part(1)
	k.now += second
	k.due(100)
	k.fails(one, batcher.ErrStale)
	k.KeepWhole(true)
	k.now += int64(limit.SplitTTL)
	if p := k.due(100); p != nil {
		t.Errorf("of a divided bucket: %+v", p)
	}
}

// TestLoadIsNotKept for the day when the bucket may be divided, or can be.
func TestLoadIsNotKept(t *testing.T) {
	yes, no := func() bool { return true }, func() bool { return false }
	for _, tt := range []struct {
		why       string
		off       bool
		threshold int64
		divisible func() bool
	}{{"the rule forbids it", true, 100, yes}, {"this agent does not split", false, 0, yes}, {"there is one master", false, 100, no}} {
		k := spread(t, 80)
		k.now += second
		load := func(n int) {
			for range n {
				k.reply(limit.Take, nil, nil, 1)
			}
		}
		load(touchOps)
		k.KeepWhole(tt.off)
		if p := k.Spread.due(k.now, tt.threshold, tt.divisible); p != nil {
			t.Errorf("%s: %+v", tt.why, p)
		}
		k.KeepWhole(false)
		load(touchOps - 1)
		if p := k.due(100); p != nil {
			t.Errorf("%s: then, before the load is there again: %+v", tt.why, p)
		}
		load(1)
		if p := k.due(100); p == nil || p.Ops != touchOps {
			t.Errorf("%s: then %+v", tt.why, p)
		}
	}
}

// TestTouchDivided: twice a second, as long as somebody uses it, with the entries on all parts.
func TestTouchDivided(t *testing.T) {
	k := spread(t, 80)
	split := k.divided(4)
	k.reply(limit.Take, nil, split, 20)
	k.now += second
	if p := k.due(100); p == nil || p.Ops != 0 {
		t.Fatalf("of nothing: %+v", p)
	}
	k.touched(split)
	for i := range 4 {
		k.has(i, 20)
	}
	k.now += touchEvery - 1
	if p := k.due(100); p != nil {
		t.Errorf("too soon: %+v", p)
	}
	k.now++
	if p := k.due(100); p == nil || p.Ops != 4 || p.Split != split.Split {
		t.Errorf("in time: %+v", p)
	}
	k.touched(split)
	k.now += touchPause
	k.KeepWhole(true)
	if p := k.due(100); p == nil || !p.End {
		t.Errorf("of a rule that is not to be split any more: %+v", p)
	}
	k.KeepWhole(false)
	// Nobody uses it any more: it ends by itself.
	still := *split
	still.Left = time.Hour
	k.touched(&still)
	k.chooses(1, tried(), k.ownLocked(k.now, Moving))
	k.now += idleAfter
	if p := k.due(100); p == nil {
		t.Error("no touch, and it was used of late")
	}
	k.touched(&still)
	k.now += touchEvery
	if p := k.due(100); p != nil {
		t.Errorf("unused: %+v", p)
	}
}

// TestTouchesOfShortSplits: home hears of a split four times in what was left of it when home spoke last, within bounds.
func TestTouchesOfShortSplits(t *testing.T) {
	for _, tt := range []struct{ left, want int64 }{
		{3 * second, 500 * ms}, {2 * second, 500 * ms}, {2*second - 4*ms, 499 * ms}, {second, 250 * ms}, {400 * ms, 100 * ms}, {200 * ms, 100 * ms},
	} {
		for _, news := range []bool{false, true} {
			k := spread(t, 80)
			split := k.divided(4)
			short := *split
			short.Left = time.Duration(tt.left) + limit.SplitMargin
			if news { // it was longer
				k.touched(split)
			}
			k.touched(&short)
			k.now += tt.want - 1
			if p := k.due(100); p != nil {
				t.Errorf("with %v left: too soon", time.Duration(tt.left))
			}
			k.now++
			if p := k.due(100); p == nil {
				t.Errorf("with %v left: none after %v", time.Duration(tt.left), time.Duration(tt.want))
			}
		}
	}
}

// merging is a Spread of four parts that looks at them before it closes them.
func merging(t *testing.T) (k *known, split *batcher.Split, parts []*limit.Part) {
	k = spread(t, 80)
	split = k.divided(4)
	k.reply(limit.Take, nil, split, 0)
	if parts := k.beginMerge(k.now); parts != nil {
		t.Fatalf("it looks at %v of a split that is not closing", parts)
	}
	k.touched(closing(split))
	k.now += mergeSpread
	parts = k.beginMerge(k.now)
	k.wantAll("it looks at", parts)
	return k, split, parts
}

// wantAll checks that parts are all four, each once and in order.
func (k *known) wantAll(what string, parts []*limit.Part) {
	k.Helper()
	var indexes []int
	for _, p := range parts {
		indexes = append(indexes, p.At()-1)
	}
	if !slices.Equal(indexes, []int{0, 1, 2, 3}) {
		k.Fatalf("%s %v", what, indexes)
	}
}

// looks answers a look at each part, and returns what is to be closed after the last one.
func (k *known) looks(parts []*limit.Part, errs ...error) (toClose []*limit.Part) {
	k.Helper()
	for i, err := range errs {
		toClose = k.looked(&batcher.Claim{Terms: k.terms, Op: limit.TakePartial, Part: parts[i], Err: err})
		if i < len(parts)-1 && toClose != nil {
			k.Fatalf("after %d looks it closes %v", i+1, toClose)
		}
	}
	return toClose
}

// closes answers a Close, by a part that had two tokens on lease.
func (k *known) closes(p *limit.Part, err error, threshold int64) (*limit.Part, limit.Tokens) {
	c := &batcher.Claim{Terms: k.terms, Op: limit.Close, Part: p, Err: err}
	if err == nil {
		c.Out = limit.Outcome{Granted: 2, Level: 1000}
	}
	return k.closed(c, k.now, threshold)
}

// TestMerge: of a closing split all parts are looked at, then all are closed, once; what they had is told home when all have answered. A part
// that does not makes it come to nothing, and it is tried again from the beginning.
func TestMerge(t *testing.T) {
	for _, threshold := range []int64{100, 0} {
		k, split, parts := merging(t)
		if again := k.beginMerge(k.now + second); again != nil {
			t.Errorf("it looks at %v while it looks", again)
		}
		parts = k.looks(parts, nil, nil, nil, nil)
		k.wantAll("it closes", parts)
		if again := k.beginMerge(k.now + second); again != nil {
			t.Errorf("it looks at %v while it closes", again)
		}
		for i, err := range []error{nil, batcher.ErrUnknown, nil, nil} {
			if p, _ := k.closes(parts[i], err, threshold); p != nil {
				t.Fatalf("answer %d: it tells home %+v", i, p)
			}
		}
		if p, _ := k.closes(parts[2], nil, threshold); p != nil {
			t.Errorf("an answer more: %+v", p)
		}
		if again := k.beginMerge(k.now + mergeAgain - 1); again != nil {
			t.Errorf("it tries again too soon")
		}
		parts = k.beginMerge(k.now + mergeAgain)
		k.wantAll("it tries again with", parts)
		parts = k.looks(parts, batcher.ErrStale, nil, batcher.ErrStale, batcher.ErrStale) // three are closed
		k.wantAll("it closes again", parts)
		free := limit.Ticks(0)
		for i := range 3 {
			if p, _ := k.closes(parts[i], nil, threshold); p != nil {
				t.Errorf("before the last answer it tells home %+v", p)
			}
		}
		for i := range 4 {
			part := k.terms.Part(4, i)
			free += k.terms.FromPart(&part, 1000)
		}
		p, out := k.closes(parts[3], nil, threshold)
		if p == nil || p.Free != free || out != 8 || p.Split.Start != split.Start || p.End != (threshold == 0) || !p.Home || p.At() != 0 {
			t.Errorf("it tells home %+v and %d on lease, want %d free", p, out, free)
		}
	}
}

// TestMergeLooksFirst: a part that is closed while another one does not answer is closed in vain. So none is, and after a while all are looked
// at again.
func TestMergeLooksFirst(t *testing.T) {
	for _, err := range []error{batcher.ErrNotRun, batcher.ErrUnknown, batcher.ErrOverloaded, batcher.ErrDamaged} {
		for failing := range 4 {
			k, _, parts := merging(t)
			errs := make([]error, 4)
			errs[failing] = err
			if toClose := k.looks(parts, errs...); toClose != nil {
				t.Fatalf("%v of part %d: it closes %v", err, failing, toClose)
			}
			if again := k.beginMerge(k.now + mergeAgain - 1); again != nil {
				t.Errorf("%v: it looks again too soon", err)
			}
			parts = k.beginMerge(k.now + mergeAgain)
			k.wantAll("it looks again at", parts)
			k.wantAll("it closes", k.looks(parts, nil, nil, nil, nil))
		}
	}
}

// TestMergeTakesItsOwnAnswers: a Close that comes back while it looks, what comes back of another split, and a look that comes back when the
// bucket is whole, count for nothing.
func TestMergeTakesItsOwnAnswers(t *testing.T) {
	k, _, parts := merging(t)
	for i := range 4 {
		if p, _ := k.closes(parts[i], nil, 100); p != nil {
			t.Errorf("a Close while it looks: it tells home %+v", p)
		}
		other := *parts[i]
		other.Split.Start--
		if toClose := k.looked(&batcher.Claim{Terms: k.terms, Op: limit.TakePartial, Part: &other}); toClose != nil {
			t.Errorf("a look at another split: it closes %v", toClose)
		}
	}
	parts = k.looks(parts, nil, nil, nil, nil)
	k.wantAll("it closes", parts)
	for i := range 4 {
		if toClose := k.looks(parts[i:i+1], nil); toClose != nil {
			t.Errorf("a look while it closes: it closes %v", toClose)
		}
		other := *parts[i]
		other.Split.Start--
		if p, _ := k.closes(&other, nil, 100); p != nil {
			t.Errorf("a Close of another split: it tells home %+v", p)
		}
	}

	k, split, parts := merging(t)
	k.looks(parts, nil, nil, nil)
	k.touched(over(split)) // another agent was faster
	if toClose := k.looks(parts[3:], nil); toClose != nil {
		t.Errorf("of a bucket that is whole it closes %v", toClose)
	}
	if again := k.beginMerge(k.now + second); again != nil {
		t.Errorf("of a bucket that is whole it looks at %v", again)
	}
}

// TestMergeWhileRefused: parts refuse once they are closed, by this agent or another one. That is no reason to leave the rest open; the end is.
func TestMergeWhileRefused(t *testing.T) {
	k := spread(t, 80)
	split := k.divided(4)
	k.touched(closing(split))
	k.fails(k.part(1), batcher.ErrStale)
	k.wantAll("it looks at", k.beginMerge(k.now+int64(limit.SplitTTL)-1))
	k = spread(t, 80)
	k.touched(closing(split))
	if parts := k.beginMerge(k.now + int64(limit.SplitTTL)); parts != nil {
		t.Errorf("after the end it looks at %v", parts)
	}
}

// TestEndIsAskedOfMastersThatAnswer: who wants the bucket whole does not ask for it while a part cannot be closed.
func TestEndIsAskedOfMastersThatAnswer(t *testing.T) {
	for _, tt := range []struct {
		why       string
		threshold int64
		want      func(*known)
	}{
		{"the rule forbids it", 100, func(k *known) { k.KeepWhole(true) }},
		{"this agent does not split", 0, func(*known) {}},
		{"a cost that no part can hold", 100, func(k *known) { k.chooses(21, tried(), 0) }},
	} {
		k := spread(t, 80)
		split := k.divided(4)
		k.touched(split)
		tt.want(k)
		k.fails(k.part(2), batcher.ErrNotRun)
		k.now += touchPause
		if p := k.due(tt.threshold); p != nil {
			t.Errorf("%s: at once it tells home %+v", tt.why, p)
		}
		k.now += touchEvery
		if p := k.due(tt.threshold); p == nil || p.End {
			t.Errorf("%s: while a master fails it tells home %+v", tt.why, p)
		}
		k.touched(split)
		k.now += touchPause
		k.fails(k.part(2), batcher.ErrOverloaded) // says nothing of it
		if p := k.due(tt.threshold); p != nil {
			t.Errorf("%s: nothing was heard of the master, and home is told %+v", tt.why, p)
		}
		k.has(2, 5)
		if p := k.due(tt.threshold); p == nil || !p.End {
			t.Errorf("%s: when it answers home is told %+v", tt.why, p)
		}
	}
}

// TestMergeBegins: agents that see the load go do not all begin at once; but where somebody waits for the bucket to be whole, the agent
// begins at once.
func TestMergeBegins(t *testing.T) {
	moments := map[int64]bool{}
	for seed := range uint64(8) {
		k := spread(t, 80)
		k.mu.random = seed*0x9e3779b97f4a7c15 + 1
		split := k.divided(4)
		k.reply(limit.Take, nil, split, 0)
		k.touched(closing(split))
		after := k.mu.merge.at - k.now
		if after < 0 || after >= mergeSpread {
			t.Errorf("it begins after %v", time.Duration(after))
		}
		moments[after] = true
	}
	if len(moments) < 7 {
		t.Errorf("8 agents begin at %d moments", len(moments))
	}
	for _, tt := range []struct {
		why  string
		wait func(*known)
	}{
		{"the rule forbids it", func(k *known) { k.KeepWhole(true) }},
		{"a cost that no part can hold", func(k *known) { k.chooses(21, tried(), 0) }},
	} {
		k := spread(t, 80)
		split := k.divided(4)
		k.reply(limit.Take, nil, split, 0)
		k.now += touchPause
		if p := k.due(100); p != nil {
			t.Fatalf("%s: a touch before: %+v", tt.why, p)
		}
		tt.wait(k)
		if p := k.due(100); p == nil || !p.End {
			t.Fatalf("%s: it tells home %+v", tt.why, p)
		}
		k.touched(closing(split))
		if parts := k.beginMerge(k.now); len(parts) != 4 {
			t.Errorf("%s: it closes %v", tt.why, parts)
		}
	}
}

// TestCosts: a cost that no part can hold ends the split, and is remembered for a minute: until then the bucket is not divided so
// far. One that the bucket can never have says nothing.
func TestCosts(t *testing.T) {
	k := spread(t, 80)
	split := k.divided(8)
	k.reply(limit.Take, nil, split, 0)
	k.now += touchPause
	k.chooses(81, tried(), 0)
	if p := k.due(100); p != nil {
		t.Errorf("after more than the burst: %+v", p)
	}
	k.chooses(10, tried(), 0)
	if p := k.due(100); p != nil {
		t.Errorf("after all that a part holds: %+v", p)
	}
	k.chooses(11, tried(), 0)
	if p := k.due(100); p == nil || !p.End || p.Ways != 7 {
		t.Errorf("after more than a part holds: %+v", p)
	}
	k.touched(split)
	k.now += costFor
	k.Choose(k.now, k.terms, 1, Moving, Asked{}) // somebody uses it
	if p := k.due(100); p == nil || !p.End || p.Ways != 7 {
		t.Errorf("a minute later: %+v", p)
	}
	k.touched(split)
	k.now += touchPause + 1
	k.mu.stale = true
	if p := k.due(100); p == nil || p.End || p.Ways != 0 {
		t.Errorf("after that: %+v", p)
	}
}

// TestOver: a Spread is forgotten when nobody uses it, and not before its split is over.
func TestOver(t *testing.T) {
	k := spread(t, 80)
	if k.unused(k.now + idleAfter) {
		t.Error("it is over too soon")
	}
	if !k.unused(k.now + idleAfter + 1) {
		t.Error("unused, and not over")
	}
	long := k.divided(4)
	long.Left = 10*time.Second + limit.SplitMargin
	k.reply(limit.Take, nil, long, 1)
	end := k.now + 10*second + int64(limit.SplitMargin)
	if k.unused(end-1) || k.Ways() != 4 {
		t.Error("its split is over before its time, and the margin")
	}
	if !k.unused(end) || k.Ways() != 1 {
		t.Error("its split is not over, or it is not forgotten")
	}
	if parts := k.leftovers(end + sweepAfter); parts != nil {
		t.Errorf("it removes %v of a split that others may have kept", parts)
	}
}

// TestLeftovers: a split that is over leaves closed parts in the store. They are removed once, when no master's clock can be in its time, and
// the Spread is kept until then. Home says when that is, since others may have prolonged it; if it has forgotten the split, they may have until
// now.
func TestLeftovers(t *testing.T) {
	for _, forgotten := range []bool{false, true} {
		k := spread(t, 80)
		split := k.divided(4)
		k.touched(split)
		if parts := k.leftovers(k.now + int64(limit.SplitTTL) + sweepAfter); parts != nil {
			t.Fatalf("of a split that lasts: %v", parts)
		}
		k.touched(closing(split))
		k.now += second
		last := over(split)
		last.Until += 900_000
		last.Left -= time.Second - 900*time.Millisecond
		end := k.now + int64(last.Left)
		if forgotten {
			last, end = nil, k.now+int64(limit.SplitTTL)
		}
		k.touched(last)
		if parts := k.leftovers(end + sweepAfter - 1); parts != nil {
			t.Errorf("too soon: %v", parts)
		}
		if k.unused(end + sweepAfter + idleAfter) {
			t.Error("it is forgotten before they are removed")
		}
		parts := k.leftovers(end + sweepAfter)
		k.wantAll("it removes", parts)
		until := split.Until
		if last != nil {
			until = last.Until
		}
		if got := parts[3].Split; got.Start != split.Start || got.Ways != 4 || got.Stride != split.Stride || got.Until != until {
			t.Errorf("of %+v it removes parts of %+v", split.Split, got)
		}
		if again := k.leftovers(end + second*1000); again != nil {
			t.Errorf("again: %v", again)
		}
		if !k.unused(end + sweepAfter + idleAfter) {
			t.Error("it is not forgotten after they are removed")
		}
	}
}

// TestLeftoversThatLive: a home that had lost a split is told of it by another agent, and has it again. Its parts are not removed, those of
// another one are.
func TestLeftoversThatLive(t *testing.T) {
	k := spread(t, 80)
	first, second := k.divided(4), k.dividedAt(1000)
	k.touched(first)
	k.touched(second)
	k.touched(nil)
	k.touched(second)
	late := k.now + int64(time.Hour)
	parts := k.leftovers(late)
	k.wantAll("it removes", parts)
	for _, p := range parts {
		if p.Split.Start != first.Start {
			t.Errorf("it removes %+v, which lives", p)
		}
	}
}
