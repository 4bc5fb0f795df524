package redistest

import (
	"fmt"
	"runtime"
	"testing"
)

// fakeTB stands in for a test that fails.
type fakeTB struct {
	testing.TB
	failed, skipped bool
	text            string
	cleanups        []func()
}

// run calls f as the body of a test, then the cleanups.
func (f *fakeTB) run(body func()) {
	f.call(body)
	for i := len(f.cleanups) - 1; i >= 0; i-- {
		f.call(f.cleanups[i])
	}
}

// call runs fn on a goroutine that Fatal may end.
func (f *fakeTB) call(fn func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		fn()
	}()
	<-done
}

func (f *fakeTB) Helper()                      {}
func (f *fakeTB) Cleanup(fn func())            { f.cleanups = append(f.cleanups, fn) }
func (f *fakeTB) Failed() bool                 { return f.failed }
func (f *fakeTB) Logf(format string, a ...any) { f.text += fmt.Sprintf(format, a...) + "\n" }
func (f *fakeTB) Fatal(a ...any) {
	f.failed = true
	f.text += fmt.Sprintln(a...)
	runtime.Goexit()
}
func (f *fakeTB) SkipNow()    { f.skipped = true; runtime.Goexit() }
func (f *fakeTB) Skip(...any) { f.SkipNow() }
func (f *fakeTB) Errorf(s string, a ...any) {
	f.failed = true
	f.Logf(s, a...)
}
