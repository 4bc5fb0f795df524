package sim

import (
	"math/rand/v2"
	"time"

	"github.com/spillgate/spillgate/limit"
)

// Plan is all that a run is made of; Draw draws one from a seed. Probabilities are 0 to 1.
type Plan struct {
	Seed    uint64
	Length  time.Duration
	Agents  int
	Masters int
	Buckets []BucketPlan
	Most    int // Holdings of an agent

	// Every message takes Delay or more, and now and then, by Tail, up to LongDelay.
	Delay, LongDelay time.Duration
	Tail             float64
	Timeout          time.Duration // of a call
	Deadline         time.Duration // of a check
	MaxEntries       int           // of a call
	MaxInFlight      int
	MaxPending       int

	// Faults.
	LoseRequest, LoseReply float64       // of each call
	ArriveLate             float64       // of lost requests: they run in the end, up to 25 s later
	Refuse                 float64       // of each entry: certainly not run
	Crash, Stop, Suspend   float64       // per agent and second
	Stall                  float64       // per check: suspended in its middle
	Cut                    float64       // per agent and second: a partition from one master
	Step                   float64       // per master and second: its clock steps
	StepUp                 bool          // also forward
	Drift                  float64       // of clocks against true time, at most
	Change, Reset          float64       // per bucket and second
	Forget                 float64       // per look into the memory of denials
	LateTend               float64       // of the looks ten times a second
	Several                float64       // of checks: with several descriptors, or in a batch
	Calm                   bool          // no faults; unless Several, one caller for each bucket, who waits as told
	MinRate                float64       // of the tracker
	HalfLife               time.Duration // of the tracker

	Divided  bool    // buckets may be divided, and stores' clocks are as near to one another as that needs
	Ways     int     // parts that suit the store
	SplitOps int64   // of agents: entries per second from which a bucket is split
	Failover float64 // per master and second
}

// BucketPlan is one bucket, its rule and its load.
type BucketPlan struct {
	Rate      limit.Rate
	Mode      limit.Mode
	Allowance limit.Tokens
	Open      bool // fail open: its admissions by policy are outside the bound
	Master    int
	Load      []Load // by agent
	Hoarders  int    // see hoarder
	Scheme    bool   // the same

	NoSplit  bool    // its rule forbids to split it
	Dividers int     // see divider; one of them if there is a Scheme
	Pace     float64 // of each: what it does in a second
	Resets   bool    // by dividers
}

// Load is what one agent's callers want of one bucket.
type Load struct {
	PerSecond float64 // checks, on average
	Burst     int     // checks at a time
	On, Off   time.Duration
	Cost      limit.Tokens // of most checks
	Odd       float64      // of checks: another cost, 0 to burst + 1
}

// pick is one of some values.
func pick[T any](r *rand.Rand, of ...T) T { return of[r.IntN(len(of))] }

// checksPerRun is about how many checks a run has, at most.
const checksPerRun = 500

// Draw draws the plan of a seed.
func Draw(seed uint64) Plan {
	r := rand.New(rand.NewPCG(seed, 0xd4a3))
	p := drawFleet(seed, r)
	if r.IntN(8) == 0 {
		p.calm(r)
	} else {
		p.faults(r)
	}
	for range 1 + r.IntN(4) {
		p.Buckets = append(p.Buckets, p.bucket(r))
	}
	return p
}

// drawFleet draws agents, network and stores, without faults and buckets.
func drawFleet(seed uint64, r *rand.Rand) Plan {
	return Plan{
		Seed: seed, Length: time.Duration(pick(r, 1500, 3000, 5000, 9000)) * time.Millisecond,
		Agents: pick(r, 1, 2, 2, 3, 4, 6, 10), Masters: 1 + r.IntN(3), Most: pick(r, 1, 2, 16, 16, 16),
		Delay: pick(r, 100*time.Microsecond, 500*time.Microsecond, 2*time.Millisecond, 10*time.Millisecond),
		Tail:  pick(r, 0, 0.02, 0.2), LongDelay: pick(r, 10*time.Millisecond, 60*time.Millisecond, 400*time.Millisecond),
		Timeout: pick(r, 50*time.Millisecond, 50*time.Millisecond, 200*time.Millisecond, time.Second), Deadline: pick(r, 5*time.Millisecond, 25*time.Millisecond, 100*time.Millisecond),
		MaxEntries: pick(r, 1, 2, 256), MaxInFlight: pick(r, 1, 4), MaxPending: pick(r, 8, 1000, 1000),
		MinRate: pick(r, 0.1, 1, 5), HalfLife: pick(r, 50*time.Millisecond, 300*time.Millisecond, time.Second),
		Several: pick(r, 0, 0, 0.3), Forget: pick(r, 0, 0.1), LateTend: pick(r, 0, 0.1),
	}
}

// DrawViral draws the plan of a seed in which agents ask so much that buckets are divided. Dividers help.
func DrawViral(seed uint64) Plan {
	r := rand.New(rand.NewPCG(seed, 0x71a1))
	p := drawFleet(seed, r)
	p.Divided, p.Masters, p.Ways, p.SplitOps = true, 1+r.IntN(4), pick(r, 2, 3, 4, 8), pick[int64](r, 10, 30, 30, 100)
	p.Length = pick(r, 5*time.Second, 9*time.Second)
	p.MaxEntries = max(8, p.MaxEntries) // or what is in line at the end of a run takes minutes
	if r.IntN(8) == 0 {
		p.calm(r)
		p.LateTend = 0 // or home might be told too late that the load lasts
	} else {
		p.faults(r)
		if r.IntN(8) == 0 {
			p.Failover, p.Step, p.Length = 0.2*r.Float64()/float64(p.Masters), 0, 16*time.Second
		}
	}
	for range 1 + r.IntN(2) {
		b := p.bucket(r)
		b.Scheme, b.NoSplit = false, r.IntN(8) == 0
		b.scale(pick(r, 30.0, 100, 300))
		if !p.Calm && r.IntN(2) == 0 {
			b.Dividers, b.Pace, b.Resets = 1+r.IntN(2), 10, r.IntN(6) == 0
		}
		p.Buckets = append(p.Buckets, b)
	}
	return p
}

// faults draws which kinds there are.
func (p *Plan) faults(r *rand.Rand) {
	some := func(to *float64, most float64) {
		if r.IntN(3) == 0 {
			*to = most * r.Float64()
		}
	}
	some(&p.LoseRequest, 0.1)
	some(&p.LoseReply, 0.2)
	some(&p.ArriveLate, 0.5)
	some(&p.Refuse, 0.1)
	some(&p.Crash, 0.5)
	some(&p.Stop, 0.3)
	some(&p.Suspend, pick(r, 0.5, 2))
	some(&p.Stall, pick(r, 0.02, 0.1))
	some(&p.Cut, 0.3)
	if r.IntN(4) == 0 {
		p.Step, p.StepUp = r.Float64()/2, r.IntN(2) == 0
	}
	if r.IntN(3) == 0 {
		p.Drift = 200e-6 * r.Float64()
	}
	if r.IntN(4) == 0 {
		p.Change = r.Float64() / 2
	}
	if r.IntN(4) == 0 {
		p.Reset = r.Float64() / 2
	}
}

func (p *Plan) calm(r *rand.Rand) {
	p.Calm = true
	p.Tail, p.Several, p.MaxPending = 0, pick(r, 0, 0.3), 1000
	p.Timeout, p.Deadline = time.Second, 500*time.Millisecond
}

// rate draws a bucket's size, small ones above all.
func rate(r *rand.Rand) limit.Rate {
	return limit.Rate{Requests: pick[limit.Tokens](r, 1, 2, 5, 10, 10, 100, 100, 1000), Period: time.Second,
		Burst: pick[limit.Tokens](r, 1, 1, 2, 3, 7, 10, 20, 100)}
}

func (p *Plan) bucket(r *rand.Rand) BucketPlan {
	b := BucketPlan{Rate: rate(r), Mode: pick(r, limit.Leased, limit.Leased, limit.Leased, limit.Exact, limit.Optimistic),
		Master: r.IntN(p.Masters), Open: !p.Calm && r.IntN(10) == 0, Load: make([]Load, p.Agents)}
	if b.Mode == limit.Optimistic {
		b.Allowance = 1 + limit.Tokens(r.IntN(int(min(b.Rate.Burst, 10))))
		b.Rate.Debt = b.Allowance * 64
	}
	total := min(float64(b.Rate.Requests)*pick(r, 0.3, 1, 3, 10)+1, checksPerRun/2/p.Length.Seconds())
	if !p.Calm && b.Mode == limit.Leased && r.IntN(4) == 0 {
		b.Hoarders = r.IntN(4)
		total /= 50
		b.Rate.Requests = pick[limit.Tokens](r, 1, 2, 5, 10)
		if b.Hoarders == 0 {
			b.Scheme, total, p.Length = true, 0, 13*time.Second
			b.Rate.Burst = b.Rate.Requests * pick[limit.Tokens](r, 2, 4, 4)
		}
	}
	only := r.IntN(p.Agents)
	for i := range b.Load {
		if p.Calm && p.Several == 0 && i != only {
			continue
		}
		b.Load[i] = p.load(r, total/float64(p.Agents), b.Rate.Burst)
	}
	return b
}

// scale makes the load so many checks a second.
func (b *BucketPlan) scale(perSecond float64) {
	sum := 0.0
	for _, l := range b.Load {
		sum += l.PerSecond
	}
	for i := range b.Load {
		if sum > 0 {
			b.Load[i].PerSecond *= perSecond / sum
		}
	}
}

func (p *Plan) load(r *rand.Rand, perSecond float64, burst limit.Tokens) Load {
	l := Load{PerSecond: perSecond * 2 * r.Float64(), Burst: 1, Cost: 1, Odd: pick(r, 0, 0, 0.2)}
	switch r.IntN(5) {
	case 0:
		l.PerSecond = 0
	case 1:
		l.Burst = 1 + r.IntN(20)
	case 2:
		l.On, l.Off = time.Duration(r.Int64N(1e9)), time.Duration(r.Int64N(3e9))
	}
	if r.IntN(6) == 0 {
		l.Cost = 1 + limit.Tokens(r.IntN(int(burst)))
	}
	return l
}

// mostWays is the most parts that dividers ask for, however many masters there are.
const mostWays = 8

// DrawDivided draws the plan of a seed in which dividers are at work.
func DrawDivided(seed uint64) Plan {
	r := rand.New(rand.NewPCG(seed, 0xd171de))
	p := Plan{Seed: seed, Divided: true, Length: pick(r, 3*time.Second, 6*time.Second, 10*time.Second, 15*time.Second), Masters: 1 + r.IntN(4), Most: 1}
	switch r.IntN(6) {
	case 0:
		p.Failover, p.Length = 0.2*r.Float64()/float64(p.Masters), 20*time.Second
	case 1:
		p.Step, p.StepUp = r.Float64()/2, r.IntN(2) == 0
	case 2:
		p.Change = r.Float64() / 4
	}
	if r.IntN(4) == 0 {
		p.Drift = 200e-6 * r.Float64()
	}
	for range 1 + r.IntN(2) {
		b := BucketPlan{Master: r.IntN(p.Masters), Dividers: 1 + r.IntN(4), Pace: pick(r, 5.0, 20, 60), Resets: r.IntN(6) == 0,
			Rate: limit.Rate{Requests: pick[limit.Tokens](r, 1, 2, 5, 10, 20, 100), Period: time.Second,
				Burst: pick[limit.Tokens](r, 2, 3, 4, 7, 8, 10, 20, 100)}}
		if r.IntN(8) == 0 {
			b.Scheme = true
			b.Rate.Requests = b.Rate.Burst * pick[limit.Tokens](r, 1, 2)
		}
		p.Buckets = append(p.Buckets, b)
	}
	return p
}
