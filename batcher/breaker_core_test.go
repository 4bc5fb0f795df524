package batcher

import (
	"testing"
	"time"
)

// BenchmarkBreaker is what a call that was answered costs, with the look at its entries; and what a claim does.
func BenchmarkBreaker(b *testing.B) {
	var q queue
	load := &Load{Entries: make([]*Entry, 256)}
	for i := range load.Entries {
		load.Entries[i] = new(Entry)
	}
	b.Run("of=call", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			q.heardLocked(load, load.replied())
		}
	})
	b.Run("of=claim", func(b *testing.B) {
		b.ReportAllocs()
		refused := 0
		for b.Loop() {
			if q.breaker.open {
				refused++
			}
		}
		if refused > 0 {
			b.Error("a closed breaker refuses")
		}
	})
	b.Run("of=hot-check", func(b *testing.B) {
		var all Batcher
		b.ReportAllocs()
		for b.Loop() {
			if all.Troubled() {
				b.Error("a new batcher is in trouble")
			}
		}
	})
}

// TestHealthyCallsAllocateNothing, and leave the breaker as it was.
func TestHealthyCallsAllocateNothing(t *testing.T) {
	var q queue
	load := &Load{Entries: []*Entry{new(Entry)}}
	if n := testing.AllocsPerRun(100, func() { q.heardLocked(load, load.replied()) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if q.breaker != (breaker{}) {
		t.Errorf("%+v", q.breaker)
	}
}

// TestPauses grow, up to a bound, and differ.
func TestPauses(t *testing.T) {
	seen := make(map[time.Duration]bool)
	for range 100 {
		var k breaker
		for want := leastPause; want < 8*mostPause; want *= 2 {
			most := min(want, mostPause)
			if got := k.wait(); got > most || got <= most-most/2-1 {
				t.Fatalf("a pause of %v, want %v to %v", got, most/2, most)
			} else if want == leastPause {
				seen[got] = true
			}
		}
	}
	if len(seen) < 90 {
		t.Errorf("of 100 first pauses %d differ", len(seen))
	}
}
