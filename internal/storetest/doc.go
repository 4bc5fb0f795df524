// Package storetest holds every store to the one seam that the batcher declares
// (batcher.Store). A store's own tests call Run:
//
//	storetest.Run(t, func(t *testing.T) batcher.Store { return open(t) })
//
// The oracle is the arithmetic of package limit: rates are so slow that the time
// which a test takes refills less than one token, so a bucket is known by the tokens
// that are out of it. Where time matters, a ledger recounts: each grant lies
// between two moments of the caller's clock, and no window of them may hold
// more than burst + rate * length.
//
// # What it does not do
//
// It knows nothing of keys, servers or faults, and cannot set a store's clock: those are
// the store's own tests.
package storetest
