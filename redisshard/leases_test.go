package redisshard

import (
	"errors"
	"testing"
	"time"

	"github.com/spillgate/spillgate/batcher"
	"github.com/spillgate/spillgate/internal/redistest"
	"github.com/spillgate/spillgate/limit"
)

// lease runs one entry of op Lease, which cannot fail.
func (w *timed) lease(t *testing.T, b limit.Bucket, n limit.Tokens, ask limit.Ask) limit.Outcome {
	t.Helper()
	e := &batcher.Entry{Bucket: b, Terms: w.terms, Op: limit.Lease, N: n, Ask: ask}
	w.Apply(t.Context(), 0, []*batcher.Entry{e})
	redistest.Must(t, e.Err)
	return e.Out
}

// TestStoredRecord: agents of all versions read each other's cells, so they are held to the byte.
func TestStoredRecord(t *testing.T) {
	w := openTimed(t)
	b := w.bucket("b")
	epoch := w.now / limit.LeaseTTL.Microseconds()
	stored := func(what, want string) {
		t.Helper()
		if got := w.admin.HGet(t.Context(), w.hash(&b, 0), string(b.ID())).Val(); got != want {
			t.Errorf("%s: the cell is %q, want %q", what, got, want)
		}
	}
	// 2,176 s into a generation of 2,048 epochs; a token takes 2,880,000,000,000 ticks.
	w.must(t, b, w.terms, limit.Take, 1)
	stored("a plain cell", "20288000000000")
	w.must(t, b, w.terms, limit.Refund, 1)
	w.lease(t, b, 0, limit.Ask{})
	stored("a lease of nothing", "17408000000000")
	w.lease(t, b, 3, limit.Ask{Presence: 7})
	stored("a lease of three", "26048000000000 1088 3 0 7 0")
	w.must(t, b, w.terms, limit.Take, 11)
	stored("a denial", "26048000000000 1088 3 0 7 0")
	w.now += limit.LeaseTTL.Microseconds()
	w.must(t, b, w.terms, limit.TakePartial, 0)
	stored("a peek, an epoch later", "26048000000000 1088 3 0 7 0")
	w.lease(t, b, 1, limit.Ask{Presence: 2}) // the three are still out: what had refilled is gone
	stored("one more", "28944000000000 1089 1 3 2 7")
	w.lease(t, b, 0, limit.Ask{Epoch: epoch, Settled: 2, Returned: 1})
	stored("two of the three settled", "26064000000000 1089 1 1 2 7")
	w.must(t, b, w.terms, limit.Reset, 0)
	stored("a reset", "23184000000000 1089 1 1 2 7")
	w.now += w.terms.Class.Length.Microseconds()
	w.now -= w.now % w.terms.Class.Length.Microseconds() // the next generation
	w.must(t, b, w.terms, limit.Take, 4)
	stored("no lease is left", "11520000000000")

	w.now += w.terms.Class.Length.Microseconds() - 1 // the last moment
	w.lease(t, b, 5, limit.Ask{})
	stored("at the end of a generation", "47167999992000 2047 5 0 0 0")
	w.now++
	w.must(t, b, w.terms, limit.Take, 1)
	stored("at the beginning of the next", "17280000000000 0 0 5 0 0")
}

// TestDamagedRecord: what is no record fails its own entry, leases too, and a reset drops it.
func TestDamagedRecord(t *testing.T) {
	w := openTimed(t)
	b := w.bucket("b")
	for _, generation := range []int64{0, -1} {
		for _, value := range []string{
			"1 2 3 4 5", "1 2 3 4 5 6 7", "1  2 3 4 5 6", " 1 2 3 4 5 6", "1 2 3 4 5 6 ", "1 2 3 4 5 6\n", "1 2 3 4 5 x", "1,2,3,4,5,6",
			"1.5 2 3 4 5 6", "1e3 2 3 4 5 6", "nan 2 3 4 5 6", "200000000000000 2 3 4 5 6", "-200000000000000 2 3 4 5 6",
			"1 2048 3 4 5 6", "1 -1 3 4 5 6", "1 99999999999999999999 3 4 5 6",
			"1 2 1099511627777 4 5 6", "1 2 3 1099511627777 5 6", "1 2 3 4 33554433 6", "1 2 3 4 5 33554433", "1 2 -3 4 5 6", "1 2 3 4 5 -6",
		} {
			redistest.Must(t, w.admin.FlushDB(t.Context()).Err())
			redistest.Must(t, w.admin.HSet(t.Context(), w.hash(&b, generation), b.ID(), value).Err())
			for _, op := range []limit.Op{limit.Take, limit.Lease} {
				if out, err := w.do(b, w.terms, op, 1); !errors.Is(err, batcher.ErrDamaged) || out != (limit.Outcome{}) {
					t.Errorf("%q, generation %d, op %d: %+v, %v", value, generation, op, out, err)
				}
			}
			w.must(t, b, w.terms, limit.Reset, 0)
			if out := w.must(t, b, w.terms, limit.TakePartial, 100); out.Granted != 10 {
				t.Errorf("%q, generation %d: after a reset %+v", value, generation, out)
			}
		}
	}
	// At their bounds these are records still. As many tokens as that leave none free.
	for _, value := range []string{"17408000000000 1088 1099511627776 0 0 0", "-99000000000000 1087 1099511627776 1099511627776 33554432 33554432"} {
		redistest.Must(t, w.admin.HSet(t.Context(), w.hash(&b, 0), b.ID(), value).Err())
		if out := w.must(t, b, w.terms, limit.Reset, 0); out.Level != w.terms.Depth {
			t.Errorf("%q: %+v", value, out)
		}
		if out := w.lease(t, b, 5, limit.Ask{Take: 1, Presence: 1 << 40}); out.Granted != 0 || out.Taken != 0 || out.Contenders > 1<<18 {
			t.Errorf("%q: %+v", value, out)
		}
	}
}

// TestLeasesShareARun: of one rule's leases only their own numbers are sent.
func TestLeasesShareARun(t *testing.T) {
	w := openTimed(t)
	same := compile(t, 10, time.Hour)
	var entries []*batcher.Entry
	for i := range limit.Tokens(9) {
		e := &batcher.Entry{Bucket: w.bucket("b"), Terms: w.terms, Op: limit.Lease, N: 9 - i}
		if i%2 == 0 {
			e.Terms = same
		}
		entries = append(entries, e)
	}
	c := new(call)
	c.load(w.state.Load().layout, entries)
	if end, runs := c.extent(0); end != 9 || runs != 1 {
		t.Errorf("the first %d of 9 leases are in %d runs", end, runs)
	}
	entries[3].Op, entries[4].Terms = limit.Take, compile(t, 11, time.Hour)
	c.load(w.state.Load().layout, entries)
	if end, runs := c.extent(0); end != 9 || runs != 3 {
		t.Errorf("the first %d of 9 entries are in %d runs", end, runs)
	}
}
