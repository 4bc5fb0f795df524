package redisshard

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillgate/spillgate/batcher"
	"github.com/spillgate/spillgate/internal/redistest"
	"github.com/spillgate/spillgate/limit"
)

// Fault 17 and damaged keys. All stores here are told their time, so that no
// boundary is crossed by chance.

// timed is a store in the middle of a generation of 4096 s, in which w.now is set by hand.
type timed struct {
	*Store
	admin *redis.Client
	now   int64 // microseconds
	terms *limit.Terms
}

func openTimed(t *testing.T) *timed {
	t.Helper()
	_, url := sharedServer(t)
	w := &timed{Store: openStore(t, Config{URL: url}), admin: adminOf(t, url), terms: compile(t, 10, time.Hour)}
	length := w.terms.Class.Length.Microseconds()
	w.now = 400_000*length + length*17/32
	w.stamp = func() int64 { return w.now }
	return w
}

// step is how far the clock of a hash moves before a write records it, in microseconds.
func (w *timed) step() int64 { return w.terms.Class.Duration(w.terms.Class.Step()).Microseconds() }

// hash is the name of a bucket's hash, some generations from now.
func (w *timed) hash(b *limit.Bucket, generations int64) string {
	return w.key(b, w.terms.Class, w.now*1000+generations*int64(w.terms.Class.Length))
}

// checkTTLs looks at every key there is.
func checkTTLs(t *testing.T, admin *redis.Client, after string) {
	t.Helper()
	for _, key := range scan(t, admin) {
		if ttl := admin.PTTL(t.Context(), key).Val(); ttl <= 0 {
			t.Errorf("%s: %s has the time to live %v", after, key, ttl)
		}
	}
}

func TestEveryKeyHasATTL(t *testing.T) {
	w := openTimed(t)
	checkTTLs(t, w.admin, "open")
	keys := len(scan(t, w.admin))
	for _, step := range []struct {
		name string
		op   limit.Op
		n    limit.Tokens
		made int // keys
	}{
		{"peek at nothing", limit.TakePartial, 0, 0}, {"denied without a cell", limit.Take, 11, 0}, {"refund without a cell", limit.Refund, 1, 0},
		{"take", limit.Take, 3, 1}, {"partial", limit.TakePartial, 100, 0}, {"denied", limit.Take, 1, 0}, {"peek", limit.TakePartial, 0, 0},
		{"refund", limit.Refund, 2, 0}, {"charge", limit.Charge, 1, 0}, {"reset", limit.Reset, 0, 0},
		{"lease", limit.Lease, 3, 0}, {"take beside a lease", limit.Take, 1, 0}, {"lease of nothing", limit.Lease, 0, 0},
	} {
		w.must(t, w.bucket("b"), w.terms, step.op, step.n)
		checkTTLs(t, w.admin, step.name)
		if got := len(scan(t, w.admin)); got != keys+step.made {
			t.Errorf("%s made %d keys", step.name, got-keys)
		} else {
			keys = got
		}
	}
	for _, op := range []limit.Op{limit.Charge, limit.Reset, limit.Lease, limit.TakePartial} {
		w.now += w.terms.Class.Length.Microseconds() // each opens a generation, and closes the one before
		w.must(t, w.bucket("b"), w.terms, op, 1)
		checkTTLs(t, w.admin, "a new generation")
	}
	if got := len(scan(t, w.admin)); got > keys+1 {
		t.Errorf("%d keys: the generation before the last is still there", got)
	}
}

func TestTTLOutlivesTheNextGeneration(t *testing.T) {
	w := openTimed(t)
	b, length := w.bucket("b"), w.terms.Class.Length
	w.must(t, b, w.terms, limit.Take, 1)
	since := time.Duration(w.now%length.Microseconds()) * time.Microsecond
	want := 2*length - since + time.Second
	if ttl := w.admin.PTTL(t.Context(), w.hash(&b, 0)).Val(); ttl > want || ttl < want-30*time.Second {
		t.Errorf("the hash lives for %v, want %v", ttl, want)
	}
}

func TestDenialsDoNotExtendTheTTL(t *testing.T) {
	w := openTimed(t)
	b := w.bucket("b")
	w.must(t, b, w.terms, limit.Take, 10)
	key := w.hash(&b, 0)
	redistest.Must(t, w.admin.PExpire(t.Context(), key, time.Hour).Err())
	w.now += w.step() // where a write would renew it
	for range 3 {
		if out := w.must(t, b, w.terms, limit.Take, 10); out.Granted != 0 {
			t.Fatal("not denied")
		}
		w.must(t, b, w.terms, limit.TakePartial, 0)
	}
	if ttl := w.admin.PTTL(t.Context(), key).Val(); ttl > time.Hour {
		t.Errorf("the time to live grew to %v", ttl)
	}
	if out := w.must(t, b, w.terms, limit.Refund, 1); out.Granted != 1 {
		t.Fatal("not given back")
	}
	if ttl := w.admin.PTTL(t.Context(), key).Val(); ttl <= time.Hour {
		t.Errorf("a write a step later left the time to live at %v", ttl)
	}
}

// TestPlantedWithoutTTL: hashes of our names, made by others or by PERSIST, get a time to live again.
func TestPlantedWithoutTTL(t *testing.T) {
	for _, tt := range []struct {
		name  string
		plant func(w *timed, key, before string) error
		heal  func(w *timed)
	}{
		{"no clock in it", func(w *timed, key, _ string) error {
			return w.admin.HSet(t.Context(), key, "stranger", "x").Err()
		}, func(*timed) {}},
		{"in the generation before", func(w *timed, _, before string) error {
			return w.admin.HSet(t.Context(), before, "stranger", "x").Err()
		}, func(*timed) {}},
		{"persisted", func(w *timed, key, _ string) error {
			w.must(t, w.bucket("b"), w.terms, limit.Take, 1)
			return w.admin.Persist(t.Context(), key).Err()
		}, func(w *timed) { w.now += w.step() }},
		{"persisted, then left until the next generation", func(w *timed, key, _ string) error {
			w.must(t, w.bucket("b"), w.terms, limit.Take, 1)
			return w.admin.Persist(t.Context(), key).Err()
		}, func(w *timed) { w.now += w.terms.Class.Length.Microseconds() }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := openTimed(t)
			b := w.bucket("b")
			redistest.Must(t, tt.plant(w, w.hash(&b, 0), w.hash(&b, -1)))
			tt.heal(w)
			if out := w.must(t, b, w.terms, limit.Take, 1); out.Granted != 1 {
				t.Errorf("%+v", out)
			}
			checkTTLs(t, w.admin, "a write")
		})
	}
}

// TestDamagedCell: what is no TAT fails its own entry, and a reset mends it.
func TestDamagedCell(t *testing.T) {
	w := openTimed(t)
	good, bad := w.bucket("good"), w.bucketWhere(func(b *limit.Bucket) bool {
		g := w.bucket("good")
		return w.tagOf(b) == w.tagOf(&g)
	})
	for _, generation := range []int64{0, -1} {
		for _, value := range []string{"", "x", "1.5", "nan", "inf", "-inf", "1e15", "200000000000000", "-200000000000000", "99999999999999999999", "1e400", "\x00\xff"} {
			redistest.Must(t, w.admin.FlushDB(t.Context()).Err())
			w.must(t, good, w.terms, limit.Take, 1)
			redistest.Must(t, w.admin.HSet(t.Context(), w.hash(&bad, generation), bad.ID(), value).Err())
			entries := []*batcher.Entry{
				{Bucket: good, Terms: w.terms, Op: limit.Take, N: 1},
				{Bucket: bad, Terms: w.terms, Op: limit.Take, N: 1},
			}
			w.Apply(t.Context(), 0, entries)
			if entries[0].Err != nil || entries[0].Out.Granted != 1 || !errors.Is(entries[1].Err, batcher.ErrDamaged) {
				t.Errorf("%q, generation %d: the neighbour %+v, %v; the bucket %+v, %v", value, generation,
					entries[0].Out, entries[0].Err, entries[1].Out, entries[1].Err)
			}
			if got := w.admin.HGet(t.Context(), w.hash(&bad, generation), string(bad.ID())).Val(); got != value {
				t.Errorf("%q became %q", value, got)
			}
			w.must(t, bad, w.terms, limit.Reset, 0)
			if out := w.must(t, bad, w.terms, limit.TakePartial, 100); out.Granted != 10 {
				t.Errorf("%q, generation %d: after a reset %+v", value, generation, out)
			}
		}
	}
}

// TestDamagedClock: the recorded clock of a hash is no reason to lose a call; the next write makes
// it right.
func TestDamagedClock(t *testing.T) {
	values := []string{"", "x", "nan", "inf", "-inf", "-1", "1.5", "1e15", "99999999999999999999", "1e400", "17408000000001.5"}
	for _, value := range values {
		t.Run(fmt.Sprintf("%q", value), func(t *testing.T) {
			w := openTimed(t)
			b := w.bucket("b")
			w.must(t, b, w.terms, limit.Take, 4)
			redistest.Must(t, w.admin.HSet(t.Context(), w.hash(&b, 0), "~", value).Err())
			if out := w.must(t, b, w.terms, limit.TakePartial, 100); out.Granted != 6 {
				t.Errorf("granted %d of the 6 that are left", out.Granted)
			}
			w.now += w.terms.Class.Length.Microseconds() // and so it is in the next generation
			if out := w.must(t, b, w.terms, limit.Take, 1); out.Granted != 1 {
				t.Errorf("a generation later: %+v", out)
			}
			checkTTLs(t, w.admin, "a generation later")
		})
	}
}

// TestWrongType: a key of another type under one of our names fails the entries of its hash until it has
// aged out, and no others.
func TestWrongType(t *testing.T) {
	w := openTimed(t)
	b := w.bucket("b")
	other := w.bucketWhere(func(o *limit.Bucket) bool { return w.tagOf(o) != w.tagOf(&b) })
	redistest.Must(t, w.admin.Set(t.Context(), w.hash(&b, 0), "text", 0).Err())
	damaged := func(op limit.Op) {
		t.Helper()
		entries := []*batcher.Entry{{Bucket: b, Terms: w.terms, Op: op, N: 1}, {Bucket: other, Terms: w.terms, Op: limit.Take, N: 1}}
		w.Apply(t.Context(), 0, entries)
		if !errors.Is(entries[0].Err, batcher.ErrDamaged) || entries[1].Err != nil || entries[1].Out.Granted != 1 {
			t.Errorf("op %d: %v; the neighbour %+v, %v", op, entries[0].Err, entries[1].Out, entries[1].Err)
		}
	}
	damaged(limit.Take)
	length := w.terms.Class.Length.Microseconds()
	w.now += length // cells that may have been in it are unknown for a generation more
	damaged(limit.Take)
	w.must(t, b, w.terms, limit.Reset, 0)
	if out := w.must(t, b, w.terms, limit.Take, 1); out.Granted != 1 {
		t.Errorf("after a reset: %+v", out)
	}
	w.now += length
	if out := w.must(t, b, w.terms, limit.TakePartial, 100); out.Granted != 10 {
		t.Errorf("two generations later: %+v", out)
	}
	checkTTLs(t, w.admin, "two generations later")
}
