package memstore

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/spillgate/spillgate/batcher"
	"github.com/spillgate/spillgate/limit"
)

// lease runs one entry of op Lease, which cannot fail.
func (s *Store) lease(t testing.TB, b limit.Bucket, terms *limit.Terms, n limit.Tokens, ask limit.Ask, nanos int64) limit.Outcome {
	t.Helper()
	e := batcher.Entry{Bucket: b, Terms: terms, Op: limit.Lease, N: n, Ask: ask}
	s.ApplyAt(nanos, &e)
	if e.Err != nil {
		t.Fatal(e.Err)
	}
	return e.Out
}

// records counts the lease records in memory, and those whose slot is not alive or knows nothing of it.
func (s *Store) records() (n, lost int) {
	for i := range s.shard {
		for _, h := range s.shard[i].mu.hashes {
			n += len(h.leased)
			for sum, c := range h.leased {
				if at := h.cells.find(sum); at == nil || at.tat != elsewhere || at.age != c.age || at.age < h.oldest() {
					lost++
				}
			}
		}
	}
	return n, lost
}

// TestLeaseAcrossGenerations: a record moves with its cell, counts for two epochs, and goes.
func TestLeaseAcrossGenerations(t *testing.T) {
	s, rate := newStore(t, Config{}), terms(t, 10, 2*time.Second, 0) // generations of 4 s
	b := s.bucket("b")
	first := s.lease(t, b, rate, 4, limit.Ask{}, 103*second)
	if first.Granted != 4 || first.Epoch != 51 || first.Contenders != 1 {
		t.Fatalf("%+v", first)
	}
	for _, tt := range []struct {
		at   int64
		free limit.Tokens
	}{{103 * second, 6}, {105 * second, 6}, {106*second - 1, 6}, {106 * second, 6}, {106*second + second/5, 7}, {108 * second, 10}} {
		if out := s.must(t, b, rate, limit.TakePartial, 0, tt.at); rate.Remaining(out.Level) != tt.free {
			t.Errorf("at %d: %d are free, want %d", tt.at, rate.Remaining(out.Level), tt.free)
		}
	}
	s.must(t, b, rate, limit.Take, 1, 105*second)
	if n, lost := s.records(); n != 1 || lost != 0 {
		t.Errorf("%d records, %d lost", n, lost)
	}
	if out := s.lease(t, b, rate, 0, limit.Ask{Epoch: 51, Settled: 4, Returned: 2}, 105*second); rate.Remaining(out.Level) != 7 {
		t.Errorf("settled in the next epoch, a generation on: %+v", out)
	}
	if n, _ := s.records(); n != 0 {
		t.Errorf("%d records of nothing", n)
	}
}

// TestRecordsAreFreed: leases of ever new buckets, in two classes, leave no more records than living cells.
func TestRecordsAreFreed(t *testing.T) {
	s, short, long := newStore(t, Config{}), terms(t, 2, 2*time.Second, 0), terms(t, 2, 62*time.Second, 0)
	const round = 2000
	for i := range 40 {
		now := (100 + 2*int64(i)) * second
		for j := range round {
			b := s.bucket(fmt.Sprint(i/3, " ", j)) // some in two generations
			rate := short
			if j%10 == 0 {
				rate = long
			}
			if j%3 > 0 {
				s.lease(t, b, rate, 1, limit.Ask{Presence: int64(j % 2)}, now)
			} else {
				s.must(t, b, rate, limit.Take, 1, now)
			}
		}
		if n, lost := s.records(); n > s.Cells() || lost > 0 {
			t.Fatalf("round %d: %d records, %d of them lost, and %d cells", i, n, lost, s.Cells())
		}
	}
	for i := range 10 * shards {
		s.must(t, s.bucket(fmt.Sprint("later", i)), short, limit.Take, 1, 1000*second)
	}
	if n, _ := s.records(); n != 0 {
		t.Errorf("%d records long after", n)
	}
	for i := range s.shard {
		for _, h := range s.shard[i].mu.hashes {
			if h.leased != nil {
				t.Fatal("an empty map keeps its room")
			}
		}
	}
}

// TestLeaseWhenFull: a new bucket finds no room, for its record neither; a known one goes on.
func TestLeaseWhenFull(t *testing.T) {
	s, slow := newStore(t, Config{MaxCells: shards}), terms(t, 2, 2*time.Second, 0)
	all := s.neighbours(2)
	s.must(t, all[0], slow, limit.Take, 1, 4*second)
	if out, err := s.op(all[1], slow, limit.Lease, 1, 4*second); !errors.Is(err, errFull) || out != (limit.Outcome{}) {
		t.Errorf("a new bucket in a full store: %+v, %v", out, err)
	}
	if out := s.lease(t, all[0], slow, 1, limit.Ask{Take: 1}, 4*second); out.Taken != 1 {
		t.Errorf("%+v", out)
	}
	s.lease(t, all[0], slow, 1, limit.Ask{Take: 1}, 5*second)
	if n, lost := s.records(); n != 0 || lost != 0 {
		t.Errorf("%d records, %d lost", n, lost)
	}
}

func TestLeaseAllocations(t *testing.T) {
	s, rate := newStore(t, Config{}), terms(t, 1000, time.Second, 0)
	now := s.Now()
	e := &batcher.Entry{Bucket: s.bucket("b"), Terms: rate, Op: limit.Lease, N: 1, Ask: limit.Ask{Presence: 1}}
	s.ApplyAt(now, e)
	for _, op := range []limit.Op{limit.Lease, limit.Take, limit.TakePartial, limit.Reset} {
		e.Op = op
		if got := testing.AllocsPerRun(100, func() { s.ApplyAt(now, e) }); got != 0 {
			t.Errorf("op %d on a cell with a record: %v allocations, want 0", op, got)
		}
	}
}
