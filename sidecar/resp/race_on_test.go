//go:build race

package resp_test

// perBatch is what a batch of commands may allocate on average under the race detector, where a sync.Pool
// drops objects at random to show who relies on it: the buffers of a deep pipeline come from one.
const perBatch = 3
