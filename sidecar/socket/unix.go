package socket

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

const (
	// lockPatience bounds the wait for another agent that is just starting or ending.
	lockPatience = 3 * time.Second
	// lockPause is between two attempts at the lock.
	lockPause = 5 * time.Millisecond
	// dialPatience bounds the question whether anybody serves.
	dialPatience = time.Second
)

// listenUnix does steps [1] to [4] of the package comment.
func listenUnix(path string, o *Options) (*unixListener, error) {
	gid, err := o.gid()
	if err != nil {
		return nil, err
	}
	unlock, err := lockDir(filepath.Dir(path))
	if err != nil {
		return nil, fmt.Errorf("socket: %s: %w", path, err)
	}
	defer unlock()
	if err := makeWay(path); err != nil {
		return nil, err
	}
	ln, err := bind(path, o.Mode)
	if err != nil {
		return nil, fmt.Errorf("socket: %w", err)
	}
	file, err := admit(path, gid, o)
	if err != nil {
		return nil, errors.Join(err, os.Remove(path), ln.Close())
	}
	return &unixListener{UnixListener: ln, path: path, file: file}, nil
}

// lockDir takes the lock of a directory, [1], and returns its release.
func lockDir(dir string) (unlock func(), err error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, fmt.Errorf("its directory: %w", err)
	}
	for end := time.Now().Add(lockPatience); ; time.Sleep(lockPause) {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		switch {
		case err == nil:
			return func() { f.Close() }, nil // and with it the lock
		case errors.Is(err, syscall.EINTR):
		case !errors.Is(err, syscall.EWOULDBLOCK):
			f.Close()
			return nil, fmt.Errorf("lock the directory %s: %w", dir, err)
		case time.Now().After(end):
			f.Close()
			return nil, fmt.Errorf("the directory %s has been locked (flock) by another process for %v", dir, lockPatience)
		}
	}
}

// makeWay removes a stale socket, [2].
func makeWay(path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("socket: %w", err)
	case info.Mode().Type() != fs.ModeSocket:
		return fmt.Errorf("socket: %s exists and is no socket (%s): remove it or choose another path", path, kindOf(info.Mode()))
	}
	conn, err := net.DialTimeout("unix", path, dialPatience)
	switch {
	case err == nil:
		defer conn.Close()
		return fmt.Errorf("socket: %s is %w%s: stop the other agent or choose another path", path, ErrInUse, byWhom(conn))
	case errors.Is(err, fs.ErrNotExist): // its owner has just removed it
		return nil
	case !errors.Is(err, syscall.ECONNREFUSED): // a full backlog, say: somebody is there
		return fmt.Errorf("socket: %s may be %w: %w", path, ErrInUse, err)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("socket: nobody serves on %s, but it cannot be taken over: %w", path, err)
	}
	return nil
}

func kindOf(m fs.FileMode) string {
	switch {
	case m.IsDir():
		return "a directory"
	case m&fs.ModeSymlink != 0:
		return "a symbolic link"
	case m.IsRegular():
		return "a file"
	}
	return m.Type().String()
}

// byWhom names the process behind a connection as far as the system tells.
func byWhom(conn net.Conn) string {
	p, err := peerOf(conn)
	if err != nil || p.pid == 0 {
		return ""
	}
	return fmt.Sprintf(" by process %d", p.pid)
}

// umask is one per process, so is its lock.
var umask sync.Mutex

// bind makes a socket that listens and that at most the owner can reach, [3].
func bind(path string, mode fs.FileMode) (*net.UnixListener, error) {
	umask.Lock()
	old := syscall.Umask(int(fs.ModePerm &^ (mode & 0o700)))
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	syscall.Umask(old)
	umask.Unlock()
	if err != nil {
		return nil, err
	}
	ln.SetUnlinkOnClose(false) // unixListener does it, with care
	return ln, nil
}

// admit opens the socket to those who may use it, [4], and returns the file.
func admit(path string, gid int, o *Options) (fs.FileInfo, error) {
	if gid >= 0 {
		if err := os.Lchown(path, -1, gid); err != nil {
			return nil, fmt.Errorf("socket: give %s to the group %s: %w (the agent's user must be a member)", path, o.Group, err)
		}
	}
	if err := os.Chmod(path, o.Mode); err != nil {
		return nil, fmt.Errorf("socket: %w", err)
	}
	file, err := os.Lstat(path)
	if err != nil {
		return nil, fmt.Errorf("socket: %w", err)
	}
	return file, nil
}

// unixListener removes its file when it is closed.
type unixListener struct {
	*net.UnixListener
	path string
	file fs.FileInfo

	once sync.Once
	err  error
}

// Close removes the file if it is still ours and closes the socket, [6]. Later calls
// return what the first returned.
func (l *unixListener) Close() error {
	l.once.Do(func() { l.err = errors.Join(l.remove(), l.UnixListener.Close()) })
	return l.err
}

// remove runs while the socket is open: as long, the system gives its inode to no
// other file, so the comparison cannot be fooled.
func (l *unixListener) remove() error {
	unlock, err := lockDir(filepath.Dir(l.path))
	if errors.Is(err, fs.ErrNotExist) {
		return nil // gone with its directory
	} else if err != nil {
		return fmt.Errorf("socket: %s was not removed: %w", l.path, err)
	}
	defer unlock()
	now, err := os.Lstat(l.path)
	if err == nil && os.SameFile(now, l.file) {
		err = os.Remove(l.path)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("socket: %w", err)
	}
	return nil
}
