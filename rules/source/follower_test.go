package source

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillgate/spillgate/rules"
)

var errAway = errors.New("fake: away")

// fakeStore is a Store in memory whose messages and answers a test can lose.
type fakeStore struct {
	mu       sync.Mutex
	head     rules.Head
	versions map[int64]rules.Version
	away     bool // no answer
	deaf     bool // no subscription
	silent   bool // a subscription, and no message comes
	looks    int
	heard    map[int]chan int64 // of subscriptions
	next     int
}

func newFakeStore() *fakeStore {
	return &fakeStore{versions: make(map[int64]rules.Version), heard: make(map[int]chan int64)}
}

func (s *fakeStore) Head(context.Context) (rules.Head, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.looks++
	if s.away {
		return rules.Head{}, errAway
	}
	return s.head, nil
}

func (s *fakeStore) Version(_ context.Context, number int64) (rules.Version, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	v, ok := s.versions[number]
	switch {
	case s.away:
		return v, errAway
	case !ok:
		return v, fmt.Errorf("fake: no version %d", number)
	case len(v.Text) == 0:
		return v, fmt.Errorf("fake: %w", rules.ErrDamaged)
	}
	return v, nil
}

func (s *fakeStore) Listen(ctx context.Context, ready func(), heard func(int64)) error {
	s.mu.Lock()
	if s.away || s.deaf {
		s.mu.Unlock()
		return errAway
	}
	c, id := make(chan int64, 100), s.next
	s.next++
	s.heard[id] = c
	s.mu.Unlock()
	ready()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case n, ok := <-c:
			if !ok {
				return errAway
			}
			heard(n)
		}
	}
}

// put makes a version and puts it in force, without telling.
func (s *fakeStore) put(v rules.Version) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.versions[v.Number], s.head = v, v.Head
}

// push makes a version, puts it in force and tells.
func (s *fakeStore) push(number int64, body []byte) {
	s.put(version(number, body))
	s.announce(number)
}

func (s *fakeStore) announce(number int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.heard {
		if !s.silent {
			c <- number
		}
	}
}

// cut ends the subscriptions; set changes what the store does from then on.
func (s *fakeStore) cut(set func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	set()
	for id, c := range s.heard {
		close(c)
		delete(s.heard, id)
	}
}

func (s *fakeStore) change(set func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	set()
}

func (s *fakeStore) looked() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.looks
}

// followRig is a Follower of a fakeStore, in a bubble.
type followRig struct {
	*testing.T
	*Follower
	taken
	store    *fakeStore
	snapshot string
	log      journal
}

// inBubble runs a test on virtual time. The store is as prepare leaves it when the agent starts.
func inBubble(t *testing.T, prepare func(*fakeStore), test func(*followRig)) {
	t.Helper()
	snapshot := filepath.Join(t.TempDir(), "snapshot")
	synctest.Test(t, func(t *testing.T) {
		r := &followRig{T: t, store: newFakeStore(), snapshot: snapshot}
		prepare(r.store)
		r.start()
		defer func() { r.Close() }() // of the last one
		test(r)
	})
}

// start makes a follower and begins; where there was one, that has ended.
func (r *followRig) start() {
	r.Helper()
	var err error
	r.Follower, err = NewFollower(FollowerConfig{Store: r.store, Snapshot: r.snapshot, Logger: slog.New(slog.NewTextHandler(&r.log, nil))})
	must(r.T, err)
	if set := r.Begin(r.Context()); set != nil {
		r.taken.use(set)
	}
	r.Follow(r.taken.use)
	synctest.Wait()
}

// restart is a new process.
func (r *followRig) restart() {
	r.Helper()
	r.Close()
	r.taken.limits = nil
	r.start()
}

// wants waits until nothing moves any more, and says what is then in force. stale is a part of why it is, or empty.
func (r *followRig) wants(limits string, number int64, from rules.Source, stale string) {
	r.Helper()
	synctest.Wait()
	s := r.Status()
	if r.taken.String() != limits || s.Version != number || s.From() != from || (stale == "") != (s.Stale == "") || !strings.Contains(s.Stale, stale) {
		r.Fatalf("in force came %q, %+v; want %q, version %d of the %s, stale %q\n%s", &r.taken, s, limits, number, from, stale, &r.log)
	}
}

func nothing(*fakeStore) {}

// first has a version 5 of limit 5/s in the store.
func first(s *fakeStore) { s.put(version(5, text("5/s"))) }

// TestFollow: what is pushed is in force at once, and nothing else is ever done.
func TestFollow(t *testing.T) {
	inBubble(t, first, func(r *followRig) {
		r.wants("5", 5, rules.FromStore, "")
		begin := time.Now()
		r.store.push(6, text("6/s"))
		r.wants("5 6", 6, rules.FromStore, "")
		r.store.put(version(7, text("7/s"))) // two in a row: told of the first, it finds the second
		r.store.put(version(8, text("8/s")))
		r.store.announce(7)
		r.store.announce(8)
		r.wants("5 6 8", 8, rules.FromStore, "")
		if took := time.Since(begin); took > 0 {
			r.Errorf("it took %v", took)
		}
		since := r.Status().Since
		time.Sleep(time.Minute)
		r.store.push(9, text("8/s")) // a rollback to what is in force: the number alone is new
		r.wants("5 6 8", 9, rules.FromStore, "")
		if s := r.Status(); s.Since != since {
			r.Errorf("the same rules are in force since %v, and since %v", since, s.Since)
		}
		looks := r.store.looked()
		time.Sleep(time.Hour)
		if n := r.store.looked() - looks; n < 120 || n > 135 {
			r.Errorf("%d looks in an hour, at 30 s or a little less", n)
		}
		r.wants("5 6 8", 9, rules.FromStore, "")
	})
}

// TestLateVersion is fault 20: v5, then v4, by whatever way.
func TestLateVersion(t *testing.T) {
	inBubble(t, first, func(r *followRig) {
		looks := r.store.looked()
		r.store.announce(4) // late
		r.store.announce(5) // twice
		r.wants("5", 5, rules.FromStore, "")
		if n := r.store.looked() - looks; n > 2 {
			r.Errorf("%d looks for two messages", n)
		}
		r.store.push(4, text("4/s")) // the store itself is behind: a replica that became master. Who pushes hears at once that it is not in force
		r.wants("5", 5, rules.FromStore, "the store has version 4, and version 5 is in force here")
		r.store.change(func() { r.store.head = rules.Head{} })
		time.Sleep(31 * time.Second)
		r.wants("5", 5, rules.FromStore, "the store has no version, and version 5 is in force here: it has lost data, or it is another store; "+
			"push the rules again with --above 5")
		r.store.push(5, text("50/s"))
		r.wants("5", 5, rules.FromStore, "the store has another version 5")
		if n := r.log.count("rules may not be the latest"); n != 3 {
			r.Errorf("told %d times, want once for each of three:\n%s", n, &r.log)
		}
		r.store.push(6, text("6/s"))
		r.wants("5 6", 6, rules.FromStore, "")
	})
}

// TestBadVersion: a bad version is refused whole and once, and the next good one is taken.
func TestBadVersion(t *testing.T) {
	for name, bad := range map[string]string{
		"bad YAML":       "domain: [",
		"unknown field":  "domain: api\nrules:\n  - {nmae: r}\n",
		"duplicate name": string(text("1/s")) + "  - {name: r, match: [{key: x}], limit: 1/s}\n",
		"no text":        "",
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, first, func(r *followRig) {
				since := r.Status().Since
				r.store.push(6, []byte(bad))
				r.wants("5", 5, rules.FromStore, "version 6 of the store was refused: ")
				logged := r.log.String()
				time.Sleep(time.Hour)
				r.wants("5", 5, rules.FromStore, "version 6 of the store was refused: ")
				if s := r.Status(); s.Refused != 1 || s.Since != since || r.log.String() != logged {
					r.Errorf("an hour later: %+v\n%s", s, &r.log)
				}
				r.Reload()
				synctest.Wait()
				if s := r.Status(); s.Refused != 1 || r.log.count("rules version refused") != 2*strings.Count(logged, "rules version refused") {
					r.Errorf("tried again: %+v\n%s", s, &r.log)
				}
				r.store.cut(func() { r.store.away = true })
				r.wants("5", 5, rules.FromStore, "cannot be read")
				r.store.change(func() { r.store.away = false })
				time.Sleep(5 * time.Second)
				r.wants("5", 5, rules.FromStore, "version 6 of the store was refused: ")
				r.store.push(7, text("5/s"))
				r.wants("5", 7, rules.FromStore, "")
				r.store.push(8, text("8/s"))
				r.wants("5 8", 8, rules.FromStore, "")
			})
		})
	}
	// One that the store gives with another text than it says.
	inBubble(t, first, func(r *followRig) {
		v := version(6, text("6/s"))
		r.store.put(v)
		v.Text = text("7/s")
		r.store.change(func() { r.store.versions[6] = v })
		r.store.announce(6)
		r.wants("5", 5, rules.FromStore, "damaged")
	})
}

// TestStoreAway: for ten minutes nobody answers. What is in force stays, that is told once, and a push is noticed when it is over.
func TestStoreAway(t *testing.T) {
	inBubble(t, first, func(r *followRig) {
		since := r.Status().Since
		r.store.cut(func() { r.store.away = true })
		r.wants("5", 5, rules.FromStore, "cannot be read: fake: away")
		r.store.put(version(6, text("6/s")))
		time.Sleep(10 * time.Minute)
		r.wants("5", 5, rules.FromStore, "cannot be read: fake: away")
		if n := r.log.count("rules may not be the latest"); n != 1 || r.Status().Since != since {
			r.Errorf("told %d times:\n%s", n, &r.log)
		}
		r.store.change(func() { r.store.away = false })
		time.Sleep(2 * time.Second)
		r.wants("5 6", 6, rules.FromStore, "")
		if r.log.count("rules are the latest again") != 1 || r.log.count("heard of at once again") != 1 {
			r.Errorf("the end was not told:\n%s", &r.log)
		}
	})
}

// TestMessageLost: what was pushed while nobody told is in force within the TTL, and at once when the subscription is back.
func TestMessageLost(t *testing.T) {
	inBubble(t, first, func(r *followRig) {
		r.store.change(func() { r.store.silent = true })
		r.store.push(6, text("6/s"))
		r.wants("5", 5, rules.FromStore, "") // nobody can know
		time.Sleep(31 * time.Second)
		r.wants("5 6", 6, rules.FromStore, "")
		r.store.cut(func() { r.store.deaf = true })
		synctest.Wait()
		r.store.push(7, text("7/s"))
		time.Sleep(31 * time.Second)
		r.wants("5 6 7", 7, rules.FromStore, "")
		looks := r.store.looked()
		time.Sleep(10 * time.Minute)
		if n := r.store.looked() - looks; n > 23 {
			r.Errorf("%d looks in ten minutes without a subscription", n)
		}
		r.store.put(version(8, text("8/s")))
		r.store.change(func() { r.store.deaf, r.store.silent = false, false })
		time.Sleep(time.Second)
		r.wants("5 6 7 8", 8, rules.FromStore, "")
	})
}

// TestNothingPushed: there is nothing to serve until the first push, and that is told.
func TestNothingPushed(t *testing.T) {
	inBubble(t, nothing, func(r *followRig) {
		r.wants("", 0, rules.NoSource, "")
		if s := r.Status(); !strings.Contains(s.Missing, "no rules were pushed") || s.String() != s.Missing {
			r.Errorf("%+v", s)
		}
		r.store.push(1, []byte("x"))
		synctest.Wait()
		if s := r.Status(); !strings.Contains(s.Missing, "version 1 of the store was refused") {
			r.Errorf("%+v", s)
		}
		r.store.push(2, text("2/s"))
		r.wants("2", 2, rules.FromStore, "")
		if s := r.Status(); s.Missing != "" || !strings.HasPrefix(s.String(), "rules version 2 of the store since ") {
			r.Errorf("%+v: %s", s, s)
		}
	})
}

// TestFleetInMessages: what is to be done names the fleet, unless it is the default one.
func TestFleetInMessages(t *testing.T) {
	for fleet, want := range map[string]string{"": "rules push", "default": "rules push", "edge": "rules push --agent-fleet edge"} {
		f, err := NewFollower(FollowerConfig{Store: newFakeStore(), Fleet: fleet, Logger: slog.New(slog.DiscardHandler)})
		must(t, err)
		f.Begin(t.Context())
		if s := f.Status(); !strings.HasSuffix(s.Missing, want) {
			t.Errorf("fleet %q: %q", fleet, s.Missing)
		}
	}
}

// TestSnapshotServes: a start without the store has what was in force last; the store then counts, whatever the clocks say.
func TestSnapshotServes(t *testing.T) {
	inBubble(t, first, func(r *followRig) {
		future := version(6, text("6/s"))
		future.Time = time.Unix(1<<37, 0) // the pusher's clock is thousands of years ahead, and later
		r.store.put(future)
		r.store.announce(6)
		r.wants("5 6", 6, rules.FromStore, "")
		r.store.cut(func() { r.store.away = true })
		r.restart()
		r.wants("6", 6, rules.FromSnapshot, "cannot be read")
		if s := r.Status().String(); !strings.HasPrefix(s, "rules version 6 of the snapshot since 20") || !strings.Contains(s, ", stale but serving: ") {
			r.Error(s)
		}
		r.store.change(func() { r.store.away = false })
		time.Sleep(2 * time.Second)
		r.wants("6", 6, rules.FromStore, "")
		past := version(7, text("7/s"))
		past.Time = time.Unix(0, 0) // back at the beginning
		r.store.put(past)
		r.store.announce(7)
		r.wants("6 7", 7, rules.FromStore, "")
		r.restart()
		r.wants("7", 7, rules.FromStore, "")

		// The store has lost it all when the agent comes back.
		r.store.change(func() { r.store.head = rules.Head{} })
		r.restart()
		r.wants("7", 7, rules.FromSnapshot, "lost data")

		// A damaged snapshot is told; without the store there is nothing to serve then.
		must(r.T, os.WriteFile(r.snapshot, []byte("spillgate rules snapshot 1 x\n"), 0o600))
		r.store.change(func() { r.store.away = true })
		r.restart()
		r.wants("", 0, rules.NoSource, "")
		if r.log.count("rules snapshot not used") != 1 || !strings.Contains(r.Status().Missing, "cannot be read") {
			r.Errorf("%+v\n%s", r.Status(), &r.log)
		}
		r.store.change(func() { r.store.away = false })
		r.store.push(8, text("8/s"))
		time.Sleep(2 * time.Second)
		r.wants("8", 8, rules.FromStore, "")
		if v, err := readSnapshot(r.snapshot); err != nil || v.Number != 8 {
			r.Errorf("the snapshot is not whole again: %+v, %v", v, err)
		}
		// One that this program does not understand is none.
		strange := version(9, []byte("domain: api\nrules: [{shape: round}]\n"))
		must(r.T, writeSnapshot(r.snapshot, &strange))
		r.restart()
		r.wants("8", 8, rules.FromStore, "")
	})
}

// TestSnapshotUnwritable: a warning, once, and a try again later; serving goes on.
func TestSnapshotUnwritable(t *testing.T) {
	inBubble(t, first, func(r *followRig) {
		dir := filepath.Join(filepath.Dir(r.snapshot), "later")
		r.snapshot = filepath.Join(dir, "snapshot")
		r.restart()
		r.wants("5", 5, rules.FromStore, "")
		r.store.push(6, text("6/s"))
		r.wants("5 6", 6, rules.FromStore, "")
		time.Sleep(5 * time.Minute)
		if s := r.Status(); s.SnapshotsFailed < 2 || r.log.count("rules snapshot not written") != 1 {
			r.Errorf("%+v\n%s", s, &r.log)
		}
		must(r.T, os.Mkdir(dir, 0o700))
		time.Sleep(31 * time.Second)
		if v, err := readSnapshot(r.snapshot); err != nil || v == nil || v.Number != 6 {
			r.Errorf("the snapshot was not written later: %+v, %v", v, err)
		}
	})
}

// TestPushWhileStarting: a version that comes between the look of Begin and the subscription is not missed.
func TestPushWhileStarting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, used := newFakeStore(), new(taken)
		first(s)
		f, err := NewFollower(FollowerConfig{Store: s, TTL: time.Hour})
		must(t, err)
		used.use(f.Begin(t.Context()))
		s.push(6, text("6/s")) // nobody listens yet
		f.Follow(used.use)
		synctest.Wait()
		if used.String() != "5 6" || f.Status().Version != 6 {
			t.Errorf("in force came %q, %+v", used, f.Status())
		}
		f.Close()
	})
}

// TestManyPushes: whatever is pushed and announced in whatever order, numbers in force only rise, and the last one is in force in the end.
func TestManyPushes(t *testing.T) {
	inBubble(t, first, func(r *followRig) {
		var all sync.WaitGroup
		for i := int64(0); i < 100; i++ {
			all.Go(func() { r.store.announce(i % 7 * 20) })
			r.store.put(version(6+i, text(fmt.Sprintf("%d/s", 6+i))))
		}
		all.Wait()
		r.store.announce(math.MaxInt64)
		synctest.Wait()
		if got := r.taken.limits; got[len(got)-1] != "105" {
			r.Errorf("in force came %v", got)
		}
		for i := 1; i < len(r.taken.limits); i++ {
			if a, b := r.taken.limits[i-1], r.taken.limits[i]; len(a) > len(b) || len(a) == len(b) && a >= b {
				r.Errorf("%s after %s", b, a)
			}
		}
	})
}

func TestNewFollowerRefuses(t *testing.T) {
	if _, err := NewFollower(FollowerConfig{}); err == nil || !strings.Contains(err.Error(), "Store is missing") {
		t.Errorf("no store: %v", err)
	}
	if _, err := NewFollower(FollowerConfig{Store: newFakeStore(), TTL: -1}); err == nil || !strings.Contains(err.Error(), "TTL") {
		t.Errorf("a negative TTL: %v", err)
	}
}
