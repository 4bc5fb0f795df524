package redistest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

func TestServer(t *testing.T) {
	srv := Start(t)
	ctx := t.Context()
	Must(t, srv.Client().Set(ctx, "k", "v", 0).Err())

	t.Run("addresses", func(t *testing.T) {
		opts, err := redis.ParseURL(srv.URL())
		Must(t, err)
		for name, o := range map[string]*redis.Options{
			"Addr":   {Addr: srv.Addr()},
			"Socket": {Network: "unix", Addr: srv.Socket()},
			"URL":    opts,
		} {
			c := redis.NewClient(o)
			if v, err := c.Get(ctx, "k").Result(); v != "v" || err != nil {
				t.Errorf("through %s: %q, %v", name, v, err)
			}
			Must(t, c.Close())
		}
	})
	t.Run("identity", func(t *testing.T) {
		info := srv.Client().InfoMap(ctx, "server").Val()["Server"]
		if info["process_id"] != fmt.Sprint(srv.PID()) || info["tcp_port"] != fmt.Sprint(srv.Port()) {
			t.Errorf("server says pid %s port %s, want %d, %d", info["process_id"], info["tcp_port"], srv.PID(), srv.Port())
		}
	})
	t.Run("script flush", func(t *testing.T) {
		sha := srv.Client().ScriptLoad(ctx, "return 1").Val()
		Must(t, srv.ScriptFlush(ctx))
		if err := srv.Client().EvalSha(ctx, sha, nil).Err(); !redis.HasErrorPrefix(err, "NOSCRIPT") {
			t.Errorf("EVALSHA after the flush: %v", err)
		}
	})
	t.Run("stop and continue", func(t *testing.T) {
		Must(t, srv.Stop())
		short, cancel := context.WithTimeout(ctx, 30*time.Millisecond)
		defer cancel()
		if err := srv.Client().Ping(short).Err(); err == nil {
			t.Error("a stopped server answered")
		}
		if srv.Alive() {
			t.Error("a stopped server counts as alive")
		}
		Must(t, srv.Continue())
		if v, err := srv.Client().Get(ctx, "k").Result(); v != "v" || err != nil {
			t.Errorf("after Continue: %q, %v", v, err)
		}
	})
	t.Run("kill and restart", func(t *testing.T) {
		pid, addr := srv.PID(), srv.Addr()
		Must(t, srv.Stop()) // SIGKILL ends a stopped process too
		Must(t, srv.Kill())
		Must(t, srv.Kill())
		if srv.Alive() {
			t.Error("alive after Kill")
		}
		if err := srv.Stop(); !errors.Is(err, os.ErrProcessDone) {
			t.Errorf("Stop of a dead server: %v", err)
		}
		Must(t, srv.Restart(ctx))
		if srv.PID() == pid || srv.Addr() != addr {
			t.Errorf("restart: pid %d then %d, address %s then %s", pid, srv.PID(), addr, srv.Addr())
		}
		if n, err := srv.Client().DBSize(ctx).Result(); n != 0 || err != nil {
			t.Errorf("after a restart %d keys, %v; want an empty server", n, err)
		}
	})
	t.Run("no persistence", func(t *testing.T) {
		files, err := os.ReadDir(srv.Dir())
		Must(t, err)
		for _, f := range files {
			if strings.HasSuffix(f.Name(), ".rdb") || strings.Contains(f.Name(), "appendonly") {
				t.Errorf("the server wrote %s", f.Name())
			}
		}
	})
}

func TestAuthentication(t *testing.T) {
	srv := Start(t, WithPassword(`p w"{}`), WithUser("agent", "s3cret", "~sg:*", "+get", "+ping"))
	Must(t, srv.Client().Set(t.Context(), "sg:k", "v", 0).Err())

	for _, tt := range []struct {
		user, password, key, want string
	}{
		{"", "", "sg:k", "NOAUTH"},
		{"", "wrong", "sg:k", "WRONGPASS"},
		{"agent", "s3cret", "sg:k", ""},
		{"agent", "s3cret", "other", "NOPERM"},
	} {
		c := redis.NewClient(&redis.Options{Addr: srv.Addr(), Username: tt.user, Password: tt.password})
		err := c.Get(t.Context(), tt.key).Err()
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("GET %s as %q: %v, want %q", tt.key, tt.user, err, tt.want)
		}
		Must(t, c.Close())
	}
	opts, err := redis.ParseURL(srv.URL())
	Must(t, err)
	c := redis.NewClient(opts)
	defer c.Close()
	Must(t, c.Ping(t.Context()).Err())
}

func TestRestartWaitsForAStrangerOnThePort(t *testing.T) {
	srv := Start(t)
	Must(t, srv.Kill())
	stranger, err := net.Listen("tcp", srv.Addr())
	Must(t, err)
	defer stranger.Close()

	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- srv.Restart(ctx) }()
	// At the second one the first has been told of.
	Must(t, poll(t.Context(), 5*time.Millisecond, func(context.Context) error {
		if n := strings.Count(srv.Log(), "Address already in use"); n < 2 {
			return fmt.Errorf("%d tries", n)
		}
		return nil
	}))
	cancel()
	if err := <-ended; !errors.Is(err, errPortTaken) {
		t.Fatalf("Restart on a taken port: %v", err)
	}
	time.AfterFunc(100*time.Millisecond, func() { stranger.Close() })
	Must(t, srv.Restart(t.Context()))
	Must(t, srv.Client().Ping(t.Context()).Err())
}

func TestClaimsKeepPortsApart(t *testing.T) {
	seen := map[int]bool{}
	for range 50 {
		port, claim, err := claimPort()
		Must(t, err)
		defer claim.Close()
		if seen[port] {
			t.Errorf("port %d was given out twice", port)
		}
		seen[port] = true
		if port < firstPort || port+busOffset >= 32768 {
			t.Errorf("port %d is out of our range", port)
		}
	}
}

func TestManyAtOnce(t *testing.T) {
	srvs := make([]*Server, 8)
	Must(t, each(srvs, func(i int, _ *Server) (err error) {
		srvs[i], err = Launch(t.Context(), "", Config{})
		return err
	}))
	for _, s := range srvs {
		Must(t, s.Client().Ping(t.Context()).Err())
		Must(t, s.Close())
		Must(t, s.Close())
		if _, err := os.Stat(s.Dir()); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("Close left the directory: %v", err)
		}
		if err := s.Restart(t.Context()); err == nil {
			t.Error("a closed server was restarted")
		}
	}
}

func TestLaunchKeepsAGivenDirectory(t *testing.T) {
	dir, err := os.MkdirTemp("", "given-")
	Must(t, err)
	defer os.RemoveAll(dir)
	s, err := Launch(t.Context(), filepath.Join(dir, "new"), Config{})
	Must(t, err)
	Must(t, s.Close())
	if !strings.Contains(s.Log(), "Ready to accept connections") {
		t.Errorf("log is gone or strange after Close:\n%s", s.Log())
	}

	_, err = Launch(t.Context(), filepath.Join(dir, strings.Repeat("x", maxSocketPath)), Config{})
	if err == nil || !strings.Contains(err.Error(), "TMPDIR") {
		t.Errorf("too long a directory: %v", err)
	}
}

func TestBadConfigurationIsExplained(t *testing.T) {
	_, err := Launch(t.Context(), "", Config{Lines: []string{"no-such-directive 1"}})
	if err == nil || !strings.Contains(err.Error(), "no-such-directive") {
		t.Errorf("error does not show the server's log: %v", err)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("it was waited for, though it had ended: %v", err)
	}
}

func TestLogsAreShownWhenTheTestFailed(t *testing.T) {
	for _, fails := range []bool{false, true} {
		fake := &fakeTB{TB: t}
		var srv *Server
		fake.run(func() {
			srv = Start(fake)
			if fails {
				Must(fake, errors.New("the test's own failure"))
			}
		})
		if shown := strings.Contains(fake.text, "Ready to accept connections"); shown != fails {
			t.Errorf("failed %v, log shown %v:\n%s", fails, shown, fake.text)
		}
		if srv.Alive() {
			t.Error("the cleanup left the server running")
		}
	}
}

// A server must outlive the thread that asked for it: on Linux the kernel would
// otherwise take the end of that thread for the end of the parent.
func TestServerOutlivesTheStartingThread(t *testing.T) {
	var srv *Server
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // and never unlock: the thread ends with the goroutine
		srv, err = Launch(context.Background(), "", Config{})
	}()
	<-done
	Must(t, err)
	defer srv.Close()
	for range 20 {
		runtime.Gosched()
		Must(t, srv.Client().Ping(t.Context()).Err())
		time.Sleep(time.Millisecond)
	}
}

// orphanEnv makes the test binary launch a server, print its socket and linger.
const orphanEnv = "REDISTEST_TEST_ORPHAN"

func launchAndLinger() {
	srv, err := Launch(context.Background(), os.Getenv(orphanEnv), Config{})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(srv.Socket())
	time.Sleep(time.Hour)
}

func TestServerDiesWithTheTestBinary(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux has a parent-death signal")
	}
	dir, err := os.MkdirTemp("", "orphan-")
	Must(t, err)
	defer os.RemoveAll(dir)
	parent := exec.Command(os.Args[0])
	parent.Env = append(os.Environ(), orphanEnv+"="+dir)
	out, err := parent.StdoutPipe()
	Must(t, err)
	Must(t, parent.Start())
	defer parent.Wait()
	defer parent.Process.Kill()

	var socket string
	if _, err := fmt.Fscanln(out, &socket); err != nil {
		t.Fatalf("the helper did not start: %v", err)
	}
	Must(t, ping(t.Context(), socket))
	Must(t, parent.Process.Kill())

	ctx, cancel := withPatience(t.Context())
	defer cancel()
	Must(t, poll(ctx, 2*time.Millisecond, func(ctx context.Context) error {
		if ping(ctx, socket) == nil {
			return errors.New("the server answers though its parent is dead")
		}
		return nil
	}))
}
