package lease

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/spillgate/spillgate/batcher"
	"github.com/spillgate/spillgate/limit"
	"github.com/spillgate/spillgate/memstore"
)

// fleet is some agents' Holdings of one bucket, a store, and a ledger that recounts every token.
type fleet struct {
	fataler
	dice   func(lo, hi int64) int64
	terms  *limit.Terms
	bucket limit.Bucket
	cells  *memstore.Store
	now    int64 // of the agents and of the store
	agents [3]agent
	tat    float64 // of the reference bucket that the admissions are replayed into, in ticks
	start  int64

	// What was seen, so that tame histories are found out.
	local, denied, late, lost, undone, renewed int
}

// fataler is a test, by rapid or not.
type fataler interface {
	Helper()
	Fatal(...any)
	Fatalf(string, ...any)
}

// agent is a Holding, with what is known of it from outside.
type agent struct {
	*Holding
	flight    *flight
	granted   map[int64]limit.Tokens // by epoch, as far as replies came
	settled   map[int64]limit.Tokens // by epoch, as far as the store may have heard
	returned  limit.Tokens
	spent     uint64
	rode, got limit.Tokens
	checks    uint64
	denials   uint64
	asks      uint64
}

// flight is a request on its way.
type flight struct {
	Request
	riders []limit.Tokens
	ran    bool
	ranAt  int64
	out    limit.Outcome
}

func newFleet(t fataler, dice func(lo, hi int64) int64) *fleet {
	f := &fleet{fataler: t, dice: dice, now: 1_000_000 * second}
	for f.terms == nil {
		f.terms, _ = limit.Rate{Requests: limit.Tokens(dice(1, 500)), Burst: limit.Tokens(dice(1, 200)), Period: time.Second}.Terms()
	}
	var err error
	if f.cells, err = memstore.New(memstore.Config{}); err != nil {
		t.Fatal(err)
	}
	secret, _ := f.cells.Secret()
	secret.Name(&f.bucket, []byte("b"))
	f.start = f.now
	for i := range f.agents {
		f.join(&f.agents[i])
	}
	return f
}

func (f *fleet) join(a *agent) {
	h := New([]byte("b"), &f.bucket, f.terms, f.now, float64(f.dice(5, 300)), uint64(f.dice(1, 1<<30)))
	*a = agent{Holding: h, granted: map[int64]limit.Tokens{}, settled: map[int64]limit.Tokens{}}
}

// admit replays an admission. The bucket may never have given more than it had.
func (f *fleet) admit(n limit.Tokens) {
	f.Helper()
	now := float64(f.terms.Class.PerMicro) / 1000 * float64(f.now-f.start)
	f.tat = max(f.tat, now) + float64(limit.Ticks(n)*f.terms.Emission)
	// A tick for each rounding of a time, and they do not add up.
	if over := f.tat - now - float64(f.terms.Depth); over > 16 {
		f.Fatalf("admitted %.4f tokens more than there were", over/float64(f.terms.Emission))
	}
}

// run runs an entry on the store, now.
func (f *fleet) run(op limit.Op, n limit.Tokens, ask limit.Ask) limit.Outcome {
	e := batcher.Entry{Bucket: f.bucket, Terms: f.terms, Op: op, N: n, Ask: ask}
	f.cells.ApplyAt(f.now, &e)
	if e.Err != nil {
		f.Fatal(e.Err)
	}
	return e.Out
}

func (f *fleet) pass(most time.Duration) { f.now += f.dice(0, int64(most)) }

// check is a check of n tokens at an agent, as a Desk does it.
func (f *fleet) check(a *agent, n limit.Tokens) {
	for range 100 {
		s := a.Spend(n, 0)
		if s.ok {
			a.spent += uint64(n)
		}
		if f.dice(0, 30) == 0 {
			f.pass(4 * time.Second) // the process is stopped
		}
		switch v := a.Judge(s, f.now); v {
		case AdmitAndRenew, Admit:
			if v == AdmitAndRenew {
				if step, r := a.Plan(f.now, 0); step == Send {
					f.send(a, r)
					f.renewed++
				}
			}
			f.local++
			a.checks++
			if f.dice(0, 5) > 0 {
				f.admit(n)
				return
			}
			// Another rule denied: what was taken goes back.
			f.undone++
			a.checks--
			if a.Unspend(s) {
				a.spent -= uint64(n)
			} else {
				f.run(limit.Refund, n, limit.Ask{})
			}
			return
		case Deny:
			f.denied++
			a.denials++
			return
		}
		step, r := a.Plan(f.now, n)
		if step == Again {
			continue
		}
		if step == Send {
			f.send(a, r)
		}
		if fl := a.flight; fl != nil && (!fl.ran || fl.Want > 0) {
			fl.riders = append(fl.riders, n)
			return
		}
		f.take(n)
		return
	}
	f.Fatalf("a check of %d comes to no end", n)
}

// take is a take that goes to the store by itself.
func (f *fleet) take(n limit.Tokens) {
	if out := f.run(limit.Take, n, limit.Ask{}); out.Granted > 0 {
		f.admit(out.Granted)
	}
}

func (f *fleet) send(a *agent, r Request) {
	if a.flight != nil {
		f.Fatal("two requests are in flight")
	}
	if r.Want < 0 || r.Want > f.terms.Burst || r.Ask.Returned > r.Ask.Settled || r.Want > 0 && r.Ask.Presence < 1 || r.Ask.Presence > limit.Presence {
		f.Fatalf("%+v", r)
	}
	a.flight = &flight{Request: r}
	a.asks++
}

// settle takes down what a request tells the store: of each epoch never more than was granted in it.
func (a *agent) settle(f *fleet, ask *limit.Ask) {
	a.settled[ask.Epoch] += ask.Settled
	a.returned += ask.Returned
	if ask.Settled > 0 && a.settled[ask.Epoch] > a.granted[ask.Epoch] {
		f.Fatalf("epoch %d: settled %d of %d", ask.Epoch, a.settled[ask.Epoch], a.granted[ask.Epoch])
	}
}

// arrive runs the request in flight on the store.
func (f *fleet) arrive(a *agent) {
	fl := a.flight
	if fl == nil || fl.ran {
		return
	}
	fl.ran, fl.ranAt = true, f.now
	a.settle(f, &fl.Ask)
	ask := fl.Ask
	for _, n := range fl.riders {
		ask.Take = min(ask.Take+n, f.terms.Burst)
	}
	fl.out = f.run(limit.Lease, fl.Want, ask)
	taken := fl.out.Taken
	for _, n := range fl.riders {
		if n <= taken {
			taken -= n
			f.admit(n)
		}
	}
	fl.riders = nil
	if taken > 0 {
		f.run(limit.Refund, taken, limit.Ask{})
	}
}

// answer brings the reply, or an error, to the agent.
func (f *fleet) answer(a *agent) {
	fl := a.flight
	if fl == nil {
		return
	}
	a.flight = nil
	switch luck := f.dice(0, 9); {
	case !fl.ran:
		f.lost++
		a.Apply(fl.Request, Answer{Failed: true, NotRun: true}, f.now)
		f.late0(a)
		return
	case luck == 0: // it ran, and nobody knows
		f.lost++
		a.Apply(fl.Request, Answer{Failed: true}, f.now)
		f.late0(a)
		return
	}
	// Riders that came late take from the lease, if it has not ended.
	rode := limit.Tokens(0)
	for _, n := range fl.riders {
		if rode+n <= fl.out.Granted {
			rode += n
			if f.now-fl.ranAt < spendable {
				f.admit(n)
			}
		}
	}
	a.granted[fl.out.Epoch] += fl.out.Granted
	a.rode += rode
	fl.out.Granted -= rode
	a.got += fl.out.Granted
	a.Apply(fl.Request, Answer{Out: fl.out, Rode: rode}, f.now)
	f.late0(a)
}

// late0 sends what is left to tell of a Holding that has ended. Its requests need no reply.
func (f *fleet) late0(a *agent) {
	all := a.Late(f.now)
	f.tell(a, all)
	f.late += len(all)
}

func (f *fleet) tell(a *agent, all []Request) {
	for _, r := range all {
		a.asks++
		a.settle(f, &r.Ask)
		f.run(limit.Lease, 0, r.Ask)
	}
}

// audit holds the totals of an agent against what was seen from outside.
func (f *fleet) audit(a *agent) {
	f.Helper()
	s := a.State()
	n := s.Totals
	want := Totals{Granted: uint64(a.got), Rode: uint64(a.rode), Spent: a.spent, Returned: n.Returned, Expired: n.Expired,
		Asks: a.asks, Admitted: a.checks, Denied: a.denials}
	if n != want {
		f.Fatalf("totals\n%+v, want\n%+v", n, want)
	}
	if n.Granted != n.Spent+n.Returned+n.Expired+uint64(s.Held) {
		f.Fatalf("granted %d = spent %d + returned %d + expired %d + held %d does not hold", n.Granted, n.Spent, n.Returned, n.Expired, s.Held)
	}
	if uint64(a.returned) > n.Returned || s.Held < 0 || s.Demand < 0 {
		f.Fatalf("the store was returned %d; %+v", a.returned, s)
	}
}

func (f *fleet) play(events int64) {
	for range events {
		a := &f.agents[f.dice(0, int64(len(f.agents))-1)]
		switch f.dice(0, 19) {
		case 0, 1, 2, 3, 4, 5, 6, 7, 8:
			for range f.dice(1, 20) {
				f.check(a, 1)
			}
		case 9:
			f.check(a, limit.Tokens(f.dice(1, int64(f.terms.Burst))))
		case 10, 11:
			f.arrive(a)
		case 12, 13, 14:
			f.arrive(a)
			f.answer(a)
		case 15:
			f.answer(a)
		case 16:
			if _, r, send := a.Tend(f.now); send {
				f.send(a, r)
			}
		case 17:
			a.Forget(f.now)
		case 18:
			if f.dice(0, 9) > 0 {
				break
			}
			f.tell(a, a.Release(f.now))
			f.arrive(a)
			f.answer(a)
			f.audit(a)
			if held := a.State().Held; held != 0 {
				f.Fatalf("released, and yet holds %d", held)
			}
			f.join(a)
		default:
			f.pass(time.Duration(f.dice(0, 1)+1) * time.Duration(f.dice(1, 500)) * time.Millisecond)
			continue
		}
		f.pass(5 * time.Millisecond)
		f.audit(a)
	}
}

// TestHoldingsNeverOver: whatever happens to requests, replies and processes, the totals add up, every token is told of
// at most once, and no bucket gives more than it had (G1).
func TestHoldingsNeverOver(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := newFleet(t, func(lo, hi int64) int64 { return rapid.Int64Range(lo, hi).Draw(t, "") })
		f.play(f.dice(1, 100))
	})
}

// TestHoldingsInLongHistories is the same with plain dice, which find other histories than rapid's.
func TestHoldingsInLongHistories(t *testing.T) {
	var all fleet
	for seed := range uint64(250) {
		r := rand.New(rand.NewPCG(seed, 1))
		f := newFleet(seeded{t, seed}, func(lo, hi int64) int64 { return lo + r.Int64N(hi-lo+1) })
		f.play(500)
		all.local += f.local
		all.denied += f.denied
		all.late += f.late
		all.lost += f.lost
		all.undone += f.undone
		all.renewed += f.renewed
	}
	if all.local < 5000 || all.denied < 10_000 || all.late < 20 || all.lost < 500 || all.undone < 500 || all.renewed < 500 {
		t.Errorf("the histories are too tame: %d local admissions, %d denials, %d told late, %d lost, %d undone, %d renewed",
			all.local, all.denied, all.late, all.lost, all.undone, all.renewed)
	}
}

// seeded names the history that failed.
type seeded struct {
	*testing.T
	seed uint64
}

func (s seeded) Fatalf(format string, args ...any) {
	s.Helper()
	s.T.Fatalf("seed %d: "+format, append([]any{s.seed}, args...)...)
}

// TestHoldingUnderRace: several spend while one plans and answers. At every moment no more was admitted and returned than granted, and in
// the end all adds up.
func TestHoldingUnderRace(t *testing.T) {
	for _, stripes := range []int{1, 4} {
		t.Run(fmt.Sprint(stripes), func(t *testing.T) { holdingUnderRace(t, stripes) })
	}
}

func holdingUnderRace(t *testing.T, stripes int) {
	terms := rate(t, 1_000_000, time.Second, 0)
	o := hold(t, terms, 1000)
	o.stripes = stripes
	var clock, granted, admitted, checks, denials atomic.Int64
	clock.Store(o.now)
	var wg sync.WaitGroup
	stop := make(chan struct{})
	var orders = make(chan Request, 1) // one is in flight at a time
	for g := range 4 {
		wg.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				n := limit.Tokens(1 + (i+g)%3)
				s := o.Spend(n, uint(g))
				now := clock.Load()
				switch v := o.Judge(s, now); v {
				case Admit, AdmitAndRenew:
					if i%7 == 0 && o.Unspend(s) {
						continue
					} else if i%7 == 0 {
						admitted.Add(int64(n)) // it stays taken
						continue
					}
					admitted.Add(int64(n))
					checks.Add(1)
					if v == AdmitAndRenew {
						if step, r := o.Plan(now, 0); step == Send {
							orders <- r
						}
					}
				case Deny:
					denials.Add(1)
				default:
					if step, r := o.Plan(now, n); step == Send {
						orders <- r
					}
				}
			}
		})
	}
	r := rand.New(rand.NewPCG(3, 4))
	epoch, returned := int64(0), int64(0)
	settled := map[int64]limit.Tokens{}
	grants := map[int64]limit.Tokens{}
	account := func(a *limit.Ask) {
		settled[a.Epoch] += a.Settled
		returned += int64(a.Returned)
		if a.Settled > 0 && settled[a.Epoch] > grants[a.Epoch] {
			t.Errorf("epoch %d: settled %d of %d", a.Epoch, settled[a.Epoch], grants[a.Epoch])
		}
		// In this order: each may only grow meanwhile.
		if out := admitted.Load() + returned; out > granted.Load() {
			t.Errorf("%d admitted and returned, %d granted", out, granted.Load())
		}
	}
	for range 3000 {
		select {
		case q := <-orders:
			switch r.IntN(40) {
			case 0:
				o.Apply(q, Answer{Failed: true, NotRun: true}, clock.Load())
				continue
			case 1:
				account(&q.Ask)
				o.Apply(q, Answer{Failed: true}, clock.Load())
				continue
			}
			account(&q.Ask)
			if r.IntN(5) == 0 {
				epoch++
			}
			n := limit.Tokens(r.Int64N(200))
			rode := min(n, limit.Tokens(r.IntN(3)))
			grants[epoch] += n
			granted.Add(int64(n - rode))
			level := limit.Ticks(r.Int64N(int64(terms.Depth)))
			o.Apply(q, Answer{Out: limit.Outcome{Granted: n - rode, Level: level, Epoch: epoch, Contenders: 1}, Rode: rode}, clock.Add(r.Int64N(ms)))
		default:
			clock.Add(r.Int64N(10 * ms))
			if _, q, send := o.Tend(clock.Load()); send {
				orders <- q
			}
			o.State()
		}
	}
	close(stop)
	// Nobody must be left waiting to send.
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	for open := true; open; {
		select {
		case <-orders:
		case <-done:
			open = false
		}
	}
	for _, q := range o.Release(clock.Load()) {
		account(&q.Ask)
	}
	n := o.addsUp()
	if n.Granted != uint64(granted.Load()) || n.Admitted != uint64(checks.Load()) || n.Denied != uint64(denials.Load()) || n.Spent < uint64(admitted.Load()) {
		t.Errorf("%+v; granted %d, checks %d, denials %d, tokens admitted %d", n, granted.Load(), checks.Load(), denials.Load(), admitted.Load())
	}
}
