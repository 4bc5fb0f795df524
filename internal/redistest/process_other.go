//go:build !linux

package redistest

import "syscall"

// dieWithParent leaves the child in our process group, so that what ends a test
// run by Ctrl-C ends it too. There is no parent-death signal here: after a
// SIGKILL to the test binary a server may live on.
func dieWithParent() *syscall.SysProcAttr { return nil }

// waitStopped trusts that SIGSTOP acts at once.
func waitStopped(int) error { return nil }
