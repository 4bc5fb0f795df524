package window

import (
	"cmp"
	"fmt"
	"math/bits"
	"slices"
	"time"
)

// Admission is a check that was admitted, in times of one monotonic clock.
type Admission struct {
	Sent     time.Duration // not after the token was taken
	Received time.Duration // not before it was
	Tokens   int64
}

// Limit is what is promised: Burst + Tokens/Per * w in every window of length w.
type Limit struct {
	Burst  int64
	Tokens int64
	Per    time.Duration
	// Slack lengthens every window, for two clocks that are not quite the same. Default none. More hides small
	// breaches.
	Slack time.Duration
}

// Window is a stretch of time and what certainly was admitted in it.
type Window struct {
	From, To time.Duration
	Admitted int64
	// Over is how many tokens that is over the allowance; up to 0 is well.
	Over float64
}

// Breach reports whether the window proves that the promise was broken.
func (w Window) Breach() bool { return w.Over > 0 }

func (w Window) String() string {
	return fmt.Sprintf("%d in %v from %v, %+.2f on what is allowed", w.Admitted, w.To-w.From, w.From, w.Over)
}

// Worst returns the window that is most over its allowance, or least under it. Without admissions
// that is one of no length.
func Worst(all []Admission, l Limit) Window {
	l.check(all)
	if len(all) == 0 {
		return l.window(all, 0, 0)
	}
	begins := begins(all)
	// Window [a, b] is over by (sum*Per + Tokens*a) - Tokens*b - constant, in units of 1/Per tokens. The
	// tree holds the part in brackets, for every begin a.
	tree := newTree(begins, l.Tokens)
	byEnd := slices.SortedFunc(slices.Values(all), func(x, y Admission) int { return cmp.Compare(x.Received, y.Received) })
	var from, to time.Duration
	var most int64
	for i, a := range byEnd {
		// Windows that end here without this admission were seen when they ended with their own last one.
		begin, _ := slices.BinarySearch(begins, a.Sent)
		value, best := tree.add(begin, a.Tokens*int64(l.Per))
		if over := value - l.Tokens*int64(a.Received); i == 0 || over > most {
			most, from, to = over, begins[best], a.Received
		}
	}
	return l.window(all, from, to)
}

// Most returns the window of the given length that holds most. It begins with an admission: moved on to its first one
// a window loses none.
func Most(all []Admission, l Limit, length time.Duration) Window {
	l.check(all)
	ends := slices.Sorted(func(yield func(time.Duration) bool) {
		for _, a := range all {
			if !yield(a.Received) {
				return
			}
		}
	})
	byBegin := slices.SortedFunc(slices.Values(all), func(x, y Admission) int { return cmp.Compare(y.Sent, x.Sent) })
	sums := make([]int64, len(ends)+1) // a Fenwick tree over ends: tokens of those that begin in the window
	var from time.Duration
	most := int64(-1)
	for _, a := range byBegin {
		at, _ := slices.BinarySearch(ends, a.Received)
		for i := at + 1; i < len(sums); i += i & -i {
			sums[i] += a.Tokens
		}
		upTo, _ := slices.BinarySearch(ends, a.Sent+length+1)
		var sum int64
		for i := upTo; i > 0; i -= i & -i {
			sum += sums[i]
		}
		if sum > most {
			most, from = sum, a.Sent
		}
	}
	return l.window(all, from, from+length)
}

// window recounts one window, the plain way.
func (l Limit) window(all []Admission, from, to time.Duration) Window {
	w := Window{From: from, To: to}
	for _, a := range all {
		if from <= a.Sent && a.Received <= to {
			w.Admitted += a.Tokens
		}
	}
	w.Over = float64(l.over(w)) / float64(l.Per)
	return w
}

// over is in units of 1/Per tokens, exact.
func (l Limit) over(w Window) int64 {
	return (w.Admitted-l.Burst)*int64(l.Per) - l.Tokens*int64(w.To-w.From+l.Slack)
}

// check panics where the arithmetic has no answer.
func (l Limit) check(all []Admission) {
	if l.Burst < 0 || l.Tokens < 0 || l.Per <= 0 || l.Slack < 0 {
		panic(fmt.Sprintf("window: no limit: %+v", l))
	}
	sum, last := l.Burst, l.Slack
	for _, a := range all {
		if a.Sent < 0 || a.Sent > a.Received || a.Tokens < 0 {
			panic(fmt.Sprintf("window: no admission: %+v", a))
		}
		sum, last = sum+a.Tokens, max(last, a.Received)
	}
	const room = 1 << 61 // for three terms of a sum
	for _, f := range [][2]int64{{sum, int64(l.Per)}, {l.Tokens, int64(last)}} {
		if hi, lo := bits.Mul64(uint64(f[0]), uint64(f[1])); hi > 0 || lo >= room {
			panic(fmt.Sprintf("window: %d * %d does not fit: give times from the start of the test, and the rate in lowest terms", f[0], f[1]))
		}
	}
}

// begins are the distinct times at which a window may begin, in order.
func begins(all []Admission) []time.Duration {
	b := make([]time.Duration, len(all))
	for i, a := range all {
		b[i] = a.Sent
	}
	slices.Sort(b)
	return slices.Compact(b)
}

// tree holds a value for each begin; it adds to a prefix of them and knows the largest in it. Node i has the children 2i and
// 2i+1; the largest value below i is max[i], without what was added to nodes above it.
type tree struct {
	leaves int // a power of two
	max    []int64
	best   []int32 // the leaf that holds it
	added  []int64
}

// unused is less than any value and far from an overflow.
const unused = -1 << 61

func newTree(begins []time.Duration, rate int64) *tree {
	n := 1
	for n < len(begins) {
		n *= 2
	}
	t := &tree{leaves: n, max: make([]int64, 2*n), best: make([]int32, 2*n), added: make([]int64, 2*n)}
	for i := range n {
		t.max[n+i], t.best[n+i] = unused, int32(i)
		if i < len(begins) {
			t.max[n+i] = rate * int64(begins[i])
		}
	}
	for i := n - 1; i > 0; i-- {
		t.pull(i)
	}
	return t
}

// pull makes node i from its children.
func (t *tree) pull(i int) {
	from := 2 * i
	if t.max[from+1] > t.max[from] {
		from++
	}
	t.max[i], t.best[i] = t.max[from]+t.added[i], t.best[from]
}

// add adds v to the leaves up to last and returns the largest of them and where it is.
func (t *tree) add(last int, v int64) (value int64, best int) {
	return t.addBelow(1, t.leaves, last, v)
}

// addBelow is add for the leaves of node i, which are n; last counts from the first of them.
func (t *tree) addBelow(i, n, last int, v int64) (value int64, best int) {
	if last >= n-1 {
		t.max[i] += v
		t.added[i] += v
		return t.max[i], int(t.best[i])
	}
	left, right := 2*i, 2*i+1
	if half := n / 2; last < half {
		value, best = t.addBelow(left, half, last, v)
	} else {
		t.addBelow(left, half, half-1, v)
		value, best = t.addBelow(right, half, last-half, v)
		if t.max[left] >= value {
			value, best = t.max[left], int(t.best[left])
		}
	}
	t.pull(i)
	return value + t.added[i], best
}
