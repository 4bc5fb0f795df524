package batcher_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/spillgate/spillgate/batcher"
	"github.com/spillgate/spillgate/limit"
	"github.com/spillgate/spillgate/memstore"
)

// naiveLine is what a Line does, told simply: lists that are searched from the end, and grants as piles of single tokens.
type naiveLine struct {
	entries []*naiveEntry // in line or in flight, in order of arrival
}

type naiveEntry struct {
	bucket int
	terms  *limit.Terms
	op     limit.Op
	lease  *batcher.Claim
	claims []*naiveClaim
	sent   bool
	closed bool // a newer one on its bucket came
}

type naiveClaim struct {
	*batcher.Claim
	late, gaveUp bool
}

// riders is how many tokens a lease's entry asks for the claims that came in time.
func (e *naiveEntry) riders() (n limit.Tokens) {
	for _, c := range e.claims {
		if !c.late && c.N <= e.terms.Burst {
			n += c.N
		}
	}
	return min(n, e.terms.Burst)
}

// joins says whether a claim shares an entry.
func (e *naiveEntry) joins(c *batcher.Claim) bool {
	switch {
	case *e.terms != *c.Terms || c.Op == limit.Lease:
		return false
	case e.lease != nil:
		return c.Op == limit.Take && (!e.sent || e.lease.N > 0)
	}
	return e.op == c.Op && !e.sent
}

func (l *naiveLine) add(bucket int, c *batcher.Claim) {
	for i := len(l.entries) - 1; i >= 0; i-- {
		e := l.entries[i]
		if e.bucket != bucket || e.closed {
			continue
		}
		if e.joins(c) {
			e.claims = append(e.claims, &naiveClaim{Claim: c, late: e.sent})
			return
		}
		e.closed = true
	}
	e := &naiveEntry{bucket: bucket, terms: c.Terms, op: c.Op}
	if c.Op == limit.Lease {
		e.lease = c
	} else {
		e.claims = []*naiveClaim{{Claim: c}}
	}
	l.entries = append(l.entries, e)
}

// next sends the oldest entries that have claims.
func (l *naiveLine) next(most int) (sent []*naiveEntry) {
	var rest []*naiveEntry
	for _, e := range l.entries {
		switch {
		case e.sent || len(sent) == most:
			rest = append(rest, e)
		case e.lease != nil || len(e.claims) > 0:
			e.sent = true
			sent, rest = append(sent, e), append(rest, e)
		}
	}
	l.entries = rest
	return sent
}

func (l *naiveLine) giveUp(c *batcher.Claim) {
	for _, e := range l.entries {
		for i, own := range e.claims {
			switch {
			case own.Claim != c:
			case e.sent:
				own.gaveUp = true
			default:
				e.claims = append(e.claims[:i:i], e.claims[i+1:]...)
			}
		}
	}
}

// answer is what a claim is told.
type answer struct {
	granted, rode limit.Tokens
	rider         bool
	err           error
}

// settle shares out what one entry brought, token by token. again are the late claims that ask once more.
func (l *naiveLine) settle(e *naiveEntry, out limit.Outcome, err error) (told map[*batcher.Claim]answer, kept, unused limit.Tokens, again []*batcher.Claim) {
	for i := range l.entries {
		if l.entries[i] == e {
			l.entries = append(l.entries[:i:i], l.entries[i+1:]...)
			break
		}
	}
	told = map[*batcher.Claim]answer{}
	var pile []byte // 't' for a token that was taken for the callers, 'l' for one on lease
	add := func(n limit.Tokens, kind byte) {
		for range n {
			pile = append(pile, kind)
		}
	}
	switch {
	case err != nil:
	case e.lease != nil:
		add(out.Taken, 't')
		add(out.Granted, 'l')
	case e.op == limit.Take:
		add(out.Granted, 't')
	}
	rode := limit.Tokens(0)
	for _, c := range e.claims {
		fits := c.N <= limit.Tokens(len(pile)) && err == nil && (!c.gaveUp || c.Keep)
		got := limit.Tokens(0)
		if fits && e.op != limit.Charge && e.op != limit.Refund {
			for _, kind := range pile[:c.N] {
				if kind == 'l' {
					rode++
				}
			}
			pile, got = pile[c.N:], c.N
		}
		switch {
		case c.gaveUp:
			kept += got
		case e.lease != nil && c.late && !fits && err == nil && out.Level+limit.Ticks(c.N)*e.terms.Emission <= e.terms.Depth:
			again = append(again, c.Claim)
		case e.op == limit.Charge || e.op == limit.Refund:
			told[c.Claim] = answer{granted: out.Granted, err: err}
		default:
			told[c.Claim] = answer{granted: got, rider: e.lease != nil, err: err}
		}
	}
	left := limit.Tokens(0)
	for _, kind := range pile {
		if kind == 't' {
			unused++
		} else {
			left++
		}
	}
	if e.lease != nil {
		told[e.lease] = answer{granted: left, rode: rode, err: err}
	}
	return told, kept, unused, again
}

// TestLineIsWhatItSeems drives a Line and the naive one side by side through random histories: the same entries in the same
// order, the same answers; and of every bucket, the tokens that the store granted are those of callers, of leases,
// of callers who had given up and keep theirs, and of refunds.
func TestLineIsWhatItSeems(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := newHistory(t, func(lo, hi int) int { return rapid.IntRange(lo, hi).Draw(t, "") })
		h.run(t, h.dice(1, 100))
	})
}

// TestLineInLongHistories is the same with plain dice, which find other histories than rapid's.
func TestLineInLongHistories(t *testing.T) {
	var rides, again, kept, refunds int
	for seed := range uint64(1000) {
		h := newHistory(t, dice(seed))
		h.run(t, 300)
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
		rides, again, kept, refunds = rides+h.rides, again+h.again, kept+h.kept, refunds+h.refunds
	}
	if rides < 200 || again < 100 || kept < 1000 || refunds < 1000 {
		t.Errorf("%d rides on lease, %d who asked again, %d kept tokens, %d refunds: the histories are too tame", rides, again, kept, refunds)
	}
}

// dice are fair.
func dice(seed uint64) func(lo, hi int) int {
	r := rand.New(rand.NewPCG(seed, 0))
	return func(lo, hi int) int { return lo + r.IntN(hi-lo+1) }
}

// run plays a history to its end, and audits it.
func (h *history) run(t fataler, events int) {
	for range events {
		switch h.dice(0, 11) {
		case 0, 1, 2, 3, 4:
			h.add(t)
		case 5, 6:
			h.next(t)
		case 7, 8:
			h.settle(t)
		case 9:
			h.giveUp(t)
		default:
			h.now += int64(h.dice(0, 300)) * int64(time.Millisecond)
		}
	}
	for h.line.Len() > 0 || len(h.flights) > 0 {
		h.next(t)
		h.settle(t)
	}
	if len(h.open) > 0 || len(h.naive.entries) > 0 {
		t.Fatalf("%d claims have no answer, %d entries are left", len(h.open), len(h.naive.entries))
	}
	for i := range h.granted {
		if h.granted[i] != h.given[i] {
			t.Fatalf("bucket %d: the store granted %d, accounted for are %d", i, h.granted[i], h.given[i])
		}
	}
}

// fataler is a test, by rapid or not.
type fataler interface {
	Helper()
	Fatal(...any)
	Fatalf(string, ...any)
}

// history is a Line, its twin and a store.
type history struct {
	dice    func(lo, hi int) int
	line    batcher.Line
	naive   naiveLine
	cells   *memstore.Store
	now     int64
	terms   [3]*limit.Terms
	names   [3]limit.Bucket
	open    []*batcher.Claim // without an answer
	bucket  map[*batcher.Claim]int
	flights []flight

	granted, given              [3]limit.Tokens
	rides, again, kept, refunds int
}

type flight struct {
	load batcher.Load
	twin []*naiveEntry
}

func newHistory(t fataler, dice func(lo, hi int) int) *history {
	h := &history{dice: dice, now: 1_000_000 * int64(time.Second), bucket: map[*batcher.Claim]int{}}
	cells, err := memstore.New(memstore.Config{})
	if err != nil {
		t.Fatal(err)
	}
	h.cells = cells
	secret, _ := cells.Secret()
	for i := range h.names {
		secret.Name(&h.names[i], []byte{byte(i)})
	}
	for i, r := range []limit.Rate{{Requests: 10, Period: time.Second}, {Requests: 10, Period: time.Second}, {Requests: 12, Period: time.Second}} {
		if h.terms[i], err = r.Terms(); err != nil { // the first two are equal
			t.Fatal(err)
		}
	}
	return h
}

func (h *history) add(t fataler) {
	ops := [...]limit.Op{limit.Take, limit.Lease, limit.Take, limit.Take, limit.Lease, limit.Take, limit.Charge, limit.Refund, limit.Reset}
	op := ops[h.dice(0, len(ops)-1)]
	i := h.dice(0, len(h.names)-1)
	c := &batcher.Claim{Bucket: h.names[i], Terms: h.terms[min(2, h.dice(0, 9)%3)], Op: op,
		N: limit.Tokens(h.dice(0, 11)), Keep: h.dice(0, 1) == 1}
	if h.dice(0, 1) == 1 {
		c.N = min(c.N, 2)
	}
	if op == limit.Refund && c.N > 2 {
		c.N = 1 // or the bucket is always full
	}
	h.bucket[c] = i
	h.open = append(h.open, c)
	h.line.Add(c)
	h.naive.add(i, c)
}

func (h *history) next(t fataler) {
	most := h.dice(1, 4)
	var f flight
	h.line.Next(most, &f.load)
	f.twin = h.naive.next(most)
	if len(f.load.Entries) != len(f.twin) {
		t.Fatalf("a call of %d entries, want %d", len(f.load.Entries), len(f.twin))
	}
	last := map[limit.Sum]int{}
	for k, e := range f.load.Entries {
		twin := f.twin[k]
		round, seen := last[e.Bucket.Sum()]
		if e.Bucket != h.names[twin.bucket] || *e.Terms != *twin.terms || (e.Op == limit.Lease) != (twin.lease != nil) || seen && e.Round <= round {
			t.Fatalf("entry %d: op %d, round %d on %v; want op %d on %d", k, e.Op, e.Round, e.Bucket.ID(), twin.op, twin.bucket)
		}
		last[e.Bucket.Sum()] = e.Round
		if twin.lease != nil && (e.N != twin.lease.N || e.Ask.Take != twin.riders()) {
			t.Fatalf("entry %d: a lease of %d, %d for riders; want %d, %d", k, e.N, e.Ask.Take, twin.lease.N, twin.riders())
		}
	}
	if len(f.twin) > 0 {
		h.flights = append(h.flights, f)
	}
}

// settle answers one of the calls in flight.
func (h *history) settle(t fataler) {
	if len(h.flights) == 0 {
		return
	}
	k := h.dice(0, len(h.flights)-1)
	f := h.flights[k]
	h.flights = append(h.flights[:k:k], h.flights[k+1:]...)
	want := map[*batcher.Claim]answer{}
	unused := limit.Tokens(0)
	for i, e := range f.load.Entries {
		twin := f.twin[i]
		if e.Err = nil; h.dice(0, 9) == 0 {
			e.Err = batcher.ErrUnknown
		} else {
			h.cells.ApplyAt(h.now, e)
		}
		told, kept, back, again := h.naive.settle(twin, e.Out, e.Err)
		for c, a := range told {
			if _, ours := h.bucket[c]; ours { // and not a refund of the line's own
				want[c] = a
			}
		}
		if e.Err == nil && (twin.lease != nil || twin.op == limit.Take) {
			h.granted[twin.bucket] += e.Out.Taken + e.Out.Granted
		}
		h.given[twin.bucket] += kept + back
		h.kept += int(kept)
		unused += back
		for _, c := range again { // into line, or to a lease that is settled next
			h.naive.add(twin.bucket, c)
			h.again++
		}
		if back > 0 {
			h.naive.add(twin.bucket, &batcher.Claim{Bucket: h.names[twin.bucket], Terms: twin.terms, Op: limit.Refund, N: back})
		}
	}
	refunded, refunds := h.line.Settle(&f.load, func(c *batcher.Claim) {
		if c.Err == batcher.ErrDeadline {
			t.Fatal("a claim that was given up is told of an outcome")
		}
		i, ours := h.bucket[c]
		a, ok := want[c]
		if !ours { // a stand-in, or a refund of the line's own
			return
		}
		got := answer{granted: c.Out.Granted, rider: c.Rider, err: c.Err}
		if c.Op == limit.Lease {
			got.rode = c.Rode
		}
		if !ok || c.Err == nil && got != a || c.Err != a.err {
			t.Fatalf("op %d of %d on %d: %+v, want %+v", c.Op, c.N, i, got, a)
		}
		if c.Err == nil && (c.Op == limit.Take || c.Op == limit.Lease) {
			h.given[i] += c.Out.Granted + c.Rode
			if c.Rode > 0 {
				h.given[i] -= c.Rode // those who rode have them
				h.rides++
			}
		}
		delete(want, c)
		h.close(c)
	})
	if refunded != unused || len(want) > 0 {
		t.Fatalf("%d tokens go back, want %d; %d claims were not told", refunded, unused, len(want))
	}
	h.refunds += refunds
}

func (h *history) close(c *batcher.Claim) {
	for i := range h.open {
		if h.open[i] == c {
			h.open = append(h.open[:i:i], h.open[i+1:]...)
			return
		}
	}
}

func (h *history) giveUp(t fataler) {
	if len(h.open) == 0 {
		return
	}
	c := h.open[h.dice(0, len(h.open)-1)]
	if c.Op != limit.Take {
		return // nobody waits for it
	}
	h.line.GiveUp(c)
	h.naive.giveUp(c)
	h.close(c)
}
