package redistest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
)

// process is one run of redis-server.
type process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when the process is dead and reaped
	err  error         // how it ended; read only after done
}

// startProcess starts cmd and a goroutine that reaps it.
//
// On Linux the child is told to die with its parent (see dieWithParent). For
// the kernel the parent is not our process but the THREAD that forked, and the
// Go runtime ends threads when it likes. So the goroutine that starts the child
// keeps its thread to itself until the child is dead. It would have sat in Wait
// all that time anyway.
func startProcess(cmd *exec.Cmd) (*process, error) {
	cmd.SysProcAttr = dieWithParent()
	p := &process{cmd: cmd, done: make(chan struct{})}
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		if err := cmd.Start(); err != nil {
			started <- err
			return
		}
		started <- nil
		p.err = cmd.Wait()
		close(p.done)
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("redistest: start %s: %w", cmd.Path, err)
	}
	return p, nil
}

// exited reports whether the process is dead and reaped.
func (p *process) exited() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// signal sends sig, or returns an error that says the process is gone.
func (p *process) signal(sig syscall.Signal) error {
	if err := p.cmd.Process.Signal(sig); err != nil {
		return fmt.Errorf("redistest: signal %v to pid %d: %w", sig, p.cmd.Process.Pid, err)
	}
	return nil
}

// kill ends the process, stopped or not, and waits until it is reaped. To kill
// a dead one is no error.
func (p *process) kill() error {
	err := p.signal(syscall.SIGKILL)
	if err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	<-p.done
	return nil
}
