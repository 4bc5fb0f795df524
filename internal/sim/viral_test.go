package sim

import (
	"testing"
	"time"

	"github.com/spillgate/spillgate/batcher"
	"github.com/spillgate/spillgate/limit"
)

// TestViral runs fleets whose buckets are divided and made whole again, by agents that see the load come and go.
func TestViral(t *testing.T) {
	testSeeds(t, 600, DrawViral, func(c *Counts) []*int { return append(c.Divided.fields(), c.Divided.agents()...) })
}

// spread is a fleet of which every agent asks for one bucket that four masters can share.
func spread(agents int, r limit.Rate, mode limit.Mode, splitOps int64, l Load) Plan {
	p := saturated(agents, r.Burst, r.Requests)
	p.Divided, p.Masters, p.Ways, p.SplitOps = true, 4, 4, splitOps
	b := &p.Buckets[0]
	b.Rate, b.Mode = r, mode
	for i := range b.Load {
		b.Load[i] = l
	}
	return p
}

// TestViralKey is the life of a key that is asked for a hundred times as often as one master would like, for some seconds: it
// is divided, all masters work, nearly all tokens are granted, and it is whole again when the load has gone.
func TestViralKey(t *testing.T) {
	for _, mode := range []limit.Mode{limit.Exact, limit.Leased} {
		t.Run(mode.String(), func(t *testing.T) {
			const agents, load = 8, 6 * time.Second
			p := spread(agents, limit.Rate{Requests: 1000, Period: time.Second, Burst: 1000}, mode, 50,
				Load{PerSecond: 500, Burst: 1, Cost: 1, On: load, Off: time.Minute})
			p.Length, p.Delay = 15*time.Second, time.Millisecond
			w := newWorld(p, Options{})
			var ideal limit.Tokens
			tat, terms := limit.Ticks(0), w.buckets[0].terms
			w.asked = func(n limit.Tokens) {
				next, granted, _ := terms.Apply(limit.Take, n, tat, w.buckets[0].now())
				tat, ideal = next, ideal+granted
			}
			var before []int
			w.after(int64(2*time.Second), func() {
				for _, m := range w.masters {
					before = append(before, m.ran)
				}
			})
			w.run(int64(load))
			if c := w.counts.Divided; c.Splits != 1 || c.Heard-c.HeardMerged-c.HeardEnded != agents {
				t.Errorf("under load: %+v, want each of %d agents to know of one split", c, agents)
			}
			most, sum := 0, 0
			for i, m := range w.masters {
				most, sum = max(most, m.ran-before[i]), sum+m.ran-before[i]
			}
			if 4*most > sum*8/5 {
				t.Errorf("one of 4 masters ran %d of %d entries", most, sum)
			}
			w.run(int64(p.Length))
			if w.breach != nil {
				t.Fatal(w.breach)
			}
			c := w.counts.Divided
			if c.Heard != c.HeardMerged+c.HeardEnded || c.Splits != 1 || w.buckets[0].split.Ways > 0 {
				t.Errorf("in the end: %+v, want each of %d agents to know that it is whole", c, agents)
			}
			granted := float64(w.counts.Admitted) / float64(ideal)
			if granted < 0.98 {
				t.Errorf("%.4f of %d tokens granted", granted, ideal)
			}
			t.Logf("%.4f of %d granted, most of a master %.2f of the mean, %d calls, %+v", granted, ideal, 4*float64(most)/float64(sum), w.counts.Calls, c)
		})
	}
}

// TestDividedExactly is what is left of fairness when each part has one token: all seven are to be had, and no eighth.
func TestDividedExactly(t *testing.T) {
	for _, mode := range []limit.Mode{limit.Exact, limit.Leased} {
		for _, agents := range []int{1, 8} {
			p := spread(agents, limit.Rate{Requests: 7, Period: time.Hour, Burst: 7}, mode, 1, Load{})
			p.Ways, p.Length = 8, 5*time.Second
			w := newWorld(p, Options{})
			b := w.buckets[0]
			for i := range 5 {
				w.after(int64(time.Duration(i)*time.Second), func() {
					b.master.apply(&batcher.Entry{Bucket: b.name, Terms: b.terms, Op: limit.Touch,
						Part: &limit.Part{Home: true, Ops: 1000, Threshold: 1, Ways: 8, Stride: 1}})
				})
			}
			admitted := 0
			for i, a := range w.agents {
				for k := range 12 {
					w.after(int64(100*time.Millisecond)+int64(k)*int64(5*time.Millisecond)+int64(i)*int64(time.Millisecond), func() {
						a.decide(&check{items: []item{{bucket: b, op: limit.Take, n: 1}}, done: func(d limit.Decision, _ bool) {
							if d.Admitted {
								admitted++
							}
						}})
					})
				}
			}
			w.run(int64(p.Length))
			if w.breach != nil {
				t.Fatal(w.breach)
			}
			if admitted != 7 {
				t.Errorf("%v, %d agents: %d of 7 admitted", mode, agents, admitted)
			}
		}
	}
}

// TestSaturatedDivided is TestSaturated for a bucket that is divided: a fleet gets nearly all that refills, and nobody starves.
func TestSaturatedDivided(t *testing.T) {
	for _, agents := range []int{4, 12} {
		for _, r := range []limit.Rate{{Requests: 500, Period: time.Second, Burst: 100}, {Requests: 200, Period: time.Second, Burst: 20}} {
			for _, mode := range []limit.Mode{limit.Exact, limit.Leased} {
				s := runSaturated(t, spread(agents, r, mode, 20, Load{PerSecond: 10 * float64(r.Requests) / float64(agents), Burst: 1, Cost: 1}))
				if s.granted < 0.97 {
					t.Errorf("%d agents, %+v, %v: %.4f of the tokens granted", agents, r, mode, s.granted)
				}
				if s.least < 0.6 || s.most > 1.5 {
					t.Errorf("%d agents, %+v, %v: agents get %.2f to %.2f of the mean", agents, r, mode, s.least, s.most)
				}
				t.Logf("agents=%d burst=%d rate=%d %v granted=%.4f least=%.2f most=%.2f calls/s=%.0f", agents, r.Burst, r.Requests, mode, s.granted, s.least, s.most, s.total)
			}
		}
	}
}
