package split

import (
	"slices"
	"testing"
	"time"

	"github.com/spillgate/spillgate/batcher"
	"github.com/spillgate/spillgate/limit"
)

const (
	ms     = int64(time.Millisecond)
	second = int64(time.Second)
)

func termsOf(t testing.TB, requests limit.Tokens, period time.Duration) *limit.Terms {
	t.Helper()
	terms, err := limit.Rate{Requests: requests, Period: period}.Terms()
	if err != nil {
		t.Fatal(err)
	}
	return terms
}

// known is a Spread at a time, and a home that can tell it things.
type known struct {
	*Spread
	*testing.T
	terms *limit.Terms
	now   int64
	call  uint64
}

// spread begins at 100 s with a bucket of so many tokens an hour. Its own part is at first that of index 0.
func spread(t *testing.T, burst limit.Tokens) *known {
	t.Helper()
	var b limit.Bucket
	new(limit.Secret).Name(&b, []byte("b"))
	terms := termsOf(t, burst, time.Hour)
	k := &known{T: t, terms: terms, now: 128 * second} // a multiple of all numbers of ways that are used
	k.Spread = New([]byte("b"), &b, terms, k.now, 0)
	return k
}

// divided is what home says of a bucket that was full when it was divided now.
func (k *known) divided(ways int) *batcher.Split {
	micros := k.now / 1000
	return &batcher.Split{Left: limit.SplitTTL + limit.SplitMargin,
		Split: limit.Split{Start: micros, Until: micros + limit.SplitTTL.Microseconds(), Ways: ways, Stride: 1}}
}

// dividedAt is what home says of a bucket that it will divide so much later.
func (k *known) dividedAt(later int64) *batcher.Split {
	now := k.now
	defer func() { k.now = now }()
	k.now += later
	return k.divided(4)
}

// reply is what an entry brought, from a part (nil: home) that has so many tokens left. Home refuses while it is divided, but for a
// touch.
func (k *known) reply(op limit.Op, part *limit.Part, split *batcher.Split, left limit.Tokens) EventKind {
	k.call++
	return k.replyOf(k.call, op, part, split, left)
}

func (k *known) replyOf(call uint64, op limit.Op, part *limit.Part, split *batcher.Split, left limit.Tokens) EventKind {
	c := &batcher.Claim{Terms: k.terms, Op: op, Part: part, Split: split, Call: call}
	p := *k.terms
	switch {
	case part.At() > 0:
		p = k.terms.Part(part.Split.Ways, part.Index)
	case split != nil && split.Ways > 0 && op != limit.Touch:
		c.Err = batcher.ErrStale
	}
	c.Out.Level = p.Depth - limit.Ticks(left)*p.Emission
	return k.Learn(k.now, c)
}

// has is what a part brought that has so many tokens left.
func (k *known) has(index int, left limit.Tokens) { k.reply(limit.Take, k.part(index), nil, left) }

// part is the part of an index, which must live.
func (k *known) part(index int) *limit.Part {
	k.Helper()
	p, ok := k.Named(k.now, index, k.mu.split.Start)
	if !ok {
		k.Fatalf("part %d is not named", index)
	}
	return p
}

// fails is an entry that brought an error.
func (k *known) fails(part *limit.Part, err error) {
	k.call++
	k.Learn(k.now, &batcher.Claim{Terms: k.terms, Op: limit.Take, Part: part, Call: k.call, Err: err})
}

// touched is the answer to the touch that was due.
func (k *known) touched(split *batcher.Split) { k.reply(limit.Touch, nil, split, 0) }

// closing is what home says of a split whose load has gone.
func closing(split *batcher.Split) *batcher.Split {
	c := *split
	c.Closing = true
	return &c
}

// over is what home says of a split that it has ended.
func over(split *batcher.Split) *batcher.Split {
	o := *split
	o.Ways = 0
	return &o
}

// Where an entry goes that goes to no part.
const (
	home    = -1
	nowhere = -2
)

// tried are the parts that a check has asked.
func tried(parts ...int) (a Asked) {
	for _, i := range parts {
		a.Add(&limit.Part{Index: i})
	}
	return a
}

// sends sends an entry, and checks where it goes.
func (k *known) sends(n limit.Tokens, asked Asked, want int) *limit.Part {
	k.Helper()
	p, ok := k.Choose(k.now, k.terms, n, Moving, asked)
	got := home
	switch {
	case !ok:
		got = nowhere
	case p.At() > 0:
		got = p.Index
	}
	if got != want {
		k.Fatalf("for %d tokens, asked %+v: part %d, want %d", n, asked, got, want)
	}
	return p
}

// chooses checks where an entry would go that is not sent.
func (k *known) chooses(n limit.Tokens, asked Asked, want int) *limit.Part {
	k.Helper()
	before := slices.Clone(k.mu.parts)
	defer func() { k.mu.parts = before }()
	return k.sends(n, asked, want)
}

// due is the touch that is due, of a table with that threshold.
func (k *known) due(threshold int64) *limit.Part { return k.Spread.due(k.now, threshold, nil) }

// told are the kinds of the events since the last call.
func (k *known) told() (kinds []EventKind) {
	for _, e := range k.Untold() {
		kinds = append(kinds, e.Kind)
	}
	return kinds
}
