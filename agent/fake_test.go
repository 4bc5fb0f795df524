package agent_test

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/spillgate/spillgate/agent"
	"github.com/spillgate/spillgate/batcher"
	"github.com/spillgate/spillgate/limit"
	"github.com/spillgate/spillgate/memstore"
	"github.com/spillgate/spillgate/rules"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fake is a store behind a network: its calls take time, fail and lose replies, as fate says. Buckets
// with "slow" in their id are in a shard of their own. Its cells live in a memory store.
type fake struct {
	cells *memstore.Store
	away  atomic.Bool // not reached yet
	fate  atomic.Pointer[func(shard int, e *batcher.Entry) fate]
	ops   [limit.Lease + 1]atomic.Int64 // entries that arrived
}

// fate is what befalls an entry. The zero value: it runs, and the reply comes at once.
type fate struct {
	delay time.Duration // until the reply
	err   error         // instead of the reply
	runs  bool          // although there is an error
}

const (
	fast = 0
	slow = 1
)

func (f *fake) Secret() (*limit.Secret, bool) {
	secret, _ := f.cells.Secret()
	return secret, !f.away.Load()
}

func (f *fake) Shard(b *limit.Bucket, _ *limit.Part) int {
	if bytes.Contains(b.ID(), []byte("slow")) {
		return slow
	}
	return fast
}

func (f *fake) Apply(ctx context.Context, shard int, entries []*batcher.Entry) {
	now := f.cells.Now()
	var delay time.Duration
	for _, e := range entries {
		f.ops[e.Op].Add(1)
		var ft fate
		if by := f.fate.Load(); by != nil {
			ft = (*by)(shard, e)
		}
		delay = max(delay, ft.delay)
		if ft.err == nil || ft.runs {
			f.cells.ApplyAt(now, e)
		}
		if ft.err != nil {
			e.Err = ft.err
		}
	}
	if delay == 0 {
		return
	}
	select {
	case <-time.After(delay):
	case <-ctx.Done():
		for _, e := range entries {
			e.Err = batcher.ErrUnknown
		}
	}
}

// all gives every entry of a shard, or of both (-1), one fate.
func all(of int, ft fate) func(int, *batcher.Entry) fate {
	return func(shard int, _ *batcher.Entry) fate {
		if of < 0 || of == shard {
			return ft
		}
		return fate{}
	}
}

func (f *fake) befalls(by func(shard int, e *batcher.Entry) fate) { f.fate.Store(&by) }

// asked is how many entries arrived.
func (f *fake) asked() (n int64) {
	for i := range f.ops {
		n += f.ops[i].Load()
	}
	return n
}

// world is an agent on a store, in virtual time.
type world struct {
	*testing.T
	*agent.Agent
	fake  *fake // nil on a direct store
	cells *memstore.Store
}

// onFake runs a test on the batched store, in virtual time. The agent is closed at its end and must be at rest.
func onFake(t *testing.T, cfg agent.Config, test func(w *world)) {
	t.Helper()
	inBubble(t, cfg, true, test)
}

// onBoth runs a test on the direct and on the batched store.
func onBoth(t *testing.T, cfg agent.Config, test func(w *world)) {
	t.Run("store=direct", func(t *testing.T) { inBubble(t, cfg, false, test) })
	t.Run("store=batched", func(t *testing.T) { inBubble(t, cfg, true, test) })
}

func inBubble(t *testing.T, cfg agent.Config, batched bool, test func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{T: t, cells: newCells(t)}
		if cfg.Store = w.cells; batched {
			w.fake = &fake{cells: w.cells}
			cfg.Store = w.fake
		}
		if cfg.Rules == nil {
			cfg.Rules = standard
		}
		w.Agent = newAgent(t, cfg)
		t.Cleanup(func() { w.Close(context.Background()) }) // after a failure, so that the bubble can end
		test(w)
		if err := w.Close(t.Context()); err != nil {
			t.Errorf("Close: %v", err)
		}
		if n := w.Stats().Batcher.Waiting; n != 0 {
			t.Errorf("at rest, %d claims wait", n)
		}
	})
}

func newCells(t testing.TB) *memstore.Store {
	t.Helper()
	cells, err := memstore.New(memstore.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return cells
}

func newAgent(t testing.TB, cfg agent.Config) *agent.Agent {
	t.Helper()
	a, err := agent.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// parse is a rule set of the domain "api", one rule a line, in flow style.
func parse(lines ...string) *rules.Set {
	set, err := rules.Parse("", []byte("domain: api\nrules:\n  - {"+strings.Join(lines, "}\n  - {")+"}\n"))
	if err != nil {
		panic(err)
	}
	return set
}

// standard are the rules of most tests: buckets that do not fill while a test runs.
var standard = parse(
	`name: ten, match: [{key: user}], limit: 10/h`,
	`name: one, match: [{key: once}], limit: 1/h`,
	`name: second, match: [{key: quick}], limit: 1/s`,
	`name: zero, match: [{key: banned}], limit: 0/h`,
	`name: free, match: [{key: vip}], unlimited: true`,
	`name: pair, match: [{key: a}, {key: b}], limit: 10/h`,
	`name: route, match: [{key: route, value: /pay}, {key: user}], limit: 10/h`,
	`name: slow-open, match: [{key: open}], limit: 10/h, on_store_error: open`,
	`name: slow-closed, match: [{key: closed}], limit: 10/h, on_store_error: closed`,
	`name: slow-patient, match: [{key: patient}], limit: 10/h, deadline: 40ms, on_store_error: closed`,
	`name: slow-hasty, match: [{key: hasty}], limit: 10/h, deadline: 10ms, on_store_error: open`,
)

// d is a descriptor of keys and values.
func d(pairs ...string) rules.Descriptor {
	var d rules.Descriptor
	for i := 0; i < len(pairs); i += 2 {
		d = append(d, rules.Entry{Key: pairs[i], Value: pairs[i+1]})
	}
	return d
}

// ask checks a request that has a decision.
func (w *world) ask(n limit.Tokens, ds ...rules.Descriptor) limit.Decision {
	w.Helper()
	return w.askWith(w.Context(), n, ds...)
}

func (w *world) askWith(ctx context.Context, n limit.Tokens, ds ...rules.Descriptor) limit.Decision {
	w.Helper()
	got, err := w.Check(ctx, agent.Request{Domain: "api", Descriptors: ds, Hits: n})
	if err != nil {
		w.Fatalf("Check: %v", err)
	}
	return got
}

// left is what a peek at a bucket sees, by a store that is well again, when all that was under way has arrived.
func (w *world) left(d rules.Descriptor) limit.Tokens {
	w.Helper()
	if w.fake != nil {
		w.fake.befalls(all(-1, fate{}))
	}
	w.pass(time.Second)
	got := w.ask(0, d)
	if got.Reason != limit.OK {
		w.Fatalf("peek: %+v", got)
	}
	return got.Remaining
}

// pass lets virtual time pass.
func (w *world) pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// handle is the handle of a rule that is there.
func (w *world) handle(name string) *agent.Handle {
	w.Helper()
	h, err := w.Handle("api", name)
	if err != nil {
		w.Fatal(err)
	}
	return h
}

// outcome is a decision without its times.
type outcome struct {
	admitted  bool
	reason    limit.Reason
	limit     limit.Tokens
	remaining limit.Tokens
	rule      string
}

func short(d limit.Decision) outcome {
	return outcome{d.Admitted, d.Reason, d.Limit, d.Remaining, d.Rule}
}

// wants checks a decision, but for its times.
func (w *world) wants(what string, got limit.Decision, want outcome) {
	w.Helper()
	if short(got) != want {
		w.Errorf("%s: got %+v, want %+v", what, short(got), want)
	}
	if got.Admitted && got.RetryAfter != limit.NoRetry {
		w.Errorf("%s: admitted, and told to retry after %v", what, got.RetryAfter)
	}
}

func terms(t testing.TB, requests limit.Tokens, period time.Duration) *limit.Terms {
	t.Helper()
	compiled, err := limit.Rate{Requests: requests, Period: period}.Terms()
	if err != nil {
		t.Fatal(err)
	}
	return compiled
}

// throttle takes from a bucket named by its key, that has a decision.
func (w *world) throttle(key string, t *limit.Terms, n limit.Tokens) limit.Decision {
	w.Helper()
	got, err := w.Throttle(w.Context(), key, t, n)
	if err != nil {
		w.Fatalf("Throttle: %v", err)
	}
	return got
}

func name(format string, args ...any) string { return fmt.Sprintf(format, args...) }

// ds is one descriptor of keys and values.
func ds(pairs ...string) []rules.Descriptor { return []rules.Descriptor{d(pairs...)} }
