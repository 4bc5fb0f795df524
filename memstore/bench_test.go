package memstore

import (
	"math/rand"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spillgate/spillgate/batcher"
	"github.com/spillgate/spillgate/limit"
)

// BenchmarkApplyAt takes single tokens from a million buckets, as a gateway's traffic
// spreads over them, and from one.
func BenchmarkApplyAt(b *testing.B) {
	const buckets = 1 << 20
	rate := terms(b, 100, time.Second, 0)
	s := newStore(b, Config{})
	now := s.Now() // fixed: the cells stay in their generation
	names := make([]limit.Bucket, buckets)
	for i := range names {
		names[i] = s.bucket(strconv.Itoa(i))
		s.ApplyAt(now, &batcher.Entry{Bucket: names[i], Terms: rate, Op: limit.Take, N: 1})
	}
	picks := make([]uint32, 1<<20)
	for _, bb := range []struct {
		name string
		pick func() uint64
	}{
		{"keys=zipf/buckets=1M", rand.NewZipf(rand.New(rand.NewSource(1)), 1.1, 1, buckets-1).Uint64},
		{"keys=uniform/buckets=1M", func() uint64 { return rand.Uint64() % buckets }},
		{"keys=one/buckets=1", func() uint64 { return 0 }},
	} {
		for i := range picks {
			picks[i] = uint32(bb.pick())
		}
		b.Run(bb.name, func(b *testing.B) {
			b.ReportAllocs()
			var at atomic.Uint32
			b.RunParallel(func(pb *testing.PB) {
				e := batcher.Entry{Terms: rate, Op: limit.Take, N: 1}
				for i := at.Add(1 << 17); pb.Next(); i++ {
					e.Bucket = names[picks[i%uint32(len(picks))]]
					s.ApplyAt(now, &e)
				}
			})
		})
	}
}
