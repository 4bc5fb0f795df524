package wire

import (
	"io"
	"net"
	"os"
	"syscall"
	"unsafe"
)

// Socket returns c with a cheaper way to read and write, for NewReader and
// NewWriter; a c that is not a Unix or TCP socket is returned as it is. Deadlines
// and Close of c work as ever, and end a Read or Write in progress.
//
// The net package tells the scheduler around each system call that it may block,
// and the scheduler has work with that: where there are fewer cores than threads
// it moves the P to another thread in mid-call. Sockets of the net package are
// in non-blocking mode, the call is a copy of at most MaxFrame bytes, and here it
// is made without telling. Waiting is left to the runtime's poller, as in net.
//
// Tried and rejected: to save the read that returns EAGAIN by going straight to
// the poller after a short read. The poller is edge-triggered, and when the peer
// closes right behind its last bytes, the edge that said so was the one that
// brought the bytes: the connection would wait for ever.
func Socket(c net.Conn) io.ReadWriter {
	var raw syscall.RawConn
	var err error
	switch c := c.(type) { // exact types: a wrapper has its reasons
	case *net.UnixConn:
		raw, err = c.SyscallConn()
	case *net.TCPConn:
		raw, err = c.SyscallConn()
	}
	if raw == nil || err != nil {
		return c
	}
	s := &socket{raw: raw}
	s.read.try = s.read.readFD
	s.write.try = s.write.writeFD
	return s
}

// socket may have one Read and one Write at a time.
type socket struct {
	raw         syscall.RawConn
	read, write transfer
}

// transfer is a Read or a Write in progress.
type transfer struct {
	p     []byte
	n     int
	errno syscall.Errno
	try   func(fd uintptr) (done bool) // bound once: a closure per call allocates
}

// Read reads what is there, or waits for the first byte.
//
// Hot path: one system call if bytes are there, 0 allocations.
func (s *socket) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	t := &s.read
	t.start(p)
	err := s.raw.Read(t.try)
	n, errno := t.finish()
	switch {
	case err != nil:
		return 0, err
	case errno != 0:
		return 0, os.NewSyscallError("read", errno)
	case n == 0:
		return 0, io.EOF
	}
	return n, nil
}

// Write writes all of p.
//
// Hot path: one system call if the peer keeps up, 0 allocations.
func (s *socket) Write(p []byte) (int, error) {
	t := &s.write
	t.start(p)
	err := s.raw.Write(t.try)
	n, errno := t.finish()
	if err == nil && errno != 0 {
		err = os.NewSyscallError("write", errno)
	}
	return n, err
}

func (t *transfer) start(p []byte) { t.p, t.n, t.errno = p, 0, 0 }

// finish returns the outcome and lets go of the caller's bytes.
func (t *transfer) finish() (int, syscall.Errno) {
	t.p = nil
	return t.n, t.errno
}

func (t *transfer) readFD(fd uintptr) bool {
	for {
		n, errno := rawCall(syscall.SYS_READ, fd, t.p)
		switch errno {
		case syscall.EINTR:
			continue
		case syscall.EAGAIN:
			return false
		}
		t.n, t.errno = n, errno
		return true
	}
}

func (t *transfer) writeFD(fd uintptr) bool {
	for t.n < len(t.p) {
		n, errno := rawCall(syscall.SYS_WRITE, fd, t.p[t.n:])
		switch errno {
		case 0:
			t.n += n
		case syscall.EINTR:
		case syscall.EAGAIN:
			return false
		default:
			t.errno = errno
			return true
		}
	}
	return true
}

// rawCall makes a read or write of p, which is not empty, unseen by the scheduler.
func rawCall(trap, fd uintptr, p []byte) (int, syscall.Errno) {
	n, _, errno := syscall.RawSyscall(trap, fd, uintptr(unsafe.Pointer(&p[0])), uintptr(len(p)))
	if errno != 0 {
		return 0, errno
	}
	return int(n), 0
}
