package main

import (
	"runtime"
	"testing"
)

// TestAside: what runs aside leaves a thread to the checks, and afterwards there are as many as before.
func TestAside(t *testing.T) {
	before := runtime.GOMAXPROCS(0)
	defer runtime.GOMAXPROCS(before)
	for of, want := range map[int]int{1: 2, 2: 2, 5: 5} {
		runtime.GOMAXPROCS(of)
		during := 0
		aside(func() { during = runtime.GOMAXPROCS(0) })
		if during != want || runtime.GOMAXPROCS(0) != of {
			t.Errorf("of %d threads %d, and then %d", of, during, runtime.GOMAXPROCS(0))
		}
	}
}
