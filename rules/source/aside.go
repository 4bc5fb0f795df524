package source

import "runtime"

// aside runs f, which computes for long, beside everything else. Where Go has one thread, each goroutine that a check needs would
// wait for f to be interrupted, some 10 ms each time, and checks would miss their deadlines: f has a thread of its own then. A process that
// has several needs none.
func aside(f func()) {
	if n := runtime.GOMAXPROCS(0); n == 1 {
		runtime.GOMAXPROCS(n + 1)
		defer runtime.GOMAXPROCS(n)
	}
	f()
}
