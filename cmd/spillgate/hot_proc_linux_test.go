package main

import "syscall"

// dieWithTest has the kernel kill an agent when the thread that started it ends, however that comes: one that is stopped by
// SIGSTOP would otherwise outlive a test that timed out.
func dieWithTest() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
