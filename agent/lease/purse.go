package lease

import (
	"sync/atomic"

	"github.com/spillgate/spillgate/limit"
)

// purse holds the unspent tokens of a grant. Those of a large one are divided over stripes, a cache line
// each: two cores that spend from one bucket would otherwise take its line from each other at every check. A claim of
// one token finds it wherever it is; a larger one may find none although the stripes together have it, and is
// then left to the store, with what is left here going back.
type purse struct {
	first stripe
	more  []stripe // one less than a power of two, or none
}

type stripe struct {
	_    [64]byte
	left atomic.Int64 // closed when its tokens are not to be spent any more
	_    [56]byte
}

// closed is in left of a purse whose tokens were returned or have expired.
const closed = -1 << 60

// leastPerStripe is how many tokens make a stripe worth while.
const leastPerStripe = 64

// fill puts the first tokens in, divided over at most so many stripes (a power of two).
func (p *purse) fill(n limit.Tokens, stripes int) {
	for ; stripes > 1 && n < limit.Tokens(stripes)*leastPerStripe; stripes /= 2 {
	}
	p.more = nil
	if stripes > 1 {
		p.more = make([]stripe, stripes-1)
	}
	part := int64(n) / int64(stripes)
	for i := range p.more {
		p.more[i].left.Store(part)
	}
	p.first.left.Store(int64(n) - part*int64(len(p.more)))
}

// stripe is the one for a caller; any number does, and one goroutine should give the same one.
func (p *purse) stripe(at uint) *stripe {
	if at &= uint(len(p.more)); at > 0 {
		return &p.more[at-1]
	}
	return &p.first
}

// spend takes n tokens, all or none, from the caller's stripe or else from another. left is what is left, an
// estimate if there are several stripes.
func (p *purse) spend(n limit.Tokens, at uint) (left int64, ok bool) {
	if left, ok = p.stripe(at).spend(int64(n)); ok || len(p.more) == 0 {
		return left * int64(1+len(p.more)), ok
	}
	for i := range uint(len(p.more)) {
		if left, ok = p.stripe(at + 1 + i).spend(int64(n)); ok {
			break
		}
	}
	return left, ok
}

// spend takes n tokens, all or none. The loop, and not an addition that is taken back, keeps
// left exact at every moment: what account sees as spent never becomes spendable again.
func (s *stripe) spend(n int64) (left int64, ok bool) {
	for {
		left = s.left.Load()
		if left < n {
			return left, false
		}
		if s.left.CompareAndSwap(left, left-n) {
			return left - n, true
		}
	}
}

// each calls f for every stripe.
func (p *purse) each(f func(*stripe)) {
	f(&p.first)
	for i := range p.more {
		f(&p.more[i])
	}
}

// held is what may still be spent: exact if nobody spends meanwhile, and never too little.
func (p *purse) held() (n limit.Tokens) {
	p.each(func(s *stripe) { n += limit.Tokens(max(0, s.left.Load())) })
	return n
}

// has reports whether a claim of n tokens finds them.
func (p *purse) has(n limit.Tokens) (yes bool) {
	p.each(func(s *stripe) { yes = yes || s.left.Load() >= int64(n) })
	return yes
}

// drain takes up to n tokens, and returns how many.
func (p *purse) drain(n limit.Tokens) (taken limit.Tokens) {
	p.each(func(s *stripe) {
		for k := min(int64(n-taken), s.left.Load()); k > 0; k = min(int64(n-taken), s.left.Load()) {
			if _, ok := s.spend(k); ok {
				taken += limit.Tokens(k)
				return
			}
		}
	})
	return taken
}

// close takes all tokens that are left, for good.
func (p *purse) close() (n limit.Tokens) {
	p.each(func(s *stripe) { n += limit.Tokens(max(0, s.left.Swap(closed))) })
	return n
}

// isClosed is for whoever keeps others from closing it meanwhile.
func (p *purse) isClosed() bool { return p.first.left.Load() < 0 }
