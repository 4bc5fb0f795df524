package batcher

import (
	"context"
	"errors"
	"iter"
	"slices"
	"sync/atomic"
	"time"

	"github.com/spillgate/spillgate/limit"
)

// Why a claim has no outcome although the store said nothing about it.
var (
	// ErrDeadline: the claim's deadline passed, or the caller's context ended.
	ErrDeadline = errors.New("batcher: no answer within the deadline")
	// ErrOverloaded: MaxPending claims wait already.
	ErrOverloaded = errors.New("batcher: too many claims wait")
	// ErrClosed: the batcher is closed.
	ErrClosed = errors.New("batcher: closed")
)

// Claim is one caller's wish on one bucket, and its outcome.
type Claim struct {
	Bucket limit.Bucket
	Terms  *limit.Terms
	// Op is Take (all of N or nothing; N = 0 peeks), Charge, Refund, Reset or, with Send, Lease, Touch, Close or Merge.
	Op limit.Op
	N  limit.Tokens
	// Ask goes with op Lease; its Take is filled in by the batcher, for the takes that ride along. A Refund to a bucket that
	// counts in windows has the Epoch of the take's outcome.
	Ask limit.Ask
	// Part, if set, is as in Entry. It is not changed, but for what the store fills in, and may be shared.
	Part *limit.Part
	// Deadline until Wait gives the claim up, counted from Submit; > 0. Not for Send.
	Deadline time.Duration
	// Lazy claims wait for company, up to Config.Linger.
	Lazy bool
	// Done, for Send, is told of the outcome. It must not block. It may send claims.
	Done func(*Claim)
	// Keep leaves tokens debited that arrive after the claim was given up: set
	// it when giving up admits the request. Otherwise they are refunded.
	Keep bool

	// Out and Err are valid after Wait, or in Done.
	Out limit.Outcome
	Err error
	// Split is how the bucket is divided, or was until not long ago, if its home was asked and says so; else nil. Where Part names a
	// part, the level in Out is that of the part.
	Split *Split
	// Call numbers the calls of the claim's shard, in the order in which they left.
	Call uint64
	// Rider: the claim rode with a lease, and the level it sees has in it what was left for the lease.
	Rider bool
	// Rode, for Lease, are the tokens of the lease that went to takes that rode along. They are
	// on lease and spent; Out.Granted does not have them.
	Rode limit.Tokens

	rode       limit.Tokens  // of N, from a lease that was in flight
	rodeEpoch  int64         // of that lease
	lasts      time.Duration // that lease, from before its call
	group      *Group
	prev, next *Claim
	in         *pending // while the claim is queued or in flight
	queue      *queue
	submitted  bool
	sent       bool // its entry has left for the store
	orphan     bool // given up after it was sent: takes nothing of the grant
	done       bool // Out and Err are set
}

// Ridden are the tokens of N that came from the lease with which the claim rode, and the epoch of that lease. The store counts them
// as on lease until it has the lease's account.
func (c *Claim) Ridden() (n limit.Tokens, epoch int64) { return c.rode, c.rodeEpoch }

// Group is the claims that one caller waits for together: take one from
// Batcher.Group, add claims, Submit, Wait (always), read, Release. Not for concurrent use.
type Group struct {
	batcher *Batcher
	claims  []*Claim
	open    atomic.Int32 // claims without an outcome
	wake    chan struct{}
	timer   *time.Timer
	start   time.Time
}

// Group returns an empty group.
func (b *Batcher) Group() *Group {
	if g, ok := b.groups.Get().(*Group); ok {
		return g
	}
	g := &Group{batcher: b, wake: make(chan struct{}, 1), timer: time.NewTimer(time.Hour)}
	g.timer.Stop()
	return g
}

// Claim adds a claim, to be filled in before Submit.
func (g *Group) Claim() *Claim {
	n := len(g.claims)
	if n < cap(g.claims) {
		g.claims = g.claims[:n+1]
		if c := g.claims[n]; c != nil {
			*c = Claim{group: g}
			return c
		}
	} else {
		g.claims = append(g.claims, nil)
	}
	c := &Claim{group: g}
	g.claims[n] = c
	return c
}

// Claims are those that were added, in order.
func (g *Group) Claims() iter.Seq[*Claim] { return slices.Values(g.claims) }

// Len is the number of claims added.
func (g *Group) Len() int { return len(g.claims) }

// Submit hands the claims to their queues; those of one shard leave in one call, if it has room. Claims that cannot be queued
// have their error at once, and so have all if ctx has ended already.
func (g *Group) Submit(ctx context.Context) {
	g.start = time.Now()
	g.open.Store(int32(len(g.claims)))
	if ctx.Err() != nil {
		for _, c := range g.claims {
			g.failed(c, ErrDeadline)
		}
		return
	}
	for _, c := range g.claims {
		c.queue = g.batcher.queueOf(c)
	}
	for i, c := range g.claims {
		if !c.submitted {
			c.queue.addAll(g.claims[i:], g.failed)
		}
	}
}

// failed gives a claim its error instead of queueing it.
func (g *Group) failed(c *Claim, err error) {
	c.Err, c.done = err, true
	g.finish(1)
}

// Wait returns when every claim has an outcome or was given up. A claim is given up
// when its deadline passes or ctx ends: if it had not been sent it never
// will be, else its tokens are kept or refunded as Keep says.
func (g *Group) Wait(ctx context.Context) {
	if len(g.claims) == 0 {
		return
	}
	passed := time.Duration(0) // claims with deadlines up to here were given up
	for {
		left := g.deadlineAfter(passed) - time.Since(g.start)
		g.timer.Reset(max(left, time.Nanosecond))
		select {
		case <-g.wake:
			g.timer.Stop()
			return
		case <-ctx.Done():
			g.timer.Stop()
			g.giveUp(func(*Claim) bool { return true })
		case <-g.timer.C:
			passed = time.Since(g.start)
			g.giveUp(func(c *Claim) bool { return c.Deadline <= passed })
		}
		if g.open.Load() == 0 {
			// Whoever brought the count to zero has signalled, or is about to.
			<-g.wake
			return
		}
	}
}

// Linger waits up to d, or until ctx ends, and gives no claim up. It reports
// whether every claim has its outcome; if not, Wait must follow.
func (g *Group) Linger(ctx context.Context, d time.Duration) bool {
	g.timer.Reset(d)
	defer g.timer.Stop()
	select {
	case <-g.wake:
		return true
	case <-g.timer.C:
	case <-ctx.Done():
	}
	return false
}

// deadlineAfter is the earliest deadline of a claim after the last one that was
// seen to pass; 0 if there is none.
func (g *Group) deadlineAfter(passed time.Duration) time.Duration {
	next := time.Duration(0)
	for _, c := range g.claims {
		if c.Deadline > passed && (next == 0 || c.Deadline < next) {
			next = c.Deadline
		}
	}
	return next
}

func (g *Group) giveUp(which func(*Claim) bool) {
	for _, c := range g.claims {
		if which(c) && c.queue != nil && c.queue.giveUp(c) {
			g.finish(1)
		}
	}
}

// finish counts claims that got their outcome and wakes the caller at the last.
func (g *Group) finish(n int32) {
	if g.open.Add(-n) == 0 {
		g.wake <- struct{}{}
	}
}

// Release returns the group for reuse. Its claims must not be used afterwards.
func (g *Group) Release() {
	g.claims = g.claims[:0]
	g.batcher.groups.Put(g)
}
