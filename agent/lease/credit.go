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
	// blocked tokens may not have been counted, or the bucket had none for them. They are not free
	// before they have refilled: else an agent could admit its allowance again with every reply.
	blocked      limit.Tokens
	blockedUntil int64
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
	a.passed(now)
	if n > allowance-a.open-a.blocked {
		return false
	}
	a.open += n
	if s.buckets == nil {
		s.buckets = make(map[limit.Sum]*credit)
	}
	s.buckets[sum] = a
	return true
}

// passed frees what is not blocked any more.
func (a *credit) passed(now int64) {
	if now >= a.blockedUntil {
		a.blocked = 0
	}
}

// heard gives back n: the bucket had them, or they were not admitted.
func (c *credits) heard(sum limit.Sum, n limit.Tokens, now int64) {
	s := c.shard(sum)
	s.Lock()
	defer s.Unlock()
	a := s.buckets[sum]
	a.open -= n
	if a.passed(now); a.open == 0 && a.blocked == 0 {
		delete(s.buckets, sum)
	}
}

// block keeps n from being admitted again until a time.
func (c *credits) block(sum limit.Sum, n limit.Tokens, now, until int64) {
	s := c.shard(sum)
	s.Lock()
	defer s.Unlock()
	a := s.buckets[sum]
	a.passed(now)
	a.open -= n
	a.blocked += n
	a.blockedUntil = max(a.blockedUntil, until)
}

// sweep drops entries that hold nothing any more.
func (c *credits) sweep(now int64) {
	for i := range c.shards {
		s := &c.shards[i]
		s.Lock()
		for sum, a := range s.buckets {
			if a.passed(now); a.open == 0 && a.blocked == 0 {
				delete(s.buckets, sum)
			}
		}
		s.Unlock()
	}
}
