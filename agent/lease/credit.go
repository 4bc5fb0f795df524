package lease

import (
	"sync"

	"github.com/spillgate/spillgate/limit"
)

// credits count, for buckets of optimistic rules, the tokens that were admitted and of which the store has
// not been heard: at most the rule's allowance per bucket. A bucket has an entry only while there
// are any. Safe for concurrent use.
type credits struct {
	shards [16]struct {
		sync.Mutex
		buckets map[limit.Sum]*credit
		_       [40]byte
	}
}

// credit is the account of one bucket.
type credit struct {
	open limit.Tokens // admitted; the charge is on its way
	// lost charges may not have been counted. Their tokens stay blocked until they would have refilled.
	lost      limit.Tokens
	lostUntil int64
}

func (c *credits) shard(sum limit.Sum) *struct {
	sync.Mutex
	buckets map[limit.Sum]*credit
	_       [40]byte
} {
	return &c.shards[sum.Hi%uint64(len(c.shards))]
}

// reserve takes n of the allowance, if so much is left.
func (c *credits) reserve(sum limit.Sum, n, allowance limit.Tokens, now int64) bool {
	s := c.shard(sum)
	s.Lock()
	defer s.Unlock()
	a := s.buckets[sum]
	if a == nil {
		a = new(credit)
	}
	if now >= a.lostUntil {
		a.lost = 0
	}
	if n > allowance-a.open-a.lost {
		return false
	}
	a.open += n
	if s.buckets == nil {
		s.buckets = make(map[limit.Sum]*credit)
	}
	s.buckets[sum] = a
	return true
}

// heard gives back n: the store has counted them, or they were not admitted.
func (c *credits) heard(sum limit.Sum, n limit.Tokens, now int64) {
	s := c.shard(sum)
	s.Lock()
	defer s.Unlock()
	a := s.buckets[sum]
	a.open -= n
	if a.open == 0 && (a.lost == 0 || now >= a.lostUntil) {
		delete(s.buckets, sum)
	}
}

// lose blocks n until a time: their charge may have been lost.
func (c *credits) lose(sum limit.Sum, n limit.Tokens, until int64) {
	s := c.shard(sum)
	s.Lock()
	defer s.Unlock()
	a := s.buckets[sum]
	a.open -= n
	a.lost += n
	a.lostUntil = max(a.lostUntil, until)
}

// sweep drops entries that hold nothing any more.
func (c *credits) sweep(now int64) {
	for i := range c.shards {
		s := &c.shards[i]
		s.Lock()
		for sum, a := range s.buckets {
			if a.open == 0 && now >= a.lostUntil {
				delete(s.buckets, sum)
			}
		}
		s.Unlock()
	}
}
