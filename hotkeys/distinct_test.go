package hotkeys

import (
	"errors"
	"math"
	"runtime"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func newDistinct(t rapid.TB, period time.Duration) *Distinct {
	t.Helper()
	d, err := NewDistinct(DistinctConfig{Period: period})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// wantNear wants a count within 3 % of n, and within 1 of small ones.
func wantNear(t rapid.TB, got uint64, n int) {
	t.Helper()
	if off := math.Abs(float64(got) - float64(n)); off > max(1, 0.03*float64(n)) {
		t.Errorf("counted %d keys, want about %d", got, n)
	}
}

func TestDistinctCountsKeysOnce(t *testing.T) {
	for _, n := range []int{0, 1, 2, 100, 1000, 20_000} {
		d := newDistinct(t, time.Minute)
		for range 2 {
			for i := range n {
				d.Add(5, sumOf(uint64(i)))
			}
		}
		wantNear(t, d.Count(6), n)
	}
}

// TestDistinctForgets holds that a key counts for at least one period after its last Add and
// at most two, against a map of last times.
func TestDistinctForgets(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const period = 1_000_000
		now := rapid.Int64Range(-1e15, 1e15).Draw(t, "origin")
		d := newDistinct(t, period)
		last := map[uint64]int64{}
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			now += rapid.OneOf(rapid.Int64Range(0, period/3), rapid.Int64Range(0, 5*period)).Draw(t, "gap")
			id := rapid.Uint64Range(0, 9).Draw(t, "id")
			if rapid.Bool().Draw(t, "add") {
				d.Add(now, sumOf(id))
				last[id] = now
			}
			surely, perhaps := 0, 0
			for _, at := range last {
				if now-at < period {
					surely++
				}
				if now-at < 2*period {
					perhaps++
				}
			}
			if got := int(d.Count(now)); got < surely || got > perhaps {
				t.Fatalf("counted %d at %d, want %d to %d of %v", got, now, surely, perhaps, last)
			}
		}
	})
}

func TestDistinctTimeBackwards(t *testing.T) {
	d := newDistinct(t, time.Second)
	for i := range 1000 {
		d.Add(int64(10e9)-int64(i%2)*5e9, sumOf(uint64(i)))
	}
	wantNear(t, d.Count(5e9), 1000)
}

func TestDistinctMerge(t *testing.T) {
	fleet := newDistinct(t, time.Minute)
	for agent := range 4 { // agent a knows the keys from 10,000*a to 10,000*a + 20,000
		d := newDistinct(t, time.Minute)
		for i := range 20_000 {
			d.Add(int64(agent)*1e12, sumOf(uint64(10_000*agent+i)))
		}
		data, err := d.Marshal(int64(agent)*1e12 + 1)
		if err != nil {
			t.Fatal(err)
		}
		if len(data) > 17_000 {
			t.Errorf("%d bytes to send, want at most 17,000", len(data))
		}
		if err := fleet.Merge(1, data); err != nil {
			t.Fatal(err)
		}
	}
	wantNear(t, fleet.Count(2), 50_000)
}

func TestDistinctMergeRefusesDamage(t *testing.T) {
	d, other := newDistinct(t, time.Minute), newDistinct(t, time.Minute)
	for i := range 100 {
		other.Add(0, sumOf(uint64(i)))
	}
	data, err := other.Marshal(0)
	if err != nil {
		t.Fatal(err)
	}
	for n := range data {
		if d.Merge(0, data[:n]) == nil {
			t.Fatalf("merged %d of %d bytes", n, len(data))
		}
	}
	if got := d.Count(0); got != 0 {
		t.Errorf("%d keys counted out of damaged data", got)
	}
}

func TestDistinctConcurrent(t *testing.T) {
	d := newDistinct(t, time.Second)
	var all sync.WaitGroup
	for w := range 4 {
		all.Go(func() {
			for i := range 5000 {
				d.Add(int64(i)*100_000, sumOf(uint64(i/2+w*1000)))
				if i%1000 == 0 {
					d.Count(int64(i) * 100_000)
				}
			}
		})
	}
	all.Wait()
	wantNear(t, d.Count(1e9-1), 5500)
}

func TestDistinctMemory(t *testing.T) {
	size := func(keys, n int) int64 {
		ds := make([]*Distinct, n)
		before := heap()
		for i := range ds {
			ds[i] = newDistinct(t, time.Second)
			for k := range 2 * keys { // half in each generation
				ds[i].Add(int64(k/keys)*1e9, sumOf(uint64(k)))
			}
		}
		used := int64(heap()) - int64(before)
		runtime.KeepAlive(ds)
		return used / int64(n)
	}
	for _, tt := range []struct {
		keys, n int
		bytes   int64
	}{{0, 200, 2000}, {10, 200, 3000}, {500, 20, 12_000}, {10_000, 8, 36_000}} {
		got := size(tt.keys, tt.n)
		t.Logf("%d keys per generation: %d bytes", tt.keys, got)
		if got > tt.bytes {
			t.Errorf("%d keys per generation: %d bytes, want at most %d", tt.keys, got, tt.bytes)
		}
	}
}

// heap is the bytes in use after a collection.
func heap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func TestDistinctConfig(t *testing.T) {
	if _, err := NewDistinct(DistinctConfig{Period: time.Microsecond}); !errors.Is(err, ErrConfig) {
		t.Errorf("Period 1us: %v", err)
	}
	d, err := NewDistinct(DistinctConfig{})
	if err != nil || d.period != int64(time.Minute) {
		t.Errorf("zero value: %v, %v", d, err)
	}
}

func TestDistinctAddAllocatesNothing(t *testing.T) {
	d := newDistinct(t, time.Minute)
	for i := range 20_000 {
		d.Add(0, sumOf(uint64(i)))
	}
	id := uint64(0)
	if got := testing.AllocsPerRun(1000, func() { id++; d.Add(0, sumOf(id)) }); got != 0 {
		t.Errorf("%v allocations, want 0", got)
	}
}

// BenchmarkDistinctAdd is the cost on the path of a check: of a key that was just there, and of others.
func BenchmarkDistinctAdd(b *testing.B) {
	for _, name := range []string{"zipf1.0", "zipf1.2", "flood"} {
		b.Run("keys="+name, func(b *testing.B) {
			keys := benchStreams()[name]
			d := newDistinct(b, time.Minute)
			b.ReportAllocs()
			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				for i := 0; pb.Next(); i++ {
					d.Add(int64(i)*1000, keys[i&(len(keys)-1)])
				}
			})
		})
	}
}
