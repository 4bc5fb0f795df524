package memstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/spillgate/spillgate/batcher"
	"github.com/spillgate/spillgate/limit"
)

var _ batcher.Direct = (*Store)(nil)

const second = int64(time.Second)

func newStore(t testing.TB, cfg Config) *Store {
	t.Helper()
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// terms compiles a rate that is known to be valid.
func terms(t testing.TB, requests limit.Tokens, period time.Duration, burst limit.Tokens) *limit.Terms {
	t.Helper()
	compiled, err := limit.Rate{Requests: requests, Period: period, Burst: burst}.Terms()
	if err != nil {
		t.Fatal(err)
	}
	return compiled
}

// bucket is the bucket of that name in the store.
func (s *Store) bucket(name string) limit.Bucket {
	var b limit.Bucket
	s.secret.Name(&b, limit.AppendPart(nil, name))
	return b
}

// neighbours are n buckets that share one of the store's shards.
func (s *Store) neighbours(n int) []limit.Bucket {
	var all []limit.Bucket
	for i := 0; len(all) < n; i++ {
		if b := s.bucket(fmt.Sprint("bucket ", i)); b.Sum().Lo%shards == 7 {
			all = append(all, b)
		}
	}
	return all
}

// op runs one operation at a time in nanoseconds, and reports what Apply would to a caller.
func (s *Store) op(b limit.Bucket, terms *limit.Terms, op limit.Op, n limit.Tokens, nanos int64) (limit.Outcome, error) {
	e := batcher.Entry{Bucket: b, Terms: terms, Op: op, N: n}
	s.ApplyAt(nanos, &e)
	return e.Out, e.Err
}

// must is op for those that cannot fail.
func (s *Store) must(t testing.TB, b limit.Bucket, terms *limit.Terms, op limit.Op, n limit.Tokens, nanos int64) limit.Outcome {
	t.Helper()
	out, err := s.op(b, terms, op, n, nanos)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestConfig(t *testing.T) {
	for _, tt := range []struct {
		most int
		want string // "" for none
	}{
		{0, ""},
		{shards, ""},
		{shards - 1, "memstore: MaxCells is 63, it must be at least 64"},
		{-1, "MaxCells is -1"},
	} {
		s, err := New(Config{MaxCells: tt.most})
		if tt.want == "" && (err != nil || s == nil) || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("MaxCells %d: %v, want %q", tt.most, err, tt.want)
		}
	}
	if s := newStore(t, Config{}); s.most != 1<<24/shards {
		t.Errorf("default: %d cells per shard", s.most)
	}
}

func TestStoreSeam(t *testing.T) {
	a, b := newStore(t, Config{}), newStore(t, Config{})
	secret, ok := a.Secret()
	if other, _ := b.Secret(); !ok || *secret == *other || *secret == (limit.Secret{}) {
		t.Errorf("a secret is random for each store")
	}
	name := a.bucket("x")
	if a.Shard(&name, nil) != 0 {
		t.Errorf("there is one shard, 0")
	}
	before := a.Now()
	if after := a.Now(); after < before {
		t.Errorf("the clock ran back from %d to %d", before, after)
	}
}

// TestApply: a call applies its entries in order, each on its own.
func TestApply(t *testing.T) {
	s, hourly := newStore(t, Config{}), terms(t, 10, time.Hour, 0)
	var entries []*batcher.Entry
	for _, e := range []batcher.Entry{
		{Bucket: s.bucket("a"), Op: limit.Take, N: 6},
		{Bucket: s.bucket("b"), Op: limit.Take, N: 11},
		{Bucket: s.bucket("a"), Op: limit.TakePartial, N: 6, Round: 1},
		{Bucket: s.bucket("a"), Op: limit.Refund, N: 1, Round: 2},
	} {
		e.Terms = hourly
		e.Out, e.Err = limit.Outcome{Granted: 99}, errors.New("left over")
		entries = append(entries, &e)
	}
	s.Apply(context.Background(), 0, entries)
	for i, want := range []limit.Tokens{6, 0, 4, 1} {
		if e := entries[i]; e.Err != nil || e.Out.Granted != want {
			t.Errorf("entry %d: %+v, %v; want %d granted", i, e.Out, e.Err, want)
		}
	}
	if got := s.Cells(); got != 1 {
		t.Errorf("%d cells, want 1: a denial writes nothing", got)
	}
}

func TestGenerations(t *testing.T) {
	daily := terms(t, 86400, 24*time.Hour, 2)   // a token a second, full in half a generation of 4 s
	const start, end = 1000 * 4e9, 1001*4e9 - 1 // a generation
	for _, tt := range []struct {
		name    string
		drained int64
		at      int64
		granted limit.Tokens
	}{
		{"at once", end, end, 0},
		{"on the boundary", end, end + 1, 0},
		{"a nanosecond before the first token", end, end + second - 1, 0},
		{"the first token, read from the generation before", end, end + second, 1},
		{"a nanosecond before it is full", end, end + 2*second - 1, 1},
		{"at the end of the next generation", end, end + 4*second, 2},
		{"two generations on", end, end + 4*second + 1, 2},
		{"long after", end, end + 1e6*second, 2},
		{"drained at a start", start, start + 2*second - 1, 1},
		{"drained at a start, full in the next", start, start + 4*second, 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newStore(t, Config{})
			b := s.bucket("b")
			if out := s.must(t, b, daily, limit.Take, 2, tt.drained); out.Granted != 2 {
				t.Fatalf("drain: %+v", out)
			}
			if out := s.must(t, b, daily, limit.TakePartial, 100, tt.at); out.Granted != tt.granted {
				t.Errorf("granted %d, want %d", out.Granted, tt.granted)
			}
		})
	}
}

// TestNewestWriteWins: a cell in both generations is read from the current one.
func TestNewestWriteWins(t *testing.T) {
	s, slow := newStore(t, Config{}), terms(t, 10, 2*time.Second, 0)
	b := s.bucket("b")
	s.must(t, b, slow, limit.Take, 10, 7*second)
	s.must(t, b, slow, limit.Reset, 0, 9*second)
	if out := s.must(t, b, slow, limit.Take, 10, 9*second); out.Granted != 10 {
		t.Errorf("after a reset: %+v", out)
	}
	if out := s.must(t, b, slow, limit.Take, 10, 13*second); out.Granted != 10 {
		t.Errorf("after the refill, in the next generation: %+v", out)
	}
}

func TestDeniedAndPeekedCreateNothing(t *testing.T) {
	s, slow := newStore(t, Config{}), terms(t, 10, 2*time.Second, 0)
	b := s.bucket("b")
	for _, now := range []int64{5 * second, 9 * second, 100 * second} {
		s.must(t, b, slow, limit.Take, 11, now)
		s.must(t, b, slow, limit.Take, 0, now)
		s.must(t, b, slow, limit.TakePartial, 0, now)
		s.must(t, b, slow, limit.Refund, 3, now)
	}
	if s.Cells() != 0 {
		t.Errorf("%d cells", s.Cells())
	}
	// Nor do they move the recorded clock: a clock that was ahead and asked nothing did no harm.
	if out := s.must(t, b, slow, limit.Take, 1, 5*second); out.Lag != 0 || out.Granted != 1 {
		t.Errorf("after denials in the future: %+v", out)
	}
}

// TestClockBackwards is fault 3: burst 10, 1/s, drained at t=100.
func TestClockBackwards(t *testing.T) {
	for _, tt := range []struct {
		name  string
		times []int64 // in seconds
	}{
		{"across a generation", []int64{90, 100}},
		{"within the generation", []int64{97, 100}},
		{"across many generations", []int64{0, 100}},
		{"before 1970", []int64{-5000, 100}},
		{"up and down", []int64{99, 90, 50, 100, 20, 96}},
		{"a century back", []int64{-3_100_000_000, 100}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, rate := newStore(t, Config{}), terms(t, 10, 10*time.Second, 0)
			b := s.bucket("b")
			if out := s.must(t, b, rate, limit.TakePartial, 100, 100*second); out.Granted != 10 {
				t.Fatalf("drain: %+v", out)
			}
			for i := range 1000 {
				at := tt.times[i%len(tt.times)]
				out := s.must(t, b, rate, limit.TakePartial, 100, at*second)
				if out.Granted != 0 {
					t.Fatalf("round %d: %d tokens at t=%d", i, out.Granted, at)
				}
				if want := (100 - at) * second; out.Lag != want {
					t.Fatalf("t=%d lags by %d, want %d", at, out.Lag, want)
				}
				if got, want := rate.Decide(1, out).RetryAfter, time.Duration((101-at)*second); got != want {
					t.Fatalf("t=%d: retry after %v, want %v", at, got, want)
				}
			}
			if out := s.must(t, b, rate, limit.TakePartial, 100, 101*second-1); out.Granted != 0 {
				t.Errorf("a nanosecond before 101: %+v", out)
			}
			if out := s.must(t, b, rate, limit.TakePartial, 100, 101*second); out.Granted != 1 {
				t.Errorf("at 101: %+v, want one token", out)
			}
		})
	}
}

// TestClocksAheadAndBehind: callers 5 s ahead and 5 s behind on one store, 60 s long.
func TestClocksAheadAndBehind(t *testing.T) {
	s, rate := newStore(t, Config{}), terms(t, 10, 10*time.Second, 0)
	b := s.bucket("b")
	var granted limit.Tokens
	for now := 1000 * second; now <= 1060*second; now += second / 10 {
		granted += s.must(t, b, rate, limit.TakePartial, 100, now+5*second).Granted
		granted += s.must(t, b, rate, limit.TakePartial, 100, now-5*second).Granted
	}
	if granted != 70 {
		t.Errorf("granted %d in 60 s, want burst + 60", granted)
	}
}

// TestClockBackByLessThanAStep: the recorded clock lags by less than a step, and the TAT itself
// keeps tokens from appearing.
func TestClockBackByLessThanAStep(t *testing.T) {
	s, fast := newStore(t, Config{}), terms(t, 100_000, time.Second, 100)
	b := s.bucket("b")
	step := int64(fast.Class.Duration(fast.Class.Step()))
	now := 1000*second + step/2
	s.must(t, b, fast, limit.Take, 1, 1000*second) // the clock is recorded here
	granted := s.must(t, b, fast, limit.TakePartial, 1000, now).Granted
	for range 1000 {
		granted += s.must(t, b, fast, limit.TakePartial, 1000, now-step/3).Granted
		granted += s.must(t, b, fast, limit.TakePartial, 1000, now).Granted
	}
	if want := fast.Burst; granted != want {
		t.Errorf("granted %d, want %d", granted, want)
	}
	d := fast.Decide(1, s.must(t, b, fast, limit.Take, 1, now-step/3))
	if s.must(t, b, fast, limit.Take, 1, now-step/3+int64(d.RetryAfter)-1).Granted != 0 ||
		s.must(t, b, fast, limit.Take, 1, now-step/3+int64(d.RetryAfter)).Granted != 1 {
		t.Errorf("a retry of %v is not exact", d.RetryAfter)
	}
}

// TestClockBackAfterASweep: cells that were dropped as full are not full twice, and a write
// into their hash finds its place.
func TestClockBackAfterASweep(t *testing.T) {
	s := newStore(t, Config{})
	short, long := terms(t, 2, 2*time.Second, 0), terms(t, 64, 62*time.Second, 0)
	all := s.neighbours(2)
	s.must(t, all[0], short, limit.Take, 2, 100*second)
	s.must(t, all[1], long, limit.Take, 1, 200*second) // opens a generation: the short cell goes
	if got := s.Cells(); got != 1 {
		t.Fatalf("%d cells, want the short one dropped", got)
	}
	// The clock is set back to the moment after the drain. The store has seen t=200, where the bucket is full
	// for the first time: 2 tokens, and no more until 201.
	var granted limit.Tokens
	for at := 100 * second; at < 201*second; at += second / 2 {
		granted += s.must(t, all[0], short, limit.TakePartial, 100, at).Granted
	}
	if granted != 2 {
		t.Errorf("granted %d up to t=201, want 2", granted)
	}
}

func TestLagIsInWholeMicroseconds(t *testing.T) {
	s, fast := newStore(t, Config{}), terms(t, 10, time.Second, 0)
	b := s.bucket("b")
	s.must(t, b, fast, limit.Take, 10, 1000*second)
	for _, tt := range []struct{ back, lag int64 }{{1, 1000}, {999, 1000}, {1000, 1000}, {1001, 2000}, {5 * second, 5 * second}} {
		if out := s.must(t, b, fast, limit.Take, 1, 1000*second-tt.back); out.Lag != tt.lag {
			t.Errorf("%d ns back: lag %d, want %d", tt.back, out.Lag, tt.lag)
		}
	}
}

// TestFull: at MaxCells new buckets are refused and the known ones go on, in the next
// generation too.
func TestFull(t *testing.T) {
	s, slow := newStore(t, Config{MaxCells: 2 * shards}), terms(t, 2, 2*time.Second, 0)
	all := s.neighbours(4)
	for _, b := range all[:2] {
		s.must(t, b, slow, limit.Take, 1, 4*second)
	}
	refused := func(b limit.Bucket, now int64) {
		t.Helper()
		if out, err := s.op(b, slow, limit.Take, 1, now); !errors.Is(err, batcher.ErrNotRun) || out != (limit.Outcome{}) {
			t.Fatalf("a new bucket in a full store: %+v, %v", out, err)
		}
	}
	refused(all[2], 4*second)
	s.must(t, all[2], slow, limit.TakePartial, 0, 4*second) // a peek needs no room
	if out := s.must(t, all[0], slow, limit.Take, 1, 4*second); out.Granted != 1 {
		t.Errorf("a known bucket: %+v", out)
	}

	// The next generation: known buckets move, exactly as they were, and leave no room.
	now := 8*second + 1
	if out := s.must(t, all[0], slow, limit.TakePartial, 2, now); out.Granted != 2 {
		t.Errorf("a bucket that refilled: %+v", out)
	}
	refused(all[2], now)
	if out := s.must(t, all[1], slow, limit.TakePartial, 2, now); out.Granted != 2 {
		t.Errorf("the other known bucket: %+v", out)
	}
	refused(all[2], now)
	for _, b := range all[:2] {
		if out := s.must(t, b, slow, limit.TakePartial, 2, now); out.Granted != 0 {
			t.Errorf("a moved bucket forgot what was taken: %+v", out)
		}
	}
	if got := s.Cells(); got != 2 {
		t.Errorf("%d cells, want 2", got)
	}

	// Two generations on there is room again.
	for _, b := range all[2:] {
		s.must(t, b, slow, limit.Take, 1, 16*second)
	}
	if got := s.Cells(); got != 2 {
		t.Errorf("%d cells after the flood, want 2", got)
	}
}

// TestFullOfOtherClasses: cells of a class that nobody writes any more do not keep others out.
func TestFullOfOtherClasses(t *testing.T) {
	s := newStore(t, Config{MaxCells: 2 * shards})
	short, long := terms(t, 2, 2*time.Second, 0), terms(t, 2, 1000*time.Hour, 0)
	all := s.neighbours(3)
	s.must(t, all[0], long, limit.Take, 1, 100*second)
	s.must(t, all[1], short, limit.Take, 1, 100*second)
	if _, err := s.op(all[2], long, limit.Take, 1, 107*second); !errors.Is(err, errFull) {
		t.Fatalf("want the store full, got %v", err)
	}
	// The short cell is full at 108. The long class opens no generation for weeks.
	if out := s.must(t, all[2], long, limit.Take, 1, 108*second); out.Granted != 1 {
		t.Errorf("%+v", out)
	}
}

// TestMemoryIsFreed: a flood's cells go with their generations, in every class.
func TestMemoryIsFreed(t *testing.T) {
	s, short, long := newStore(t, Config{}), terms(t, 2, 2*time.Second, 0), terms(t, 2, 62*time.Second, 0)
	const flood = 10_000
	for i := range flood {
		b := s.bucket(fmt.Sprint(i))
		s.must(t, b, short, limit.Take, 1, 100*second)
		s.must(t, b, long, limit.Take, 1, 100*second)
	}
	if got := s.Cells(); got != 2*flood {
		t.Fatalf("%d cells, want %d", got, 2*flood)
	}
	touch := func(terms *limit.Terms, now int64) {
		for i := range 10 * shards { // every shard, as good as certainly
			s.must(t, s.bucket(fmt.Sprint("later", i)), terms, limit.Take, 1, now)
		}
	}
	touch(short, 109*second)
	if got := s.Cells(); got != flood+10*shards {
		t.Errorf("%d cells, want the short ones gone", got)
	}
	touch(short, 300*second)
	if got := s.Cells(); got != 10*shards {
		t.Errorf("%d cells, want the long ones gone too", got)
	}
}

func TestAllocations(t *testing.T) {
	s, rate := newStore(t, Config{}), terms(t, 1000, time.Second, 0)
	now := s.Now()
	e := &batcher.Entry{Bucket: s.bucket("b"), Terms: rate, N: 1}
	entries := []*batcher.Entry{e}
	for _, op := range []limit.Op{limit.Take, limit.TakePartial, limit.Refund, limit.Reset} {
		e.Op = op
		s.ApplyAt(now, e)
		if got := testing.AllocsPerRun(100, func() { s.ApplyAt(now, e) }); got != 0 {
			t.Errorf("ApplyAt, op %d: %v allocations, want 0", op, got)
		}
	}
	e.Op = limit.TakePartial
	if got := testing.AllocsPerRun(100, func() { s.Apply(context.Background(), 0, entries) }); got != 0 {
		t.Errorf("Apply: %v allocations, want 0", got)
	}
}
