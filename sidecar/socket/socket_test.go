package socket

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// helperEnv makes the test binary serve on the socket that it names until it is killed.
const helperEnv = "SOCKET_TEST_SERVE"

func TestMain(m *testing.M) {
	if addr := os.Getenv(helperEnv); addr != "" {
		serve(addr)
	}
	os.Exit(m.Run())
}

// serve is the helper process: it says how Listen went and never ends by itself.
func serve(addr string) {
	if _, err := Listen(addr, Options{}); err != nil {
		fmt.Println("refused:", err)
	} else {
		fmt.Println("serving")
	}
	select {}
}

// startHelper runs the helper process; said waits for what it has to say.
func startHelper(t *testing.T, addr string) (cmd *exec.Cmd, said func() string) {
	t.Helper()
	cmd = exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), helperEnv+"="+addr)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	return cmd, func() string {
		line, err := bufio.NewReader(out).ReadString('\n')
		if err != nil {
			t.Fatalf("the helper said nothing: %v", err)
		}
		return strings.TrimSpace(line)
	}
}

// dir returns a directory with a short name, since paths of sockets are limited.
func dir(t *testing.T) string {
	t.Helper()
	d, err := os.MkdirTemp("", "sock")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(d) })
	return d
}

func listen(t *testing.T, path string, o Options) net.Listener {
	t.Helper()
	ln, err := Listen("unix://"+path, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	return ln
}

func wantError(t *testing.T, err error, parts ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error, want one with %q", parts)
	}
	for _, p := range parts {
		if !strings.Contains(err.Error(), p) {
			t.Errorf("error %q lacks %q", err, p)
		}
	}
}

func TestParse(t *testing.T) {
	long := "/" + strings.Repeat("x", maxPath)
	for _, tt := range []struct{ addr, network, address, wrong string }{
		{addr: "unix:///run/s.sock", network: "unix", address: "/run/s.sock"},
		{addr: "unix://./s.sock", network: "unix", address: "./s.sock"},
		{addr: "unix://../s.sock", network: "unix", address: "../s.sock"},
		{addr: "unix://./@s", network: "unix", address: "./@s"}, // no abstract name
		{addr: "unix://" + long[:maxPath], network: "unix", address: long[:maxPath]},
		{addr: "127.0.0.1:7100", network: "tcp", address: "127.0.0.1:7100"},
		{addr: ":7100", network: "tcp", address: ":7100"},
		{addr: "[::1]:0", network: "tcp", address: "[::1]:0"},
		{addr: "localhost:65535", network: "tcp", address: "localhost:65535"},

		{addr: "unix://s.sock", wrong: "unix://./path"},
		{addr: "unix://@s", wrong: "unix://./path"},
		{addr: "unix://", wrong: "unix://./path"},
		{addr: "unix:///run/", wrong: "names a directory"},
		{addr: "unix:///a\x00b", wrong: "zero byte"},
		{addr: "unix://" + long, wrong: fmt.Sprintf("has %d bytes, the system takes at most %d", maxPath+1, maxPath)},
		{addr: "/run/s.sock", wrong: "write unix:///run/s.sock"},
		{addr: "./s.sock", wrong: "write unix://./s.sock"},
		{addr: "", wrong: "write host:port"},
		{addr: "off", wrong: "write host:port"},
		{addr: "7100", wrong: "write host:port"},
		{addr: "host:", wrong: "write host:port"},
		{addr: "host:65536", wrong: "write host:port"},
		{addr: "host:http", wrong: "write host:port"},
		{addr: "http://host:80", wrong: "write host:port"},
	} {
		network, address, err := Parse(tt.addr)
		if tt.wrong != "" {
			wantError(t, err, tt.wrong)
		} else if err != nil || network != tt.network || address != tt.address {
			t.Errorf("Parse(%q) = %q, %q, %v", tt.addr, network, address, err)
		}
	}
}

func TestListenAndClose(t *testing.T) {
	path := filepath.Join(dir(t), "s")
	ln := listen(t, path, Options{})
	go net.Dial("unix", path)
	conn, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := conn.(*net.UnixConn); !ok {
		t.Errorf("the connection is a %T", conn)
	}
	conn.Close()
	for range 2 {
		if err := ln.Close(); err != nil {
			t.Error(err)
		}
	}
	if entries, _ := os.ReadDir(filepath.Dir(path)); len(entries) != 0 {
		t.Errorf("left behind: %v", entries)
	}
}

func TestRelativePath(t *testing.T) {
	t.Chdir(dir(t))
	ln := listen(t, "./s", Options{})
	if conn, err := net.Dial("unix", "./s"); err != nil {
		t.Error(err)
	} else {
		conn.Close()
	}
	if err := ln.Close(); err != nil {
		t.Error(err)
	}
}

func TestLongestPath(t *testing.T) {
	d := dir(t)
	listen(t, d+"/"+strings.Repeat("x", maxPath-len(d)-1), Options{})
}

func TestTCP(t *testing.T) {
	ln, err := Listen("127.0.0.1:0", Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	_, err = Listen(ln.Addr().String(), Options{})
	wantError(t, err, ln.Addr().String(), "choose another port")
	if !errors.Is(err, ErrInUse) {
		t.Errorf("%v is not ErrInUse", err)
	}
}

func TestMode(t *testing.T) {
	for _, mode := range []fs.FileMode{0, 0o600, 0o660, 0o666, 0o777} {
		path := filepath.Join(dir(t), "s")
		listen(t, path, Options{Mode: mode})
		if mode == 0 {
			mode = 0o660
		}
		if info, err := os.Lstat(path); err != nil || info.Mode().Perm() != mode {
			t.Errorf("want %#o: %v, %v", mode, info.Mode(), err)
		}
	}
	_, err := Listen("unix://./s", Options{Mode: fs.ModeSetuid | 0o600})
	wantError(t, err, "Options.Mode")
}

// TestModeAtBirth looks between the steps: before the group and the mode are set,
// the owner alone can connect, also where the umask forbids nothing.
func TestModeAtBirth(t *testing.T) {
	old := syscall.Umask(0)
	defer syscall.Umask(old)
	for _, mode := range []fs.FileMode{0o600, 0o660, 0o777, 0o060} {
		path := filepath.Join(dir(t), "s")
		ln, err := bind(path, mode)
		if err != nil {
			t.Fatal(err)
		}
		defer ln.Close()
		if info, err := os.Lstat(path); err != nil || info.Mode().Perm() != mode&0o700 {
			t.Errorf("%#o begins as %v, %v", mode, info.Mode(), err)
		}
	}
	if now := syscall.Umask(0); now != 0 {
		t.Errorf("the umask is left at %#o", now)
	}
}

func TestGroup(t *testing.T) {
	gid := os.Getgid()
	if os.Getuid() == 0 {
		gid = 4242
	}
	path := filepath.Join(dir(t), "s")
	listen(t, path, Options{Group: strconv.Itoa(gid)})
	info, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	if got := info.Sys().(*syscall.Stat_t).Gid; got != uint32(gid) {
		t.Errorf("group %d, want %d", got, gid)
	}

	path = filepath.Join(dir(t), "s")
	_, err = Listen("unix://"+path, Options{Group: "no-such-group"})
	wantError(t, err, "Options.Group", "no-such-group")
	if os.Getuid() != 0 {
		_, err = Listen("unix://"+path, Options{Group: "0"})
		wantError(t, err, "must be a member")
	}
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a refused socket was left: %v", err)
	}
}

func TestLiveSocketIsRefused(t *testing.T) {
	path := filepath.Join(dir(t), "s")
	first := listen(t, path, Options{})
	_, err := Listen("unix://"+path, Options{})
	wantError(t, err, path, "in use", "choose another path")
	if !errors.Is(err, ErrInUse) {
		t.Errorf("%v is not ErrInUse", err)
	}
	if runtime.GOOS == "linux" {
		wantError(t, err, fmt.Sprintf("by process %d", os.Getpid()))
	}
	if _, err := net.Dial("unix", path); err != nil {
		t.Errorf("the first is gone: %v", err)
	}
	if err := first.Close(); err != nil {
		t.Error(err)
	}
	listen(t, path, Options{})
}

// A socket that answers neither yes nor no belongs to somebody.
func TestBusySocketIsRefused(t *testing.T) {
	path := filepath.Join(dir(t), "s")
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(fd)
	if err := errors.Join(syscall.Bind(fd, &syscall.SockaddrUnix{Name: path}), syscall.Listen(fd, 0)); err != nil {
		t.Fatal(err)
	}
	for { // fill the backlog
		conn, err := net.DialTimeout("unix", path, 100*time.Millisecond)
		if err != nil {
			break
		}
		defer conn.Close()
	}
	_, err = Listen("unix://"+path, Options{})
	if !errors.Is(err, ErrInUse) {
		t.Errorf("%v is not ErrInUse", err)
	}
	if _, err := os.Lstat(path); err != nil {
		t.Error(err)
	}
}

func TestStaleSocketAfterKill(t *testing.T) {
	path := filepath.Join(dir(t), "s")
	helper, said := startHelper(t, "unix://"+path)
	if line := said(); line != "serving" {
		t.Fatal(line)
	}
	_, err := Listen("unix://"+path, Options{})
	if !errors.Is(err, ErrInUse) {
		t.Fatalf("%v is not ErrInUse while the helper lives", err)
	}
	if err := helper.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	helper.Wait()
	if _, err := os.Lstat(path); err != nil {
		t.Fatalf("kill -9 left no file, so this proves nothing: %v", err)
	}
	listen(t, path, Options{})
}

func TestNoSocketIsNeverRemoved(t *testing.T) {
	d := dir(t)
	dead := filepath.Join(d, "dead")
	kill := listen(t, dead, Options{})
	kill.(*unixListener).UnixListener.Close() // as kill -9 does: the file stays

	for _, tt := range []struct {
		what string
		make func(path string) error
	}{
		{"a file", func(p string) error { return os.WriteFile(p, []byte("precious"), 0o600) }},
		{"a directory", func(p string) error { return os.Mkdir(p, 0o700) }},
		{"a symbolic link", func(p string) error { return os.Symlink(dead, p) }},
		{"p", func(p string) error { return syscall.Mkfifo(p, 0o600) }},
	} {
		path := filepath.Join(d, "x")
		if err := tt.make(path); err != nil {
			t.Fatal(err)
		}
		before, _ := os.Lstat(path)
		_, err := Listen("unix://"+path, Options{})
		wantError(t, err, path, "is no socket", tt.what)
		after, err := os.Lstat(path)
		if err != nil || !os.SameFile(before, after) {
			t.Errorf("%s was touched: %v", tt.what, err)
		}
		os.Remove(path)
	}
}

func TestMissingDirectory(t *testing.T) {
	path := filepath.Join(dir(t), "no", "s")
	_, err := Listen("unix://"+path, Options{})
	wantError(t, err, path, "its directory")
}

// TestTwoAtOnce starts many over a stale file at the same moment, as goroutines and as
// processes: exactly one may serve, and the file must be its.
func TestTwoAtOnce(t *testing.T) {
	stale := func(t *testing.T) string {
		path := filepath.Join(dir(t), "s")
		listen(t, path, Options{}).(*unixListener).UnixListener.Close()
		return path
	}
	t.Run("goroutines", func(t *testing.T) {
		for range 20 {
			path := stale(t)
			var served sync.Map
			var all sync.WaitGroup
			for i := range 8 {
				all.Go(func() {
					if ln, err := Listen("unix://"+path, Options{}); err == nil {
						served.Store(i, ln)
					} else if !errors.Is(err, ErrInUse) {
						t.Error(err)
					}
				})
			}
			all.Wait()
			count := 0
			served.Range(func(_, ln any) bool {
				count++
				ln.(net.Listener).Close()
				return true
			})
			if count != 1 {
				t.Fatalf("%d serve on one path", count)
			}
		}
	})
	t.Run("processes", func(t *testing.T) {
		path := stale(t)
		var helpers []func() string
		for range 6 {
			_, said := startHelper(t, "unix://"+path)
			helpers = append(helpers, said)
		}
		serving := 0
		for _, said := range helpers {
			switch line := said(); {
			case line == "serving":
				serving++
			case !strings.Contains(line, ErrInUse.Error()):
				t.Error(line)
			}
		}
		if serving != 1 {
			t.Errorf("%d serve on one path", serving)
		}
	})
}

func TestCloseLeavesTheFileOfOthers(t *testing.T) {
	path := filepath.Join(dir(t), "s")
	first := listen(t, path, Options{})
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	listen(t, path, Options{})
	if err := first.Close(); err != nil {
		t.Error(err)
	}
	if conn, err := net.Dial("unix", path); err != nil {
		t.Errorf("the second agent lost its socket: %v", err)
	} else {
		conn.Close()
	}
}

func TestCloseAfterTheDirectoryIsGone(t *testing.T) {
	path := filepath.Join(dir(t), "s")
	ln := listen(t, path, Options{})
	if err := os.RemoveAll(filepath.Dir(path)); err != nil {
		t.Fatal(err)
	}
	if err := ln.Close(); err != nil {
		t.Error(err)
	}
}

func TestAllowUIDs(t *testing.T) {
	if !canSeePeers {
		_, err := Listen("unix://./s", Options{AllowUIDs: []uint32{0}})
		wantError(t, err, "AllowUIDs", runtime.GOOS)
		return
	}
	_, err := Listen("127.0.0.1:0", Options{AllowUIDs: []uint32{0}})
	wantError(t, err, "AllowUIDs", "TCP")

	me := uint32(os.Getuid())
	t.Run("in the list", func(t *testing.T) {
		path := filepath.Join(dir(t), "s")
		ln := listen(t, path, Options{AllowUIDs: []uint32{me + 1, me}})
		go net.Dial("unix", path)
		if _, err := ln.Accept(); err != nil {
			t.Error(err)
		}
	})
	t.Run("not in the list", func(t *testing.T) {
		path := filepath.Join(dir(t), "s")
		var log bytes.Buffer
		ln := listen(t, path, Options{AllowUIDs: []uint32{me + 1}, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		ended := make(chan error)
		go func() {
			_, err := ln.Accept()
			ended <- err
		}()
		began := time.Now()
		for range 3 {
			conn, err := net.Dial("unix", path)
			if err != nil {
				t.Fatal(err)
			}
			conn.SetReadDeadline(time.Now().Add(10 * time.Second))
			if n, err := conn.Read(make([]byte, 1)); n != 0 || errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("not closed at once: %d, %v", n, err)
			}
			conn.Close()
		}
		ln.Close()
		if err := <-ended; !errors.Is(err, net.ErrClosed) {
			t.Errorf("Accept ended with %v", err)
		}
		most := 1 + int(time.Since(began)/time.Second)
		if lines := strings.Count(log.String(), fmt.Sprintf("uid=%d", me)); lines < 1 || lines > most {
			t.Errorf("%d lines for three peers, want one a second:\n%s", lines, &log)
		}
	})
}
