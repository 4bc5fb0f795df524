package batcher

import (
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/spillgate/spillgate/limit"
)

const (
	// breakAfter is how many calls in a row must go without an answer until a shard is taken for down. One may
	// be lost for many reasons; with more, more callers wait in vain.
	breakAfter = 3
	// leastPause and mostPause bound the pause before a probe: it doubles from one to the other, less up to a half by
	// chance, so that a fleet does not probe in step. mostPause and a call are how late a shard's return may be noticed.
	leastPause = 50 * time.Millisecond
	mostPause  = 750 * time.Millisecond
)

// breaker says whether a shard is asked. It is the pure core: the queue has its lock, clock and timer. The zero value
// is closed: the shard is asked.
//
//	closed      claims go to the store; breakAfter calls in a row without an answer open it, or one that was refused since the store
//	            takes no writes: that will not pass by itself, and who only reads is answered in between
//	open        claims are refused at once; now and then one probe, by a timer and not by a caller's claim
//	recovering  a probe was answered: claims go to the store, and one call without an answer opens it again;
//	            after Config.Recovery it is closed
//
// A circuit breaker of a library was the rejected alternative (docs/adr/0014).
type breaker struct {
	open       bool
	recovering bool
	failed     int           // calls without an answer since the last one with
	since      time.Time     // when the first of them ended; stays until the next first one
	pause      time.Duration // before the next probe; kept until a caller's call is answered
	// probe is the bucket of a claim that got no answer: the next probe looks at it.
	probe Entry
}

// answered takes a call of claims that was answered. It reports whether that is a turn from open to recovering.
//
// Hot path, once a call: one branch.
func (k *breaker) answered() (back bool) {
	if k.failed == 0 && k.pause == 0 {
		return false
	}
	k.failed, k.pause = 0, 0
	return k.back()
}

// back ends the time in which nobody asks.
func (k *breaker) back() bool {
	if !k.open {
		return false
	}
	k.open, k.recovering, k.failed = false, true, 0
	return true
}

// failure takes a call that ended without an answer at a time; certain if there is no need for another. It reports whether that opens the
// breaker.
func (k *breaker) failure(now time.Time, certain bool) (opens bool) {
	if k.open {
		return false
	}
	if k.failed == 0 {
		k.since = now
	}
	k.failed++
	if k.failed < breakAfter && !k.recovering && !certain {
		return false
	}
	k.open, k.recovering = true, false
	return true
}

// probed takes a probe's outcome, and reports whether the shard is back.
func (k *breaker) probed(answered bool) (back bool) { return answered && k.back() }

// wait is the pause before the next probe.
func (k *breaker) wait() time.Duration {
	k.pause = min(max(2*k.pause, leastPause), mostPause)
	return k.pause - rand.N(k.pause/2)
}

// probeTerms are those of a probe at a bucket that counts in windows: not all of these can be leased. They make a cell of its own.
var probeTerms = func() *limit.Terms {
	t, err := limit.Rate{Requests: 1, Period: time.Second}.Terms()
	if err != nil {
		panic(err) // they are valid
	}
	return t
}()

// remember keeps what a probe can ask for: of a load that is about to fail, the first entry's bucket.
func (k *breaker) remember(load *Load) {
	e := load.Entries[0]
	k.probe = Entry{Bucket: e.Bucket, Terms: e.Terms, Part: e.Part}
	if k.probe.Part.At() == 0 {
		k.probe.Part = nil // news for home is not for a probe
	}
	if e.Terms.Algorithm != limit.TokenBucket {
		k.probe.Terms = probeTerms
	}
}

// look is the entry of a probe: a lease of nothing. It takes nothing, so that it does not matter when it runs. But it is written: a server
// that has no memory left, or has become a replica, answers whoever only reads, and would be found back again and again.
func (k *breaker) look() *Entry {
	return &Entry{Bucket: k.probe.Bucket, Terms: k.probe.Terms, Part: k.probe.Part, Op: limit.Lease}
}

// replied reports whether an entry's outcome is the word of a store that lives.
func (e *Entry) replied() bool {
	return e.Err == nil || errors.Is(e.Err, ErrDamaged) || errors.Is(e.Err, ErrStale)
}

// replied reports whether the store said anything to a load.
func (load *Load) replied() bool {
	for _, e := range load.Entries {
		if e.replied() {
			return true
		}
	}
	return false
}

// refused reports whether the store said that it takes no writes. The whole load goes to one server.
func (load *Load) refused() bool {
	return slices.ContainsFunc(load.Entries, func(e *Entry) bool { return errors.Is(e.Err, ErrNoWrites) })
}

// Health is how a shard answers.
type Health struct {
	// Down: its claims are refused with ErrDown.
	Down bool
	// Recovering: it was down not long ago, and others may not know yet that it is back.
	Recovering bool
	// Since is when the first call went without an answer, of those in a row that the last one belongs to; while Recovering, of those
	// before. Zero if the last call was answered.
	Since time.Time
}

// Troubled reports whether any shard is down or recovering.
//
// Hot path: 1 atomic load.
func (b *Batcher) Troubled() bool { return b.troubled.Load() > 0 }

// Health returns how the shard of a bucket, or of a part of it, answers.
func (b *Batcher) Health(bucket *limit.Bucket, part *limit.Part) Health {
	return b.queue(b.cfg.Store.Shard(bucket, part)).health()
}

func (q *queue) health() Health {
	q.mu.Lock()
	defer q.mu.Unlock()
	k := &q.breaker
	h := Health{Down: k.open, Recovering: k.recovering}
	if k.open || k.recovering || k.failed > 0 {
		h.Since = k.since
	}
	return h
}

// heardLocked tells the breaker of a call.
func (q *queue) heardLocked(load *Load, replied bool) {
	k, b := &q.breaker, q.batcher
	if replied {
		if k.answered() {
			q.backLocked()
		}
		return
	}
	was := k.recovering
	if !k.failure(time.Now(), load.refused()) {
		return
	}
	k.remember(load)
	b.stats.opened.Add(1)
	b.stats.down.Add(1)
	if !was {
		b.troubled.Add(1)
	}
	q.alarmLocked(k.wait())
}

// backLocked follows the turn from open to recovering.
func (q *queue) backLocked() {
	q.batcher.stats.down.Add(-1)
	q.alarmLocked(q.batcher.cfg.Recovery)
}

// alarmLocked has awake called after a time, and not before. A closed queue needs no more of it.
func (q *queue) alarmLocked(after time.Duration) {
	if q.closed {
		return
	}
	if q.alarmAt = time.Now().Add(after); q.alarm == nil {
		q.alarm = time.AfterFunc(after, q.awake)
		return
	}
	q.alarm.Reset(after)
}

// awake is called when it is time for a probe, or when the shard has recovered.
func (q *queue) awake() {
	q.mu.Lock()
	defer q.mu.Unlock()
	k := &q.breaker
	switch {
	case q.closed:
	case time.Now().Before(q.alarmAt): // the alarm was set anew while it rang
		q.alarmLocked(time.Until(q.alarmAt))
	case k.open && !q.probing:
		q.probing = true
		q.batcher.calls.Add(1)
		go q.probe(k.look())
	case k.recovering:
		k.recovering = false
		q.batcher.troubled.Add(-1)
	}
}

// probe asks the store for one lease of nothing from one bucket. There is at most one at a time.
func (q *queue) probe(look *Entry) {
	b := q.batcher
	defer b.calls.Done()
	b.stats.probes.Add(1)
	b.apply(q.shard, []*Entry{look})
	q.mu.Lock()
	defer q.mu.Unlock()
	q.probing = false
	switch {
	case !q.breaker.open: // a call that was under way was answered meanwhile
	case q.breaker.probed(look.replied()):
		q.backLocked()
	default:
		q.alarmLocked(q.breaker.wait())
	}
}
