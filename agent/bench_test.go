package agent_test

import (
	"context"
	"fmt"
	"math/rand"
	"strconv"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/spillgate/spillgate/agent"
	"github.com/spillgate/spillgate/rules"
)

// TestAllocations: checks on a memory store allocate nothing once their buckets are there.
func TestAllocations(t *testing.T) {
	a := newAgent(t, agent.Config{Store: newCells(t), Rules: standard})
	h, err := a.Handle("api", "route")
	if err != nil {
		t.Fatal(err)
	}
	ctx, ten, b, key := t.Context(), terms(t, 10, time.Hour), a.NewBatch(), []byte("user:000000000042")
	one, two := ds("user", "42"), []rules.Descriptor{d("user", "42"), d("a", "x", "b", "y")}
	user := strconv.Itoa(42)
	for _, tt := range []struct {
		what string
		most float64
		run  func()
	}{
		{"Handle.Check", poolAllocs, func() { h.Check(ctx, 1, "/pay", user) }},
		{"Check", poolAllocs, func() { a.Check(ctx, agent.Request{Domain: "api", Descriptors: one, Hits: 1}) }},
		{"Check of two", poolAllocs, func() { a.Check(ctx, agent.Request{Domain: "api", Descriptors: two, Hits: 1}) }},
		{"Throttle", poolAllocs, func() { a.Throttle(ctx, "user:000000000042", ten, 1) }},
		{"Batch of Throttle", 0, func() {
			b.Begin()
			for range 64 {
				b.Throttle(key, ten, 1)
			}
			b.Decide(ctx)
		}},
		{"Batch of Check", 0, func() {
			b.Begin()
			for range 64 {
				b.Check("api", two, 1)
			}
			b.Decide(ctx)
		}},
	} {
		if got := testing.AllocsPerRun(200, tt.run); got > tt.most {
			t.Errorf("%s: %v allocations", tt.what, got)
		}
	}
}

// users is how many there are; picks are a million of them, as a gateway's traffic goes.
const users = 1 << 20

var picks = func() (picks []uint32) {
	zipf := rand.NewZipf(rand.New(rand.NewSource(1)), 1.1, 1, users-1)
	for range users {
		picks = append(picks, uint32(zipf.Uint64()))
	}
	return picks
}()

// userName writes a name as a request has it: just arrived, in the cache. A table of a million
// names would cost more to read than a check takes.
type userName [13]byte

func (n *userName) of(user uint32) string {
	copy(n[:], "user:")
	for i := len(n) - 1; i >= 5; i-- {
		n[i], user = '0'+byte(user%10), user/10
	}
	return unsafe.String(&n[0], len(n))
}

var benchRules = parse(`name: per-user, match: [{key: route, value: /pay}, {key: user}], limit: 1000/s`)

// onStores runs a benchmark of single checks, alone and on all cores. prepare makes a check of a goroutine's own.
func onStores(b *testing.B, prepare func(b *testing.B, a *agent.Agent) (check func(user string))) {
	for _, store := range []string{"memory", "instant"} {
		for _, cores := range []string{"one", "all"} {
			b.Run(fmt.Sprintf("store=%s/keys=zipf-1M/cores=%s", store, cores), func(b *testing.B) {
				cells := newCells(b)
				cfg := agent.Config{Store: cells, Rules: benchRules, Deadline: time.Minute}
				if store == "instant" {
					cfg.Store = &fake{cells: cells}
				}
				a := newAgent(b, cfg)
				defer a.Close(context.Background())
				b.ReportAllocs()
				if cores == "one" {
					check, i, name := prepare(b, a), uint32(0), new(userName)
					for b.Loop() {
						check(name.of(picks[i%users]))
						i++
					}
					return
				}
				var at atomic.Uint32
				b.RunParallel(func(pb *testing.PB) {
					check, name := prepare(b, a), new(userName)
					for i := at.Add(1 << 17); pb.Next(); i++ {
						check(name.of(picks[i%users]))
					}
				})
			})
		}
	}
}

// BenchmarkHandleCheck is the hot path of an embedder. On store=instant, which is batched and
// answers at once, it shows what the batcher costs.
func BenchmarkHandleCheck(b *testing.B) {
	onStores(b, func(b *testing.B, a *agent.Agent) func(string) {
		h, err := a.Handle("api", "per-user")
		if err != nil {
			b.Fatal(err)
		}
		return func(user string) { h.Check(context.Background(), 1, "/pay", user) }
	})
}

// BenchmarkCheck includes the match.
func BenchmarkCheck(b *testing.B) {
	onStores(b, func(_ *testing.B, a *agent.Agent) func(string) {
		of := ds("route", "/pay", "user", "")
		return func(user string) {
			of[0][1].Value = user
			a.Check(context.Background(), agent.Request{Domain: "api", Descriptors: of, Hits: 1})
		}
	})
}

// BenchmarkBatch64 is a pipeline of 64 CL.THROTTLE; the time is that of one.
func BenchmarkBatch64(b *testing.B) {
	onStores(b, func(b *testing.B, a *agent.Agent) func(string) {
		batch, key, thousand := a.NewBatch(), make([]byte, 0, 32), terms(b, 1000, time.Second)
		batch.Begin()
		return func(user string) {
			key = append(key[:0], user...)
			if batch.Throttle(key, thousand, 1); batch.Len() == 64 {
				batch.Decide(context.Background())
				batch.Begin()
			}
		}
	})
}

// BenchmarkMatch is a peek by sets of several sizes: how much of a check is the match. A cache
// of matches never paid; see doc.go.
func BenchmarkMatch(b *testing.B) {
	for _, n := range []int{16, 64, 256, 1000, 10_000} {
		set := routes(n, "1000/s")
		a := newAgent(b, agent.Config{Store: newCells(b), Rules: set})
		var of [4096]rules.Descriptor
		for i := range of {
			of[i] = route(i % n)
		}
		b.Run(fmt.Sprintf("rules=%d/what=match", n), func(b *testing.B) {
			i := 0
			for b.Loop() {
				set.Match("api", of[i%len(of)])
				i++
			}
		})
		b.Run(fmt.Sprintf("rules=%d/what=check", n), func(b *testing.B) {
			request, i := agent.Request{Domain: "api", Descriptors: make([]rules.Descriptor, 1)}, 0
			for b.Loop() {
				request.Descriptors[0] = of[i%len(of)]
				a.Check(context.Background(), request)
				i++
			}
		})
	}
}
