package hotkeys

import (
	"math"
	"math/rand/v2"

	"github.com/spillgate/spillgate/limit"
)

// The algorithms that were measured against the Tracker (docs/adr/0007-hot-keys.md), in their
// plain form: no locks, no classes. Each has about as much memory as a default Tracker.

// A counter is what the comparison needs of an algorithm.
type counter interface {
	touch(now int64, key limit.Sum, weight uint32)
	top(now int64, n int) []Heavy
}

var rivals = []struct {
	name string
	make func(halfLife float64) counter
}{
	{"tracker", func(h float64) counter { return newPlain(h, true) }},
	{"setSpaceSaving", func(h float64) counter { return newPlain(h, false) }},
	{"spaceSaving", func(h float64) counter { return &spaceSaving{forward: forward{halfLife: h}, heap: newHeap(6000)} }},
	{"heavyKeeper", newHeavyKeeper},
	{"countMin", newCountMin},
}

// forward is the forward decay that all share. Streams are shorter than 1000 half-lives.
type forward struct {
	halfLife float64
	until    int64
	unit     float64
}

func (f *forward) advance(now int64) float64 {
	if now >= f.until || f.unit == 0 {
		f.unit = math.Exp2(float64(now) / f.halfLife)
		f.until = now + int64(f.halfLife/256)
	}
	return f.unit
}

func (f *forward) rate(sum float64) float64 { return sum / f.unit * math.Ln2 / f.halfLife * 1e9 }

// plain is the set-associative table of the Tracker, with its admission or with that
// of Space-Saving, which admits always.
type plain struct {
	*Tracker
	randomized bool
}

func newPlain(halfLife float64, randomized bool) counter {
	t, err := New(Config{HalfLife: duration(halfLife)})
	if err != nil {
		panic(err)
	}
	return plain{t, randomized}
}

func (p plain) touch(now int64, key limit.Sum, weight uint32) {
	if s := &p.shards[key.Lo%shards]; !p.randomized {
		s.advance(now)
		if set := s.set(key); set.find(key) < 0 {
			i := set.least()
			set.lo[i], set.hi[i], set.slack[i] = key.Lo, key.Hi, float32(set.sum[i])
		}
	}
	p.Touch(now, key, weight)
}

func (p plain) top(now int64, n int) []Heavy { return p.Top(now, n) }

// heapEntry is a key with its sum, in the units of forward decay.
type heapEntry struct {
	key        limit.Sum
	sum, slack float64
}

// indexedHeap is a bounded min-heap of keys by sum, with an index by key.
type indexedHeap struct {
	max int
	at  map[limit.Sum]int
	all []heapEntry
}

func newHeap(size int) indexedHeap {
	return indexedHeap{max: size, at: make(map[limit.Sum]int, size), all: make([]heapEntry, 0, size)}
}

// put sets entry i, whose sum has grown, and moves it down.
func (h *indexedHeap) down(i int, e heapEntry) {
	for c := 2*i + 1; c < len(h.all); c = 2*i + 1 {
		if c+1 < len(h.all) && h.all[c+1].sum < h.all[c].sum {
			c++
		}
		if h.all[c].sum >= e.sum {
			break
		}
		h.all[i] = h.all[c]
		h.at[h.all[i].key] = i
		i = c
	}
	h.all[i] = e
	h.at[e.key] = i
}

// add appends an entry and moves it up.
func (h *indexedHeap) add(e heapEntry) {
	i := len(h.all)
	h.all = append(h.all, e)
	for p := (i - 1) / 2; i > 0 && h.all[p].sum > e.sum; p = (i - 1) / 2 {
		h.all[i] = h.all[p]
		h.at[h.all[i].key] = i
		i = p
	}
	h.all[i] = e
	h.at[e.key] = i
}

// offer puts key in if its sum is among the largest.
func (h *indexedHeap) offer(key limit.Sum, sum float64) {
	e := heapEntry{key: key, sum: sum}
	switch i, ok := h.at[key]; {
	case ok && sum > h.all[i].sum:
		h.down(i, e)
	case ok:
	case len(h.all) < h.max:
		h.add(e)
	case sum > h.all[0].sum:
		delete(h.at, h.all[0].key)
		h.down(0, e)
	}
}

func (h *indexedHeap) best(f *forward, n int) []Heavy {
	var all []Heavy
	for _, e := range h.all {
		all = append(all, Heavy{Key: e.key, Rate: f.rate(e.sum), Error: f.rate(e.slack)})
	}
	return best(all, n)
}

// spaceSaving is Metwally, Agrawal, El Abbadi, "Efficient Computation of Frequent and Top-k Elements
// in Data Streams", ICDT 2005, with a heap, as weights are not 1.
type spaceSaving struct {
	forward
	heap indexedHeap
}

func (s *spaceSaving) touch(now int64, key limit.Sum, weight uint32) {
	w := float64(weight) * s.advance(now)
	h := &s.heap
	switch i, ok := h.at[key]; {
	case ok:
		e := h.all[i]
		e.sum += w
		h.down(i, e)
	case len(h.all) < h.max:
		h.add(heapEntry{key: key, sum: w})
	default:
		m := h.all[0]
		delete(h.at, m.key)
		h.down(0, heapEntry{key: key, sum: m.sum + w, slack: m.sum})
	}
}

func (s *spaceSaving) top(now int64, n int) []Heavy {
	s.advance(now)
	return s.heap.best(&s.forward, n)
}

// heavyKeeper is Gong et al., "HeavyKeeper: An Accurate Algorithm for Finding Top-k Elephant
// Flows", USENIX ATC 2018, with two rows and base 1.08.
type heavyKeeper struct {
	forward
	heap indexedHeap
	rng  *rand.Rand
	rows [2][1 << 14]struct {
		print uint64
		sum   float64
	}
}

func newHeavyKeeper(halfLife float64) counter {
	return &heavyKeeper{forward: forward{halfLife: halfLife}, heap: newHeap(1000), rng: rand.New(rand.NewPCG(1, 2))}
}

func (k *heavyKeeper) touch(now int64, key limit.Sum, weight uint32) {
	unit := k.advance(now)
	w, estimate := float64(weight)*unit, 0.0
	for i := range k.rows {
		c := &k.rows[i][key.Lo>>(14*i)%(1<<14)]
		switch {
		case c.sum == 0 || c.print == key.Hi:
			c.print = key.Hi
			c.sum += w
		case k.rng.Float64() < math.Pow(1.08, -c.sum/unit):
			if c.sum -= w; c.sum <= 0 {
				c.print, c.sum = key.Hi, w
			}
		}
		if c.print == key.Hi {
			estimate = max(estimate, c.sum)
		}
	}
	k.heap.offer(key, estimate)
}

func (k *heavyKeeper) top(now int64, n int) []Heavy {
	k.advance(now)
	return k.heap.best(&k.forward, n)
}

// countMin is Cormode, Muthukrishnan, "An Improved Data Stream Summary: The Count-Min Sketch",
// J. Algorithms 2005, with the conservative update of Estan and Varghese (SIGCOMM 2002) and a heap.
type countMin struct {
	forward
	heap indexedHeap
	rows [4][1 << 14]float64
}

func newCountMin(halfLife float64) counter {
	return &countMin{forward: forward{halfLife: halfLife}, heap: newHeap(1000)}
}

func (c *countMin) touch(now int64, key limit.Sum, weight uint32) {
	var cells [4]*float64
	estimate := math.Inf(1)
	for i := range cells {
		cells[i] = &c.rows[i][key.Lo>>(14*i)%(1<<14)]
		estimate = min(estimate, *cells[i])
	}
	estimate += float64(weight) * c.advance(now)
	for _, cell := range cells {
		*cell = max(*cell, estimate)
	}
	c.heap.offer(key, estimate)
}

func (c *countMin) top(now int64, n int) []Heavy {
	c.advance(now)
	return c.heap.best(&c.forward, n)
}
