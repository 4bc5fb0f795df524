package hotkeys

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"os"
	"time"

	"github.com/spillgate/spillgate/limit"
)

func duration(ns float64) time.Duration { return time.Duration(ns) }

// sumOf is a stand-in for the keyed hash of bucket id: splitmix64 (Vigna), twice.
func sumOf(id uint64) limit.Sum { return limit.Sum{Hi: mix(2*id + 1), Lo: mix(2*id + 2)} }

func mix(x uint64) uint64 {
	x *= 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// A stream is ids of keys in order of access, evenly spaced in time.
type stream struct {
	name  string
	ids   []uint64
	every int64 // ns
	k     int   // the top k is what matters
}

// zipf draws ranks 0..n-1 with probability proportional to 1/(rank+1)^s: Walker's alias method,
// since math/rand has no exponent of 1 or less.
type zipf struct {
	rng   *rand.Rand
	prob  []float64
	alias []int32
}

func newZipf(seed uint64, s float64, n int) *zipf {
	z := &zipf{rng: rand.New(rand.NewPCG(seed, 7)), prob: make([]float64, n), alias: make([]int32, n)}
	total := 0.0
	for i := range z.prob {
		z.prob[i] = math.Pow(float64(i+1), -s)
		total += z.prob[i]
	}
	var small, large []int32
	for i := range z.prob {
		z.prob[i] *= float64(n) / total
		if z.prob[i] < 1 {
			small = append(small, int32(i))
		} else {
			large = append(large, int32(i))
		}
	}
	for len(small) > 0 && len(large) > 0 {
		lo, hi := small[len(small)-1], large[len(large)-1]
		small = small[:len(small)-1]
		z.alias[lo] = hi
		if z.prob[hi] -= 1 - z.prob[lo]; z.prob[hi] < 1 {
			large = large[:len(large)-1]
			small = append(small, hi)
		}
	}
	for _, i := range append(small, large...) {
		z.prob[i] = 1
	}
	return z
}

func (z *zipf) next() uint64 {
	i := z.rng.IntN(len(z.prob))
	if z.rng.Float64() < z.prob[i] {
		return uint64(i)
	}
	return uint64(z.alias[i])
}

func draw(n int, next func(i int) uint64) []uint64 {
	ids := make([]uint64, n)
	for i := range ids {
		ids[i] = next(i)
	}
	return ids
}

func zipfStream(name string, s float64, keys, n int, every int64) stream {
	z := newZipf(1, s, keys)
	return stream{name, draw(n, func(int) uint64 { return z.next() }), every, 1000}
}

// flashCrowd is zipf traffic in which, half-way, 50 keys appear that share 30 % of it.
func flashCrowd(keys, n int, every int64) stream {
	z := newZipf(2, 1, keys)
	return stream{"flashCrowd", draw(n, func(i int) uint64 {
		if i > n/2 && z.rng.IntN(10) < 3 {
			return 1<<40 + z.rng.Uint64N(50)
		}
		return z.next()
	}), every, 1000}
}

// flood is keys that never come again, and ids 0 to 19 that share 5 %.
func flood(n int, every int64) stream {
	rng := rand.New(rand.NewPCG(3, 7))
	return stream{"flood", draw(n, func(i int) uint64 {
		if rng.IntN(20) == 0 {
			return rng.Uint64N(20)
		}
		return 1<<40 + uint64(i)
	}), every, 20}
}

// drift is zipf traffic in which the key at each rank changes place with time: all move up
// by keys/1000 ranks over the stream.
func drift(keys, n int, every int64) stream {
	z := newZipf(4, 1, keys)
	return stream{"drift", draw(n, func(i int) uint64 { return z.next() + uint64(i)*uint64(keys)/1000/uint64(n) }), every, 1000}
}

// readTrace reads little-endian int32 ids.
func readTrace(name, path string, every int64) (stream, error) {
	data, err := os.ReadFile(path)
	s := stream{name: name, every: every, k: 1000}
	for ; len(data) >= 4; data = data[4:] {
		s.ids = append(s.ids, uint64(binary.LittleEndian.Uint32(data)))
	}
	return s, err
}

// exact is the oracle: the decayed sum of every key, by the definition, in a map.
type exact struct {
	halfLife float64
	keys     map[limit.Sum]decayed
}

type decayed struct {
	sum  float64
	last int64
}

func (e *exact) touch(now int64, key limit.Sum, weight uint32) {
	d := e.keys[key]
	e.keys[key] = decayed{e.at(d, now) + float64(weight), now}
}

func (e *exact) at(d decayed, now int64) float64 {
	return d.sum * math.Exp2(-float64(now-d.last)/e.halfLife)
}

func (e *exact) rate(now int64, key limit.Sum) float64 {
	return e.at(e.keys[key], now) * math.Ln2 / e.halfLife * 1e9
}

func (e *exact) top(now int64, n int) []Heavy {
	var all []Heavy
	for key := range e.keys {
		if r := e.rate(now, key); r > 0 {
			all = append(all, Heavy{Key: key, Rate: r})
		}
	}
	return best(all, n)
}
