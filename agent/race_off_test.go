//go:build !race

package agent_test

const poolAllocs = 0
