// Package limit is the vocabulary of Spillgate and its pure arithmetic: what
// is counted (Bucket), by which parameters (Rate, Terms, Rule), how a cell
// changes (Terms.Apply) and what a caller is told (Decision).
//
// Nothing here does I/O, reads a clock, takes a lock or starts a goroutine:
// time comes in as an argument and values go out. The other packages are
// shells around it, and the Lua script in redisshard is its twin.
//
// # The arithmetic of one check
//
//	Rate  100 per 1 s, burst 200
//	  |   Rate.Terms, once per rule                                  [1]
//	Terms class 4 s, emission 81,920,000 ticks, depth 200 emissions
//	  |   Class.At(server time) -> generation, now                   [2]
//	  |   Terms.Apply(op, n, tat, now) -> tat', granted              [3]
//	Outcome granted 1, level = tat' - now
//	  |   Terms.Decide(n, outcome)                                   [4]
//	Decision admitted, remaining 199, retry -, reset 10 ms
//
// Where several data centers enforce a rule, each compiles its portion of the rate (Portion, Rate.Scale). What a rule promises then,
// in numbers, is its Bound.
//
// # Who owns what
//
// A token bucket is ONE integer, its theoretical arrival time (TAT) as in the
// generic cell rate algorithm (ITU-T I.371): the moment at which the bucket
// will be full again. With burst C and emission interval E it holds
// (now + C*E - TAT)/E tokens. See cell.go.
//
// The other algorithms count in windows, or keep a log of times (window.go). Their cells go through
// Terms.ApplyWindow, and their Level is what is used.
//
// Stores keep cells in hashes that each cover one generation of a time Class and
// die with the next but one. A cell last written two generations ago is full by
// definition, so no cell has to be deleted and a missing cell is a full bucket.
//
// # What it does not do
//
// It does not know where cells live, who asks, or what happens when a store
// cannot be asked; those are redisshard and memstore, sidecar, and agent.
package limit
