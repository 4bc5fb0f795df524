package batcher

import (
	"context"
	"errors"

	"github.com/spillgate/spillgate/limit"
)

// What can befall an entry. A store wraps these, with the cause.
var (
	// ErrNotRun: the store certainly did not run the entry. Nothing is debited.
	ErrNotRun = errors.New("batcher: the store did not run the entry")
	// ErrUnknown: the reply was lost. The entry may have run: it counts as
	// spent and is never sent again.
	ErrUnknown = errors.New("batcher: the reply was lost, the entry may have run")
	// ErrDamaged: what the store holds for this bucket is no cell. Nothing is
	// debited; the cell ages out with its generation or is mended by a Reset.
	ErrDamaged = errors.New("batcher: the bucket's cell in the store is damaged")
)

// Entry is one operation on one bucket, and its outcome.
type Entry struct {
	Bucket limit.Bucket
	Terms  *limit.Terms
	Op     limit.Op
	N      limit.Tokens
	// Ask goes with op Lease; else zero.
	Ask limit.Ask
	// Round orders the entries on one bucket within one call: no two carry the
	// same, they stand in the call in that order, and a store runs them in it.
	Round int

	// Out and Err are set by the store; Out is valid if Err is nil.
	Out limit.Outcome
	Err error
}

// Store keeps the cells. Implementations are safe for concurrent use.
type Store interface {
	// Secret keys the names of buckets. ok is false until the store has been
	// reached for the first time; nothing may be applied before. It can change when a
	// store lost its data, so it is read for each check.
	Secret() (secret *limit.Secret, ok bool)

	// Shard says in which queue the bucket waits: entries of one shard can share
	// a call. Small non-negative numbers, without gaps.
	Shard(b *limit.Bucket) int

	// Apply runs entries of one shard in one call, each at most once, and sets Out or Err of every
	// one. It returns when all are known or given up; ctx bounds it.
	Apply(ctx context.Context, shard int, entries []*Entry)
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
