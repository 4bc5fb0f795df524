// Command hotcheck compares checks on hot keys that an agent decides from its leases with
// golang.org/x/time/rate, one limiter for each key in a sync.Map: what an embedder would write who needs
// no shared limit. Both get the same stream of keys, drawn beforehand (zipf, s = 1.1), and limits that
// admit everything.
//
//	go run ./hotcheck -rounds 9
//	go test -bench . -cpu 1,2 ./hotcheck
//
// Our agent works against a store that it takes for one on the network: memstore behind the batcher, in this
// process, answering at once. So leases are asked for and settled as in production, and what that costs the cores is
// in the figures; a real network's waits are not. The time of a check is that of a loop over the stream: the look-up of the key's
// text in a slice is in it, for both.
//
// A round runs each side once on one core (GOMAXPROCS=1, one caller) and once on two (two callers), after a warm-up in
// which the agent finds the hot keys. A ratio is taken within its round; the table has the medians. On two cores the rate is that of
// both callers together, and the scaling is that rate over the rate on one core. CPU is the time that the process used for a check,
// its goroutines behind the checks included: a busy machine disturbs it less.
//
// A rule of mode leased is leased only as far as the agent does so: where it asks the store at each check, that is what
// the figures show. The share of the checks that were claims in the batcher is printed, as "asked".
package main
