package share_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/spillgate/spillgate/agent/share"
	"github.com/spillgate/spillgate/limit"
)

// bucket is the dumb oracle: a token bucket in nanoseconds.
type bucket struct{ tat, emission, depth int64 }

func (b *bucket) take(now int64, n limit.Tokens) bool {
	next := max(b.tat, now) + int64(n)*b.emission
	if next > now+b.depth {
		return false
	}
	b.tat = next
	return true
}

func (b *bucket) charge(now int64, n limit.Tokens) {
	b.tat = min(max(b.tat, now)+int64(n)*b.emission, now+b.depth)
}

// mistake is a way to build it wrongly, which the test of the promise must see.
type mistake int

const (
	none mistake = iota
	neverCharge
	neverBind    // shares do not bind after the return
	beginFull    // a share begins full
	keepFlapping // a share goes on over a new outage, although the store was asked in between
	tooFewAgents // the agents count one less than there are
)

// fleet is some agents and one bucket of a store that comes and goes, on virtual time.
type fleet struct {
	rnd     *rand.Rand
	now     int64
	terms   *limit.Terms
	name    limit.Bucket
	store   bucket // what the store knows
	truth   bucket // every admission
	away    bool
	agents  []*agent
	mistake mistake

	local, told int64 // tokens admitted by shares, and by the store
}

// agent is what the agent package does with its shares, in short.
type agent struct {
	shares   *share.Table
	since    int64 // when it noticed the outage; 0 without
	was      int64 // since, of the last one
	notices  int64 // when it will notice the present turn
	binds    int64 // until then the shares bind as well
	charges  int64 // when it sends its charges
	sleeping bool  // it does not ask for this bucket just now
}

const (
	while = time.Second
	// late is within how much of while all agents notice a turn and have charged.
	late = 900 * time.Millisecond
)

func newFleet(seed uint64, m mistake) *fleet {
	f := &fleet{rnd: rand.New(rand.NewPCG(seed, 7)), now: int64(time.Hour), mistake: m}
	burst := limit.Tokens(1 + f.rnd.IntN(200))
	var err error
	f.terms, err = limit.Rate{Requests: 100, Period: time.Duration(1+f.rnd.IntN(10)) * time.Second, Burst: burst}.Terms()
	if err != nil {
		panic(err)
	}
	new(limit.Secret).Name(&f.name, []byte("bucket"))
	emission := int64(f.terms.Class.Duration(f.terms.Emission))
	f.store = bucket{emission: emission, depth: int64(burst) * emission}
	f.truth = f.store
	for range 1 + f.rnd.IntN(8) {
		f.agents = append(f.agents, &agent{shares: share.NewTable(share.Config{While: while})})
	}
	return f
}

// turn has the store go or come. Each agent notices in its own time.
func (f *fleet) turn() {
	f.away = !f.away
	for _, a := range f.agents {
		a.notices = f.now + f.rnd.Int64N(int64(late-100*time.Millisecond))
	}
}

// notice lets an agent take in the turns that it has noticed by now.
func (f *fleet) notice(a *agent) {
	switch noticed := f.now >= a.notices; {
	case f.away && noticed && a.since == 0:
		f.fails(a)
	case !f.away && noticed && a.since > 0:
		a.was, a.since, a.binds, a.charges = a.since, 0, f.now+int64(while), f.now+f.rnd.Int64N(int64(100*time.Millisecond))
	}
	if !f.away && a.since == 0 && a.charges > 0 && f.now >= a.charges {
		for _, c := range a.shares.Due(f.now, 100, func(*limit.Bucket) bool { return true }) {
			if f.mistake != neverCharge {
				f.store.charge(f.now, c.N)
			}
		}
		a.charges = 0
	}
	a.shares.Sweep(f.now, 100)
}

// fails is what happens to an agent at the first call without an answer.
func (f *fleet) fails(a *agent) {
	a.since = f.now
	if f.mistake == keepFlapping || f.mistake == beginFull {
		a.since = 1
	}
}

// check asks an agent for n tokens. It fails when more is admitted than the bucket has.
func (f *fleet) check(a *agent, n limit.Tokens) error {
	if f.away && a.since == 0 {
		f.fails(a) // this very call
	}
	ask := share.Ask{Bucket: &f.name, Terms: f.terms, N: n, Agents: len(f.agents), Since: a.since, Now: f.now}
	if f.mistake == tooFewAgents {
		ask.Agents = max(1, ask.Agents-1)
	}
	var admitted bool
	switch {
	case a.since > 0:
		if admitted = a.shares.Take(ask).Admitted; admitted {
			f.local += int64(n)
		}
	case f.now < a.binds && f.mistake != neverBind:
		ask.Since, ask.Told = a.was, true
		admitted = a.shares.Take(ask).Admitted && f.store.take(f.now, n)
	default:
		admitted = f.store.take(f.now, n)
	}
	if admitted && a.since == 0 {
		f.told += int64(n)
	}
	if admitted && !f.truth.take(f.now, n) {
		return fmt.Errorf("after %v: %d more tokens admitted, which a bucket of %d has not", time.Duration(f.now)-time.Hour, n, f.terms.Burst)
	}
	return nil
}

// run is a life of some outages, at high load.
func (f *fleet) run() error {
	fill := f.store.depth
	for range 6 {
		// Neither an outage nor a return is over before all have noticed it.
		end := f.now + int64(late) + f.rnd.Int64N(2*fill+int64(4*time.Second))
		for _, a := range f.agents {
			a.sleeping = f.rnd.IntN(4) == 0
		}
		for f.now < end {
			f.now += min(f.rnd.Int64N(3*f.store.emission/int64(len(f.agents))+1), int64(10*time.Millisecond))
			for _, a := range f.agents {
				f.notice(a)
			}
			a := f.agents[f.rnd.IntN(len(f.agents))]
			if a.sleeping {
				continue
			}
			if err := f.check(a, limit.Tokens(1+f.rnd.IntN(2))); err != nil {
				return err
			}
		}
		f.turn()
	}
	return nil
}

func seeds() uint64 {
	if testing.Short() {
		return 200
	}
	return 1000
}

// TestFleetStaysUnderTheLimit is G1 while the store is away: whatever the fleet admits, by its shares while the store is away, and
// by the store before and afterwards, one bucket would have admitted. Agents notice each turn in their own time, and
// outages follow each other as they like.
func TestFleetStaysUnderTheLimit(t *testing.T) {
	var local, told int64
	for seed := range seeds() {
		f := newFleet(seed, none)
		if err := f.run(); err != nil {
			t.Fatalf("seed %d, %d agents: %v", seed, len(f.agents), err)
		}
		local, told = local+f.local, told+f.told
	}
	if local == 0 || told == 0 {
		t.Errorf("%d tokens by shares, %d by the store: the test shows nothing", local, told)
	}
	t.Logf("%d tokens by shares, %d by the store", local, told)
}

// TestFleetMistakes: the test above sees each of these.
func TestFleetMistakes(t *testing.T) {
	for m, what := range map[mistake]string{neverCharge: "never charge", neverBind: "shares do not bind after the return", beginFull: "shares begin full",
		keepFlapping: "shares go on over outages", tooFewAgents: "one agent is not counted"} {
		t.Run(what, func(t *testing.T) {
			for seed := range seeds() {
				if newFleet(seed, m).run() != nil {
					return
				}
			}
			t.Errorf("%s, and no fleet is over its limit", what)
		})
	}
}
