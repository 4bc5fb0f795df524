package limit

import (
	"strings"
	"testing"
	"time"
)

// TestHotPathAllocatesNothing holds what the functions say of their cost.
func TestHotPathAllocatesNothing(t *testing.T) {
	terms := mustTerms(t, 100, time.Second, 0)
	id, long := AppendPart(nil, "user-42"), AppendPart(nil, strings.Repeat("u", 200))
	buf := make([]byte, 0, 64)
	var (
		b   Bucket
		tat Ticks
		d   Decision

		cell Cell
	)
	for _, tt := range []struct {
		name string
		run  func()
	}{
		{"AppendPart", func() { buf = AppendPart(AppendPart(buf[:0], "user"), "42") }},
		{"Name", func() { testSecret.Name(&b, id) }},
		{"Name of a long id", func() { testSecret.Name(&b, long) }},
		{"ID", func() { buf = append(buf[:0], b.ID()...) }},
		{"At", func() { _, tat = terms.Class.At(1_700_000_000_123_456_789) }},
		{"Apply", func() { tat, _, _ = terms.Apply(Take, 1, tat, tat) }},
		{"ApplyLeased", func() { cell, _, _ = terms.ApplyLeased(Lease, 8, &Ask{Take: 1, Presence: 3}, 7, cell, cell.TAT) }},
		{"Decide", func() { d = terms.Decide(1, Outcome{Level: terms.Depth}) }},
	} {
		if got := testing.AllocsPerRun(100, tt.run); got != 0 {
			t.Errorf("%s: %v allocations, want 0", tt.name, got)
		}
	}
	_ = d
}

func BenchmarkName(b *testing.B) {
	for _, bb := range []struct {
		size string
		part string
	}{{"id=16", strings.Repeat("k", 15)}, {"id=64", strings.Repeat("k", 63)}, {"id=202", strings.Repeat("k", 200)}} {
		b.Run(bb.size, func(b *testing.B) {
			b.ReportAllocs()
			id := AppendPart(nil, bb.part)
			var bucket Bucket
			for b.Loop() {
				testSecret.Name(&bucket, id)
			}
		})
	}
}

func BenchmarkAt(b *testing.B) {
	for _, class := range []Class{classes[0], classes[len(classes)-1]} {
		b.Run("class="+class.String(), func(b *testing.B) {
			b.ReportAllocs()
			nanos := int64(1_700_000_000_123_456_789)
			for b.Loop() {
				nanos++
				class.At(nanos)
			}
		})
	}
}

func BenchmarkApply(b *testing.B) {
	terms := mustTerms(b, 1000, time.Second, 0)
	for _, bb := range []struct {
		name string
		op   Op
		n    Tokens
		step Ticks
	}{
		{"op=take/outcome=granted", Take, 1, terms.Emission},
		{"op=take/outcome=denied", Take, 1, 0},
		{"op=partial/outcome=granted", TakePartial, 8, 8 * terms.Emission},
	} {
		b.Run(bb.name, func(b *testing.B) {
			b.ReportAllocs()
			now, tat := Ticks(0), terms.Depth
			for b.Loop() {
				now += bb.step
				tat, _, _ = terms.Apply(bb.op, bb.n, tat, now)
				if now > terms.Class.Span() {
					now, tat = now-terms.Class.Span(), tat-terms.Class.Span()
				}
			}
		})
	}
}

func BenchmarkApplyLeased(b *testing.B) {
	terms := mustTerms(b, 1000, time.Second, 0)
	cell := Cell{Leases: Leases{Out: 100}}
	for _, bb := range []struct {
		name string
		op   Op
		ask  *Ask
	}{
		{"op=peek", TakePartial, nil},
		{"op=lease", Lease, &Ask{Settled: 10, Take: 1, Presence: 3}},
	} {
		b.Run(bb.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				terms.ApplyLeased(bb.op, 0, bb.ask, 0, cell, terms.Emission)
			}
		})
	}
}

func BenchmarkDecide(b *testing.B) {
	terms := mustTerms(b, 1000, time.Second, 0)
	for _, bb := range []struct {
		name string
		out  Outcome
	}{
		{"outcome=granted", Outcome{Granted: 1, Level: terms.Emission}},
		{"outcome=denied", Outcome{Level: terms.Depth}},
	} {
		b.Run(bb.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				terms.Decide(1, bb.out)
			}
		})
	}
}

// Terms are compiled once per rule, and for each limit that a request brings.
func BenchmarkTerms(b *testing.B) {
	for _, bb := range []struct {
		name string
		rate Rate
	}{
		{"per=second", Rate{Requests: 100, Period: time.Second}},
		{"per=year", Rate{Requests: 1_000_000, Period: 365 * 24 * time.Hour}},
	} {
		b.Run(bb.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := bb.rate.Terms(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
