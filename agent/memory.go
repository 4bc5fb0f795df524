package agent

import (
	"fmt"
	"sync"

	"github.com/dgraph-io/ristretto/v2"

	"github.com/spillgate/spillgate/agent/lease"
	"github.com/spillgate/spillgate/limit"
)

// memory is what the store said of cold buckets, in ristretto: bounded, and it forgets what is
// seldom asked for. Nothing in it holds tokens.
type memory struct {
	// mu keeps calls and close apart: ristretto panics when they meet.
	mu     sync.RWMutex
	closed bool
	cache  *ristretto.Cache[uint64, lease.Known]
}

// maxKnown is the most buckets that are remembered, at about 250 bytes each.
const maxKnown = 1 << 15

func newMemory() (*memory, error) {
	cache, err := ristretto.NewCache(&ristretto.Config[uint64, lease.Known]{
		NumCounters: 10 * maxKnown, MaxCost: maxKnown, BufferItems: 64, IgnoreInternalCost: true})
	if err != nil {
		return nil, fmt.Errorf("agent: %w", err)
	}
	return &memory{cache: cache}, nil
}

// Get returns what is known of a bucket.
func (m *memory) Get(sum limit.Sum) (lease.Known, bool) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if m.closed {
		return lease.Known{}, false
	}
	k, ok := m.cache.Get(sum.Lo)
	return k, ok && k.Sum == sum
}

// Set remembers, if ristretto finds it worthwhile.
func (m *memory) Set(k lease.Known) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if !m.closed {
		m.cache.Set(k.Sum.Lo, k, 1)
	}
}

// Forget drops what is known of a bucket.
func (m *memory) Forget(sum limit.Sum) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if !m.closed {
		m.cache.Del(sum.Lo)
	}
}

func (m *memory) close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
	m.cache.Close()
}
