// Package hotkeys tells which keys are hot: which few of millions have so many checks
// that a lease of tokens of their own pays. It also counts how many keys are active.
//
// # Part in the life of a check
//
//	agent                       Tracker
//	cold key, each check    ->  Touch(now, key, 1)     [1] shard by hash; its lock, or lost
//	                                                   [2] known: add to its sum
//	                                                   [3] else: a coin decides whether it
//	                                                       replaces the least of 8
//	                        <-  Cold or Hot            [4] sum against the bars of its class
//	hot key, in bulk        ->  Touch(now, key, 500)   as above
//	hot key, maintenance    ->  Rate(now, key)         rate for the size of a lease; class
//	                                                   [5] four times per half-life a shard
//	                                                       counts its sums: new bars for [4]
//	dashboard, spillgate top -> Top(now, n)
//
// A key's sum is what was touched, each touch halved for every half-life
// that has passed since. For a steady key it is rate * half-life / ln 2.
//
// # Who owns what
//
// The Tracker owns all its memory from the start: a fixed number of slots, 16 per key of the top K, in 64
// shards. A flood of keys changes what is in them, never how many there are. Each shard has one
// lock (tracker.go) around plain arithmetic (shard.go). The shards share a histogram of the sums
// (ranks.go), from which each reads how large a sum is that belongs to the top K of all.
//
// Time comes in as an argument and randomness from a seed: the same touches have the
// same outcome. Keys are keyed hashes (limit.Sum) and their bits are used as they are.
//
// # What it does not do
//
// It keeps no count of a cold key: a key outside the slots has rate 0. It does not tell anybody
// when a class changes: the agent asks, by Touch for cold keys and by Rate for hot
// ones. It knows neither leases nor rules, and reads no clock. Touch may lose a count when two cores meet, so
// what is counted here is no basis of a limit, only of the way in which it is enforced.
//
// How the algorithm was chosen: docs/adr/0007-hot-keys.md.
package hotkeys
