package redisshard

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillgate/spillgate/batcher"
	"github.com/spillgate/spillgate/internal/redistest"
	"github.com/spillgate/spillgate/limit"
)

// benchBuckets is how many buckets the benchmarks spread over.
const benchBuckets = 1 << 17

// benchEntries are calls of n entries on buckets that share a class, as the rules of a
// gateway mostly do.
func benchEntries(s *Store, terms *limit.Terms, n int) (calls [][]*batcher.Entry) {
	for i := 0; i < benchBuckets; i += n {
		var entries []*batcher.Entry
		for j := range n {
			// The order of a hash, not of a counter.
			b := s.bucket(strconv.Itoa((i + j) * 7919 % benchBuckets))
			entries = append(entries, &batcher.Entry{Bucket: b, Terms: terms, Op: limit.Take, N: 1})
		}
		calls = append(calls, entries)
	}
	return calls
}

// serverCPU is the CPU time that a server has used.
func serverCPU(tb testing.TB, client *redis.Client) time.Duration {
	info := client.Info(tb.Context(), "cpu").Val()
	var sum float64
	for _, field := range []string{"used_cpu_user", "used_cpu_sys"} {
		v, err := strconv.ParseFloat(infoField(info, field), 64)
		redistest.Must(tb, err)
		sum += v
	}
	return time.Duration(sum * float64(time.Second))
}

// BenchmarkApply makes calls of one caller, one at a time: ns/op is a call, with its round trip; the
// server's share is reported per entry.
func BenchmarkApply(b *testing.B) {
	for _, n := range []int{1, 16, 64, 256} {
		b.Run(fmt.Sprintf("store=redis/entries=%d", n), func(b *testing.B) {
			_, url := sharedServer(b)
			s, admin := openStore(b, Config{URL: url}), adminOf(b, url)
			terms := compile(b, 1000, time.Hour)
			calls := benchEntries(s, terms, n)
			for _, entries := range calls {
				s.Apply(b.Context(), 0, entries)
			}
			b.ReportAllocs()
			before, i := serverCPU(b, admin), 0
			for b.Loop() {
				entries := calls[i%len(calls)]
				s.Apply(b.Context(), 0, entries)
				if entries[n-1].Err != nil {
					b.Fatal(entries[n-1].Err)
				}
				i++
			}
			used := serverCPU(b, admin) - before
			b.ReportMetric(float64(used.Nanoseconds())/float64(i*n), "server-ns/entry")
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(i*n), "ns/entry")
		})
	}
}

// BenchmarkPayload is our own share of a call: sorting and writing it, and reading the reply.
func BenchmarkPayload(b *testing.B) {
	_, url := sharedServer(b)
	s, admin := openStore(b, Config{URL: url}), adminOf(b, url)
	st, terms := s.state.Load(), compile(b, 1000, time.Hour)
	for _, n := range []int{1, 16, 64, 256} {
		entries := benchEntries(s, terms, n)[0]
		nanos, c := time.Now().UnixNano(), new(call)
		encode := func() []any {
			c.load(st.layout, entries)
			return c.encode("evalsha", s.sha, &s.names, nanos, 0)
		}
		b.Run(fmt.Sprintf("do=encode/entries=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				encode()
			}
		})
		args := encode()
		args[0], args[1] = "eval", debitScript
		text, err := admin.Do(b.Context(), args...).Text()
		redistest.Must(b, err)
		reply := []byte(text)
		b.Run(fmt.Sprintf("do=decode/entries=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := c.decode(reply); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
