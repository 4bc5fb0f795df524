//go:build race

package sim

// raced: each run takes ten times as long.
const raced = true
