// Package memstore keeps cells in process memory: the embedded store for one
// machine, and the oracle of the Redis script. It implements batcher.Store and
// batcher.Direct.
//
// It follows the same scheme as redisshard, on the arithmetic of package limit: cells
// in two generations per time class, a recorded clock per generation, nothing to delete
// one by one. With equal times it gives bit-identical outcomes; a fuzz
// test holds the two together.
//
// A cell costs 64 to 128 bytes: a slot of 32 in a table that is a quarter to three quarters full.
// Memory is bounded twice: cells vanish with their generation, and at
// Config.MaxCells new buckets are refused, so a flood of keys is answered by the rules' fail
// policy and never by forgetting who has used up a limit.
//
// It does not share counts with other processes and does not survive the process.
package memstore
