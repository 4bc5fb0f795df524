package sim

import (
	"math"
	"testing"
	"time"

	"github.com/spillgate/spillgate/limit"
)

// saturated is a fleet that asks for ten times what one bucket has, for ten seconds, with nothing in the way.
func saturated(agents int, burst, perSecond limit.Tokens) (p Plan) {
	p = Plan{Seed: 1, Length: 2*time.Second + max(10, 1000/time.Duration(perSecond))*time.Second, Agents: agents, Masters: 1, Most: 16, Delay: 250 * time.Microsecond,
		Timeout: 50 * time.Millisecond, Deadline: 25 * time.Millisecond, MaxEntries: 256, MaxInFlight: 4, MaxPending: 65536,
		MinRate: 5, HalfLife: time.Second}
	b := BucketPlan{Rate: limit.Rate{Requests: perSecond, Period: time.Second, Burst: burst}}
	for range agents {
		b.Load = append(b.Load, Load{PerSecond: 10 * float64(perSecond) / float64(agents), Burst: 1, Cost: 1})
	}
	p.Buckets = []BucketPlan{b}
	return p
}

// shares is how a saturated bucket was shared out, after a warm-up.
type shares struct {
	granted        float64 // of what one bucket would have granted that sees every check at once
	least, most    float64 // agent, of the mean
	calls          float64 // per second and agent
	total          float64 // calls per second, of all
	deniedLocally  float64 // of all checks
	perAgentSecond float64
	seconds        float64
}

func runSaturated(t *testing.T, p Plan) (s shares) {
	const warm = 2 * time.Second
	w := newWorld(p, Options{})
	var ideal limit.Tokens
	tat, terms := limit.Ticks(0), w.buckets[0].terms
	w.asked = func(n limit.Tokens) {
		next, granted, _ := terms.Apply(limit.Take, n, tat, w.buckets[0].now())
		tat, ideal = next, ideal+granted
	}
	w.after(int64(warm), func() {
		ideal = 0
		for _, a := range w.agents {
			a.tally = tally{}
		}
	})
	w.run(int64(p.Length))
	if w.breach != nil {
		t.Fatal(w.breach)
	}
	seconds := (p.Length - warm).Seconds()
	var sum tally
	for _, a := range w.agents {
		sum.admitted += a.tally.admitted
		sum.calls += a.tally.calls
		sum.checks += a.tally.checks
		sum.denied += a.tally.denied
	}
	mean := float64(sum.admitted) / float64(len(w.agents))
	s.least = 1e9
	for _, a := range w.agents {
		s.least = min(s.least, float64(a.tally.admitted)/mean)
		s.most = max(s.most, float64(a.tally.admitted)/mean)
	}
	rate := float64(p.Buckets[0].Rate.Requests)
	s.granted = float64(sum.admitted) / float64(ideal)
	s.total = float64(sum.calls) / seconds
	s.calls = s.total / float64(len(w.agents))
	s.deniedLocally = float64(sum.denied) / float64(sum.checks)
	s.seconds = seconds
	s.perAgentSecond = rate / float64(len(w.agents))
	return s
}

// TestSaturated is G3: a fleet gets nearly all that refills, nobody starves, and the store has rest.
func TestSaturated(t *testing.T) {
	for _, agents := range []int{10, 20} {
		for _, b := range []struct{ burst, rate limit.Tokens }{{100, 1000}, {1000, 1000}, {10, 100}, {1, 10}, {200, 200}, {5, 1000}} {
			s := runSaturated(t, saturated(agents, b.burst, b.rate))
			enough := 0.99
			if b.burst == 1 {
				enough = 0.97 // whoever comes a moment late has lost the refill of that moment
			}
			if s.granted < enough {
				t.Errorf("agents=%d burst=%d rate=%d: %.4f of the tokens granted", agents, b.burst, b.rate, s.granted)
			}
			// A quarter, and what chance does to the few tokens of a short run.
			slack := 0.25 + 1/math.Sqrt(float64(s.perAgentSecond)*s.seconds)
			if s.perAgentSecond >= 10 && (s.least < 1-slack || s.most > 1+slack) {
				t.Errorf("agents=%d burst=%d rate=%d: agents get %.2f to %.2f of the mean", agents, b.burst, b.rate, s.least, s.most)
			}
			// A bucket that fills in milliseconds is asked for more often, or it would run full meanwhile.
			if most := float64(b.rate) + 60*float64(agents); s.total > most && b.burst*1000 >= 40*b.rate {
				t.Errorf("agents=%d burst=%d rate=%d: %.0f calls/s, more than %.0f", agents, b.burst, b.rate, s.total, most)
			}
			t.Logf("agents=%d burst=%d rate=%d granted=%.4f least=%.2f most=%.2f calls/s=%.0f per agent=%.1f denied locally=%.3f",
				agents, b.burst, b.rate, s.granted, s.least, s.most, s.total, s.calls, s.deniedLocally)
		}
	}
}
