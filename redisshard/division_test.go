package redisshard

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/spillgate/spillgate/limit"
)

// equal divides the slots among masters as redis-cli does, unequal by chance.
func equal(masters int) *topology {
	var ends []int
	for i := 1; i < masters; i++ {
		ends = append(ends, i*slots/masters)
	}
	return ranged(masters, ends)
}

func unequal(masters int, random *rand.Rand) *topology {
	ends := random.Perm(slots - 1)[:masters-1]
	for i := range ends {
		ends[i]++
	}
	slices.Sort(ends)
	return ranged(masters, ends)
}

// ranged gives consecutive ranges to the masters in turn.
func ranged(masters int, ends []int) *topology {
	t := &topology{}
	for i := range masters {
		t.masters = append(t.masters, fmt.Sprintf("m%d:1", i))
	}
	first := 0
	for i, end := range append(ends, slots) {
		t.ranges = append(t.ranges, slotRange{first: first, last: end - 1, addr: t.masters[i%masters]})
		first = end
	}
	return t
}

// spreadOf is how the parts of a division lie: how many masters have any, how many parts the busiest has. It walks as
// layout.placePart does, and fails the test if a tag comes twice or has no master.
func spreadOf(t *testing.T, l *layout, top *topology, home, ways, stride int) (used, busiest int) {
	t.Helper()
	tags, load := make(map[int]bool), make(map[string]int)
	for i := range ways {
		tag := (home + i*stride) % len(l.tags)
		if tags[tag] {
			t.Fatalf("home %d, %d ways, stride %d: tag %d comes twice", home, ways, stride, tag)
		}
		tags[tag] = true
		r := top.find(slot([]byte(l.tags[tag])))
		if r == nil {
			t.Fatalf("home %d, %d ways, stride %d: nobody serves tag %d", home, ways, stride, tag)
		}
		load[r.addr]++
		busiest = max(busiest, load[r.addr])
	}
	return len(load), busiest
}

// mastersOf is the number of masters that have a tag.
func mastersOf(l *layout, top *topology) int {
	has := make(map[string]bool)
	for _, tag := range l.tags {
		if r := top.find(slot([]byte(tag))); r != nil {
			has[r.addr] = true
		}
	}
	return len(has)
}

// TestDivisionIsEven: whatever the layout and the masters, parts have tags of their own, and where slots are spread
// evenly the parts are, too.
func TestDivisionIsEven(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, v := range []int{8, 12, 16, 64, maxTags} {
		l := &layout{tags: tagNames(v), bins: 1}
		for masters := 1; masters <= 20; masters++ {
			for name, top := range map[string]*topology{"equal": equal(masters), "unequal": unequal(masters, random)} {
				sp, has, worst := newSpread(l, top), mastersOf(l, top), 0.0
				for home := range v {
					if v == maxTags && home%509 != 0 { // a few homes of many
						continue
					}
					ways, stride := sp.choose(home, 0)
					if has == 1 {
						if ways != 1 {
							t.Fatalf("V %d: one master gets %d ways", v, ways)
						}
						continue
					}
					if ways < 2 || ways > limit.MaxWays || stride < 1 || stride >= v {
						t.Fatalf("V %d, %d masters, %s, home %d: %d ways, stride %d", v, masters, name, home, ways, stride)
					}
					_, busiest := spreadOf(t, l, top, home, ways, stride)
					worst = max(worst, float64(busiest*has)/float64(ways))
				}
				bound := math.Inf(1)
				switch {
				case name == "equal" && v == max(8, 4*masters): // the default layout
					bound = 1
				case name == "equal" && v >= 4*masters:
					bound = 1.25
				}
				if worst > bound {
					t.Errorf("V %d, %d masters, %s: the busiest has %.2f times the mean", v, masters, name, worst)
				}
			}
		}
	}
}

// TestDivisionIsTheBest: no stride of any number of ways leaves the busiest master less, unless it has several times as
// many parts; and where every master can serve one part, each does.
func TestDivisionIsTheBest(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for range 150 {
		l := &layout{tags: tagNames(2 + random.IntN(30)), bins: 1}
		v, masters := len(l.tags), 2+random.IntN(9)
		top := ranged(masters, nil)
		switch random.IntN(3) {
		case 0: // masters have several ranges each
			top = unequal(masters*(1+random.IntN(4)), random)
			for i := range top.ranges {
				top.ranges[i].addr = top.masters[i%masters]
			}
		case 1:
			top = unequal(masters, random)
		}
		sp, has, home := newSpread(l, top), mastersOf(l, top), random.IntN(v)
		if has < 2 {
			continue
		}
		ways, stride := sp.choose(home, 0)
		used, busiest := spreadOf(t, l, top, home, ways, stride)
		for w := 2; w <= v; w++ {
			for s := 1; s < v; s++ {
				if v/gcd(v, s) < w {
					continue
				}
				u, b := spreadOf(t, l, top, home, w, s)
				switch {
				case w == has && u == has && (used != has || ways != has):
					t.Fatalf("V %d, home %d: %d ways on %d masters; %d and stride %d reach all %d", v, home, ways, used, w, s, has)
				case float64(busiest*has)/float64(ways) > evenEnough && b*ways < busiest*w:
					t.Fatalf("V %d, home %d: the busiest has %d of %d parts; with %d ways and stride %d it has %d", v, home, busiest, ways, w, s, b)
				case w < ways && ways != has && float64(b*has)/float64(w) <= evenEnough:
					t.Fatalf("V %d, home %d: %d ways; %d with stride %d are even enough", v, home, ways, w, s)
				}
			}
		}
	}
}

func gcd(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

func TestDivisionForced(t *testing.T) {
	one, three := everything("h:1", 0), equal(3)
	for _, tt := range []struct {
		top                   *topology
		tags, forced          int
		ways, stride, busiest int // busiest 0: tags come twice
	}{
		{one, 8, 0, 1, 1, 0}, {one, 8, 2, 2, 1, 2}, {one, 8, 8, 8, 1, 8}, {one, 8, 64, 64, 1, 0}, {one, 1, 4, 4, 1, 0}, {one, 2, 2, 2, 1, 2},
		{three, 12, 2, 2, 4, 1}, {three, 12, 6, 6, 2, 2}, {three, 12, 7, 7, 5, 3}, {three, 12, 64, 64, 1, 0}, {three, 1, 0, 1, 1, 0},
	} {
		l := &layout{tags: tagNames(tt.tags), bins: 1}
		ways, stride := newSpread(l, tt.top).choose(0, tt.forced)
		if ways != tt.ways || stride != tt.stride {
			t.Errorf("%d tags on %d masters, forced %d: %d ways, stride %d; want %d, %d", tt.tags, len(tt.top.masters), tt.forced, ways, stride, tt.ways, tt.stride)
		} else if tt.busiest == 0 {
			continue
		} else if _, busiest := spreadOf(t, l, tt.top, 0, ways, stride); busiest != tt.busiest {
			t.Errorf("%d tags on %d masters, forced %d: the busiest has %d, want %d", tt.tags, len(tt.top.masters), tt.forced, busiest, tt.busiest)
		}
	}
}

// TestDivisionAvoidsGaps: no part lies where no master serves, and a bucket whose home is there is not divided.
func TestDivisionAvoidsGaps(t *testing.T) {
	l, top := &layout{tags: tagNames(16), bins: 1}, equal(4)
	gone := top.ranges[1]
	top.ranges = slices.Delete(top.ranges, 1, 2)
	sp := newSpread(l, top)
	if ways, _ := sp.choose(0, 17); ways != 1 {
		t.Errorf("%d ways, of which some would lie where nobody serves", ways)
	}
	for home := range l.tags {
		for _, forced := range []int{0, 2, 3} {
			ways, stride := sp.choose(home, forced)
			if s := slot([]byte(l.tags[home])); s >= gone.first && s <= gone.last {
				if ways != 1 {
					t.Errorf("home %d, which nobody serves: %d ways", home, ways)
				}
				continue
			}
			if used, busiest := spreadOf(t, l, top, home, ways, stride); ways < 2 || used < 2 || busiest > 1 {
				t.Errorf("home %d, forced %d: %d ways on %d masters, the busiest has %d", home, forced, ways, used, busiest)
			}
		}
	}
}

// stateOf is a state without connections.
func stateOf(cfg Config, l *layout, top *topology) *state {
	n := &nodes{cfg: cfg, cluster: true}
	n.topology.Store(top)
	return newState(n, l)
}

// TestDivisionFollowsTheTopology: once slots have moved it is found anew, and otherwise it is kept.
func TestDivisionFollowsTheTopology(t *testing.T) {
	st := stateOf(Config{}, &layout{tags: tagNames(64), bins: 1}, equal(3))
	if ways, _ := st.division(5); ways != 3 {
		t.Fatalf("%d ways on 3 masters", ways)
	}
	spread := st.divisions.Load().spread
	st.nodes.topology.Store(equal(3)) // looked at again
	if ways, _ := st.division(5); ways != 3 || st.divisions.Load().spread != spread {
		t.Errorf("%d ways; found anew although nothing has moved", ways)
	}
	if n := testing.AllocsPerRun(100, func() { st.division(5) }); n != 0 {
		t.Errorf("%v allocations for what is known", n)
	}
	st.nodes.topology.Store(equal(4))
	if ways, stride := st.division(5); ways != 4 {
		t.Errorf("%d ways, stride %d on 4 masters", ways, stride)
	} else if used, _ := spreadOf(t, st.layout, equal(4), 5, ways, stride); used != 4 {
		t.Errorf("they lie on %d masters", used)
	}
	st.skewed.Store(true)
	if ways, _ := st.division(5); ways != 1 {
		t.Errorf("%d ways although the clocks are apart", ways)
	}
	st.skewed.Store(false)
	st.nodes.cfg.SplitWays = 6
	if ways, _ := st.division(6); ways != 6 {
		t.Errorf("%d ways, 6 are forced", ways)
	}
}

// BenchmarkDivision is the price of the first question about a tag, where no stride is good.
func BenchmarkDivision(b *testing.B) {
	l := &layout{tags: tagNames(maxTags), bins: 1}
	for _, masters := range []int{3, 20, 64, 100} {
		for name, top := range map[string]*topology{"equal": equal(masters), "unequal": unequal(masters, rand.New(rand.NewPCG(5, 6)))} {
			b.Run(fmt.Sprintf("tags=%d/masters=%d/slots=%s", maxTags, masters, name), func(b *testing.B) {
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					newSpread(l, top).choose(i*61%maxTags, 0)
				}
			})
		}
	}
}
