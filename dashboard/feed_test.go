package dashboard

import (
	"strconv"
	"testing"
	"time"

	"github.com/spillgate/spillgate/agent/split"
)

// whole is the event of the end of a split as the agent tells it: it knows nothing of the split any more.
func whole(kind split.EventKind, of split.Info) split.Event {
	return split.Event{Kind: kind, Info: split.Info{ID: of.ID, Bucket: of.Bucket, Since: time.UnixMicro(0)}}
}

func numbers(events []happening) (all []uint64) {
	for _, h := range events {
		all = append(all, h.number)
	}
	return all
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// TestFeedKeeps: who follows gets every event once, in order; who is too far behind is told by how many.
func TestFeedKeeps(t *testing.T) {
	f := newFeed("b")
	i := info(idOf("", "k"), time.Unix(1, 0), 0, 0)
	_, _, more, open := f.after(0)
	if !open || isClosed(more) {
		t.Fatal("an empty feed has more, or none ever")
	}
	for range 3 {
		f.add(time.Unix(2, 0), split.Event{Kind: split.EventSplit, Info: i})
	}
	if !isClosed(more) {
		t.Error("who waits is not woken")
	}
	for _, tt := range []struct{ add, seen, first, lost uint64 }{
		{0, 0, 1, 0}, {0, 2, 3, 0}, {keep - 3, 0, 1, 0}, {1, 0, 2, 1}, {0, 1, 2, 0}, {keep, 0, keep + 2, keep + 1}, {0, 7, keep + 2, keep - 6},
	} {
		for range tt.add {
			f.add(time.Unix(2, 0), split.Event{Kind: split.EventSplit, Info: i})
		}
		events, lost, more, _ := f.after(tt.seen)
		all := numbers(events)
		if lost != tt.lost || all[0] != tt.first || uint64(len(all)) != f.mu.last-tt.first+1 || isClosed(more) {
			t.Errorf("after %d of %d: %d lost, %v", tt.seen, f.mu.last, lost, all)
		}
		for k, n := range all {
			if n != tt.first+uint64(k) {
				t.Fatalf("not in order: %v", all)
			}
		}
	}
	if events, lost, more, _ := f.after(f.mu.last); len(events) > 0 || lost > 0 || isClosed(more) {
		t.Errorf("after the last: %v, %d lost", numbers(events), lost)
	}
}

func TestFeedCloses(t *testing.T) {
	f := newFeed("b")
	_, _, more, _ := f.after(0)
	f.close()
	f.close()
	f.add(time.Now(), split.Event{Kind: split.EventSplit}) // the agent may still have one
	if events, _, _, open := f.after(0); open || len(events) > 0 || !isClosed(more) {
		t.Errorf("open is %v, %d events", open, len(events))
	}
}

func TestFeedResumes(t *testing.T) {
	f := newFeed("b")
	if got := f.resume(""); got != 0 {
		t.Errorf("an empty feed begins after %d", got)
	}
	for range 100 {
		f.add(time.Now(), split.Event{Kind: split.EventEnded})
	}
	for id, want := range map[string]uint64{
		f.id(7): 7, "b-100": 100, "b-0": 0, // told apart from:
		"": 36, "c-7": 36, "b-101": 36, "b": 36, "b-": 36, "b-x": 36, "7": 36, "b-7-7": 36, "b--7": 36,
	} {
		if got := f.resume(id); got != want {
			t.Errorf("%q: after %d, want %d", id, got, want)
		}
	}
}

// TestFeedRemembers: the event of an end says what it is that ended, which the agent has forgotten.
func TestFeedRemembers(t *testing.T) {
	f := newFeed("b")
	one, two := info(idOf("", "1"), time.Unix(10, 0), 1, 2, 3), info(idOf("", "2"), time.Unix(20, 0), 1, 2)
	later := info(idOf("", "1"), time.Unix(30, 0), 5, 6)
	still := two
	still.Closing = true
	for _, e := range []split.Event{
		{Kind: split.EventSplit, Info: one}, {Kind: split.EventSplit, Info: two}, whole(split.EventMerged, one),
		{Kind: split.EventSplit, Info: later}, {Kind: split.EventEnded, Info: still}, whole(split.EventEnded, later), whole(split.EventEnded, one),
	} {
		f.add(time.Unix(40, 0), e)
	}
	events, _, _, _ := f.after(0)
	for k, want := range []struct {
		ways  int
		since int64
	}{{3, 10}, {2, 20}, {3, 10}, {2, 30}, {2, 20}, {2, 30}, {0, 0}} {
		i := &events[k].info
		if i.Ways != want.ways || i.Since.Unix() != want.since {
			t.Errorf("event %d: %d ways since %v, want %+v", k+1, i.Ways, i.Since, want)
		}
		if over := events[k].kind != split.EventSplit; over != (len(i.Parts) == 0) || i.Closing {
			t.Errorf("event %d, %s, has %d parts; closing is %v", k+1, events[k].kind, len(i.Parts), i.Closing)
		}
	}
	if len(f.mu.known) > 0 {
		t.Errorf("%d splits are still awaited", len(f.mu.known))
	}
}

// TestFeedIsBounded: splits whose end never comes take no more than so much memory.
func TestFeedIsBounded(t *testing.T) {
	f := newFeed("b")
	for k := range mostKnown + 100 {
		f.add(time.Now(), split.Event{Kind: split.EventSplit, Info: info(idOf("", strconv.Itoa(k)), time.Unix(1, 0))})
	}
	if len(f.mu.known) != mostKnown {
		t.Errorf("%d splits are awaited", len(f.mu.known))
	}
}
