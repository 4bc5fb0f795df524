package agent

import (
	"hash/maphash"

	"github.com/dgraph-io/ristretto/v2"

	"github.com/spillgate/spillgate/rules"
)

// cacheFrom is the size from which a rule set is matched through the cache: below it the
// match itself costs no more than the look-up (BenchmarkMatch).
const cacheFrom = 256

// matchCache remembers which rule applies to a descriptor. An entry holds for the
// set it was made from, so a new set needs no flush. Bounded; losing an
// entry costs one match.
type matchCache struct {
	cache *ristretto.Cache[uint64, matched]
	key   maphash.Seed
	proof maphash.Seed
}

// matched is an entry. proof is a second hash of the descriptor: two descriptors
// that share a key do not share it.
type matched struct {
	set   *rules.Set
	proof uint64
	rule  *rules.Rule // nil: no rule matches
}

func newMatchCache() (*matchCache, error) {
	const entries = 1 << 16
	cache, err := ristretto.NewCache(&ristretto.Config[uint64, matched]{
		NumCounters: 10 * entries, MaxCost: entries, BufferItems: 64, IgnoreInternalCost: true})
	if err != nil {
		return nil, err
	}
	return &matchCache{cache: cache, key: maphash.MakeSeed(), proof: maphash.MakeSeed()}, nil
}

func (m *matchCache) close() { m.cache.Close() }

// match is set.Match, remembered for large sets.
func (m *matchCache) match(set *rules.Set, domain string, d rules.Descriptor) *rules.Rule {
	if set.Len() < cacheFrom {
		return set.Match(domain, d)
	}
	key, proof := hashDescriptor(m.key, domain, d), hashDescriptor(m.proof, domain, d)
	if got, ok := m.cache.Get(key); ok && got.set == set && got.proof == proof {
		return got.rule
	}
	rule := set.Match(domain, d)
	m.cache.Set(key, matched{set, proof, rule}, 1)
	return rule
}

// hashDescriptor mixes the hashes of the parts in order; each part is hashed on its own, so the
// borders between parts count.
func hashDescriptor(seed maphash.Seed, domain string, d rules.Descriptor) uint64 {
	const odd = 0x9e3779b97f4a7c15
	h := maphash.String(seed, domain)
	for i := range d {
		h = (h ^ maphash.String(seed, d[i].Key)) * odd
		h = (h ^ maphash.String(seed, d[i].Value)) * odd
		h ^= h >> 29
	}
	return h
}
