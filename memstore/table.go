package memstore

import "github.com/spillgate/spillgate/limit"

// table holds the cells of one class in one shard: an open-addressing hash
// table with linear probing, so that a check touches one cache line of cells. Generations
// share it; a cell that was last written two generations ago is dead, and its slot is
// taken by the next cell that comes by, or dropped when the table is rebuilt.
//
// Two maps, one per generation, were the rejected alternative: every generation begins
// with an empty map that grows again, and most looks go to both.
//
// The zero value is an empty table.
type table struct {
	slots []slot // a power of two of them, or none
	used  int    // slots that are not empty, dead ones included: at most 3/4
}

// slot is one cell, 32 bytes: two to a cache line.
type slot struct {
	sum limit.Sum
	tat limit.Ticks
	age age
}

// age orders generations as they are, and its zero value is that of an empty slot.
type age uint64

func ageOf(generation int64) age { return age(uint64(generation) ^ 1<<63) }

const leastSlots = 16

// find returns the slot of a bucket, dead or alive, or nil.
func (t *table) find(sum limit.Sum) *slot {
	if len(t.slots) == 0 {
		return nil
	}
	for i := t.home(sum); t.slots[i].age != 0; i = t.next(i) {
		if t.slots[i].sum == sum {
			return &t.slots[i]
		}
	}
	return nil
}

// home is where the search for a bucket begins. The lowest bits have chosen the shard.
func (t *table) home(sum limit.Sum) int { return int(sum.Lo/shards) & (len(t.slots) - 1) }

func (t *table) next(i int) int { return (i + 1) & (len(t.slots) - 1) }

// insert adds a cell that find did not find. Slots older than oldest are dead.
func (t *table) insert(s slot, oldest age) {
	if 4*(t.used+1) > 3*len(t.slots) {
		t.rebuild(oldest)
	}
	i := t.home(s.sum)
	for t.slots[i].age >= oldest {
		i = t.next(i)
	}
	if t.slots[i].age == 0 {
		t.used++
	}
	t.slots[i] = s
}

// rebuild drops the dead and fits the table to the living: between a quarter and half
// full, so that as many again can come before the next time.
func (t *table) rebuild(oldest age) {
	alive := 0
	for i := range t.slots {
		if t.slots[i].age >= oldest {
			alive++
		}
	}
	size := leastSlots
	for size < 2*(alive+1) {
		size *= 2
	}
	old := t.slots
	t.slots, t.used = make([]slot, size), alive
	for _, s := range old {
		if s.age < oldest {
			continue
		}
		i := t.home(s.sum)
		for t.slots[i].age != 0 {
			i = t.next(i)
		}
		t.slots[i] = s
	}
}
