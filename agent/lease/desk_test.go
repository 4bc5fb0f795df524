package lease

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/spillgate/spillgate/batcher"
	"github.com/spillgate/spillgate/hotkeys"
	"github.com/spillgate/spillgate/limit"
	"github.com/spillgate/spillgate/memstore"
)

// office is a Desk, its clock, its memory, and a store that answers when the test says so.
type office struct {
	*Desk
	t      *testing.T
	now    int64
	notes  notes
	cells  *memstore.Store
	line   batcher.Line // what was sent and has no reply yet
	refuse error        // of Send
}

func open(t *testing.T, most int) *office {
	t.Helper()
	cells, err := memstore.New(memstore.Config{})
	if err != nil {
		t.Fatal(err)
	}
	o := &office{t: t, now: 1_000_000 * second, notes: notes{}, cells: cells}
	tracker, err := hotkeys.New(hotkeys.Config{Top: 10})
	if err != nil {
		t.Fatal(err)
	}
	o.Desk, err = NewDesk(Config{Tracker: tracker, Memory: o.notes, Clock: func() int64 { return o.now }, Most: most, Seed: 1,
		Send: func(c *batcher.Claim) error {
			if o.refuse == nil {
				o.line.Add(c)
			}
			return o.refuse
		}})
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// notes are a Memory that forgets nothing.
type notes map[limit.Sum]Known

func (n notes) Get(sum limit.Sum) (Known, bool) { k, ok := n[sum]; return k, ok }
func (n notes) Set(k Known)                     { n[k.Sum] = k }
func (n notes) Forget(sum limit.Sum)            { delete(n, sum) }

func (o *office) name(id string) (b limit.Bucket) {
	secret, _ := o.cells.Secret()
	secret.Name(&b, []byte(id))
	return b
}

// run runs one entry on the store.
func (o *office) run(c *batcher.Claim) limit.Outcome {
	e := batcher.Entry{Bucket: c.Bucket, Terms: c.Terms, Op: c.Op, N: c.N, Ask: c.Ask}
	o.cells.ApplyAt(o.now, &e)
	return e.Out
}

// answer brings the replies of all that was sent.
func (o *office) answer() {
	for o.line.Len() > 0 {
		var load batcher.Load
		var done []*batcher.Claim
		o.line.Next(256, &load)
		for _, e := range load.Entries {
			o.cells.ApplyAt(o.now, e)
		}
		o.line.Settle(&load, func(c *batcher.Claim) { done = append(done, c) })
		for _, c := range done {
			if c.Done != nil {
				c.Done(c)
			}
		}
	}
}

// check decides a check as a Batch does it: at once, or by the store.
func (o *office) check(id string, c Check) limit.Decision {
	o.t.Helper()
	var d limit.Decision
	b := o.name(id)
	r, found := o.Hot([]byte(id), &c, 0, &d)
	if !found {
		r = o.Cold([]byte(id), &b, &c, &d)
	}
	if r.Decided {
		return d
	}
	claim := &batcher.Claim{Bucket: b, Terms: c.Terms, Op: limit.Take, N: c.N}
	o.line.Add(claim)
	o.answer()
	return o.Learn(&r, claim)
}

// heat makes a bucket hot, by checks that the store decides.
func (o *office) heat(id string, t *limit.Terms) {
	o.t.Helper()
	before := o.Stats().Holdings
	for range 100 {
		if o.check(id, Check{Terms: t, N: 1}); o.Stats().Holdings > before {
			o.answer()
			return
		}
	}
	o.t.Fatalf("%s does not become hot", id)
}

func TestDeskConfig(t *testing.T) {
	tracker, _ := hotkeys.New(hotkeys.Config{})
	good := Config{Tracker: tracker, Memory: notes{}, Clock: func() int64 { return 0 }, Send: func(*batcher.Claim) error { return nil }}
	if _, err := NewDesk(good); err != nil {
		t.Error(err)
	}
	for i, spoil := range []func(*Config){
		func(c *Config) { c.Tracker = nil }, func(c *Config) { c.Memory = nil }, func(c *Config) { c.Clock = nil },
		func(c *Config) { c.Send = nil }, func(c *Config) { c.Most = -1 },
	} {
		bad := good
		spoil(&bad)
		if d, err := NewDesk(bad); err == nil || d != nil {
			t.Errorf("%d: no error", i)
		}
	}
}

// TestLastTokenAtTheDesk is fault 14 on a hot bucket: 9 to 0 remain, then the denial, until the next one is there.
func TestLastTokenAtTheDesk(t *testing.T) {
	o, ten := open(t, 0), rate(t, 10, time.Hour, 0)
	o.heat("a", ten)
	o.Desk.Close()
	o.answer()
	b := o.name("a")
	o.now += 4 * second                                           // one agent, and not two, by the store's count
	o.run(&batcher.Claim{Bucket: b, Terms: ten, Op: limit.Reset}) // full, and hot at the next check
	o.Forget([]byte("a"), &b)
	for i := range 14 {
		got := o.check("a", Check{Terms: ten, N: 1})
		want := limit.Decision{Admitted: true, Reason: limit.OK, Limit: 10, Remaining: limit.Tokens(9 - i), RetryAfter: limit.NoRetry, ResetAfter: time.Duration(i+1) * 6 * time.Minute}
		if i >= 10 {
			want = limit.Decision{Reason: limit.OverLimit, Limit: 10, RetryAfter: 6 * time.Minute, ResetAfter: time.Hour}
		}
		if got != want {
			t.Errorf("check %d: %+v\nwant %+v", i+1, got, want)
		}
	}
	if s := o.Stats(); s.Holdings != 1 || s.Admitted == 0 || s.Denied == 0 {
		t.Errorf("%+v: this was not about a hot bucket", s)
	}
}

// TestDeskForget: after a reset the next check is admitted, on a hot bucket and on one that is known to be empty.
func TestDeskForget(t *testing.T) {
	for _, hot := range []bool{false, true} {
		o, ten := open(t, 0), rate(t, 10, time.Hour, 0)
		b := o.name("a")
		if hot {
			o.heat("a", ten)
		}
		o.check("a", Check{Terms: ten, N: 10})
		for range 12 {
			o.check("a", Check{Terms: ten, N: 1})
		}
		if d := o.check("a", Check{Terms: ten, N: 1}); d.Admitted {
			t.Fatalf("hot %v: %+v", hot, d)
		}
		if s := o.Stats(); s.KnownDenied+s.Denied == 0 {
			t.Fatalf("hot %v: nothing was denied here", hot)
		}
		o.Forget([]byte("a"), &b)
		o.run(&batcher.Claim{Bucket: b, Terms: ten, Op: limit.Reset})
		if d := o.check("a", Check{Terms: ten, N: 1}); !d.Admitted {
			t.Errorf("hot %v: after the reset: %+v", hot, d)
		}
	}
}

// TestChangedTerms: checks in other terms go to the store. When nobody asks in the old ones any more, what is held goes back and the
// bucket becomes hot again in its new terms; equal ones do not matter.
func TestChangedTerms(t *testing.T) {
	o, ten, twenty := open(t, 0), rate(t, 10, time.Second, 0), rate(t, 20, time.Second, 0)
	o.heat("a", ten)
	same := *ten
	o.check("a", Check{Terms: &same, N: 1})
	if s := o.Stats(); s.Holdings != 1 || s.Demoted != 0 {
		t.Errorf("equal terms: %+v", s)
	}
	var d limit.Decision
	if o.Local([]byte("a"), ten, 1, &d) && d.Limit != 10 {
		t.Errorf("%+v", d)
	}
	o.now += second
	o.check("a", Check{Terms: &same, N: 1})
	o.check("a", Check{Terms: twenty, N: 1})
	if s := o.Stats(); s.Demoted != 0 {
		t.Errorf("while both are asked for: %+v", s)
	}
	o.Tend() // somebody asked in the old terms
	o.check("a", Check{Terms: twenty, N: 1})
	o.Tend()
	o.check("a", Check{Terms: twenty, N: 1})
	o.answer()
	if s := o.Stats(); s.Demoted != 1 || s.Promoted != 2 || s.Granted != s.Spent+s.Returned+s.Expired+uint64(s.Held) {
		t.Errorf("changed terms: %+v", s)
	}
	if o.Local([]byte("a"), ten, 1, &d) {
		t.Error("decided in terms that are no longer in force")
	}
}

// TestMost bounds the Holdings. Whatever is hot beyond them is decided by the store.
func TestMost(t *testing.T) {
	o, ten := open(t, 2), rate(t, 10, time.Second, 0)
	for i := range 5 {
		for range 30 {
			o.check(fmt.Sprint(i), Check{Terms: ten, N: 1})
		}
	}
	if s := o.Stats(); s.Holdings != 2 || s.Promoted != 2 {
		t.Errorf("%+v, want two", s)
	}
}

// TestTend returns what nobody wants, and ends what is cold.
func TestTend(t *testing.T) {
	o, many := open(t, 0), rate(t, 1000, time.Second, 0)
	o.heat("a", many)
	for range 30 {
		o.check("a", Check{Terms: many, N: 1})
		o.now += ms
	}
	o.answer()
	if s := o.Stats(); s.Held == 0 {
		t.Fatalf("nothing is on lease: %+v", s)
	}
	o.Tend()
	o.answer()
	if s := o.Stats(); s.Held == 0 || s.Holdings != 1 {
		t.Errorf("at once: %+v", s)
	}
	o.now += 501 * ms
	o.Tend()
	o.answer()
	s := o.Stats()
	if s.Held != 0 || s.Returned+s.Expired == 0 || s.Holdings != 1 {
		t.Errorf("idle: %+v", s)
	}
	// The store has it all again, once what was spent has refilled.
	o.now += 100 * ms
	b := o.name("a")
	if out := o.run(&batcher.Claim{Bucket: b, Terms: many, Op: limit.TakePartial}); out.Level != 0 {
		t.Errorf("%d tokens are missing", out.Level/many.Emission)
	}
	for range 100 {
		o.now += 100 * ms
		o.Tend()
		o.answer()
	}
	if s := o.Stats(); s.Holdings != 0 || s.Demoted != 1 || s.Granted != s.Spent+s.Returned+s.Expired {
		t.Errorf("cold: %+v", s)
	}
	if n := o.line.Len(); n > 0 {
		t.Errorf("%d claims", n)
	}
}

// TestTendKeepsWhatIsBusy: local admissions count for the tracker.
func TestTendKeepsWhatIsBusy(t *testing.T) {
	o, many := open(t, 0), rate(t, 1000, time.Second, 0)
	o.heat("a", many)
	for i := range 1000 {
		o.check("a", Check{Terms: many, N: 1})
		if o.now += 10 * ms; i%10 == 0 {
			o.Tend()
			o.answer()
		}
	}
	s := o.Stats()
	if s.Holdings != 1 || s.Demoted != 0 || s.Admitted < 900 {
		t.Errorf("100 checks a second for 10 s: %+v, want nearly all of them decided here", s)
	}
	if s.Asks > 100 {
		t.Errorf("%d requests for 1000 checks on a bucket that is nearly full", s.Asks)
	}
}

// TestDeskClose tells the store everything, also of replies that come later.
func TestDeskClose(t *testing.T) {
	o, many := open(t, 0), rate(t, 100, time.Second, 0)
	for _, id := range []string{"a", "b"} {
		o.heat(id, many)
		for range 10 {
			o.check(id, Check{Terms: many, N: 1})
			o.now += ms
		}
	}
	var d limit.Decision
	for r, c := (Ruling{}), (Check{Terms: many, N: 1}); o.line.Len() == 0; { // until a request is in flight
		if r, _ = o.Hot([]byte("a"), &c, 0, &d); !r.Decided && o.line.Len() == 0 {
			t.Fatal("no request")
		}
	}
	o.Close()
	o.answer()
	s := o.Stats()
	if s.Holdings != 0 || s.Held != 0 || s.Demoted != 2 || s.Granted != s.Spent+s.Returned+s.Expired {
		t.Errorf("%+v", s)
	}
	if o.Local([]byte("a"), many, 1, &d) {
		t.Error("decided here after Close")
	}
	for _, id := range []string{"a", "b"} {
		e := batcher.Entry{Bucket: o.name(id), Terms: many, Op: limit.Lease} // looks at what is out
		o.cells.ApplyAt(o.now, &e)
		o.now += second
		e = batcher.Entry{Bucket: o.name(id), Terms: many, Op: limit.TakePartial}
		o.cells.ApplyAt(o.now, &e)
		if e.Out.Level != 0 { // what is out would keep the bucket from filling
			t.Errorf("%s: %d tokens are still out", id, e.Out.Level/many.Emission)
		}
	}
}

// TestLooks take nothing from here, and see what is held as if it were in the bucket.
func TestLooks(t *testing.T) {
	o, many := open(t, 0), rate(t, 100, time.Hour, 0)
	o.heat("a", many)
	for range 5 {
		o.check("a", Check{Terms: many, N: 1})
		o.now += 30 * ms
	}
	before := o.Stats()
	if before.Held == 0 {
		t.Fatalf("%+v", before)
	}
	b := o.name("a")
	free := many.Remaining(o.run(&batcher.Claim{Bucket: b, Terms: many, Op: limit.TakePartial}).Level)
	d := o.check("a", Check{Terms: many, N: 0})
	if !d.Admitted || d.Remaining != free+before.Held {
		t.Errorf("%+v, want %d: %d in the bucket and %d here", d, free+before.Held, free, before.Held)
	}
	if d := o.check("a", Check{Terms: many, N: 101}); d.Admitted || d.Reason != limit.Never || d.Remaining != free+before.Held {
		t.Errorf("%+v", d)
	}
	if after := o.Stats(); after.Held != before.Held || after.Spent != before.Spent {
		t.Errorf("%+v, before %+v", after, before)
	}
}

// TestSendRefused: what cannot be queued is asked for later, and a charge that cannot be is no admission.
func TestSendRefused(t *testing.T) {
	o, many := open(t, 0), rate(t, 1000, time.Second, 0)
	o.heat("a", many)
	o.now += second
	o.refuse = errors.New("full")
	if d := o.check("a", Check{Terms: many, N: 1}); !d.Admitted { // by the store
		t.Errorf("%+v", d)
	}
	if d := o.check("b", Check{Terms: many, N: 1, Allowance: 5}); !d.Admitted || o.Stats().Charged != 0 {
		t.Errorf("%+v, %+v", d, o.Stats())
	}
	if o.credits.entries() != 0 {
		t.Error("the allowance is taken")
	}
	o.refuse = nil
	o.now += 30 * ms
	o.check("a", Check{Terms: many, N: 1})
	if s := o.Stats(); s.Held == 0 {
		t.Errorf("%+v: no lease after the refusal", s)
	}
}

// TestLocalAllocates nothing.
func TestLocalAllocates(t *testing.T) {
	o, many := open(t, 0), rate(t, 1_000_000_000, time.Second, 0)
	o.heat("a", many)
	for range 50 {
		o.now += 20 * ms
		o.check("a", Check{Terms: many, N: 1_000_000})
	}
	id := []byte("a")
	var d limit.Decision
	local := 0
	if n := testing.AllocsPerRun(1000, func() {
		if o.Local(id, many, 1, &d) {
			local++
		}
	}); n != 0 || local < 1000 {
		t.Errorf("%v allocations, %d of 1001 decided here", n, local)
	}
	c := Check{Terms: many, N: 1}
	if n := testing.AllocsPerRun(1000, func() { o.Hot(id, &c, 0, &d) }); n != 0 {
		t.Errorf("Hot: %v allocations", n)
	}
}

// TestLargeClaimOverStripes: what lies in several stripes is not to be had at once here; the claim goes to the store with all of
// it, and does not go round in circles.
func TestLargeClaimOverStripes(t *testing.T) {
	terms := rate(t, 1000, time.Second, 0)
	h := hold(t, terms, 1000)
	h.stripes = 4
	h.reply(h.plans(1, Send), 400, 500, 7, 0)
	if v := h.check(150); v != Ask {
		t.Fatalf("150 of four times 100: verdict %d", v)
	}
	r := h.plans(150, Send)
	h.settles(r, 7, 400, 400)
}
