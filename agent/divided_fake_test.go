package agent_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillgate/spillgate/agent"
	"github.com/spillgate/spillgate/agent/split"
	"github.com/spillgate/spillgate/batcher"
	"github.com/spillgate/spillgate/internal/window"
	"github.com/spillgate/spillgate/limit"
	"github.com/spillgate/spillgate/memstore"
	"github.com/spillgate/spillgate/rules"
)

// masters are several memory stores behind one batcher.Store: part i lies i masters after home, and part 0 with it.
type masters struct {
	cells []*memstore.Store
	ways  int // into how many parts a bucket is divided
	fate  atomic.Pointer[func(master int, e *batcher.Entry) fate]

	mu struct {
		sync.Mutex
		entries []int   // that arrived, by master
		ops     [10]int // the same, by operation
	}
}

func newMasters(t testing.TB, n, ways int) *masters {
	m := &masters{ways: ways, cells: make([]*memstore.Store, n)}
	for i := range m.cells {
		m.cells[i] = newCells(t)
	}
	m.mu.entries = make([]int, n)
	return m
}

func (m *masters) Secret() (*limit.Secret, bool) { return m.cells[0].Secret() }

func (m *masters) Divisible() bool { return m.ways > 1 }

func (m *masters) Shard(b *limit.Bucket, part *limit.Part) int {
	return (m.home(b) + max(0, part.At()-1)) % len(m.cells)
}

func (m *masters) home(b *limit.Bucket) int { return int(b.Sum().Lo % uint64(len(m.cells))) }

func (m *masters) Apply(ctx context.Context, master int, entries []*batcher.Entry) {
	var delay time.Duration
	for _, e := range entries {
		var ft fate
		if by := m.fate.Load(); by != nil {
			ft = (*by)(master, e)
		}
		delay = max(delay, ft.delay)
		if ft.err == nil || ft.runs {
			m.apply(master, e)
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

// apply runs an entry, and fills in the division that suits the store.
func (m *masters) apply(master int, e *batcher.Entry) {
	if e.Op == limit.Touch {
		p := *e.Part
		if p.Stride = 1; p.Ways == 0 || p.Ways > m.ways {
			p.Ways = m.ways
		}
		e.Part = &p
	}
	m.cells[master].ApplyAt(m.cells[master].Now(), e)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.entries[master]++
	m.mu.ops[e.Op]++
}

// counted are the entries since the last call, by master and by operation.
func (m *masters) counted() (by []int, ops [10]int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	by, ops = m.mu.entries, m.mu.ops
	m.mu.entries, m.mu.ops = make([]int, len(by)), [10]int{}
	return by, ops
}

func (m *masters) befalls(by func(master int, e *batcher.Entry) fate) { m.fate.Store(&by) }

// run runs one entry as if another agent had sent it.
func (m *masters) run(e *batcher.Entry) *batcher.Entry {
	m.apply(m.Shard(&e.Bucket, e.Part), e)
	return e
}

// loaded is what an agent tells home that has a great load.
func loaded() *limit.Part { return &limit.Part{Home: true, Ops: 1 << 20, Threshold: 1} }

// split has home divide a bucket at once, as if a great load had been told, and looks at the parts, as an agent does
// then.
func (m *masters) split(b limit.Bucket, t *limit.Terms) limit.Split {
	e := m.run(&batcher.Entry{Bucket: b, Terms: t, Op: limit.Touch, Part: loaded()})
	if e.Split == nil || e.Split.Ways < 2 {
		panic(fmt.Sprintf("home did not split: %+v, %v", e.Split, e.Err))
	}
	for i := range e.Split.Ways {
		m.run(&batcher.Entry{Bucket: b, Terms: t, Op: limit.TakePartial, Part: &limit.Part{Index: i, Split: e.Split.Split}})
	}
	return e.Split.Split
}

// at is the state of a part, or of home while the bucket is whole: its free tokens, by a look; of a part that nobody has touched, what
// it would begin with.
func (m *masters) at(b limit.Bucket, t *limit.Terms, s limit.Split, index int) limit.Tokens {
	e := m.run(&batcher.Entry{Bucket: b, Terms: t, Op: limit.TakePartial, Part: partOf(s, index)})
	p := *t
	if s.Ways > 0 {
		p = t.Part(s.Ways, index)
	}
	if e.Err != nil {
		return -1
	}
	return p.Remaining(e.Out.Level)
}

// partOf names a part; nil, which is home, if the bucket is whole.
func partOf(s limit.Split, index int) *limit.Part {
	if s.Ways == 0 {
		return nil
	}
	return &limit.Part{Index: index, Split: s}
}

// free are the tokens of all parts, not counting what is out on lease.
func (m *masters) free(b limit.Bucket, t *limit.Terms, s limit.Split) (n limit.Tokens) {
	for i := range max(1, s.Ways) {
		n += m.at(b, t, s, i)
	}
	return n
}

// now is how home says that a bucket is divided.
func (m *masters) now(b limit.Bucket, t *limit.Terms) limit.Split {
	e := m.run(&batcher.Entry{Bucket: b, Terms: t, Op: limit.TakePartial})
	if e.Split == nil {
		return limit.Split{}
	}
	return e.Split.Split
}

// fleet is some agents on one store of several masters, in virtual time, and what they admitted.
type fleet struct {
	*testing.T
	store *masters
	all   []*agent.Agent
	begun time.Time

	mu struct {
		sync.Mutex
		events [][]split.EventKind
		ledger map[string][]window.Admission // by bucket
	}
}

type fleetConfig struct {
	agents, masters, ways int
	cfg                   agent.Config
}

// inFleet runs a test with a fleet, in virtual time. The agents are closed at its end and must be at rest.
func inFleet(t *testing.T, c fleetConfig, test func(f *fleet)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f := &fleet{T: t, store: newMasters(t, c.masters, c.ways), begun: time.Now()}
		f.mu.events, f.mu.ledger = make([][]split.EventKind, c.agents), map[string][]window.Admission{}
		for i := range c.agents {
			cfg := c.cfg
			cfg.Store = f.store
			cfg.OnSplit = func(e split.Event) {
				f.mu.Lock()
				defer f.mu.Unlock()
				f.mu.events[i] = append(f.mu.events[i], e.Kind)
			}
			f.all = append(f.all, newAgent(t, cfg))
			// Agents of a fleet do not start at one moment.
			time.Sleep(3711 * time.Microsecond)
		}
		t.Cleanup(func() { f.close() }) // after a failure, so that the bubble can end
		test(f)
		f.close()
		for i, a := range f.all {
			if n := a.Stats().Batcher.Waiting; n != 0 {
				t.Errorf("at rest, %d claims of agent %d wait", n, i)
			}
		}
	})
}

func (f *fleet) close() {
	for _, a := range f.all {
		if err := a.Close(context.Background()); err != nil {
			f.Errorf("Close: %v", err)
		}
	}
}

func (f *fleet) setRules(set *rules.Set) {
	for _, a := range f.all {
		a.SetRules(set)
	}
}

// bucket is that of a rule's value.
func (f *fleet) bucket(rule, value string) (b limit.Bucket) {
	secret, _ := f.store.Secret()
	secret.Name(&b, limit.AppendPart(limit.AppendPart(limit.AppendPart(nil, "api"), rule), value))
	return b
}

// since is the time of the fleet.
func (f *fleet) since() time.Duration { return time.Since(f.begun) }

// ask checks a request at one agent, and takes down what was admitted by the store's word.
func (f *fleet) ask(i int, n limit.Tokens, ds ...rules.Descriptor) limit.Decision {
	f.Helper()
	sent := f.since()
	got, err := f.all[i].Check(f.Context(), agent.Request{Domain: "api", Descriptors: ds, Hits: n})
	if err != nil {
		f.Fatalf("Check: %v", err)
	}
	if got.Admitted && got.Reason == limit.OK && n > 0 {
		f.mu.Lock()
		defer f.mu.Unlock()
		for _, d := range ds {
			key := d[0].Key
			f.mu.ledger[key] = append(f.mu.ledger[key], window.Admission{Sent: sent, Received: f.since(), Tokens: int64(n)})
		}
	}
	return got
}

// reset fills a bucket by order of one agent.
func (f *fleet) reset(i int, d rules.Descriptor) error {
	f.Helper()
	b := f.all[i].NewBatch()
	b.Begin()
	at := b.Reset("api", []rules.Descriptor{d})
	b.Decide(f.Context())
	_, err := b.Decision(at)
	return err
}

// admitted are the tokens admitted so far for a key.
func (f *fleet) admitted(key string) (n int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, a := range f.mu.ledger[key] {
		n += a.Tokens
	}
	return n
}

// forget empties the ledger: a bucket was filled, or its limit changed.
func (f *fleet) forget() {
	f.mu.Lock()
	defer f.mu.Unlock()
	clear(f.mu.ledger)
}

// neverOver holds what was admitted for a key against its limit, in every window (G1).
func (f *fleet) neverOver(key string, l window.Limit) {
	f.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	if w := window.Worst(f.mu.ledger[key], l); w.Breach() {
		f.Errorf("%s: %v", key, w)
	}
}

// events are those of one agent so far.
func (f *fleet) events(i int) []split.EventKind {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]split.EventKind(nil), f.mu.events[i]...)
}

// pass lets virtual time pass.
func (f *fleet) pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// keep keeps a bucket divided, as a loaded agent would, until the returned function is called.
func (f *fleet) keep(b limit.Bucket, t *limit.Terms) (stop func()) {
	f.store.split(b, t)
	end, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-end:
				return
			case <-time.After(211 * time.Millisecond):
				f.store.run(&batcher.Entry{Bucket: b, Terms: t, Op: limit.Touch, Part: loaded()})
			}
		}
	}()
	once := sync.OnceFunc(func() { close(end); <-done })
	f.Cleanup(once)
	return once
}

// load asks at every agent, from so many callers each, with a check in every pause of a caller, for some time. It returns how
// many checks were made and admitted.
func (f *fleet) load(callers int, pause, whole time.Duration, n limit.Tokens, ds ...rules.Descriptor) (checks, admitted int64) {
	f.Helper()
	var wg sync.WaitGroup
	var made, ok atomic.Int64
	for i := range f.all {
		wg.Go(func() {
			m, a := f.loadAt(i, callers, pause, whole, n, ds...)
			made.Add(m)
			ok.Add(a)
		})
	}
	wg.Wait()
	return made.Load(), ok.Load()
}

// loadAt is load at one agent.
func (f *fleet) loadAt(i, callers int, pause, whole time.Duration, n limit.Tokens, ds ...rules.Descriptor) (checks, admitted int64) {
	f.Helper()
	var wg sync.WaitGroup
	var made, ok atomic.Int64
	begin := time.Now()
	for c := range callers {
		wg.Go(func() {
			for at := begin.Add(pause * time.Duration(c) / time.Duration(callers)); at.Before(begin.Add(whole)); at = at.Add(pause) {
				time.Sleep(time.Until(at))
				made.Add(1)
				if f.ask(i, n, ds...).Admitted {
					ok.Add(1)
				}
			}
		})
	}
	wg.Wait()
	return made.Load(), ok.Load()
}

// trip is the time of a call to the store.
const trip = 500 * time.Microsecond

// distant gives every call its travel time.
func distant(int, *batcher.Entry) fate { return fate{delay: trip} }

// drain takes all that the parts have.
func (m *masters) drain(b limit.Bucket, t *limit.Terms, s limit.Split) {
	for i := range max(1, s.Ways) {
		m.run(&batcher.Entry{Bucket: b, Terms: t, Op: limit.TakePartial, N: t.Burst, Part: partOf(s, i)})
	}
}
