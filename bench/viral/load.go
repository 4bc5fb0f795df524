package viral

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spillgate/spillgate/agent"
	"github.com/spillgate/spillgate/limit"
)

// counts are decisions so far.
type counts struct {
	Admitted, Denied uint64
	// Policy of them were made without the store.
	Policy uint64
}

func (c counts) checks() uint64 { return c.Admitted + c.Denied }

// minus is what was counted since.
func (c counts) minus(before counts) counts {
	return counts{c.Admitted - before.Admitted, c.Denied - before.Denied, c.Policy - before.Policy}
}

// caller makes one check after the other. Only its goroutine writes the counters; the padding keeps
// them from the cache lines of others.
type caller struct {
	admitted, denied, policy atomic.Uint64
	_                        [128]byte
}

func (c *caller) count(d *limit.Decision) {
	n := &c.denied
	if d.Admitted {
		n = &c.admitted
	}
	n.Add(1)
	if byPolicy(d) {
		c.policy.Add(1)
	}
}

// load is the callers of all agents.
type load struct {
	start   time.Time
	rate    float64 // of all callers; 0 is a closed loop
	callers []caller
	end     context.CancelFunc
	group   sync.WaitGroup
}

// startLoad has every caller begin at once. Callers of one agent are not neighbours in turn, so that with a rate the
// agents' checks come evenly.
func startLoad(cfg *Config, f *fleet, key string) *load {
	ctx, cancel := context.WithCancel(context.Background())
	l := &load{rate: cfg.Rate, callers: make([]caller, cfg.Agents*cfg.Connections), end: cancel, start: time.Now()}
	for i := range l.callers {
		h := f.Handles[i%len(f.Handles)]
		l.group.Go(func() { l.call(ctx, h, key, i) })
	}
	return l
}

// call is one caller until ctx ends. A check is never cut short: what was sent is counted.
func (l *load) call(ctx context.Context, h *agent.Handle, key string, i int) {
	for n := 0; ctx.Err() == nil; n++ {
		if l.rate > 0 {
			if wait := l.due(i, n) - time.Since(l.start); wait > 0 && pause(ctx, wait) != nil {
				return
			}
		}
		d := h.Check(context.Background(), 1, key)
		l.callers[i].count(&d)
	}
}

// due is when caller i makes its n-th check. One that is late goes on without a wait until it has caught up, so that
// a machine that stumbles makes no fewer checks.
func (l *load) due(i, n int) time.Duration {
	return time.Duration(float64(n*len(l.callers)+i) / l.rate * float64(time.Second))
}

// so is what was counted so far.
func (l *load) so() (sum counts) {
	for i := range l.callers {
		c := &l.callers[i]
		sum.Admitted += c.admitted.Load()
		sum.Denied += c.denied.Load()
		sum.Policy += c.policy.Load()
	}
	return sum
}

// stop ends the load, waits for the last answers and returns how long it went on.
func (l *load) stop() time.Duration {
	length := time.Since(l.start)
	l.end()
	l.group.Wait()
	return length
}

// lag is the part of the checks due in that time that were not made; 0 in a closed loop.
func (l *load) lag(length time.Duration) float64 {
	due := l.rate * length.Seconds()
	if due == 0 {
		return 0
	}
	return max(0, 1-float64(l.so().checks())/due)
}
