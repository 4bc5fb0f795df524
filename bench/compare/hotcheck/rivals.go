package main

import (
	"context"
	"fmt"
	"math/rand"
	"strconv"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/spillgate/spillgate/agent"
	"github.com/spillgate/spillgate/batcher"
	"github.com/spillgate/spillgate/limit"
	"github.com/spillgate/spillgate/memstore"
	"github.com/spillgate/spillgate/rules"
)

// perSecond is the limit and the burst of each key: nobody reaches it.
const perSecond = 1_000_000_000

// streamLen is the length of a stream, a power of two.
const streamLen = 1 << 20

// traffic is the keys of the checks, in order.
type traffic struct {
	names  []string
	stream []uint32 // indexes of names
}

// newTraffic draws from a number of keys.
func newTraffic(keys int) *traffic {
	t := &traffic{names: make([]string, keys), stream: make([]uint32, streamLen)}
	for i := range t.names {
		t.names[i] = "user:" + strconv.Itoa(i)
	}
	zipf := rand.NewZipf(rand.New(rand.NewSource(1)), 1.1, 1, uint64(keys-1))
	for i := range t.stream {
		t.stream[i] = uint32(zipf.Uint64())
	}
	return t
}

// at is the key of check i.
func (t *traffic) at(i int) string { return t.names[t.stream[i%streamLen]] }

// A check is one caller's: it decides on a key.
type check func(key string) (admitted bool)

// A rival makes the checks of its callers.
type rival interface {
	caller() check
	// asked is how many checks the store was asked about so far.
	asked() uint64
	close()
}

// rivals are what is compared; the last is the base of the ratios.
var rivals = []struct {
	name string
	open func() (rival, error)
}{
	{"Handle.Check", func() (rival, error) { return openOurs(true) }},
	{"Agent.Check", func() (rival, error) { return openOurs(false) }},
	{"x/time/rate", func() (rival, error) { return new(limiters), nil }},
}

// limiters is golang.org/x/time/rate behind a sync.Map.
type limiters struct{ byKey sync.Map }

func (l *limiters) caller() check {
	return func(key string) bool {
		found, ok := l.byKey.Load(key)
		if !ok {
			found, _ = l.byKey.LoadOrStore(key, rate.NewLimiter(perSecond, perSecond))
		}
		return found.(*rate.Limiter).Allow()
	}
}

func (l *limiters) asked() uint64 { return 0 }

func (l *limiters) close() {}

// distant is memstore without batcher.Direct: the agent treats it as a store on the network.
type distant struct{ near *memstore.Store }

func (d distant) Secret() (*limit.Secret, bool) { return d.near.Secret() }

func (d distant) Shard(b *limit.Bucket, p *limit.Part) int { return d.near.Shard(b, p) }

func (d distant) Apply(ctx context.Context, shard int, entries []*batcher.Entry) {
	d.near.Apply(ctx, shard, entries)
}

// ours is an agent with one leased rule.
type ours struct {
	agent  *agent.Agent
	handle *agent.Handle
	direct bool // by the handle; else by descriptors
}

func openOurs(byHandle bool) (*ours, error) {
	set, err := rules.Parse("hotcheck", fmt.Appendf(nil, `domain: api
rules:
  - {name: per-user, match: [{key: route, value: /pay}, {key: user}], limit: %d/s, mode: leased, deadline: 5s, on_store_error: closed}
`, perSecond))
	if err != nil {
		return nil, err
	}
	near, err := memstore.New(memstore.Config{})
	if err != nil {
		return nil, err
	}
	a, err := agent.New(agent.Config{Store: distant{near}, Rules: set, StoreTimeout: 5 * time.Second})
	if err != nil {
		return nil, err
	}
	h, err := a.Handle("api", "per-user")
	return &ours{a, h, byHandle}, err
}

func (o *ours) caller() check {
	ctx := context.Background()
	if o.direct {
		return func(key string) bool { return o.handle.Check(ctx, 1, "/pay", key).Admitted }
	}
	ds := []rules.Descriptor{{{Key: "route", Value: "/pay"}, {Key: "user"}}}
	return func(key string) bool {
		ds[0][1].Value = key
		d, err := o.agent.Check(ctx, agent.Request{Domain: "api", Descriptors: ds, Hits: 1})
		return err == nil && d.Admitted
	}
}

func (o *ours) asked() uint64 { return o.agent.Stats().Batcher.Claims }

func (o *ours) close() { o.agent.Close(context.Background()) }
