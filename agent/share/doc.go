// Package share is what an agent enforces of a bucket while the store gives no answer (on_store_error: local): the n-th part of it,
// n being the agents of the fleet. It is a pure core: time is an argument, and there is no I/O and no goroutine.
//
// # Life of a share
//
//	the shard goes away             since: when its first call went without an answer
//	checks come                     Take: the share was empty at since, and has refilled from there   [1]
//	it is back                      Due: what was admitted and has not refilled yet is charged        [2]
//	and for a second more           Take, with Told: the share has to admit as well as the store      [3]
//	all of it has refilled          Sweep: forgotten                                                  [4]
//
// [1] keeps the fleet within what the bucket refills, since nobody knows how much of it was left. [2] tells the store. [3] is for
// the other agents, who may not have charged theirs yet: until they have, the store believes the bucket to be fuller than it is.
// The proof is in docs/guarantees.md (G1 while the store is away).
//
// # What it does not do
//
// It counts no agents, and it does not know whether the store answers: the agent tells it.
package share
