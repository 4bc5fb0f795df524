package batcher

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spillgate/spillgate/limit"
)

// What can befall an entry. A store wraps these, with the cause.
var (
	// ErrNotRun: the store certainly did not run the entry. Nothing is debited.
	ErrNotRun = errors.New("batcher: the store did not run the entry")
	// ErrNoWrites: the store takes no writes, though it may answer who only reads: it is out of memory, cannot save, has lost its
	// replicas, is a replica. It is an ErrNotRun.
	ErrNoWrites = fmt.Errorf("%w: it takes no writes", ErrNotRun)
	// ErrUnknown: the reply was lost. The entry may have run: it counts as
	// spent and is never sent again.
	ErrUnknown = errors.New("batcher: the reply was lost, the entry may have run")
	// ErrDamaged: what the store holds for this bucket is no cell. Nothing is
	// debited; the cell ages out with its generation or is mended by a Reset.
	ErrDamaged = errors.New("batcher: the bucket's cell in the store is damaged")
	// ErrStale: the bucket is not divided as the entry says. At home it means that it is divided, and Entry.Split says how; at a part
	// that it is not any more, and home knows. It is an ErrNotRun.
	ErrStale = fmt.Errorf("%w: the bucket is not divided as the entry says", ErrNotRun)
	// ErrDown: the calls of the entry's shard get no answer, so it was not asked. It is an ErrNotRun, and comes from the batcher alone.
	ErrDown = fmt.Errorf("%w: its shard does not answer and was not asked", ErrNotRun)

	errWindow = fmt.Errorf("%w: buckets that count in windows are not divided, and sliding logs not leased", ErrNotRun)
)

// Entry is one operation on one bucket, and its outcome.
type Entry struct {
	Bucket limit.Bucket
	Terms  *limit.Terms
	Op     limit.Op
	N      limit.Tokens
	// Ask goes with op Lease, and with all on a bucket that counts in windows; else zero.
	Ask limit.Ask
	// Part, if set, says that the entry goes to a part, or is of op Touch, Close or Merge. A store of several masters
	// fills in Ways and Stride of a Touch.
	Part *limit.Part
	// Round orders the entries on one bucket within one call: no two carry the
	// same, they stand in the call in that order, and a store runs them in it.
	Round int

	// Out and Err are set by the store; Out is valid if Err is nil.
	Out limit.Outcome
	Err error
	// Split is how the bucket is divided, if its home says that it is, or was until not long ago; else nil.
	Split *Split
}

// Valid is nil, or the error of an entry that no store can run. A store looks before it runs one on a bucket that counts in windows.
func (e *Entry) Valid() error {
	a := e.Terms.Algorithm
	if a != limit.TokenBucket && (e.Op > limit.Lease || e.Part.At() > 0) || a == limit.SlidingLog && e.Op == limit.Lease {
		return errWindow
	}
	return nil
}

// terms are those of the part that the entry went to. Valid after Apply.
func (e *Entry) terms() *limit.Terms {
	if e.Part.At() == 0 {
		return e.Terms
	}
	p := e.Terms.Part(e.Part.Split.Ways, e.Part.Index)
	return &p
}

// Split is how a bucket is divided, as its home said.
type Split struct {
	limit.Split
	// Left is the time until its end at the moment of the reply, by home's clock.
	Left time.Duration
}

// Store keeps the cells. Implementations are safe for concurrent use.
type Store interface {
	// Secret keys the names of buckets. ok is false until the store has been
	// reached for the first time; nothing may be applied before. It can change when a
	// store lost its data, so it is read for each check.
	Secret() (secret *limit.Secret, ok bool)

	// Shard says in which queue the bucket, or a part of it, waits: entries of one shard can share
	// a call. Small non-negative numbers, without gaps. part is nil or that of the entry.
	Shard(b *limit.Bucket, part *limit.Part) int

	// Apply runs entries of one shard in one call, each at most once, and sets Out or Err of every
	// one. It returns when all are known or given up; ctx bounds it.
	Apply(ctx context.Context, shard int, entries []*Entry)
}

// Divisible is a Store that can divide a bucket over several masters.
type Divisible interface {
	Store
	// Divisible reports whether it can now.
	Divisible() bool
}

// Countable is a Store that counts the agents that share it.
type Countable interface {
	Store
	// Beat says that a member of a fleet lives, and returns how many of the fleet do: those that said so within life, by
	// the store's clock. fleet is a name of limited alphabet (agent.Config), member is unique.
	Beat(ctx context.Context, fleet, member string, life time.Duration) (agents int, err error)
}

// Direct is a store that answers without waiting. It needs no batching: the
// agent calls it on the caller's goroutine.
type Direct interface {
	Store
	// Now is the store's clock in nanoseconds since the Unix epoch. It never runs back.
	Now() int64
	// ApplyAt runs one entry at that time and sets Out or Err.
	ApplyAt(now int64, e *Entry)
}
