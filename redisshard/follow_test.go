package redisshard

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spillgate/spillgate/internal/redistest"
	"github.com/spillgate/spillgate/rules"
	"github.com/spillgate/spillgate/rules/source"
)

// fleet are agents' followers on one store, each with connections of its own.
type fleet struct {
	testing.TB
	followers []*source.Follower

	mu    sync.Mutex
	taken []map[limitOf]time.Time // when each of them took what
}

// limitOf is the limit of ruleText, which tells sets apart.
type limitOf int

func startFleet(tb testing.TB, url string, n int, ttl time.Duration) *fleet {
	tb.Helper()
	f := &fleet{TB: tb, taken: make([]map[limitOf]time.Time, n)}
	for i := range n {
		store := openStore(tb, Config{URL: url})
		follower, err := source.NewFollower(source.FollowerConfig{Store: store.Rules("default"), TTL: ttl, Logger: slog.New(slog.DiscardHandler)})
		redistest.Must(tb, err)
		f.taken[i] = make(map[limitOf]time.Time)
		f.took(i, follower.Begin(tb.Context()))
		follower.Follow(func(set *rules.Set) { f.took(i, set) })
		tb.Cleanup(follower.Close)
		f.followers = append(f.followers, follower)
	}
	return f
}

func (f *fleet) took(i int, set *rules.Set) {
	if set == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.taken[i][limitOf(set.Rule("api", "r").Terms.Burst)] = time.Now()
}

// await returns when each follower has taken a set, in order; failing that, it fails the test.
func (f *fleet) await(limit limitOf) (at []time.Time) {
	f.Helper()
	for end := time.Now().Add(60 * time.Second); ; time.Sleep(time.Millisecond) {
		at = nil
		f.mu.Lock()
		for _, taken := range f.taken {
			if t, ok := taken[limit]; ok {
				at = append(at, t)
			}
		}
		f.mu.Unlock()
		if len(at) == len(f.followers) {
			slices.SortFunc(at, time.Time.Compare)
			return at
		}
		if time.Now().After(end) {
			f.Fatalf("%d of %d followers have the rules of limit %d: %v", len(at), len(f.followers), limit, f.followers[0].Status())
		}
	}
}

// stale waits until every follower is stale for that reason; "" is not stale.
func (f *fleet) stale(reason string) {
	f.Helper()
	for _, follower := range f.followers {
		until(f, func() bool {
			s := follower.Status()
			return (s.Stale == "") == (reason == "") && strings.Contains(s.Stale, reason)
		})
	}
}

// TestFollowersOfARealStore: a server that stands still, one that is killed and comes back empty, and subscriptions that are cut. What is in force
// stays, and a push is in force everywhere in the end.
func TestFollowersOfARealStore(t *testing.T) {
	srv := redistest.Start(t)
	pusher, ctx := openRules(t, srv.URL()), t.Context()
	mustPush(t, pusher, Draft{Text: ruleText(1)})
	f := startFleet(t, srv.URL(), 3, 2*time.Second)
	f.await(1)
	mustPush(t, pusher, Draft{Text: ruleText(2)})
	f.await(2)

	redistest.Must(t, srv.Stop())
	f.stale("cannot be read")
	redistest.Must(t, srv.Continue())
	f.stale("")
	mustPush(t, pusher, Draft{Text: ruleText(3)})
	f.await(3)

	// Messages that are lost: the subscriptions end, and nobody may subscribe again.
	redistest.Must(t, srv.Client().Do(ctx, "acl", "setuser", "default", "resetchannels").Err())
	redistest.Must(t, srv.Client().Do(ctx, "client", "kill", "type", "pubsub").Err())
	if p := mustPush(t, pusher, Draft{Text: ruleText(4)}); p.Announced {
		t.Errorf("a push that nobody can hear of: %+v", p)
	}
	f.await(4)
	redistest.Must(t, srv.Client().Do(ctx, "acl", "setuser", "default", "allchannels").Err())

	redistest.Must(t, srv.Kill())
	f.stale("cannot be read")
	redistest.Must(t, srv.Restart(ctx))
	f.stale("the store has no version, and version 4 is in force here")
	mustPush(t, pusher, Draft{Text: ruleText(5)})
	f.stale("the store has version 1, and version 4 is in force here")
	mustPush(t, pusher, Draft{Text: ruleText(6), Above: 4})
	f.await(6)
	f.stale("")
	for i, taken := range f.taken {
		if len(taken) != 5 { // 1, 2, 3, 4 and 6
			t.Errorf("follower %d took %v", i, taken)
		}
	}
}

// BenchmarkPush measures from the call of Push until the last of 20 agents has the rules in force: the median and the worst of all agents
// and pushes. Of rules=1000 each agent compiles a thousand, on the cores of this machine.
func BenchmarkPush(b *testing.B) {
	for _, n := range []int{1, 1000} {
		b.Run(fmt.Sprintf("agents=20/rules=%d", n), func(b *testing.B) {
			srv := redistest.Start(b)
			pusher := openRules(b, srv.URL())
			text := func(limit int) []byte {
				all := ruleText(limit)
				for i := 1; i < n; i++ {
					all = fmt.Appendf(all, "  - {name: r%d, match: [{key: route, value: /v1/things/%d}, {key: user}], limit: 100/s}\n", i, i)
				}
				return all
			}
			mustPush(b, pusher, Draft{Text: text(1)})
			f := startFleet(b, srv.URL(), 20, 30*time.Second)
			f.await(1)
			var all []time.Duration
			push := 1
			for b.Loop() {
				push++
				draft := Draft{Text: text(push)}
				begin := time.Now()
				mustPush(b, pusher, draft)
				for _, at := range f.await(limitOf(push)) {
					all = append(all, at.Sub(begin))
				}
			}
			slices.Sort(all)
			b.ReportMetric(float64(all[len(all)/2].Microseconds())/1e3, "median-ms")
			b.ReportMetric(float64(all[len(all)-1].Microseconds())/1e3, "max-ms")
		})
	}
}
