//go:build race

package agent_test

// poolAllocs is what a check may allocate on average under the race detector, where a sync.Pool drops
// objects at random to show who relies on it.
const poolAllocs = 5
