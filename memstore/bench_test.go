package memstore

import (
	"encoding/binary"
	"math/rand"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spillgate/spillgate/batcher"
	"github.com/spillgate/spillgate/limit"
)

// BenchmarkApplyAt takes single tokens from a million buckets, as a gateway's traffic
// spreads over them, and from one. The time includes the name, about 20 ns.
func BenchmarkApplyAt(b *testing.B) {
	const buckets = 1 << 20
	rate := terms(b, 100, time.Second, 0)
	s := newStore(b, Config{})
	now := s.Now() // fixed: the cells stay in their generation
	// Names are made as they come: a table of a million buckets would cost more to read than the
	// store's own cells.
	name := func(b *limit.Bucket, i uint32) {
		var id [8]byte
		binary.LittleEndian.PutUint32(id[:], i)
		s.secret.Name(b, id[:])
	}
	for i := range uint32(buckets) {
		e := batcher.Entry{Terms: rate, Op: limit.Take, N: 1}
		name(&e.Bucket, i)
		s.ApplyAt(now, &e)
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
					name(&e.Bucket, picks[i%uint32(len(picks))])
					s.ApplyAt(now, &e)
				}
			})
		})
	}
}
