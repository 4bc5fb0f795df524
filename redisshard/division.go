package redisshard

import (
	"cmp"
	"math"
	"slices"
	"sync/atomic"

	"github.com/spillgate/spillgate/limit"
)

// A bucket is divided so that its parts lie on as many masters as there are. Part i lies i*stride tags
// after home (layout.placePart), and which stride does it well depends on how the slots are spread over the masters and
// on the home. It is looked for when a tag is first asked about, and kept until slots move. Agents that
// choose differently, for they know different topologies, do no harm: home takes one division, and the split carries it.

// evenEnough is how many times as much as in an even division the busiest master may serve.
const evenEnough = 1.25

// division is the number of ways, and the stride, for a bucket whose home is on that tag. One way means that dividing
// it would help nobody, or would not be safe now.
//
// Cost: a few atomic loads, but up to about a millisecond when a tag is asked about for the first time since slots moved.
func (st *state) division(tag int) (ways, stride int) {
	if st.tooSkewed() {
		return 1, 1
	}
	d := st.divisionsNow()
	packed := d.chosen[tag].Load()
	if packed == 0 {
		ways, stride = d.spread.choose(tag, st.nodes.cfg.SplitWays)
		packed = uint32(ways)<<16 | uint32(stride)
		d.chosen[tag].Store(packed)
	}
	return int(packed >> 16), int(packed & 0xffff)
}

// divisions are those of one topology.
type divisions struct {
	topology *topology
	spread   *spread
	// chosen has, per tag, ways<<16 | stride, or 0 if nobody has asked yet. Whoever asks at the same time finds the same.
	chosen []atomic.Uint32
}

// divisionsNow are the divisions of the topology in force.
func (st *state) divisionsNow() *divisions {
	t, d := st.nodes.topology.Load(), st.divisions.Load()
	switch {
	case d != nil && d.topology == t:
		return d
	case d != nil && d.topology.same(t): // looked at again, and nothing has moved
		d = &divisions{t, d.spread, d.chosen}
	default:
		d = &divisions{t, newSpread(st.layout, t), make([]atomic.Uint32, len(st.layout.tags))}
	}
	st.divisions.Store(d)
	return d
}

// nobody is the owner of a tag whose slot has no master.
const nobody = -1

// spread says which master has which tag. Immutable.
type spread struct {
	owners  []int16  // per tag, the index of its master, or nobody
	masters []string // addresses of those that have any tag
}

func newSpread(l *layout, t *topology) *spread {
	sp, known := &spread{owners: make([]int16, len(l.tags))}, make(map[string]int16)
	for i, tag := range l.tags {
		addr := t.masterOf(tag)
		owner, seen := known[addr]
		switch {
		case addr == "":
			owner = nobody
		case !seen:
			owner = int16(len(sp.masters))
			known[addr] = owner
			sp.masters = append(sp.masters, addr)
		}
		sp.owners[i] = owner
	}
	return sp
}

// choose is the division for a home. Forced, if not 0, is the number of ways. Else there is one for each master if each can
// serve one. Where slots are too uneven for that it is the smallest number that burdens no master much, since every part has
// only its share of the burst, or else the one that leaves the busiest master the least. Parts share no tag
// unless more are forced than there are tags.
func (sp *spread) choose(tag, forced int) (ways, stride int) {
	each := min(len(sp.masters), limit.MaxWays)
	ways = cmp.Or(forced, each)
	if ways < 2 {
		return 1, 1
	}
	if ways > len(sp.owners) {
		if slices.Contains(sp.owners, nobody) {
			return 1, 1
		}
		return ways, 1 // all tags in turn
	}
	found := sp.search(tag, ways)
	if forced == 0 && found[ways].busiest != 1 {
		ways = even(found, each)
	}
	if stride = found[ways].stride; stride == 0 {
		return 1, 1
	}
	return ways, stride
}

// option is the best that was found for a number of ways: the stride, and the number of parts that the busiest master
// then serves. The zero value is none.
type option struct{ busiest, stride int }

// even is the number of ways to take when no stride gives every master one part.
func even(found []option, each int) (ways int) {
	least := math.Inf(1)
	for w, o := range found {
		if o.stride == 0 || least <= evenEnough {
			continue
		}
		if ratio := float64(o.busiest*each) / float64(w); ratio < least {
			ways, least = w, ratio
		}
	}
	return ways
}

// search walks with every stride from home, and gives the best for each number of ways. It ends
// early if there is nothing better for the number that is wanted.
func (sp *spread) search(tag, wanted int) []option {
	v, masters := len(sp.owners), len(sp.masters)
	found, load := make([]option, min(v, limit.MaxWays)+1), make([]uint8, masters)
	ideal := (wanted + masters - 1) / max(1, masters)
	for stride := 1; stride < v && found[wanted].busiest != ideal; stride++ {
		clear(load)
		busiest := 0
		for at, w := tag, 1; w < len(found); w++ {
			owner := sp.owners[at]
			if owner == nobody {
				break
			}
			load[owner]++
			busiest = max(busiest, int(load[owner]))
			if o := &found[w]; w > 1 && (o.stride == 0 || busiest < o.busiest) {
				*o = option{busiest, stride}
			}
			if at += stride; at >= v {
				at -= v
			}
			if at == tag { // the first to come twice
				break
			}
		}
	}
	return found
}
