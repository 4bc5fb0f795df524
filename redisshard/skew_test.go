package redisshard

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spillgate/spillgate/internal/redistest"
	"github.com/spillgate/spillgate/limit"
)

// hear is a reading by times that are easy to write.
func hear(addr string, at, offset, within time.Duration) *reading {
	return &reading{addr, int64(offset), int64(within), int64(at)}
}

func TestReadingHoldsTheTruth(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 8))
	for i := range 10_000 {
		offset, sent := random.Int64N(2e12)-1e12, int64(1e15)+random.Int64N(1e9)
		there, back := random.Int64N(int64(maxRoundTrip)*3/4), random.Int64N(int64(maxRoundTrip)*3/4)
		switch i % 4 { // the error is greatest when all the time passes on one way
		case 0:
			there = 0
		case 1:
			back = 0
		}
		r, ok := newReading("a", sent, sent+there+back, (sent+there+offset)/1000)
		if ok != (there+back <= int64(maxRoundTrip)) {
			t.Fatalf("a round trip of %v: %v", time.Duration(there+back), ok)
		}
		if low, high := r.bounds(r.at); ok && (low > offset || high < offset || high-low > there+back+2000) {
			t.Fatalf("sent %d, there %d, back %d: %d to %d, the truth is %d", sent, there, back, low, high, offset)
		}
	}
	if _, ok := newReading("a", 5, 4, 0); ok {
		t.Error("a reply before the call is taken")
	}
}

func TestReadingReplaces(t *testing.T) {
	const ms = time.Millisecond
	old := hear("a", time.Second, 0, 5*ms)
	for _, tt := range []struct {
		name                string
		age, offset, within time.Duration
		want                bool
	}{
		{"as precise", ms, ms, 5 * ms, true},
		{"coarser", ms, ms, 6 * ms, false},
		{"coarser than it was, not than it is", 4 * time.Second, ms, 6 * ms, true},
		{"coarser than it is", 4 * time.Second, ms, 8 * ms, false},
		{"coarser, but that was long ago", readingBest + 1, ms, 49 * ms, true},
		{"set ahead", ms, 20 * ms, 10 * ms, true},
		{"set back", ms, -20 * ms, 10 * ms, true},
		{"perhaps set", ms, 14 * ms, 10 * ms, false},
	} {
		if got := hear("a", time.Second+tt.age, tt.offset, tt.within).replaces(old); got != tt.want {
			t.Errorf("%s: %v", tt.name, got)
		}
	}
}

func TestWidest(t *testing.T) {
	const ms, now = time.Millisecond, 100 * time.Second
	masters := []string{"a", "b", "c"}
	for _, tt := range []struct {
		name          string
		readings      []*reading
		want          time.Duration
		ok            bool
		ahead, behind string
	}{
		{"nobody", nil, 0, false, "", ""},
		{"one", []*reading{hear("a", now, time.Hour, 0)}, 0, false, "", ""},
		{"one, by several shards", []*reading{hear("a", now, 0, 0), hear("a", now, time.Hour, 0)}, 0, false, "", ""},
		{"two that may agree", []*reading{hear("a", now, 0, 6*ms), hear("b", now, 10*ms, 5*ms)}, 0, true, "", ""},
		{"two that cannot", []*reading{hear("a", now, 0, 4*ms), hear("b", now, 10*ms, 5*ms)}, ms, true, "b", "a"},
		{"the agent's own clock does not matter", []*reading{hear("a", now, time.Hour, 0), hear("b", now, time.Hour+ms, 0)}, ms, true, "b", "a"},
		{"all three", []*reading{hear("c", now, -7*ms, ms), hear("a", now, 0, 0), hear("b", now, 5*ms, 2*ms)}, 9 * ms, true, "b", "c"},
		{"drift", []*reading{hear("a", now-20*time.Second, 0, 0), hear("b", now, 15*ms, 0)}, 5 * ms, true, "b", "a"},
		{"too old", []*reading{hear("a", now-readingLife-1, 0, 0), hear("b", now, time.Hour, 0)}, 0, false, "", ""},
		{"no master any more", []*reading{hear("x", now, 0, 0), hear("b", now, time.Hour, 0)}, 0, false, "", ""},
		{"the more precise of two shards", []*reading{hear("a", now, 20*ms, 40*ms), hear("a", now, 0, 0), hear("b", now, 10*ms, 0)}, 10 * ms, true, "b", "a"},
		{"the later of two that contradict", []*reading{hear("a", now, 0, ms), hear("a", now-ms, time.Hour, 0), hear("b", now, 0, 0)}, 0, true, "", ""},
	} {
		for range 2 {
			g, ok := widest(clocks(tt.readings, masters, int64(now)), int64(now))
			if g.skew != tt.want || ok != tt.ok || tt.want > 0 && (g.ahead != tt.ahead || g.behind != tt.behind) {
				t.Errorf("%s: %+v, %v", tt.name, g, ok)
			}
			for i, j := 0, len(tt.readings)-1; i < j; i, j = i+1, j-1 { // the order does not matter
				tt.readings[i], tt.readings[j] = tt.readings[j], tt.readings[i]
			}
		}
	}
}

// TestHeardKeepsTheBest: replies as they come, the last ones coarse, leave a shard with what is known best; and
// hearing what is no news costs nothing.
func TestHeardKeepsTheBest(t *testing.T) {
	st := stateOf(Config{}, &layout{tags: tagNames(8), bins: 1}, equal(2))
	const ms = int64(time.Millisecond)
	st.heard(3, "m0:1", 0, 200*ms, 0)
	if st.readings[3].Load() != nil {
		t.Fatal("a round trip of 200 ms is taken")
	}
	st.heard(3, "m0:1", 0, 2*ms, 1_001_000)
	best := st.readings[3].Load()
	if best == nil || best.offset != int64(time.Second) || best.at != 2*ms {
		t.Fatalf("%+v", best)
	}
	if n := testing.AllocsPerRun(100, func() { st.heard(3, "m0:1", 10*ms, 50*ms, 1_030_000) }); n != 0 || st.readings[3].Load() != best {
		t.Errorf("%v allocations; %+v in place of %+v", n, st.readings[3].Load(), best)
	}
	st.heard(3, "m1:1", 10*ms, 50*ms, 1_030_000)
	if got := st.readings[3].Load(); got.addr != "m1:1" {
		t.Errorf("the shard has moved, but %+v is kept", got)
	}
}

// TestSkewOnACluster: clocks that agree are found to, by calls and without; when one runs ahead it is told once with its remedy,
// nothing is divided until it is back, and that is told too.
func TestSkewOnACluster(t *testing.T) {
	c := sharedCluster(t)
	var log journal
	s, terms := openStore(t, Config{URL: c.URL(), Logger: log.logger()}), compile(t, 10, time.Hour)
	st := s.state.Load()
	until(t, func() bool { _, ok := s.Skew(); return ok }) // nobody calls
	if skew, _ := s.Skew(); skew > 0 {
		t.Errorf("one machine's clock is %v apart", skew)
	}
	tag, _ := st.layout.place(new(limit.Bucket))
	if ways, _ := st.division(tag); ways != len(c.Masters()) {
		t.Errorf("%d ways on %d masters", ways, len(c.Masters()))
	}

	fast := c.Masters()[1]
	b := s.onMaster(c, fast)
	if got := s.Master(&b, nil); got != fast.Addr() {
		t.Errorf("the bucket is on %s, want %s", got, fast.Addr())
	}
	for i, o := range c.Masters() {
		part := &limit.Part{Index: 1, Split: limit.Split{Ways: 2, Stride: s.strideTo(c, &b, o)}}
		if got := s.Master(&b, part); got != o.Addr() {
			t.Errorf("part on master %d: %s, want %s", i, got, o.Addr())
		}
	}
	step := func(ahead time.Duration, divided bool) { // what is heard of the fast one, as long as it takes
		until(t, func() bool {
			now := s.now()
			st.heard(s.Shard(&b, nil), fast.Addr(), now, now, (now+int64(ahead))/1000)
			ways, _ := st.division(tag)
			return ways > 1 == divided
		})
	}
	wrong := limit.MaxSkew + time.Second
	step(wrong, false)
	if skew, ok := s.Skew(); !ok || skew < limit.MaxSkew || skew > wrong {
		t.Errorf("skew is %v, %v; one master is %v ahead", skew, ok, wrong)
	}
	until(t, func() bool { return strings.Contains(log.String(), "are apart") })
	step(0, true)
	until(t, func() bool { return strings.Contains(log.String(), "agree again") })
	text := log.String()
	if strings.Count(text, "are apart") != 1 || !strings.Contains(text, "chrony") || !strings.Contains(text, "ahead="+fast.Addr()) || !strings.Contains(text, "behind=127.0.0.1:") {
		t.Errorf("the log says: %s", text)
	}

	// A call tells the time of the server that it went to, here on a shard that nobody asks for it.
	sp := st.divisionsNow().spread
	first := slices.Index(sp.owners, int16(slices.Index(sp.masters, fast.Addr())))
	b = s.bucketWhere(func(b *limit.Bucket) bool { return s.Master(b, nil) == fast.Addr() && s.Shard(b, nil) != first })
	st.readings[s.Shard(&b, nil)].Store(nil)
	until(t, func() bool { // all is slow on a busy machine
		s.must(t, b, terms, limit.TakePartial, 0)
		r := st.readings[s.Shard(&b, nil)].Load()
		return r != nil && r.addr == fast.Addr()
	})
}

// strideTo is how many tags from a bucket's home the next tag of a master is.
func (s *Store) strideTo(c *redistest.Cluster, b *limit.Bucket, m *redistest.Server) int {
	l := s.state.Load().layout
	home, _ := l.place(b)
	for stride := 1; ; stride++ {
		if c.MasterOf("{"+l.tags[(home+stride)%len(l.tags)]+"}") == m {
			return stride
		}
	}
}

// TestSkewUnknown: one server has no skew, and where agents' clocks decide nobody asks for it.
func TestSkewUnknown(t *testing.T) {
	_, url := sharedServer(t)
	s, terms := openStore(t, Config{URL: url}), compile(t, 10, time.Hour)
	b := s.bucket("b")
	s.must(t, b, terms, limit.Take, 1)
	if skew, ok := s.Skew(); ok {
		t.Errorf("one server: %v", skew)
	}
	if addr := s.Master(&b, nil); addr == "" || !strings.Contains(url, addr) {
		t.Errorf("the bucket is on %q, the server is %s", addr, url)
	}
	agents := openStore(t, Config{URL: sharedCluster(t).URL(), Clock: ClockAgent})
	for _, m := range sharedCluster(t).Masters() {
		b := agents.onMaster(sharedCluster(t), m)
		agents.must(t, b, terms, limit.Take, 1)
	}
	agents.watchSkew(t.Context(), agents.state.Load())
	if skew, ok := agents.Skew(); ok {
		t.Errorf("clock of agents: %v", skew)
	}
	if (&Store{}).Master(&b, nil) != "" {
		t.Error("a store that was never reached knows a master")
	}
}
