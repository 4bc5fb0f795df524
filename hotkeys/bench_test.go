package hotkeys

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/spillgate/spillgate/limit"
)

// benchKeys are the keys of a stream, hashed beforehand.
func benchKeys(s stream) []limit.Sum {
	keys := make([]limit.Sum, len(s.ids))
	for i, id := range s.ids {
		keys[i] = sumOf(id)
	}
	return keys
}

// benchStreams are made once, since the alias tables of a million keys take a while.
var benchStreams = sync.OnceValue(func() map[string][]limit.Sum {
	const keys, n = 1 << 20, 1 << 20
	return map[string][]limit.Sum{
		"zipf0.8": benchKeys(zipfStream("", 0.8, keys, n, 0)),
		"zipf1.0": benchKeys(zipfStream("", 1.0, keys, n, 0)),
		"zipf1.2": benchKeys(zipfStream("", 1.2, keys, n, 0)),
		"flood":   benchKeys(flood(n, 0)),
	}
})

var benchNames = []string{"zipf0.8", "zipf1.0", "zipf1.2", "flood"}

// BenchmarkTouch is the cost on the path of a check, at a million touches per second
// and core of virtual time. With -cpu 1,2 it shows whether cores meet.
func BenchmarkTouch(b *testing.B) {
	for _, name := range benchNames {
		b.Run("keys="+name, func(b *testing.B) {
			keys := benchStreams()[name]
			tracker, err := New(Config{})
			if err != nil {
				b.Fatal(err)
			}
			var workers atomic.Int64
			b.ReportAllocs()
			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				i := int(workers.Add(1)) * 12345
				for now := int64(0); pb.Next(); now += 1000 {
					i++
					tracker.Touch(now, keys[i&(len(keys)-1)], 1)
				}
			})
			b.ReportMetric(100*float64(tracker.Lost())/float64(b.N), "%lost")
		})
	}
}

// BenchmarkRivals is BenchmarkTouch for the algorithms that were not taken.
func BenchmarkRivals(b *testing.B) {
	for _, r := range rivals {
		for _, name := range benchNames {
			b.Run("algorithm="+r.name+"/keys="+name, func(b *testing.B) {
				keys := benchStreams()[name]
				c := r.make(1e9)
				now := int64(0)
				b.ReportAllocs()
				b.ResetTimer()
				for i := range b.N {
					c.touch(now, keys[i&(len(keys)-1)], 1)
					now += 1000
				}
			})
		}
	}
}

// BenchmarkCensus is what one touch in some thousands pays on top.
func BenchmarkCensus(b *testing.B) {
	tracker, err := New(Config{})
	if err != nil {
		b.Fatal(err)
	}
	for i, key := range benchStreams()["zipf1.0"] {
		tracker.Touch(int64(i)*1000, key, 1)
	}
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		tracker.shards[i%shards].takeCensus()
	}
}
