package storetest

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/spillgate/spillgate/batcher"
	"github.com/spillgate/spillgate/limit"
)

// maxEntries is the most entries that a batcher puts into one call.
const maxEntries = 2048

// rounds: the entries on one bucket in one call run in their order, each on
// what the one before has left.
func rounds(b *bench) {
	terms, names := b.hourly(), b.neighbours(3)
	steps := []struct {
		op         limit.Op
		n, granted limit.Tokens
		out        limit.Tokens
	}{
		{limit.Take, 6, 6, 6}, {limit.Take, 5, 0, 6}, {limit.TakePartial, 5, 4, 10}, {limit.Refund, 3, 3, 7},
		{limit.Take, 3, 3, 10}, {limit.Reset, 0, 0, 0}, {limit.Charge, 2, 2, 2}, {limit.TakePartial, 0, 0, 2},
	}
	var entries []*batcher.Entry
	for i, s := range steps {
		for j, name := range names {
			// Rounds may begin anywhere and have gaps: entries of other calls lie between.
			entries = append(entries, &batcher.Entry{Bucket: name, Terms: terms, Op: s.op, N: s.n, Round: j + (j+1)*i})
		}
	}
	b.apply(entries...)
	for i, e := range entries {
		s := steps[i/len(names)]
		if e.Err != nil || e.Out.Granted != s.granted || missing(terms, e.Out.Level) != s.out {
			b.Errorf("round %d: op %d of %d: %+v, %v; want granted %d, %d out", e.Round, e.Op, e.N, e.Out, e.Err, s.granted, s.out)
		}
	}
}

// manyAtOnce compares calls full of everything with the arithmetic of one cell.
func manyAtOnce(b *bench) {
	// Emissions of six minutes and more: what a test takes of them is little.
	const most = 100 * time.Second
	variants := [][]*limit.Terms{
		{b.hourly(), b.compile(10, time.Hour, 7), b.compile(10, time.Hour, 11)},
		{b.compile(100, 24*time.Hour, 0), b.compile(100, 24*time.Hour, 90)},
		{b.compile(1000, 30*24*time.Hour, 0)},
	}
	const buckets, calls = 24, 20
	var names [buckets]limit.Bucket
	var levels [buckets]limit.Ticks
	for i := range names {
		names[i] = b.bucket("many", fmt.Sprint(i))
	}
	r := rand.New(rand.NewPCG(1, 2))
	for range calls {
		var entries []*batcher.Entry
		var cell []int
		var count [buckets]int
		for range 80 {
			i := r.IntN(buckets)
			terms := variants[i%len(variants)]
			e := &batcher.Entry{Bucket: names[i], Terms: terms[r.IntN(len(terms))], Op: limit.Op(1 + r.IntN(5)), Round: count[i]}
			e.N = limit.Tokens(r.IntN(int(e.Terms.Burst) + 3))
			if e.Op == limit.Reset && r.IntN(4) > 0 {
				e.Op = limit.Take
			}
			count[i]++
			entries, cell = append(entries, e), append(cell, i)
		}
		b.apply(entries...)
		for at, e := range entries {
			i := cell[at]
			want, granted, _ := e.Terms.Apply(e.Op, e.N, levels[i], 0)
			levels[i] = want
			slack := limit.Ticks(float64(most.Microseconds()) * e.Terms.Class.PerMicro)
			if e.Err != nil || e.Out.Granted != granted || e.Out.Level > want || e.Out.Level < want-slack {
				b.Fatalf("bucket %d, op %d of %d: %+v, %v; want granted %d, level %d or up to %d less",
					i, e.Op, e.N, e.Out, e.Err, granted, want, slack)
			}
		}
	}
}

// fullCalls: no entry at all, many buckets, and many entries on one bucket.
func fullCalls(b *bench) {
	b.store.Apply(b.Context(), 0, nil)

	two := [2]*limit.Terms{b.hourly(), b.compile(11, time.Hour, 0)}
	var entries []*batcher.Entry
	for i, name := range b.neighbours(maxEntries) {
		entries = append(entries, &batcher.Entry{Bucket: name, Terms: two[i%2], Op: limit.Take, N: limit.Tokens(1 + i%7)})
	}
	b.apply(entries...)
	for i, e := range entries {
		if e.Err != nil || e.Out.Granted != e.N || missing(e.Terms, e.Out.Level) != e.N {
			b.Fatalf("entry %d of %d: %+v, %v", i, e.N, e.Out, e.Err)
		}
	}

	terms, name := b.compile(maxEntries/2, 365*24*time.Hour, 0), b.bucket("one")
	for i, e := range entries {
		*e = batcher.Entry{Bucket: name, Terms: terms, Op: limit.Take, N: 1, Round: i}
	}
	b.apply(entries...)
	for i, e := range entries {
		want := limit.Tokens(1)
		if i >= maxEntries/2 {
			want = 0
		}
		if e.Err != nil || e.Out.Granted != want || missing(terms, e.Out.Level) != min(limit.Tokens(i)+1, terms.Burst) {
			b.Fatalf("round %d: %+v, %v", i, e.Out, e.Err)
		}
	}
}

// ids is faults 1 and 2: no two of these share a bucket, whatever is in them.
func ids(b *bench) {
	long := strings.Repeat("x", 500)
	parts := [][]string{
		{"a", "b_c"}, {"a_b", "c"}, {"a:b", "c"}, {"a", "b:c"}, {"", "x"}, {"x", ""}, {"x"}, {}, {""}, {"", ""},
		{"a\x00", "b"}, {"a", "\x00b"}, {"a\x00b"}, {"a|b", "c"}, {"a", "b|c"}, {" a", "b"}, {"a ", "b"}, {"a", " b"},
		{"é"}, {"e\u0301"}, {"\xff\xfe"}, {"日本"}, {"~"}, {"\r\n"}, {"$5"}, {"*1\r\n$4\r\nPING\r\n"}, {"%s"}, {"nan"}, {"0"}, {"00"},
		{"}{"}, {"{}"}, {"{}a"}, {"{{x}}"}, {"{"}, {"}"}, {"{a}", "b"}, {"a", "{b}"},
		{long}, {long + "x"}, {long, ""}, {"", long}, {long, "{t}"}, {long + "\x00"}, {strings.Repeat("y", 54)}, {strings.Repeat("y", 55)},
		{strings.Repeat("y", 56)}, {strings.Repeat("\xff", 54)},
	}
	for i := range 1000 {
		parts = append(parts, []string{fmt.Sprintf("{t}u%d", i)})
	}
	terms := b.compile(1, time.Hour, 0)
	for want := limit.Tokens(1); want >= 0; want-- {
		var entries []*batcher.Entry
		for _, p := range parts {
			entries = append(entries, &batcher.Entry{Bucket: b.bucket(p...), Terms: terms, Op: limit.Take, N: 1})
		}
		b.apply(entries...)
		for i, e := range entries {
			if e.Err != nil || e.Out.Granted != want {
				b.Errorf("bucket %.20q: granted %d, %v; want %d", parts[i], e.Out.Granted, e.Err, want)
			}
		}
	}
}
