package main

import (
	"math/rand/v2"
	"sort"
)

// A draw gives the keys of the n checks of a round: the same ones whenever it is asked.
type draw func(round, n int) []uint32

// oneKey is a viral key.
func oneKey(_, n int) []uint32 { return make([]uint32, n) }

// uniform draws from keys that are all alike.
func uniform(keys int, seed uint64) draw {
	return func(round, n int) []uint32 {
		random, stream := rand.New(rand.NewPCG(seed, uint64(round))), make([]uint32, n)
		for i := range stream {
			stream[i] = uint32(random.IntN(keys))
		}
		return stream
	}
}

// zipf draws key k in proportion to 1/(k+1). (The exponent of rand.Zipf must be above 1.)
func zipf(keys int, seed uint64) draw {
	upTo, sum := make([]float64, keys), 0.0
	for k := range upTo {
		sum += 1 / float64(k+1)
		upTo[k] = sum
	}
	return func(round, n int) []uint32 {
		random, stream := rand.New(rand.NewPCG(seed, uint64(round))), make([]uint32, n)
		for i := range stream {
			at := random.Float64() * sum
			stream[i] = uint32(min(keys-1, sort.SearchFloat64s(upTo, at)))
		}
		return stream
	}
}

// replay takes the keys of a trace in order, round after round, and begins anew at its end.
func replay(trace []uint32) draw {
	return func(round, n int) []uint32 {
		stream, at := make([]uint32, n), round*n%len(trace)
		for i := range stream {
			stream[i] = trace[(at+i)%len(trace)]
		}
		return stream
	}
}

// deal says which agent makes each of n checks: all in turn, or shuffled: each once in a random order, then each
// once in another, and so on. In turn, an agent would keep step with the tokens of a saturated bucket: it
// would get all of them or none.
func deal(agents, n int, shuffled bool, seed uint64) []uint16 {
	random, turns := rand.New(rand.NewPCG(seed, 0)), make([]uint16, n)
	order := make([]uint16, agents)
	for i := range order {
		order[i] = uint16(i)
	}
	for i := range turns {
		if i%agents == 0 && shuffled {
			random.Shuffle(agents, func(a, b int) { order[a], order[b] = order[b], order[a] })
		}
		turns[i] = order[i%agents]
	}
	return turns
}
