package split

import (
	"slices"
	"testing"
	"time"

	"github.com/spillgate/spillgate/batcher"
	"github.com/spillgate/spillgate/limit"
)

// TestTouchWhole: home hears of the load after 32 entries, at most every 20 ms.
func TestTouchWhole(t *testing.T) {
	k := spread(t, 80)
	split := (*batcher.Split)(nil)
	k.now += second
	for range touchOps - 1 {
		k.reply(limit.Take, nil, split, 1)
	}
	if p := k.due(100); p != nil {
		t.Fatalf("after %d entries: %+v", touchOps-1, p)
	}
	k.replyOf(k.call, limit.Take, nil, split, 1) // another claim of that entry
	if p := k.due(100); p != nil {
		t.Fatalf("a second claim counts as an entry: %+v", p)
	}
	k.reply(limit.Take, nil, split, 1)
	if p := k.due(0); p != nil {
		t.Errorf("without a threshold: %+v", p)
	}
	k.KeepWhole(true)
	if p := k.due(100); p != nil {
		t.Errorf("of a rule that is not to be split: %+v", p)
	}
	k.KeepWhole(false)
	if p := k.due(100); p == nil || p.Ops != touchOps || p.Threshold != 100 || p.End || p.Split != (limit.Split{}) {
		t.Fatalf("after %d entries: %+v", touchOps, p)
	}
	for range 2 * touchOps {
		k.reply(limit.Take, nil, split, 1)
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

// TestTouchDivided: twice a second, as long as somebody uses it, with the entries on all parts.
func TestTouchDivided(t *testing.T) {
	k := spread(t, 80)
	split := k.divided(4)
	k.reply(limit.Take, nil, split, 20)
	k.now += second
	k.due(100)
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
	k.now += second
	k.KeepWhole(true)
	if p := k.due(100); p == nil || !p.End {
		t.Errorf("of a rule that is not to be split any more: %+v", p)
	}
	k.KeepWhole(false)
	// Nobody uses it any more: it ends by itself.
	still := *split
	still.Left = time.Hour
	k.reply(limit.Take, nil, &still, 20)
	k.now += idleAfter
	if p := k.due(100); p != nil {
		t.Errorf("unused: %+v", p)
	}
}

// TestMerge: of a closing split all parts are closed, once; what they had is told home when all have answered. A part that
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
		indexes = append(indexes, p.At()-1)
	}
	if !slices.Equal(indexes, []int{0, 1, 2, 3}) {
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
	for i, err := range []error{nil, batcher.ErrUnknown, nil, nil} {
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
	if parts = k.beginMerge(at + mergeAgain); len(parts) != 4 {
		t.Fatalf("it does not try again: %v", parts)
	}
	free := limit.Ticks(0)
	for i := range 3 {
		if p, _ := closed(i, nil); p != nil {
			t.Errorf("before the last answer it tells home %+v", p)
		}
	}
	for i := range 4 {
		part := k.terms.Part(4, i)
		free += k.terms.FromPart(&part, 1000)
	}
	p, out := closed(3, nil)
	if p == nil || p.Free != free || out != 8 || p.Split.Start != split.Start || p.End || !p.Home || p.At() != 0 {
		t.Errorf("it tells home %+v and %d on lease, want %d free", p, out, free)
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
		closing := *split
		closing.Closing = true
		k.reply(limit.Touch, nil, &closing, 0)
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
		closing := *split
		closing.Closing = true
		k.reply(limit.Touch, nil, &closing, 0)
		if parts := k.beginMerge(k.now); len(parts) != 4 {
			t.Errorf("%s: it closes %v", tt.why, parts)
		}
	}
}

// TestCosts: a cost that no part can hold ends the split, and is remembered for a minute: until then the bucket is not divided so
// far. One that the bucket can never have says nothing.
func TestCosts(t *testing.T) {
	k := spread(t, 80)
	k.reply(limit.Take, nil, k.divided(8), 0)
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
	k.now += costFor
	if p := k.due(100); p == nil || !p.End || p.Ways != 7 {
		t.Errorf("a minute later: %+v", p)
	}
	k.now += touchPause + 1
	k.mu.stale = true
	if p := k.due(100); p == nil || p.End || p.Ways != 0 {
		t.Errorf("after that: %+v", p)
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
