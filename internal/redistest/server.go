package redistest

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

const (
	socketName = "redis.sock"
	confName   = "redis.conf"
	logName    = "redis.log"
)

// patience bounds every wait of this package whose context has no deadline of
// its own. It is long: it only decides how soon a hopeless test gives up.
const patience = 2 * time.Minute

// errPortTaken reports that a stranger took the port before the server could.
var errPortTaken = errors.New("redistest: the port is taken")

// Server is one redis-server process with its directory and its port, both of
// which it keeps over Kill and Restart. Its methods may be called from several
// goroutines.
type Server struct {
	cfg     Config
	dir     string
	ownDir  bool // Close removes dir
	cluster bool
	port    int
	claim   io.Closer
	nodeID  string // set once, while the cluster is assembled

	mu struct {
		sync.Mutex
		proc    *process // the current run, or the last one
		stopped bool     // by SIGSTOP
		closed  bool
		client  *redis.Client // made on first use
	}
}

// Launch starts one server in dir, which it creates if need be, and waits until
// it answers. With an empty dir it makes a temporary one that Close removes.
func Launch(ctx context.Context, dir string, cfg Config) (*Server, error) {
	if err := cfg.ensureDefaults(); err != nil {
		return nil, err
	}
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	return launch(ctx, dir, cfg, false)
}

// launch is Launch for a configuration that is complete.
func launch(ctx context.Context, dir string, cfg Config, cluster bool) (*Server, error) {
	ctx, cancel := withPatience(ctx)
	defer cancel()
	dir, ownDir, err := makeDir(dir)
	if err != nil {
		return nil, err
	}
	s := &Server{cfg: cfg, dir: dir, ownDir: ownDir, cluster: cluster}
	for {
		err := s.bootOnNewPort(ctx)
		if err == nil {
			return s, nil
		}
		if !errors.Is(err, errPortTaken) || ctx.Err() != nil {
			return nil, errors.Join(err, s.Close())
		}
	}
}

// makeDir creates dir, or a temporary one if the name is empty. It refuses a
// directory whose name is too long for the socket in it.
func makeDir(dir string) (_ string, own bool, err error) {
	if dir == "" {
		dir, err = os.MkdirTemp("", "redistest-")
		own = true
	} else if dir, err = filepath.Abs(dir); err == nil {
		err = os.MkdirAll(dir, 0o700)
	}
	if err != nil {
		return "", false, fmt.Errorf("redistest: directory of the server: %w", err)
	}
	if n := len(filepath.Join(dir, socketName)); n > maxSocketPath {
		err := fmt.Errorf("redistest: %s is too long a directory for a Unix socket (%d bytes, at most %d): "+
			"give a shorter one, or set TMPDIR to one", dir, n, maxSocketPath)
		if own {
			err = errors.Join(err, os.Remove(dir))
		}
		return "", false, err
	}
	return dir, own, nil
}

// bootOnNewPort does steps [1] to [4] of the package comment.
func (s *Server) bootOnNewPort(ctx context.Context) error {
	port, claim, err := claimPort()
	if err != nil {
		return err
	}
	s.port, s.claim = port, claim
	conf := s.cfg.render(s.dir, port, s.cluster)
	if err := os.WriteFile(filepath.Join(s.dir, confName), []byte(conf), 0o600); err != nil {
		return errors.Join(fmt.Errorf("redistest: write the configuration: %w", err), s.releasePort())
	}
	if err := s.boot(ctx); err != nil {
		return errors.Join(err, s.releasePort())
	}
	return nil
}

func (s *Server) releasePort() error {
	if s.claim == nil {
		return nil
	}
	claim := s.claim
	s.claim = nil
	return claim.Close()
}

// boot starts a process on the port we have and waits until it answers.
func (s *Server) boot(ctx context.Context) error {
	log, err := os.OpenFile(filepath.Join(s.dir, logName), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("redistest: open the server's log: %w", err)
	}
	defer log.Close() // the child has its own copy
	info, err := log.Stat()
	if err != nil {
		return fmt.Errorf("redistest: size of the server's log: %w", err)
	}

	cmd := exec.Command(s.cfg.Binary, confName)
	cmd.Dir = s.dir
	cmd.Stdout, cmd.Stderr = log, log
	proc, err := s.run(cmd)
	if err != nil {
		return err
	}
	err = poll(ctx, 2*time.Millisecond, func(ctx context.Context) error {
		if proc.exited() {
			return halt{s.explainExit(proc, info.Size())}
		}
		return ping(ctx, s.Socket())
	})
	if err != nil {
		return errors.Join(fmt.Errorf("redistest: server on port %d did not start: %w", s.port, err), proc.kill())
	}
	return nil
}

// run makes cmd the server's process, unless Close was there first.
func (s *Server) run(cmd *exec.Cmd) (*process, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.closed {
		return nil, fmt.Errorf("redistest: %v is closed", s)
	}
	proc, err := startProcess(cmd)
	if err != nil {
		return nil, err
	}
	s.mu.proc, s.mu.stopped = proc, false
	return proc, nil
}

// explainExit turns the death of a server at its start into an error with what
// it logged from offset on.
func (s *Server) explainExit(proc *process, offset int64) error {
	log := s.logFrom(offset)
	if bytes.Contains(log, []byte("Address already in use")) {
		return errPortTaken
	}
	return fmt.Errorf("%s ended (%v):\n%s", s.cfg.Binary, proc.err, bytes.TrimSpace(log))
}

// ping asks the server behind a socket for a sign of life. A refusal for want
// of a password is one.
func ping(ctx context.Context, socket string) error {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", socket)
	if err != nil {
		return err
	}
	defer conn.Close()
	if deadline, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(deadline); err != nil {
			return err
		}
	}
	if _, err := io.WriteString(conn, "PING\r\n"); err != nil {
		return err
	}
	reply, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil {
		return err
	}
	if strings.HasPrefix(reply, "+PONG") || strings.HasPrefix(reply, "-NOAUTH") {
		return nil
	}
	return fmt.Errorf("PING was answered %q", strings.TrimSpace(reply))
}

// Addr returns the server's host:port.
func (s *Server) Addr() string { return loopback(s.port) }

// Port returns the port for clients; the cluster bus is 10,000 above it.
func (s *Server) Port() int { return s.port }

// Socket returns the path of the server's Unix socket.
func (s *Server) Socket() string { return filepath.Join(s.dir, socketName) }

// Dir returns the server's directory.
func (s *Server) Dir() string { return s.dir }

// URL returns the server's address as redis://, with the password if there is one.
func (s *Server) URL() string { return redisURL(s.cfg.Password, s.Addr()) }

func redisURL(password, hosts string) string {
	u := url.URL{Scheme: "redis", Host: hosts, Path: "/0"}
	if password != "" {
		u.User = url.UserPassword("", password)
	}
	return u.String()
}

// String names the server in messages.
func (s *Server) String() string { return "redis on " + s.Addr() }

// PID returns the process id of the current run, or of the last one.
func (s *Server) PID() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.proc.cmd.Process.Pid
}

// Alive reports whether the process runs and is not stopped.
func (s *Server) Alive() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.proc != nil && !s.mu.proc.exited() && !s.mu.stopped
}

// Client returns a client of this one server, over TCP. It belongs to the
// server: Close closes it.
func (s *Server) Client() *redis.Client {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.client == nil {
		s.mu.client = redis.NewClient(&redis.Options{
			Addr:                  s.Addr(),
			Password:              s.cfg.Password,
			ContextTimeoutEnabled: true,
			DialerRetries:         1, // a dead server shall be seen as dead at once
			DisableIdentity:       true,
			MaintNotificationsConfig: &maintnotifications.Config{
				Mode: maintnotifications.ModeDisabled,
			},
		})
	}
	return s.mu.client
}

// Kill ends the server by SIGKILL, stopped or not, and returns when it is gone.
// To kill a dead server is no error.
func (s *Server) Kill() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.killLocked()
}

func (s *Server) killLocked() error {
	s.mu.stopped = false
	if s.mu.proc == nil {
		return nil
	}
	return s.mu.proc.kill()
}

// Stop halts the server by SIGSTOP: its connections stay open and nobody
// answers. When it returns, no reply is to come until Continue.
func (s *Server) Stop() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.mu.proc.signal(syscall.SIGSTOP); err != nil {
		return err
	}
	s.mu.stopped = true
	if err := waitStopped(s.mu.proc.cmd.Process.Pid); err != nil {
		return fmt.Errorf("redistest: wait for %v to stand still: %w", s, err)
	}
	return nil
}

// Continue ends a Stop.
func (s *Server) Continue() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.mu.proc.signal(syscall.SIGCONT); err != nil {
		return err
	}
	s.mu.stopped = false
	return nil
}

// Restart kills the server if it lives and starts it again on the same port,
// empty. It returns when the server answers; a node of a cluster then still has
// to find its place (see Cluster.WaitStable).
func (s *Server) Restart(ctx context.Context) error {
	ctx, cancel := withPatience(ctx)
	defer cancel()
	if err := s.Kill(); err != nil {
		return err
	}
	return poll(ctx, 50*time.Millisecond, func(ctx context.Context) error {
		err := s.boot(ctx)
		if err == nil || errors.Is(err, errPortTaken) || ctx.Err() != nil {
			return err
		}
		return halt{err}
	})
}

// ScriptFlush empties the server's script cache, so that the next EVALSHA is
// answered with NOSCRIPT.
func (s *Server) ScriptFlush(ctx context.Context) error {
	if err := s.Client().ScriptFlush(ctx).Err(); err != nil {
		return fmt.Errorf("redistest: SCRIPT FLUSH on %v: %w", s, err)
	}
	return nil
}

// Log returns what the server has logged in all its runs.
func (s *Server) Log() string { return string(s.logFrom(0)) }

// logFrom returns the log from an offset on, or the reason why it cannot.
func (s *Server) logFrom(offset int64) []byte {
	log, err := os.ReadFile(filepath.Join(s.dir, logName))
	if err != nil {
		return []byte(err.Error())
	}
	return log[min(offset, int64(len(log))):]
}

// Close kills the server, closes its client, gives up the port and removes the
// directory if Launch made it. A second Close does nothing.
func (s *Server) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.closed {
		return nil
	}
	s.mu.closed = true
	var errs []error
	if s.mu.client != nil {
		errs = append(errs, s.mu.client.Close())
	}
	errs = append(errs, s.killLocked(), s.releasePort())
	if s.ownDir {
		errs = append(errs, os.RemoveAll(s.dir))
	}
	return errors.Join(errs...)
}
