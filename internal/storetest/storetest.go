package storetest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/spillgate/spillgate/batcher"
	"github.com/spillgate/spillgate/limit"
)

// patience bounds a call; it decides only how soon a hopeless test gives up.
const patience = 20 * time.Second

// Counter is what a store may have besides, for the cases that look at memory.
type Counter interface {
	// Cells is the number of cells that the store holds.
	Cells() int
}

// Run runs all cases. open gives a store that has been reached (Secret is known); it
// may give the same one again, but nobody else may write to it meanwhile.
func Run(t *testing.T, open func(t *testing.T) batcher.Store) {
	for _, c := range append(cases, windowCases...) {
		t.Run(c.name, func(t *testing.T) {
			c.run(&bench{T: t, store: open(t), own: rand.Text()[:8]})
		})
	}
	t.Run("slow", func(t *testing.T) { // together, and over when Run returns
		for _, c := range slowCases {
			t.Run(c.name, func(t *testing.T) {
				t.Parallel()
				c.run(&bench{T: t, store: open(t), own: rand.Text()[:8]})
			})
		}
	})
}

type testCase struct {
	name string
	run  func(*bench)
}

var cases = []testCase{
	{"last token", lastToken},
	{"all or nothing", allOrNothing},
	{"two agents and five tokens", twoPartials},
	{"peek", peek},
	{"denial", denial},
	{"refund", refund},
	{"charge", charge},
	{"reset", reset},
	{"cost above burst", costAboveBurst},
	{"rounds", rounds},
	{"many at once", manyAtOnce},
	{"full calls", fullCalls},
	{"ids", ids},
	{"changed terms", changedTerms},
	{"two terms", twoTerms},
	{"rates", rates},
	{"never over", neverOver},
	{"retry is enough", retryIsEnough},
	{"last leased", lastLeased},
	{"two agents lease", twoLeases},
	{"settled leases", settled},
	{"reset while leased", resetWhileOut},
	{"contenders", contenders},
	{"split at the threshold", splitAtThreshold},
	{"indivisible", indivisible},
	{"refused parts", refusedParts},
	{"merged", merged},
	{"merged leases", mergedLeases},
	{"reset parts", resetParts},
	{"fewer than ways", fewerThanWays},
	{"ids of divided buckets", dividedIDs},
}

// slowCases take seconds, and run side by side.
var slowCases = []testCase{
	{"unsettled leases", unsettled},
	{"a fleet that leases", leaseFleet},
	{"natural end of a split", naturalEnd},
	{"a fleet on parts", splitFleet},
}

// bench is a store under test.
type bench struct {
	*testing.T
	store batcher.Store
	own   string // part of each bucket's id: no run meets the buckets of another
}

// bucket names a bucket by its parts.
func (b *bench) bucket(parts ...string) (name limit.Bucket) {
	b.Helper()
	secret, ok := b.store.Secret()
	if !ok {
		b.Fatal("the store has not been reached")
	}
	id := limit.AppendPart(nil, b.own)
	for _, p := range parts {
		id = limit.AppendPart(id, p)
	}
	secret.Name(&name, id)
	return name
}

// neighbours are n buckets of one shard.
func (b *bench) neighbours(n int) []limit.Bucket {
	all := make([]limit.Bucket, 0, n)
	for i := 0; len(all) < n; i++ {
		name := b.bucket("neighbour", fmt.Sprint(i))
		if len(all) == 0 || b.store.Shard(&name, nil) == b.store.Shard(&all[0], nil) {
			all = append(all, name)
		}
	}
	return all
}

var errLeftOver = errors.New("storetest: the store has not touched this entry")

// apply runs entries, those of each shard in one call, in the order given. It is safe for
// concurrent use.
func (b *bench) apply(entries ...*batcher.Entry) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	shards := map[int][]*batcher.Entry{}
	for _, e := range entries {
		e.Out, e.Err = limit.Outcome{Granted: 99, Level: 99, Lag: 99}, errLeftOver
		shard := b.store.Shard(&e.Bucket, e.Part)
		shards[shard] = append(shards[shard], e)
	}
	for shard, list := range shards {
		b.store.Apply(ctx, shard, list)
	}
}

// op runs one entry alone.
func (b *bench) op(name limit.Bucket, terms *limit.Terms, op limit.Op, n limit.Tokens) limit.Outcome {
	b.Helper()
	e := batcher.Entry{Bucket: name, Terms: terms, Op: op, N: n}
	b.apply(&e)
	if e.Err != nil {
		b.Fatalf("op %d of %d: %v", op, n, e.Err)
	}
	return e.Out
}

// expect runs one entry alone and tells what it must give: tokens granted, and tokens that are
// out of the bucket afterwards.
func (b *bench) expect(name limit.Bucket, terms *limit.Terms, op limit.Op, n, granted, out limit.Tokens) {
	b.Helper()
	got := b.op(name, terms, op, n)
	if got.Granted != granted || missing(terms, got.Level) != out || got.Lag != 0 {
		b.Errorf("op %d of %d: granted %d, %d are out, lag %d; want %d, %d, 0",
			op, n, got.Granted, missing(terms, got.Level), got.Lag, granted, out)
	}
}

// missing is the number of tokens out of a bucket at the level. One that is on its
// way back counts as out.
func missing(terms *limit.Terms, level limit.Ticks) limit.Tokens {
	return limit.Tokens((level + terms.Emission - 1) / terms.Emission)
}

// compile gives the terms of a rate that is known to be valid.
func (b *bench) compile(requests limit.Tokens, period time.Duration, burst limit.Tokens) *limit.Terms {
	b.Helper()
	terms, err := limit.Rate{Requests: requests, Period: period, Burst: burst}.Terms()
	if err != nil {
		b.Fatal(err)
	}
	return terms
}

// hourly refills a token in six minutes, which no test takes.
func (b *bench) hourly() *limit.Terms {
	b.Helper()
	return b.compile(10, time.Hour, 0)
}
