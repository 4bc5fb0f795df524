// Package batcher carries claims on buckets to a store in few, full calls. It
// declares the Store seam that redisshard and memstore implement.
//
// # Part in the life of a check
//
//	caller                 queue of a shard                 store
//	Group.Claim, Submit -> merge into the bucket's    [1]
//	                       pending entry
//	                       nothing in flight, or a
//	                       full call has gathered:    [2]
//	                       take up to MaxEntries ------->   Apply
//	                       share out the grant in     [3] <-
//	                       order, refund the rest
//	Group.Wait  <--------- wake                       [4]
//
// The flush is self-clocked: the first claim of an idle shard leaves at
// once, and what gathers while its call is in flight leaves when the reply
// comes. So calls grow with the load by themselves, and an idle system waits
// for nothing. A timer that collects for a millisecond was the rejected
// alternative: it taxes every check of a quiet system and still sends small calls.
//
// # When a shard is away
//
// After some calls in a row without an answer its queue refuses claims (ErrDown), and what is in line; a timer
// probes with one look at a bucket at a time, until one is answered (breaker.go).
//
// # Who owns what
//
// A Group belongs to one caller. Its claims are shared with the queue from
// Submit until Wait returns; claims that the caller gave up on stay with the queue. A
// queue is one mutex; at most MaxInFlight goroutines per shard run calls, and none
// exists while the shard is idle.
//
// # What it does not do
//
// It does not decide what an unanswered claim means: it reports the error,
// and the agent applies the rule's policy. It never sends an entry twice.
package batcher
