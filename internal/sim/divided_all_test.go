package sim

import (
	"testing"
	"time"

	"github.com/spillgate/spillgate/batcher"
	"github.com/spillgate/spillgate/limit"
)

// spender is one caller who takes a token from whatever part has one, ten times as often as there are tokens, and has the bucket
// divided and made whole again all the time.
type spender struct {
	world  *World
	bucket *bucket
	split  limit.Split
	ops    int64 // since the last touch
	calm   bool

	granted, ideal limit.Tokens
	tat            limit.Ticks // of a bucket that is never divided
	merged         int
}

func (s *spender) run(op limit.Op, n limit.Tokens, p limit.Part) *batcher.Entry {
	e := &batcher.Entry{Bucket: s.bucket.name, Terms: s.bucket.terms, Op: op, N: n, Part: &p}
	if p.Home && op < limit.Touch {
		e.Part = nil
	}
	s.bucket.at(p.At()).apply(e)
	s.bucket.count(e)
	if p.Home {
		if s.split = (limit.Split{}); e.Split != nil {
			s.split = e.Split.Split
		}
	}
	return e
}

// take asks home, or the parts in turn.
func (s *spender) take() {
	t := s.bucket.terms
	next, granted, _ := t.Apply(limit.Take, 1, s.tat, s.bucket.now())
	s.tat, s.ideal = next, s.ideal+granted
	s.ops++
	ways := s.split.Ways
	if ways == 0 {
		s.spend(s.run(limit.Take, 1, limit.Part{Home: true}))
		return
	}
	first := s.world.rng.IntN(ways)
	for i := range ways {
		if s.spend(s.run(limit.Take, 1, limit.Part{Index: (first + i) % ways, Split: s.split})) {
			return
		}
	}
}

// spend takes down what an entry was granted.
func (s *spender) spend(e *batcher.Entry) bool {
	s.bucket.debit(nil, e.Terms, e.Out.Granted, "take")
	s.granted += e.Out.Granted
	return e.Out.Granted > 0
}

func (s *spender) touch(ways int) {
	p := limit.Part{Home: true, Split: s.split, Ops: s.ops, Threshold: 1, Ways: ways, Stride: 1}
	if s.ops = 0; s.calm {
		p.Threshold = 1 << 40
	}
	s.run(limit.Touch, 0, p)
	if s.split.Closing {
		s.merge()
	}
}

func (s *spender) merge() {
	split, leased, free := s.split, limit.Tokens(0), limit.Ticks(0)
	for i := range split.Ways {
		e := s.run(limit.Close, 0, limit.Part{Index: i, Split: split})
		p := e.Terms.Part(split.Ways, i)
		leased += e.Out.Granted
		free += e.Terms.FromPart(&p, e.Out.Level)
	}
	e := s.run(limit.Merge, leased, limit.Part{Home: true, Split: split, Free: free})
	s.merged += int(e.Out.Granted)
}

// TestDivisionLosesNothing: a bucket that is divided and made whole again every few seconds grants what one would that
// is never divided, to those who ask all parts.
func TestDivisionLosesNothing(t *testing.T) {
	for _, tt := range []struct {
		burst, perSecond limit.Tokens
		masters, ways    int
	}{{100, 200, 4, 4}, {10, 100, 2, 8}, {7, 50, 3, 7}, {7, 50, 1, 2}, {1000, 200, 4, 8}, {2, 20, 2, 2}, {100, 10, 4, 4}} {
		p := Plan{Seed: 1, Length: 60 * time.Second, Masters: tt.masters, Divided: true, Buckets: []BucketPlan{{
			Rate: limit.Rate{Requests: tt.perSecond, Period: time.Second, Burst: tt.burst}}}}
		w := newWorld(p, Options{})
		s := &spender{world: w, bucket: w.buckets[0]}
		w.often(10*float64(tt.perSecond), s.take)
		w.often(5, func() { s.touch(tt.ways) })
		w.often(0.3, func() { s.calm = !s.calm })
		w.run(int64(p.Length))
		if w.breach != nil {
			t.Errorf("%+v: %v", tt, w.breach)
		}
		c := w.counts.Divided
		if c.Splits < 3 || s.merged < 3 {
			t.Errorf("%+v: %d splits and %d merges", tt, c.Splits, s.merged)
		}
		part := float64(s.granted) / float64(s.ideal)
		enough := 0.98
		if tt.burst < 2*limit.Tokens(tt.ways) {
			enough = 0.97 // a part of one token: whoever comes a moment late has lost the refill of that moment
		}
		if part < enough {
			t.Errorf("%+v: %d of %d tokens granted", tt, s.granted, s.ideal)
		}
		t.Logf("%+v: %.4f of %d granted, %d splits, %d merges, %d ends", tt, part, s.ideal, c.Splits, s.merged, c.Ends)
	}
}
