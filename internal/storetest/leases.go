package storetest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/spillgate/spillgate/batcher"
	"github.com/spillgate/spillgate/limit"
)

// lease runs one entry of op Lease alone.
func (b *bench) lease(name limit.Bucket, terms *limit.Terms, want limit.Tokens, ask limit.Ask) limit.Outcome {
	b.Helper()
	e := batcher.Entry{Bucket: name, Terms: terms, Op: limit.Lease, N: want, Ask: ask}
	b.apply(&e)
	if e.Err != nil {
		b.Fatalf("a lease of %d, %+v: %v", want, ask, e.Err)
	}
	return e.Out
}

// leaseAll asks until a bucket has no more, and tells the grants by their epochs.
func (b *bench) leaseAll(name limit.Bucket, terms *limit.Terms) (sum limit.Tokens, byEpoch map[int64]limit.Tokens) {
	b.Helper()
	byEpoch = map[int64]limit.Tokens{}
	for range 100 {
		// A waiting caller is what makes the store give the last token away.
		out := b.lease(name, terms, limit.MaxTokens, limit.Ask{Take: 1})
		byEpoch[out.Epoch] += out.Granted
		if sum += out.Granted + out.Taken; out.Taken == 0 {
			return sum, byEpoch
		}
	}
	b.Fatal("a bucket gives without end")
	return
}

// lastLeased is fault 14, for leases: all ten tokens go, in parts, and no eleventh.
func lastLeased(b *bench) {
	name, terms := b.bucket("last leased"), b.hourly()
	out := b.lease(name, terms, 3, limit.Ask{})
	if out.Granted != 3 || out.Taken != 0 || missing(terms, out.Level) != 3 || out.Contenders != 1 || out.Lag != 0 {
		b.Errorf("the first three: %+v", out)
	}
	// A fair share leaves something for a newcomer.
	if out = b.lease(name, terms, 100, limit.Ask{}); out.Granted != 3 {
		b.Errorf("of seven, shared with one to come: %+v", out)
	}
	if out = b.lease(name, terms, 100, limit.Ask{Take: 3}); out.Taken != 3 || out.Granted != 1 || missing(terms, out.Level) != 10 {
		b.Errorf("of four, three at once: %+v", out)
	}
	if out = b.lease(name, terms, 100, limit.Ask{Take: 1}); out.Taken != 0 || out.Granted != 0 {
		b.Errorf("of none: %+v", out)
	}
	b.expect(name, terms, limit.TakePartial, 100, 0, 10)

	name = b.bucket("all leased")
	if sum, _ := b.leaseAll(name, terms); sum != 10 {
		b.Errorf("of ten tokens %d were given", sum)
	}
	b.expect(name, terms, limit.Take, 1, 0, 10)
}

// twoLeases is fault 15, for leases.
func twoLeases(b *bench) {
	name, terms := b.bucket("two leases"), b.compile(5, time.Hour, 0)
	var sums [2]limit.Tokens
	var agents sync.WaitGroup
	for i := range sums {
		agents.Go(func() {
			for range 10 {
				e := batcher.Entry{Bucket: name, Terms: terms, Op: limit.Lease, N: 100, Ask: limit.Ask{Take: 1, Presence: 1}}
				if b.apply(&e); e.Err != nil {
					b.Error(e.Err)
				}
				sums[i] += e.Out.Granted + e.Out.Taken
			}
		})
	}
	agents.Wait()
	if sums[0]+sums[1] != 5 {
		b.Errorf("of five tokens: %d and %d", sums[0], sums[1])
	}
}

// settled: what is reported as spent stops counting as out, and nothing else does.
func settled(b *bench) {
	name, terms := b.bucket("settled"), b.hourly()
	// outstanding resets the bucket: then only what is out is missing.
	outstanding := func(what string, want limit.Tokens) {
		b.Helper()
		b.op(name, terms, limit.Reset, 0)
		if out := missing(terms, b.op(name, terms, limit.TakePartial, 0).Level); out != want {
			b.Errorf("%s: %d are out on lease, want %d", what, out, want)
		}
	}
	first := b.lease(name, terms, 5, limit.Ask{})
	settle := func(epoch int64, n, returned limit.Tokens) limit.Outcome {
		b.Helper()
		return b.lease(name, terms, 0, limit.Ask{Epoch: epoch, Settled: n, Returned: returned})
	}
	outstanding("a lease of 5", 5)
	b.lease(name, terms, 0, limit.Ask{Take: 2})
	b.expect(name, terms, limit.TakePartial, 0, 0, 7)
	outstanding("two for callers that wait", 5)
	settle(first.Epoch, 2, 0)
	b.expect(name, terms, limit.TakePartial, 0, 0, 5) // spent tokens are not back yet
	outstanding("two spent", 3)
	settle(first.Epoch+1, 3, 3)
	settle(first.Epoch-3, 3, 3)
	settle(first.Epoch, 0, 3)
	outstanding("accounts of other epochs, and a return of nothing", 3)
	settle(first.Epoch, 1, 1)
	b.expect(name, terms, limit.TakePartial, 0, 0, 2)
	outstanding("one came back", 2)
	b.expect(name, terms, limit.Take, 8, 8, 10)
	b.expect(name, terms, limit.Refund, 8, 8, 2)
	b.expect(name, terms, limit.Refund, 8, 8, 2)
	outstanding("refunds", 2)
	settle(first.Epoch, 100, 0)
	outstanding("more than was out", 0)
	b.expect(name, terms, limit.Take, 10, 10, 10)
	settle(first.Epoch, 5, 5)
	b.expect(name, terms, limit.TakePartial, 100, 0, 10) // settled twice
}

// resetWhileOut: what is out and what is free are together never more than the burst.
func resetWhileOut(b *bench) {
	name, terms := b.bucket("reset while out"), b.hourly()
	sum, byEpoch := b.leaseAll(name, terms)
	var out limit.Tokens
	for _, n := range byEpoch {
		out += n
	}
	b.expect(name, terms, limit.Reset, 0, 0, out)
	b.expect(name, terms, limit.TakePartial, 100, sum-out, 10)
	for epoch, n := range byEpoch {
		b.lease(name, terms, 0, limit.Ask{Epoch: epoch, Settled: n, Returned: n})
	}
	b.expect(name, terms, limit.TakePartial, 100, out, 10)
}

// contenders: the store counts who asks by the time for which they have.
func contenders(b *bench) {
	name, terms := b.bucket("contenders"), b.hourly()
	for i := range int64(8) {
		// An epoch may end meanwhile, and what was asked in it counts a little less from then on.
		if got := b.lease(name, terms, 0, limit.Ask{Presence: limit.Presence}).Contenders; got > i+1 || got < max(1, i) {
			b.Errorf("%d agents ask: the store sees %d", i+1, got)
		}
	}
	if got := b.lease(b.bucket("one contender"), terms, 0, limit.Ask{Presence: 1}).Contenders; got != 1 {
		b.Errorf("one agent asks: the store sees %d", got)
	}
}

// unsettled: a lease that nobody settles counts for its epoch and the next, and no longer; until then it
// can be settled. It takes two to four seconds, and again if the machine stood still for an epoch.
func unsettled(b *bench) {
	for try := 0; !b.unsettled(b.bucket("unsettled", fmt.Sprint(try))); try++ {
	}
}

// unsettled is false if the epoch after that of the grant was not seen.
func (b *bench) unsettled(name limit.Bucket) bool {
	b.Helper()
	terms := b.hourly()
	first := b.lease(name, terms, 5, limit.Ask{})
	// age is the number of epochs since, by the store's clock.
	age := func() int64 { return b.lease(b.bucket("clock"), terms, 0, limit.Ask{}).Epoch - first.Epoch }
	want, seen := []limit.Tokens{5, 5, 0}, int64(0)
	for seen < 2 {
		before := age()
		b.op(name, terms, limit.Reset, 0)
		out := missing(terms, b.op(name, terms, limit.TakePartial, 0).Level)
		if age() != before {
			continue
		}
		seen = min(before, 2)
		if out != want[seen] {
			b.Fatalf("%d epochs after the grant %d tokens are out, want %d", before, out, want[seen])
		}
		if seen == 1 && want[1] == 5 {
			b.lease(name, terms, 0, limit.Ask{Epoch: first.Epoch, Settled: 2})
			want[1] = 3
		}
		time.Sleep(50 * time.Millisecond)
	}
	return want[1] == 3
}

// leaseFleet: agents that lease, spend, settle, return, hoard and crash, and some that take. Every
// token is counted when it is spent.
func leaseFleet(b *bench) {
	const agents, length = 6, 2500 * time.Millisecond
	terms := []*limit.Terms{b.compile(300, time.Second, 60), b.compile(40, time.Second, 7)}
	names := []limit.Bucket{b.bucket("fleet", "0"), b.bucket("fleet", "1")}
	ledgers := make([][]admission, len(names))
	var mu sync.Mutex
	start := time.Now()
	var all sync.WaitGroup
	for agent := range agents {
		all.Go(func() {
			r := rand.New(rand.NewPCG(5, uint64(agent)))
			held := make([]leaseHolder, len(names))
			for time.Since(start) < length {
				i := r.IntN(len(names))
				h := &held[i]
				from, spent := time.Since(start), limit.Tokens(0)
				switch dice := r.IntN(100); {
				case dice == 0:
					*h = leaseHolder{} // a crash
				case dice < 50:
					spent = h.spend(r, from)
				case dice < 60:
					time.Sleep(time.Duration(r.IntN(30)) * time.Millisecond)
				default:
					e := batcher.Entry{Bucket: names[i], Terms: terms[i], Op: limit.TakePartial, N: limit.Tokens(1 + r.IntN(3))}
					if dice < 90 {
						e.Op, e.N, e.Ask = limit.Lease, limit.Tokens(r.IntN(30)), h.ask(r)
					}
					if b.apply(&e); e.Err != nil {
						b.Error(e.Err)
						return
					}
					if spent = e.Out.Granted; e.Op == limit.Lease {
						h.leases = append(h.leases, holding{e.Out.Epoch, e.Out.Granted, from + limit.LeaseTTL})
						spent = e.Out.Taken
					}
				}
				if spent > 0 {
					mu.Lock()
					ledgers[i] = append(ledgers[i], admission{from, time.Since(start), spent})
					mu.Unlock()
				}
			}
		})
	}
	all.Wait()
	for i, ledger := range ledgers {
		b.recount(fmt.Sprint("fleet ", i), terms[i], ledger)
		var sum limit.Tokens
		for _, a := range ledger {
			sum += a.n
		}
		if sum < terms[i].Burst {
			b.Errorf("bucket %d: only %d of a burst of %d were admitted", i, sum, terms[i].Burst)
		}
	}
}

// leaseHolder is an agent of leaseFleet, for one bucket.
type leaseHolder struct {
	leases []holding
	spent  map[int64]limit.Tokens // by epoch, not settled yet
}

// holding is a lease, of which n tokens are left.
type holding struct {
	epoch int64
	n     limit.Tokens
	until time.Duration
}

// spend takes from a lease that is still good.
func (h *leaseHolder) spend(r *rand.Rand, now time.Duration) limit.Tokens {
	h.leases = slices.DeleteFunc(h.leases, func(l holding) bool { return l.n == 0 || l.until <= now })
	if len(h.leases) == 0 {
		return 0
	}
	l, n := &h.leases[r.IntN(len(h.leases))], limit.Tokens(1)
	if r.IntN(10) == 0 {
		n = l.n
	}
	if h.spent == nil {
		h.spent = map[int64]limit.Tokens{}
	}
	l.n -= n
	h.spent[l.epoch] += n
	return n
}

// ask accounts for one epoch, and sometimes gives back what is left of it.
func (h *leaseHolder) ask(r *rand.Rand) limit.Ask {
	a := limit.Ask{Take: limit.Tokens(r.IntN(3)), Presence: r.Int64N(20)}
	for epoch, n := range h.spent {
		a.Epoch, a.Settled = epoch, n
		delete(h.spent, epoch)
		break
	}
	for i := range h.leases {
		if l := &h.leases[i]; l.epoch == a.Epoch && r.IntN(3) == 0 {
			a.Settled, a.Returned, l.n = a.Settled+l.n, a.Returned+l.n, 0
		}
	}
	return a
}
