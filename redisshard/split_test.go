package redisshard

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/spillgate/spillgate/batcher"
	"github.com/spillgate/spillgate/internal/redistest"
	"github.com/spillgate/spillgate/limit"
)

// run runs one entry, which cannot fail.
func (w *timed) run(t *testing.T, e batcher.Entry) *batcher.Entry {
	t.Helper()
	e.Terms = w.terms
	w.Apply(t.Context(), w.Shard(&e.Bucket, e.Part), []*batcher.Entry{&e})
	redistest.Must(t, e.Err)
	return &e
}

// divide splits a bucket in two; the other part is on the next tag.
func (w *timed) divide(t *testing.T, b limit.Bucket) limit.Split {
	t.Helper()
	e := w.run(t, batcher.Entry{Bucket: b, Op: limit.Touch, Part: &limit.Part{Ops: 20, Threshold: 20, Ways: 2, Stride: 1, Home: true}})
	if e.Split == nil || e.Split.Ways != 2 {
		t.Fatalf("not split: %+v", e.Split)
	}
	return e.Split.Split
}

// partCell is where part 1 is: the name of the hash, and of the field.
func (w *timed) partCell(b limit.Bucket, s limit.Split) (hash, name string) {
	part := &limit.Part{Index: 1, Split: s}
	l := w.state.Load().layout
	tag, bin := l.placePart(&b, part)
	generation, _ := w.terms.Class.At(w.now * 1000)
	return hashKey(l.tags[tag], w.terms.Class, bin, generation), string(field(&batcher.Entry{Bucket: b, Part: part}))
}

// TestStoredSplit: agents of all versions read each other's splits, so they are held to the byte.
func TestStoredSplit(t *testing.T) {
	w := openTimed(t)
	b := w.bucket("b")
	stored := func(what, key, field, want string) {
		t.Helper()
		if got := w.admin.HGet(t.Context(), key, field).Val(); got != want {
			t.Errorf("%s: %q is %q, want %q", what, field, got, want)
		}
	}
	// 2,176 s into a generation of 2,048 epochs. In a part of two a token takes 5,760,000,000,000 ticks.
	home, id := w.hash(&b, 0), string(b.ID())
	w.run(t, batcher.Entry{Bucket: b, Op: limit.Take, N: 1})
	s := w.divide(t, b)
	start := fmt.Sprint(w.now)
	until := fmt.Sprint(w.now + 3_000_000)
	hash, part := w.partCell(b, s)
	stored("split", home, id, "17408000000000 1088 0 0 0 0 "+start+" "+until+" 2 1 0 2880000000000 0")
	stored("the load", home, "\xfd"+id, fmt.Sprint(w.now/1_000_000)+" 20 0")

	w.now += 100_000 // 800,000,000 ticks
	one := &limit.Part{Index: 1, Split: s}
	w.run(t, batcher.Entry{Bucket: b, Op: limit.Take, N: 1, Part: one}) // of four: one of the five was gone
	stored("a take of a part", hash, part, "28928800000000")
	w.run(t, batcher.Entry{Bucket: b, Op: limit.Lease, N: 1, Ask: limit.Ask{Presence: 1}, Part: one})
	stored("a lease of a part", hash, part, "34688800000000 1088 1 0 1 0")
	w.run(t, batcher.Entry{Bucket: b, Op: limit.Touch, Part: &limit.Part{Ops: 5, Threshold: 20, End: true, Split: s, Home: true}})
	stored("closing", home, id, "17408800000000 1088 0 0 0 0 "+start+" "+until+" 2 1 0 2880000000000 1")
	stored("more load", home, "\xfd"+id, fmt.Sprint(w.now/1_000_000)+" 25 0")
	w.run(t, batcher.Entry{Bucket: b, Op: limit.Close, Part: one})
	stored("closed", hash, part, "34688800000000 1088 1 0 1 0 1")
	w.run(t, batcher.Entry{Bucket: b, Op: limit.Merge, N: 1, Part: &limit.Part{Split: s, Free: w.terms.Depth / 2, Home: true}})
	stored("merged", home, id, "31808800000000 1088 1 0 0 0 "+start+" "+until+" 0 0 0 0 0")
	w.now += 10_000_000
	w.run(t, batcher.Entry{Bucket: b, Op: limit.TakePartial, N: 1})
	stored("forgotten", home, id, "34688800000000")
}

// TestDamagedSplit: what is no split fails its own entry, and a reset drops it. Damaged load is none.
func TestDamagedSplit(t *testing.T) {
	w := openTimed(t)
	b := w.bucket("b")
	s := w.divide(t, b)
	good := w.admin.HGet(t.Context(), w.hash(&b, 0), string(b.ID())).Val()
	fields := strings.Fields(good)
	damage := map[string]string{"too short": strings.Join(fields[:12], " "), "too long": good + " 0", "ragged": good + " ",
		"of a part": strings.Join(fields[:6], " ") + " 1"}
	for at, value := range map[int]string{0: "100000000000000", 6: "0", 7: "4503599627370496", 8: "65", 9: "1048576",
		10: "1099511627777", 11: "100000000000000", 12: "2"} {
		bad := strings.Fields(good)
		bad[at] = value
		damage[fmt.Sprint(at, " is ", value)] = strings.Join(bad, " ")
	}
	damaged := func(what string, e batcher.Entry) {
		t.Helper()
		e.Bucket, e.Terms = b, w.terms
		if w.Apply(t.Context(), 0, []*batcher.Entry{&e}); !errors.Is(e.Err, batcher.ErrDamaged) || e.Out != (limit.Outcome{}) || e.Split != nil {
			t.Errorf("%s, op %d: %+v, %v, %+v", what, e.Op, e.Out, e.Err, e.Split)
		}
	}
	for what, value := range damage {
		redistest.Must(t, w.admin.HSet(t.Context(), w.hash(&b, 0), b.ID(), value).Err())
		damaged(what, batcher.Entry{Op: limit.Take, N: 1})
		damaged(what, batcher.Entry{Op: limit.Lease, N: 1})
		damaged(what, batcher.Entry{Op: limit.Touch, Part: &limit.Part{Stride: 1, Home: true}})
		damaged(what, batcher.Entry{Op: limit.Merge, Part: &limit.Part{Split: s, Home: true}})
		w.must(t, b, w.terms, limit.Reset, 0)
		if out := w.must(t, b, w.terms, limit.TakePartial, 100); out.Granted != 10 {
			t.Errorf("%s: after a reset %+v", what, out)
		}
	}
	hash, part := w.partCell(b, s)
	one := &limit.Part{Index: 1, Split: s}
	for _, value := range []string{"", "x", "1.5", "1 2 3 4 5", "1 2 3 4 5 6 7", "1 2 3 4 5 6 0", "1 2 3 4 5 6 1 ", "100000000000000", good} {
		for _, op := range []limit.Op{limit.Take, limit.Lease, limit.Close} {
			redistest.Must(t, w.admin.HSet(t.Context(), hash, part, value).Err())
			damaged(value, batcher.Entry{Op: op, N: 1, Part: one})
		}
		w.run(t, batcher.Entry{Bucket: b, Op: limit.Reset, Part: one})
		if e := w.run(t, batcher.Entry{Bucket: b, Op: limit.TakePartial, N: 100, Part: one}); e.Out.Granted != 5 {
			t.Errorf("%q: after a reset %+v", value, e.Out)
		}
	}
	for _, value := range []string{"", "x", "1 2", "1 2 3 4", "1099511627776 1 1", "1 1073741825 1", "1 1 1073741825"} {
		redistest.Must(t, w.admin.FlushDB(t.Context()).Err())
		redistest.Must(t, w.admin.HSet(t.Context(), w.hash(&b, 0), "\xfd"+string(b.ID()), value).Err())
		touch := batcher.Entry{Bucket: b, Op: limit.Touch, Part: &limit.Part{Ops: 19, Threshold: 20, Ways: 2, Stride: 1, Home: true}}
		if e := w.run(t, touch); e.Split != nil {
			t.Errorf("%q counts as load", value)
		}
		if e := w.run(t, touch); e.Split == nil {
			t.Errorf("%q stops the count", value)
		}
	}
}

// TestSplitTTL is fault 17: every path of a division leaves keys that have a time to live, and refusals none at all.
func TestSplitTTL(t *testing.T) {
	w := openTimed(t)
	b := w.bucket("b")
	var s limit.Split
	one := func(op limit.Op, n limit.Tokens) func() {
		return func() { w.run(t, batcher.Entry{Bucket: b, Op: op, N: n, Part: &limit.Part{Index: 1, Split: s}}) }
	}
	keys := len(scan(t, w.admin))
	for _, step := range []struct {
		name string
		made int // keys
		do   func()
	}{
		{"a touch that splits", 1, func() { s = w.divide(t, b) }},
		{"refused", 0, func() {
			wrong := s
			wrong.Until = 1
			e := &batcher.Entry{Bucket: b, Terms: w.terms, Op: limit.Take, N: 1, Part: &limit.Part{Index: 1, Split: wrong}}
			if w.Apply(t.Context(), 0, []*batcher.Entry{e}); !errors.Is(e.Err, batcher.ErrStale) {
				t.Error(e.Err)
			}
		}},
		{"the first take of a part", 1, one(limit.Take, 1)}, {"denied", 0, one(limit.Take, 5)}, {"lease", 0, one(limit.Lease, 1)},
		{"charge", 0, one(limit.Charge, 1)}, {"reset", 0, one(limit.Reset, 0)}, {"peek", 0, one(limit.TakePartial, 0)},
		{"refused at home", 0, func() {
			if _, err := w.do(b, w.terms, limit.Take, 1); !errors.Is(err, batcher.ErrStale) {
				t.Error(err)
			}
		}},
		{"closing", 0, func() {
			w.run(t, batcher.Entry{Bucket: b, Op: limit.Touch, Part: &limit.Part{Split: s, End: true, Home: true}})
		}},
		{"closed", 0, one(limit.Close, 0)},
		{"merged", 0, func() { w.run(t, batcher.Entry{Bucket: b, Op: limit.Merge, Part: &limit.Part{Split: s, Home: true}}) }},
		{"later", 0, func() { w.now += 20e6; w.must(t, b, w.terms, limit.Take, 1) }},
		{"split again", 0, func() { s = w.divide(t, b) }},
		{"ended by itself", 0, func() { w.now += 4e6; w.must(t, b, w.terms, limit.Take, 1) }},
		{"a touch in the next generation", 1, func() { w.now += w.terms.Class.Length.Microseconds(); s = w.divide(t, b) }},
		{"a part in the next generation", 1, one(limit.Take, 1)},
	} {
		step.do()
		checkTTLs(t, w.admin, step.name)
		if got := len(scan(t, w.admin)); got != keys+step.made {
			t.Errorf("%s made %d keys, want %d", step.name, got-keys, step.made)
		}
		keys = len(scan(t, w.admin))
	}
}

// TestTouchCarriesTheDivision: the store's own, in no more ways than the part allows; or the caller's, if it has one.
func TestTouchCarriesTheDivision(t *testing.T) {
	w := openTimed(t)
	entries := []*batcher.Entry{{Bucket: w.bucket("b"), Terms: w.terms, Op: limit.Touch}}
	for _, tt := range []struct{ part, want limit.Part }{
		{limit.Part{}, limit.Part{Ways: 6, Stride: 5}}, {limit.Part{Ways: 4}, limit.Part{Ways: 4, Stride: 5}},
		{limit.Part{Ways: 9}, limit.Part{Ways: 6, Stride: 5}}, {limit.Part{Ways: 9, Stride: 1}, limit.Part{Ways: 9, Stride: 1}},
	} {
		part := tt.part
		part.Home = true
		shared := part
		entries[0].Part = &part
		c := &call{divider: fixedDivision{}}
		c.load(w.state.Load().layout, entries)
		c.encode("evalsha", "", &w.names, 0, 0)
		// Two numbers of the call, five of the group, six of the run, ops and threshold.
		if want := appendNumbers(nil, float64(tt.want.Ways), float64(tt.want.Stride)); string(c.numbers[15*8:17*8]) != string(want) {
			t.Errorf("%+v: % x, want %+v", tt.part, c.numbers[15*8:17*8], tt.want)
		}
		if part != shared {
			t.Errorf("the part, which others share, became %+v", part)
		}
	}
}

type fixedDivision struct{}

func (fixedDivision) division(int) (ways, stride int) { return 6, 5 }
func (fixedDivision) tooSkewed() bool                 { return false }

// TestManyTouches: a call full of touches fits the script's stack.
func TestManyTouches(t *testing.T) {
	w := openTimed(t)
	home := w.bucket("b")
	var entries []*batcher.Entry
	for i := 0; len(entries) < 2048; i++ {
		b := w.bucket(fmt.Sprint(i))
		if w.tagOf(&b) == w.tagOf(&home) {
			entries = append(entries, &batcher.Entry{Bucket: b, Terms: w.terms, Op: limit.Touch,
				Part: &limit.Part{Ops: 20, Threshold: 20, Ways: 2, Stride: 1, Home: true}})
		}
	}
	w.Apply(t.Context(), 0, entries)
	for i, e := range entries {
		if e.Err != nil || e.Split == nil || e.Split.Ways != 2 || e.Split.Left != 3*time.Second {
			t.Fatalf("entry %d: %v, %+v", i, e.Err, e.Split)
		}
	}
}
