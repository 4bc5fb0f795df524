package redistest

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"
)

// dieWithParent has the kernel kill the child when the thread that started it
// ends, however that comes: a test's timeout, a panic, SIGKILL. The child gets a
// process group of its own, so that Ctrl-C reaches only us.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}

// waitStopped returns once a child that was sent SIGSTOP stands still: the
// signal alone leaves it time for a few more replies. It reaps nothing.
func waitStopped(pid int) error {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WSTOPPED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
