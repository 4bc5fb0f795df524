package lease

import (
	"hash/maphash"
	"sync"
	"sync/atomic"
)

// table finds Holdings by the ids of their buckets. Look-ups take no lock: open addressing with
// linear probing, in slots that are written once. A removed Holding leaves its hash behind until the
// slots are copied; there are never more than half as many in use as there are slots.
type table struct {
	seed  maphash.Seed
	slots atomic.Pointer[[]slot]

	mu   sync.Mutex
	used int // slots that have a hash
	live int
	most int
}

type slot struct {
	hash    atomic.Uint64 // 0: empty
	holding atomic.Pointer[Holding]
}

// newTable has room for most Holdings.
func newTable(most int) *table {
	size := 64
	for size < 4*most {
		size *= 2
	}
	t := &table{seed: maphash.MakeSeed(), most: most}
	slots := make([]slot, size)
	t.slots.Store(&slots)
	return t
}

// hash is never 0.
func (t *table) hash(id []byte) uint64 { return maphash.Bytes(t.seed, id) | 1 }

// find returns the Holding of a bucket's id, or nil.
//
// Hot path: 0 allocations, no lock.
func (t *table) find(id []byte) *Holding {
	hash := t.hash(id)
	slots := *t.slots.Load()
	mask := uint64(len(slots) - 1)
	for i := hash >> 1 & mask; ; i = (i + 1) & mask {
		switch slots[i].hash.Load() {
		case 0:
			return nil
		case hash:
			if h := slots[i].holding.Load(); h != nil && h.id == string(id) {
				return h
			}
		}
	}
}

// insert adds a Holding, or returns the one that is there; nil if there is no room.
func (t *table) insert(h *Holding) *Holding {
	t.mu.Lock()
	defer t.mu.Unlock()
	if there := t.find([]byte(h.id)); there != nil {
		return there
	}
	if t.live >= t.most {
		return nil
	}
	slots := *t.slots.Load()
	if 2*t.used >= len(slots) {
		slots = t.copyLocked()
	}
	t.putLocked(slots, h)
	t.live++
	return h
}

func (t *table) putLocked(slots []slot, h *Holding) {
	hash := t.hash([]byte(h.id))
	mask := uint64(len(slots) - 1)
	i := hash >> 1 & mask
	for slots[i].hash.Load() != 0 {
		i = (i + 1) & mask
	}
	slots[i].holding.Store(h)
	slots[i].hash.Store(hash)
	t.used++
}

// copyLocked drops what removed Holdings have left behind.
func (t *table) copyLocked() []slot {
	old := *t.slots.Load()
	slots := make([]slot, len(old))
	t.used = 0
	for i := range old {
		if h := old[i].holding.Load(); h != nil {
			t.putLocked(slots, h)
		}
	}
	t.slots.Store(&slots)
	return slots
}

// remove takes a Holding out. It is false if it is not there.
func (t *table) remove(h *Holding) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	slots := *t.slots.Load()
	for i := range slots {
		if slots[i].holding.Load() == h {
			slots[i].holding.Store(nil)
			t.live--
			return true
		}
	}
	return false
}

// all are the Holdings at the moment.
func (t *table) all(to []*Holding) []*Holding {
	slots := *t.slots.Load()
	for i := range slots {
		if h := slots[i].holding.Load(); h != nil {
			to = append(to, h)
		}
	}
	return to
}
