package agent_test

import (
	"context"
	"fmt"
	"math/rand"
	"testing"
	"time"

	"github.com/spillgate/spillgate/agent"
)

// BenchmarkHotCheck is a check on buckets that are all hot, on a store behind the batcher: decided from
// leases, through a Handle and through Check with its match.
func BenchmarkHotCheck(b *testing.B) {
	for _, keys := range []int{1, 1000} {
		for _, by := range []string{"handle", "descriptors", "batch"} {
			b.Run(fmt.Sprintf("by=%s/keys=zipf-%d", by, keys), func(b *testing.B) {
				set := parse(`name: per-user, match: [{key: route, value: /pay}, {key: user}], limit: 1000000000/s`)
				a := newAgent(b, agent.Config{Store: &fake{cells: newCells(b)}, Rules: set, Deadline: time.Minute})
				defer a.Close(context.Background())
				h, err := a.Handle("api", "per-user")
				if err != nil {
					b.Fatal(err)
				}
				names := make([]string, keys)
				for i := range names {
					names[i] = new(userName).of(uint32(i))
					for range 50 {
						h.Check(context.Background(), 1, "/pay", names[i])
						a.Throttle(context.Background(), names[i], set.Rule("api", "per-user").Terms, 1)
					}
				}
				zipf := rand.NewZipf(rand.New(rand.NewSource(1)), 1.1, 1, uint64(keys-1)+1)
				picks := make([]uint16, 1<<16)
				for i := range picks {
					picks[i] = uint16(zipf.Uint64() % uint64(keys))
				}
				b.ReportAllocs()
				b.ResetTimer()
				b.RunParallel(func(pb *testing.PB) {
					i, batch, key, terms := rand.Uint32(), a.NewBatch(), make([]byte, 0, 32), set.Rule("api", "per-user").Terms
					batch.Begin()
					of := ds("route", "/pay", "user", "")
					for ; pb.Next(); i++ {
						user := names[picks[i&0xffff]]
						if by == "handle" {
							h.Check(context.Background(), 1, "/pay", user)
							continue
						}
						if by == "batch" { // of 64 CL.THROTTLE
							key = append(key[:0], user...)
							if batch.Throttle(key, terms, 1); batch.Len() == 64 {
								batch.Decide(context.Background())
								batch.Begin()
							}
							continue
						}
						of[0][1].Value = user
						a.Check(context.Background(), agent.Request{Domain: "api", Descriptors: of, Hits: 1})
					}
				})
				b.StopTimer()
				s := a.Stats()
				b.ReportMetric(float64(s.Leases.Admitted)/float64(max(1, s.Checks[0].Checks)), "local")
			})
		}
	}
}
