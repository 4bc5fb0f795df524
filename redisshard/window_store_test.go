package redisshard

import (
	"encoding/binary"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/spillgate/spillgate/batcher"
	"github.com/spillgate/spillgate/internal/redistest"
	"github.com/spillgate/spillgate/limit"
)

// openWindow is openTimed for a window kind: 10 per minute, 20 s after a minute began.
func openWindow(t *testing.T, a limit.Algorithm) *timed {
	t.Helper()
	w := openTimed(t)
	var err error
	w.terms, err = limit.Rate{Algorithm: a, Requests: 10, Period: time.Minute}.Terms()
	redistest.Must(t, err)
	w.now = (28_000_000*60 + 20) * 1_000_000
	return w
}

// logOf is the form of a sliding log in Redis.
func logOf(times ...float64) string {
	var b []byte
	for _, v := range times {
		b = binary.BigEndian.AppendUint64(b, math.Float64bits(v))
	}
	return string(b)
}

func TestWindowKeyNames(t *testing.T) {
	for period, want := range map[time.Duration][3]string{
		time.Millisecond:        {"sg:{c}:f1ms:0:7", "sg:{c}:s1ms:0:7", "sg:{c}:l1ms:0:7"},
		1500 * time.Microsecond: {"sg:{c}:f1500us:0:7", "sg:{c}:s1500us:0:7", "sg:{c}:l1500us:0:7"},
		time.Hour:               {"sg:{c}:f3600s:0:7", "sg:{c}:s3600s:0:7", "sg:{c}:l3600s:0:7"},
	} {
		for i, a := range windowKinds {
			if got := hashKey("c", limit.WindowClass(a, period), 0, 7); got != want[i] {
				t.Errorf("%v per %v: %s, want %s", a, period, got, want[i])
			}
		}
	}
}

// TestStoredWindow: agents of all versions read each other's cells, so they are held to the byte.
func TestStoredWindow(t *testing.T) {
	minute := time.Minute.Microseconds()
	for _, tt := range []struct {
		algorithm                        limit.Algorithm
		three, later, nextMinute, nobody string
	}{
		{limit.FixedWindow, "28000000 3 0", "28000000 5 0", "28000001 1 0", "28000001 0 0"},
		{limit.SlidingWindow, "28000000 3 0", "28000000 5 0", "28000001 1 5", "28000001 0 0"},
		{limit.SlidingLog, logOf(168e13+20e6, 168e13+20e6, 168e13+20e6, 168e13+20e6),
			logOf(168e13+30e6, 168e13+20e6, 168e13+20e6, 168e13+20e6, 168e13+30e6, 168e13+30e6),
			logOf(168e13+85e6, 168e13+30e6, 168e13+30e6, 168e13+85e6), logOf(168e13 + 85e6)},
	} {
		t.Run(tt.algorithm.String(), func(t *testing.T) {
			w := openWindow(t, tt.algorithm)
			b := w.bucket("b")
			stored := func(what, want string) {
				t.Helper()
				if got := w.admin.HGet(t.Context(), w.hash(&b, 0), string(b.ID())).Val(); got != want {
					t.Errorf("%s: the cell is %q, want %q", what, got, want)
				}
			}
			w.must(t, b, w.terms, limit.Take, 3)
			stored("three", tt.three)
			w.now += 10_000_000
			w.must(t, b, w.terms, limit.TakePartial, 2)
			stored("two more", tt.later)
			w.must(t, b, w.terms, limit.Take, 6)
			w.must(t, b, w.terms, limit.TakePartial, 0)
			stored("a denial and a peek", tt.later)
			if tt.algorithm != limit.SlidingLog {
				out := w.lease(t, b, 1, limit.Ask{Take: 1, Presence: 9})
				stored("a lease", "28000000 7 0 840000015 9 0")
				w.lease(t, b, 0, limit.Ask{Epoch: out.Epoch, Settled: 1, Returned: 1})
				stored("that comes back", "28000000 6 0 840000015 9 0")
				redistest.Must(t, w.admin.HSet(t.Context(), w.hash(&b, 0), b.ID(), tt.later).Err())
			}
			w.now += minute - 5_000_000
			w.must(t, b, w.terms, limit.Take, 1)
			stored("in the next minute", tt.nextMinute)
			w.must(t, b, w.terms, limit.Reset, 0)
			stored("a reset", tt.nobody)
		})
	}
}

// TestDamagedWindow: what is no cell of a window fails its own entry, and a reset drops it.
func TestDamagedWindow(t *testing.T) {
	text := []string{"28000000 2 3 4 5", "28000000 2 3 4 5 6 7", "28000000 2 3  4 5 6", "28000000 2 3 x 5 6", "28000000 2 3 4 -5 6",
		"28000000 2 3 99999999999 5 6", "28000000 2 3 4 33554433 6", "28000000 2 3 4 5 33554433", "", "x", "1 2", "1 2 3 4", " 1 2 3", "1 2 3 ", "1  2 3", "1.5 2 3", "1e3 2 3", "-1 2 3", "1 -2 3", "1 2 nan", "123456789",
		"28000001 2 3", "99999999999999999999 2 3", "1 1099511627777 3", "1 2 1099511627777", "1 2 99999999999999999999999"}
	now := float64((28_000_000*60 + 20) * 1_000_000)
	log := []string{"", "x", "12345678", logOf(now, now)[1:], logOf(now + 60e6), logOf(now, math.NaN()), logOf(now, math.Inf(1)), logOf(now, -1),
		logOf(now, now-0.5), logOf(now, now+60e6), logOf(math.NaN(), now), strings.Repeat("\xff", 16), strings.Repeat(logOf(now), 1002)}
	for _, a := range windowKinds {
		values := text
		if a == limit.SlidingLog {
			values = log
		}
		t.Run(a.String(), func(t *testing.T) {
			w := openWindow(t, a)
			b, other := w.bucket("b"), w.bucket("other")
			for _, generation := range []int64{0, -1} {
				for _, value := range values {
					redistest.Must(t, w.admin.FlushDB(t.Context()).Err())
					redistest.Must(t, w.admin.HSet(t.Context(), w.hash(&b, generation), b.ID(), value).Err())
					entries := []*batcher.Entry{{Bucket: b, Terms: w.terms, Op: limit.Take, N: 1}, {Bucket: other, Terms: w.terms, Op: limit.Take, N: 1}}
					w.Apply(t.Context(), 0, entries)
					if e := entries[0]; !errors.Is(e.Err, batcher.ErrDamaged) || e.Out != (limit.Outcome{}) {
						t.Errorf("%q, generation %d: %+v, %v", value, generation, e.Out, e.Err)
					}
					if e := entries[1]; e.Err != nil || e.Out.Granted != 1 {
						t.Errorf("%q, generation %d: the neighbour: %+v, %v", value, generation, e.Out, e.Err)
					}
					w.must(t, b, w.terms, limit.Reset, 0)
					if out := w.must(t, b, w.terms, limit.TakePartial, 100); out.Granted != 10 {
						t.Errorf("%q, generation %d: after a reset %+v", value, generation, out)
					}
				}
			}
			redistest.Must(t, w.admin.FlushDB(t.Context()).Err())
			redistest.Must(t, w.admin.Set(t.Context(), w.hash(&b, 0), "text", 0).Err())
			if out, err := w.do(b, w.terms, limit.Take, 1); !errors.Is(err, batcher.ErrDamaged) {
				t.Errorf("a key of another type: %+v, %v", out, err)
			}
		})
	}
}

// TestWindowTTL is fault 17.
func TestWindowTTL(t *testing.T) {
	for _, a := range windowKinds {
		t.Run(a.String(), func(t *testing.T) {
			w := openWindow(t, a)
			b := w.bucket("b")
			keys := len(scan(t, w.admin))
			for _, step := range []struct {
				op   limit.Op
				n    limit.Tokens
				made int
			}{
				{limit.TakePartial, 0, 0}, {limit.Take, 11, 0}, {limit.Refund, 1, 0}, {limit.Take, 3, 1}, {limit.TakePartial, 100, 0},
				{limit.Take, 1, 0}, {limit.TakePartial, 0, 0}, {limit.Refund, 2, 0}, {limit.Reset, 0, 0}, {limit.Take, 10, 0},
			} {
				w.must(t, b, w.terms, step.op, step.n)
				checkTTLs(t, w.admin, "a step")
				if got := len(scan(t, w.admin)); got != keys+step.made {
					t.Errorf("op %d of %d made %d keys", step.op, step.n, got-keys)
				} else {
					keys = got
				}
			}
			// At most two generations and a second.
			if ttl := w.admin.PTTL(t.Context(), w.hash(&b, 0)).Val(); ttl > 2*w.terms.Class.Length+time.Second || ttl < w.terms.Class.Length {
				t.Errorf("the hash lives for %v", ttl)
			}
			redistest.Must(t, w.admin.PExpire(t.Context(), w.hash(&b, 0), time.Minute).Err())
			w.now += w.step()
			w.must(t, b, w.terms, limit.Take, 1) // denied
			if ttl := w.admin.PTTL(t.Context(), w.hash(&b, 0)).Val(); ttl > time.Minute {
				t.Errorf("a denial made it live for %v", ttl)
			}
			for range 3 {
				w.now += w.terms.Class.Length.Microseconds()
				w.must(t, b, w.terms, limit.TakePartial, 1)
				checkTTLs(t, w.admin, "a new generation")
			}
			if got := len(scan(t, w.admin)); got > keys+1 {
				t.Errorf("%d keys: the generation before the last is still there", got)
			}
		})
	}
}

// TestWindowClockBackwards is fault 3: while the clock goes back and forth, nothing comes back.
func TestWindowClockBackwards(t *testing.T) {
	for _, a := range windowKinds {
		t.Run(a.String(), func(t *testing.T) {
			w := openWindow(t, a)
			b, high := w.bucket("b"), w.now
			w.must(t, b, w.terms, limit.Take, 10)
			for i := range 200 {
				w.now = high - int64(i%2)*40_000_000 // into the minute before
				if out := w.must(t, b, w.terms, limit.TakePartial, 1); out.Granted != 0 {
					t.Fatalf("turn %d: %+v", i, out)
				}
			}
			w.now = high - 40_000_000
			d := w.terms.Decide(1, w.must(t, b, w.terms, limit.Take, 1))
			w.now += d.RetryAfter.Microseconds()
			if out := w.must(t, b, w.terms, limit.Take, 1); out.Granted != 1 {
				t.Errorf("after the %v that were told: %+v", d.RetryAfter, out)
			}
		})
	}
}
