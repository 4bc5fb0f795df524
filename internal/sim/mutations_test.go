package sim

import (
	"math"
	"testing"

	"github.com/spillgate/spillgate/limit"
)

// store is limit.Terms.ApplyLeased written once more, plainly, with the mistakes that one can make in it.
type store struct {
	noClamp     bool // free tokens beside those on lease, up to the whole burst
	settleFirst bool // settlements before the clamp
	noEnds      bool // the clamp is as of now only, not of the moments at which epochs ended
	oneEpoch    bool // a lease counts until the end of its epoch, and no longer
}

func (m store) apply(t *limit.Terms, op limit.Op, n limit.Tokens, ask *limit.Ask, generation int64, cell limit.Cell,
	now limit.Ticks) (limit.Cell, limit.Outcome, bool) {
	ttl := t.Class.EpochTicks()
	c := cell
	m.roll(t, &c, now, ttl)
	if op == limit.Lease && m.settleFirst {
		m.settle(t, &c, ask, generation)
	}
	var out limit.Outcome
	c.TAT, _, _ = t.Apply(limit.TakePartial, 0, c.TAT, now)
	m.clamp(t, &c, now)
	if op != limit.Lease {
		c.TAT, out.Granted, _ = t.Apply(op, n, c.TAT, now)
		m.clamp(t, &c, now)
	} else {
		if !m.settleFirst {
			m.settle(t, &c, ask, generation)
			c.TAT = max(c.TAT, now)
			m.clamp(t, &c, now)
		}
		m.grant(t, &c, n, ask, generation, now, ttl, &out)
	}
	out.Level = max(0, c.TAT-now)
	return c, out, true
}

func (m store) clamp(t *limit.Terms, c *limit.Cell, at limit.Ticks) {
	if !m.noClamp {
		c.TAT = max(c.TAT, at+limit.Ticks(min(c.Out+c.Before, t.Burst))*t.Emission)
	}
}

func (m store) roll(t *limit.Terms, c *limit.Cell, now, ttl limit.Ticks) {
	for epoch := int64(now / ttl); c.Epoch < epoch; {
		if c.Out+c.Before == 0 {
			c.Epoch = max(c.Epoch+1, epoch-2)
		} else {
			if !m.noEnds {
				m.clamp(t, c, limit.Ticks(c.Epoch+1)*ttl)
			}
			c.Epoch++
		}
		c.Before, c.Out = c.Out, 0
		c.SeenBefore, c.Seen = c.Seen, 0
		if m.oneEpoch {
			c.Before = 0
		}
	}
}

func (m store) settle(t *limit.Terms, c *limit.Cell, ask *limit.Ask, generation int64) {
	n := limit.Tokens(0)
	switch ask.Epoch - generation*t.Class.Epochs() {
	case c.Epoch:
		n = min(ask.Settled, c.Out)
		c.Out -= n
	case c.Epoch - 1:
		n = min(ask.Settled, c.Before)
		c.Before -= n
	}
	c.TAT -= limit.Ticks(min(ask.Returned, n)) * t.Emission
}

func (m store) grant(t *limit.Terms, c *limit.Cell, n limit.Tokens, ask *limit.Ask, generation int64, now, ttl limit.Ticks, out *limit.Outcome) {
	c.Seen += ask.Presence
	part := min(limit.Presence, int64(float64(max(0, now-limit.Ticks(c.Epoch)*ttl))*limit.Presence/float64(ttl)))
	out.Contenders = max(1, (c.Seen*limit.Presence+c.SeenBefore*(limit.Presence-part))/(limit.Presence*limit.Presence))
	free := limit.Tokens(max(0, now+t.Depth-c.TAT) / t.Emission)
	out.Taken = min(ask.Take, free)
	free -= out.Taken
	share := free / limit.Tokens(out.Contenders+1)
	if share == 0 && ask.Take > 0 && free > 0 {
		share = 1
	}
	out.Granted = min(n, share)
	c.Out += out.Granted
	c.TAT += limit.Ticks(out.Taken+out.Granted) * t.Emission
	out.Epoch = c.Epoch + generation*t.Class.Epochs()
}

// shortClass forgets a cell as soon as its tokens could have refilled, without a thought for the clamp at the end of
// an epoch, which comes later.
func shortClass(t *limit.Terms) *limit.Terms {
	for _, class := range shorter(t.Class) {
		short := *t
		short.Class = class
		short.Emission = limit.Ticks(math.Ceil(float64(t.Emission) / t.Class.PerMicro * class.PerMicro))
		short.Depth = limit.Ticks(short.Burst) * short.Emission
		short.Ceiling = limit.Ticks(float64(t.Ceiling/t.Emission)) * short.Emission
		if short.Ceiling <= class.Span() {
			return &short
		}
	}
	return t
}

// shorter are the classes that are shorter than one.
func shorter(than limit.Class) (all []limit.Class) {
	for fill := limit.LeaseTTL; ; {
		c, ok := limit.BucketClass(fill)
		if !ok || c.Length >= than.Length {
			return all
		}
		all = append(all, c)
		fill = c.Length + 1
	}
}

// TestMutationsAreCaught: a simulator that finds nothing may be one that looks at nothing. So each mistake that the
// protocol guards against is made, and must be found within so many runs.
func TestMutationsAreCaught(t *testing.T) {
	for _, m := range []struct {
		name    string
		seeds   int
		promise string
		wires   Wires
	}{
		{"no clamp", 100, "G1", Wires{Apply: store{noClamp: true}.apply}},
		{"settled before the clamp", 100, "G1", Wires{Apply: store{settleFirst: true}.apply}},
		{"no clamp as of an epoch's end", 1000, "G1", Wires{Apply: store{noEnds: true}.apply}},
		{"out for one epoch only", 200, "G1", Wires{Apply: store{oneEpoch: true}.apply}},
		{"a cell forgotten too early", 6000, "G1", Wires{Terms: shortClass, Apply: store{}.apply}},

		{"a lease counts from its reply", 8000, "G1", Wires{LeaseFromReply: true}},
		{"settled twice", 100, "G1", Wires{SettleTwice: true}},
		{"a lost account is sent again", 12000, "G1", Wires{ResendLost: true}},
		{"refunds are dropped", 100, "G5", Wires{NoRefunds: true}},
		{"the clock is read before the tokens left", 12000, "G1", Wires{NoRecheck: true}},
		{"a ride with a lease that has ended", 12000, "G1", Wires{RideOld: true}},
		{"what the store was told of is spent again", 8000, "G1", Wires{SpendAccounted: true}},
		{"the allowance is not reserved", 100, "G2", Wires{NoReserve: true}},
		{"lost charges are free at once", 100, "G2", Wires{ForgetLost: true}},
	} {
		t.Run(m.name, func(t *testing.T) {
			if raced && m.seeds > 1000 {
				t.Skip("too many runs for the race detector, which has nothing to find here")
			}
			failed, ran, _ := search(1, m.seeds, func(seed uint64) Result {
				r := Run(Draw(seed), Options{Wires: m.wires})
				if r.Breach != nil && r.Breach.Promise != m.promise {
					r.Breach = nil // found by chance, by what it does besides
				}
				return r
			})
			if failed == nil {
				t.Fatalf("not found in %d runs", ran)
			}
			t.Logf("run %d: %v", failed.Plan.Seed, failed.Breach)
		})
	}
	t.Run("none", func(t *testing.T) {
		if failed, _, _ := search(1, 1000, func(seed uint64) Result {
			return Run(Draw(seed), Options{Wires: Wires{Apply: store{}.apply}})
		}); failed != nil {
			t.Errorf("seed %d: %v, with the plain store and no mistake", failed.Plan.Seed, failed.Breach)
		}
	})
}
