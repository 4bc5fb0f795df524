package redisshard

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillgate/spillgate/batcher"
	"github.com/spillgate/spillgate/internal/redistest"
	"github.com/spillgate/spillgate/limit"
)

var debitBuckets = flag.Int("debit-buckets", 100_000, "buckets, and debits of a pass, in BenchmarkDebitCost")

// BenchmarkDebitCost measures what a debit costs the server: CPU time (INFO cpu) and
// memory, for the script at several entries a call, against the textbook script at one
// key a call. Both are sent in pipelines of 64 calls, so that system calls weigh
// on neither. "cold" fills an empty server in random order, "warm" debits
// random buckets that exist. The ratio is to the textbook's pass just before.
//
//	go test ./redisshard -run '^$' -bench DebitCost -benchtime 3x -args -debit-buckets 1000000
func BenchmarkDebitCost(b *testing.B) {
	for _, m := range []struct{ entries, tags int }{{1, 1}, {16, 1}, {64, 1}, {64, 8}, {256, 8}} {
		b.Run(fmt.Sprintf("entries=%d/tags=%d", m.entries, m.tags), func(b *testing.B) {
			var base, ours debitCost
			for range b.N {
				base.add(measureDebits(b, textbookCalls))
				ours.add(measureDebits(b, scriptCalls(b, m.entries, m.tags)))
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(median(ours.cold), "cold-us/debit")
			b.ReportMetric(medianRatio(ours.cold, base.cold), "cold-of-textbook")
			b.ReportMetric(median(ours.warm), "warm-us/debit")
			b.ReportMetric(medianRatio(ours.warm, base.warm), "warm-of-textbook")
			b.ReportMetric(median(ours.bytes), "B/bucket")
			b.ReportMetric(median(base.bytes), "textbook-B/bucket")
		})
	}
}

// debitCost holds a value per round.
type debitCost struct{ cold, warm, bytes []float64 }

func (d *debitCost) add(cold, warm, bytes float64) {
	d.cold, d.warm, d.bytes = append(d.cold, cold), append(d.warm, warm), append(d.bytes, bytes)
}

// callBuilder turns ids into the arguments of calls.
type callBuilder func(ids []int) [][]any

// debitName is a bucket's name of 13 bytes, with a Spillgate id's two length bytes or without.
func debitName(id int) string { return fmt.Sprintf("user:%08d", id) }

// measureDebits makes a cold and a warm pass over a server of its own.
func measureDebits(b *testing.B, build callBuilder) (cold, warm, bytes float64) {
	ctx := context.Background()
	server, err := redistest.Launch(ctx, b.TempDir(), redistest.Config{})
	redistest.Must(b, err)
	defer server.Close()
	client := redis.NewClient(&redis.Options{Network: "unix", Addr: server.Socket(), MaxRetries: -1,
		ReadTimeout: 10 * time.Second})
	defer client.Close()
	for _, script := range []string{debitScript, textbookScript} {
		redistest.Must(b, client.ScriptLoad(ctx, script).Err())
	}

	empty := serverInfo(b, client, "memory", "used_memory")
	order := rand.New(rand.NewPCG(1, 1)).Perm(*debitBuckets)
	cold = debitPass(b, client, build, order)
	bytes = (serverInfo(b, client, "memory", "used_memory") - empty) / float64(*debitBuckets)
	random := rand.New(rand.NewPCG(2, 2))
	for i := range order {
		order[i] = random.IntN(*debitBuckets)
	}
	return cold, debitPass(b, client, build, order), bytes
}

// debitPass debits every id once and returns the server's CPU time per debit in microseconds.
func debitPass(b *testing.B, client *redis.Client, build callBuilder, ids []int) float64 {
	ctx := context.Background()
	before := serverInfo(b, client, "cpu", "used_cpu_sys", "used_cpu_user")
	for calls := range slices.Chunk(build(ids), 64) {
		pipe := client.Pipeline()
		for _, args := range calls {
			pipe.Do(ctx, args...)
		}
		_, err := pipe.Exec(ctx)
		redistest.Must(b, err)
	}
	return (serverInfo(b, client, "cpu", "used_cpu_sys", "used_cpu_user") - before) / float64(len(ids)) * 1e6
}

// scriptCalls builds calls of the debit script with a number of entries each.
func scriptCalls(b *testing.B, entries, tags int) callBuilder {
	// 1,000,000 an hour: the buckets outlive the run and are never empty.
	terms, err := limit.Rate{Requests: 1_000_000, Period: time.Hour}.Terms()
	redistest.Must(b, err)
	l, names := newLayout(tags, 1), new(nameCache)
	sha := redis.NewScript(debitScript).Hash()
	return func(ids []int) (calls [][]any) {
		for chunk := range slices.Chunk(ids, entries) {
			var c call
			batch := make([]*batcher.Entry, 0, len(chunk))
			seen := make(map[int]int)
			for _, id := range chunk {
				e := &batcher.Entry{Terms: terms, Op: limit.Take, N: 1, Round: seen[id]}
				seen[id]++
				l.secret.Name(&e.Bucket, limit.AppendPart(limit.AppendPart(nil, ""), debitName(id)[2:]))
				batch = append(batch, e)
			}
			c.load(l, batch)
			calls = append(calls, c.encode("evalsha", sha, names, time.Now().UnixNano(), 0))
		}
		return calls
	}
}

// BenchmarkEntryCost measures what entries cost the server that are no plain ones, against a take at the same number of
// entries per call: on buckets that are whole, and that are divided.
//
//	go test ./redisshard -run '^$' -bench EntryCost -benchtime 5x -args -debit-buckets 20000
func BenchmarkEntryCost(b *testing.B) {
	for _, m := range entryShapes {
		for _, entries := range []int{1, 16, 64} {
			b.Run(fmt.Sprintf("entry=%s/entries=%d", m.name, entries), func(b *testing.B) {
				var base, ours []float64
				server := entryServer(b, debitScript)
				for range b.N {
					base = append(base, server.pass(b, debitScript, entryShapes[0], entries))
					ours = append(ours, server.pass(b, debitScript, m, entries))
				}
				b.ReportMetric(0, "ns/op")
				b.ReportMetric(median(ours), "us/entry")
				b.ReportMetric(medianRatio(ours, base), "of-a-take")
			})
		}
	}
}

// entryShape is a kind of entry; divided buckets are split before the measured pass. Limits of windows are 1,000.
type entryShape struct {
	name      string
	divided   bool
	entry     batcher.Entry
	algorithm limit.Algorithm
}

// entrySplit is the split of the divided buckets, as agents know it, but for its times: it lasts as long as parts allow.
var entrySplit = limit.Split{Ways: 8, Stride: 8}

var entryShapes = []entryShape{
	{"take", false, batcher.Entry{Op: limit.Take, N: 1}, limit.TokenBucket},
	{"lease", false, batcher.Entry{Op: limit.Lease, N: 10, Ask: limit.Ask{Take: 1, Presence: 1}}, limit.TokenBucket},
	{"touch", true, batcher.Entry{Op: limit.Touch, Part: &limit.Part{Home: true, Ops: 1, Threshold: 1, Ways: 8, Stride: 8}}, limit.TokenBucket},
	{"refused-at-home", true, batcher.Entry{Op: limit.Take, N: 1}, limit.TokenBucket},
	{"take-of-part", true, batcher.Entry{Op: limit.Take, N: 1, Part: &limit.Part{Index: 3}}, limit.TokenBucket},
	{"lease-of-part", true, batcher.Entry{Op: limit.Lease, N: 10, Ask: limit.Ask{Take: 1, Presence: 1}, Part: &limit.Part{Index: 3}}, limit.TokenBucket},
	{"take-of-fixed", false, batcher.Entry{Op: limit.Take, N: 1}, limit.FixedWindow},
	{"take-of-sliding", false, batcher.Entry{Op: limit.Take, N: 1}, limit.SlidingWindow},
	{"take-of-log", false, batcher.Entry{Op: limit.Take, N: 1}, limit.SlidingLog},
	{"500-of-log", false, batcher.Entry{Op: limit.TakePartial, N: 500}, limit.SlidingLog},
}

// costServer is a server with its client.
type costServer struct {
	client *redis.Client
	layout *layout
	names  nameCache
}

func entryServer(b *testing.B, scripts ...string) *costServer {
	server, err := redistest.Launch(b.Context(), b.TempDir(), redistest.Config{})
	redistest.Must(b, err)
	b.Cleanup(func() { server.Close() })
	client := redis.NewClient(&redis.Options{Network: "unix", Addr: server.Socket(), MaxRetries: -1, ReadTimeout: 10 * time.Second})
	b.Cleanup(func() { client.Close() })
	for _, script := range scripts {
		redistest.Must(b, client.ScriptLoad(b.Context(), script).Err())
	}
	return &costServer{client: client, layout: newLayout(8, 1)}
}

// pass runs entries of a kind over all buckets twice, and returns the server's CPU time per entry in
// microseconds of the second time. All are on one tag, so a call is one group.
func (s *costServer) pass(b *testing.B, script string, m entryShape, entries int) float64 {
	redistest.Must(b, s.client.FlushDB(b.Context()).Err())
	rate := limit.Rate{Algorithm: m.algorithm, Requests: 1_000_000, Period: time.Hour}
	if m.algorithm != limit.TokenBucket {
		rate.Requests = limit.MaxLog
	}
	terms, err := rate.Terms()
	redistest.Must(b, err)
	split := entrySplit
	split.Start = time.Now().UnixMicro()
	split.Until = split.Start + (limit.SplitTTL + limit.MaxSkew/2).Microseconds()
	build := func(shape batcher.Entry) callBuilder {
		if shape.Part != nil {
			part := *shape.Part
			part.Split, shape.Part = split, &part
		}
		shape.Terms = terms
		sha := redis.NewScript(script).Hash()
		return func(ids []int) (calls [][]any) {
			for chunk := range slices.Chunk(ids, entries) {
				var c call
				batch := make([]*batcher.Entry, 0, len(chunk))
				for _, id := range chunk {
					e := shape
					s.layout.secret.Name(&e.Bucket, limit.AppendPart(limit.AppendPart(nil, ""), debitName(id)[2:]))
					batch = append(batch, &e)
				}
				c.divider = new(state)
				c.load(s.layout, batch)
				for i := range c.items {
					c.items[i].tag = 0
				}
				calls = append(calls, slices.Clone(c.encode("evalsha", sha, &s.names, time.Now().UnixNano(), 0)))
			}
			return calls
		}
	}
	ids := make([]int, *debitBuckets)
	for i := range ids {
		ids[i] = i
	}
	if m.divided {
		debitPass(b, s.client, build(entryShapes[2].entry), ids)
	}
	debitPass(b, s.client, build(m.entry), ids)
	return debitPass(b, s.client, build(m.entry), ids)
}

// textbookScript is the usual token bucket: a hash of two fields per key, with its own time to live.
const textbookScript = `
local state = redis.call('HMGET', KEYS[1], 'tokens', 'at')
local t = redis.call('TIME')
local now = t[1] + t[2] / 1000000
local burst, rate, cost = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local tokens, at = tonumber(state[1]) or burst, tonumber(state[2]) or now
tokens = math.min(burst, tokens + math.max(0, now - at) * rate)
local admitted = tokens >= cost
if admitted then tokens = tokens - cost end
redis.call('HMSET', KEYS[1], 'tokens', tokens, 'at', now)
redis.call('PEXPIRE', KEYS[1], math.ceil(burst / rate * 1000))
return {admitted and 1 or 0, math.floor(tokens)}`

func textbookCalls(ids []int) (calls [][]any) {
	sha := redis.NewScript(textbookScript).Hash()
	for _, id := range ids {
		calls = append(calls, []any{"evalsha", sha, 1, debitName(id), 1000000, "277.77", 1})
	}
	return calls
}

// serverInfo sums fields of a section of INFO.
func serverInfo(b *testing.B, client *redis.Client, section string, fields ...string) (sum float64) {
	text, err := client.Info(context.Background(), section).Result()
	redistest.Must(b, err)
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		if slices.Contains(fields, name) {
			v, err := strconv.ParseFloat(value, 64)
			redistest.Must(b, err)
			sum += v
		}
	}
	return sum
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}

func medianRatio(a, b []float64) float64 {
	ratios := make([]float64, len(a))
	for i := range a {
		ratios[i] = a[i] / b[i]
	}
	return median(ratios)
}
