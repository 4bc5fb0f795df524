package dashboard

import (
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spillgate/spillgate/agent/split"
	"github.com/spillgate/spillgate/limit"
)

const (
	// keep is how many events are kept, and by how many a client may be behind.
	keep = 256
	// fresh is how many of them a client gets that has seen none.
	fresh = 64
	// mostKnown bounds the splits whose ends are awaited: an agent follows 4,096 buckets at most.
	mostKnown = 8192
)

// feed keeps the last events. Safe for concurrent use.
type feed struct {
	// boot tells the numbers of this process from those of the one before.
	boot string

	mu struct {
		sync.Mutex
		ring   [keep]happening // event n is at n % keep
		last   uint64          // number of the latest; the first is 1
		wake   chan struct{}   // closed when there is more
		closed bool
		known  map[limit.Sum]lasting
	}
}

// happening is an event in the feed.
type happening struct {
	number uint64
	at     time.Time
	kind   split.EventKind
	info   split.Info
}

// lasting is what is to be said of a split when it is over; the agent has forgotten it then.
type lasting struct {
	ways  int
	since time.Time
}

func newFeed(boot string) *feed {
	f := &feed{boot: boot}
	f.mu.wake, f.mu.known = make(chan struct{}), make(map[limit.Sum]lasting)
	return f
}

// add takes an event. It blocks for nobody. [1]
func (f *feed) add(at time.Time, e split.Event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.mu.closed {
		return
	}
	f.completeLocked(&e)
	f.mu.last++
	f.mu.ring[f.mu.last%keep] = happening{f.mu.last, at, e.Kind, e.Info}
	close(f.mu.wake)
	f.mu.wake = make(chan struct{})
}

// completeLocked remembers how a bucket is divided, and adds that to the event of its end.
func (f *feed) completeLocked(e *split.Event) {
	sum := e.Info.Bucket.Sum()
	if e.Kind == split.EventSplit {
		if _, there := f.mu.known[sum]; there || len(f.mu.known) < mostKnown {
			f.mu.known[sum] = lasting{e.Info.Ways, e.Info.Since}
		}
		return
	}
	if was, ok := f.mu.known[sum]; ok {
		e.Info.Ways, e.Info.Since = was.ways, was.since
		delete(f.mu.known, sum)
	}
	e.Info.Closing, e.Info.Parts = false, nil // whatever they were, they are no more
}

// after returns the events that follow number seen, how many of these are gone, and what is closed when there are
// more. open is false when there will be none.
func (f *feed) after(seen uint64) (events []happening, lost uint64, more <-chan struct{}, open bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.mu.last > keep && seen < f.mu.last-keep {
		lost = f.mu.last - keep - seen
	}
	for n := seen + lost + 1; n <= f.mu.last; n++ {
		events = append(events, f.mu.ring[n%keep])
	}
	return events, lost, f.mu.wake, !f.mu.closed
}

// id is how a client may name an event when it comes back.
func (f *feed) id(number uint64) string { return f.boot + "-" + strconv.FormatUint(number, 10) }

// resume is the number of the event that a client saw last. One that has seen none, or those of another process, gets
// some that were before it came.
func (f *feed) resume(id string) (seen uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	boot, text, _ := strings.Cut(id, "-")
	if n, err := strconv.ParseUint(text, 10, 64); err == nil && boot == f.boot && n <= f.mu.last {
		return n
	}
	return f.mu.last - min(f.mu.last, fresh)
}

// close ends the feed for all who follow it.
func (f *feed) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.mu.closed {
		f.mu.closed = true
		close(f.mu.wake)
	}
}
