package batcher_test

import (
	"testing"
	"time"

	"github.com/spillgate/spillgate/batcher"
	"github.com/spillgate/spillgate/limit"
	"github.com/spillgate/spillgate/memstore"
)

// windowLine is a Line before a store whose clock the test holds.
type windowLine struct {
	*testing.T
	batcher.Line
	store *memstore.Store
	terms *limit.Terms
	name  limit.Bucket
	now   int64
}

func newWindowLine(t *testing.T, a limit.Algorithm) *windowLine {
	store, err := memstore.New(memstore.Config{})
	if err != nil {
		t.Fatal(err)
	}
	terms, err := limit.Rate{Algorithm: a, Requests: 10, Period: time.Minute}.Terms()
	if err != nil {
		t.Fatal(err)
	}
	l := &windowLine{T: t, store: store, terms: terms, now: 6e17} // a whole minute
	secret, _ := store.Secret()
	secret.Name(&l.name, limit.AppendPart(nil, "bucket"))
	return l
}

func (l *windowLine) claim(op limit.Op, n limit.Tokens, epoch int64) *batcher.Claim {
	c := &batcher.Claim{Bucket: l.name, Terms: l.terms, Op: op, N: n, Ask: limit.Ask{Epoch: epoch}}
	l.Add(c)
	return c
}

// call makes one call of all that is in line, and returns the number of its entries.
func (l *windowLine) call() int {
	var load batcher.Load
	l.Next(100, &load)
	for _, e := range load.Entries {
		l.store.ApplyAt(l.now, e)
		if e.Err != nil {
			l.Fatal(e.Err)
		}
	}
	n := len(load.Entries)
	l.Settle(&load, func(*batcher.Claim) {})
	return n
}

// TestWindowShares: claims on a window that share an entry see it each at its place, and what none of them could use
// goes back to the window in which it was taken.
func TestWindowShares(t *testing.T) {
	for _, a := range []limit.Algorithm{limit.FixedWindow, limit.SlidingWindow, limit.SlidingLog} {
		l := newWindowLine(t, a)
		claims := []*batcher.Claim{l.claim(limit.Take, 6, 0), l.claim(limit.Take, 5, 0), l.claim(limit.Take, 1, 0)}
		if n := l.call(); n != 1 {
			t.Fatalf("%v: %d entries", a, n)
		}
		for i, want := range []limit.Decision{{Admitted: true, Remaining: 4}, {Remaining: 4}, {Admitted: true, Remaining: 3}} {
			d := l.terms.Decide(claims[i].N, claims[i].Out)
			if d.Admitted != want.Admitted || d.Remaining != want.Remaining || d.ResetAfter < time.Minute || !d.Admitted && d.RetryAfter < time.Minute {
				t.Errorf("%v: claim %d: %+v of %+v", a, i, d, claims[i].Out)
			}
		}
		if l.Len() != 1 {
			t.Fatalf("%v: %d entries in line, want the refund", a, l.Len())
		}
		l.now += int64(59 * time.Second)
		l.call()
		last := l.claim(limit.Take, 0, 0)
		if l.call(); last.Out.Level != 7 {
			t.Errorf("%v: after the refund: %+v", a, last.Out)
		}
	}
}

// TestWindowRefundsApart: refunds of tokens of two windows do not merge, and the one that is late is dropped.
func TestWindowRefundsApart(t *testing.T) {
	for _, a := range []limit.Algorithm{limit.FixedWindow, limit.SlidingWindow, limit.SlidingLog} {
		l := newWindowLine(t, a)
		first := l.claim(limit.Take, 4, 0)
		l.call()
		l.now += int64(time.Minute)
		second := l.claim(limit.Take, 4, 0)
		l.call()
		old := l.claim(limit.Refund, 4, first.Out.Epoch)
		young, same := l.claim(limit.Refund, 1, second.Out.Epoch), l.claim(limit.Refund, 2, second.Out.Epoch)
		if n := l.call(); n != 2 {
			t.Errorf("%v: %d entries of refunds to two windows", a, n)
		}
		if old.Out.Granted != 0 || young.Out.Granted != 3 || same.Out.Granted != 3 {
			t.Errorf("%v: refunds gave back %d, and %d of 3", a, old.Out.Granted, young.Out.Granted)
		}
	}
}
