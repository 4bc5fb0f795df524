package resp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spillgate/spillgate/agent"
	"github.com/spillgate/spillgate/rules"
)

// Config of a Server. The zero value of each field but Agent stands for its default.
type Config struct {
	// Agent decides the checks. Required.
	Agent *agent.Agent
	// Logger for what an operator should know. Default slog.Default().
	Logger *slog.Logger
	// Version is told in INFO. Default "dev".
	Version string
	// StoreUp, if set, tells INFO whether the store answers.
	StoreUp func() bool
	// Skew, if set, tells INFO how far the clocks of the store's masters are apart; ok is false if that is not known.
	Skew func() (skew time.Duration, ok bool)
	// Rules, if set, tells INFO which rules are in force.
	Rules func() rules.Status
	// MaxConns bounds the connections; one more is answered with an error and
	// closed. A connection at rest holds about 30 KB with its goroutine. Default 10,000.
	MaxConns int
}

func (c *Config) ensureDefaults() {
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.Version == "" {
		c.Version = "dev"
	}
	if c.MaxConns == 0 {
		c.MaxConns = 10000
	}
}

// Server serves RESP connections. It is safe for concurrent use.
type Server struct {
	cfg     Config
	terms   termsTable
	started time.Time
	nextID  atomic.Int64
	stats   struct{ accepted, refused, protocolErrors atomic.Uint64 }

	// life ends when Shutdown stops waiting.
	life context.Context
	kill context.CancelFunc

	mu struct {
		sync.Mutex
		closing   bool
		listeners map[net.Listener]struct{}
		conns     map[*conn]struct{}
	}
	serving sync.WaitGroup // one per connection
}

// New returns a server without listeners.
func New(cfg Config) (*Server, error) {
	cfg.ensureDefaults()
	switch {
	case cfg.Agent == nil:
		return nil, errors.New("resp: Agent is missing")
	case cfg.MaxConns < 1:
		return nil, fmt.Errorf("resp: MaxConns is %d, it must be at least 1", cfg.MaxConns)
	}
	s := &Server{cfg: cfg, started: time.Now()}
	s.life, s.kill = context.WithCancel(context.Background())
	s.mu.listeners = make(map[net.Listener]struct{})
	s.mu.conns = make(map[*conn]struct{})
	return s, nil
}

// Serve accepts connections until Shutdown, and then returns nil, or until the
// listener fails, and then returns its error. It closes the listener.
func (s *Server) Serve(l net.Listener) error {
	defer l.Close()
	if !s.adopt(l) {
		return nil
	}
	defer s.forget(l)
	pause := acceptPause(0)
	for {
		nc, err := l.Accept()
		switch {
		case err == nil:
			pause = 0
			s.start(nc)
		case s.isClosing():
			return nil
		case isTemporary(err):
			s.cfg.Logger.Warn("connection not accepted", "error", err)
			pause.wait(s.life)
		default:
			return fmt.Errorf("resp: %w", err)
		}
	}
}

// acceptPause grows while accepting fails, as when the process is out of file descriptors.
type acceptPause time.Duration

func (p *acceptPause) wait(ctx context.Context) {
	*p = min(max(2**p, acceptPause(5*time.Millisecond)), acceptPause(time.Second))
	select {
	case <-time.After(time.Duration(*p)):
	case <-ctx.Done():
	}
}

// isTemporary reports whether accepting may work again by itself.
func isTemporary(err error) bool {
	var t interface{ Temporary() bool }
	return errors.As(err, &t) && t.Temporary()
}

// adopt registers a listener. It is false when the server is closing.
func (s *Server) adopt(l net.Listener) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.closing {
		return false
	}
	s.mu.listeners[l] = struct{}{}
	return true
}

func (s *Server) forget(l net.Listener) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.mu.listeners, l)
}

func (s *Server) isClosing() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.closing
}

// start serves a connection in its own goroutine, or refuses it.
func (s *Server) start(nc net.Conn) {
	s.mu.Lock()
	full := len(s.mu.conns) >= s.cfg.MaxConns
	if s.mu.closing || full {
		s.mu.Unlock()
		if full {
			s.stats.refused.Add(1)
			nc.SetWriteDeadline(time.Now().Add(time.Second))
			nc.Write([]byte("-ERR max number of clients reached\r\n"))
		}
		nc.Close()
		return
	}
	c := newConn(s, nc)
	s.mu.conns[c] = struct{}{}
	s.serving.Add(1)
	s.mu.Unlock()
	s.stats.accepted.Add(1)
	go func() {
		defer s.serving.Done()
		c.serve()
		nc.Close()
		s.mu.Lock()
		delete(s.mu.conns, c)
		s.mu.Unlock()
	}()
}

// Shutdown stops accepting, lets every connection answer the commands that it
// has read, and closes it. When ctx ends first, connections are cut and ctx's error is returned.
func (s *Server) Shutdown(ctx context.Context) error {
	s.mu.Lock()
	s.mu.closing = true
	for l := range s.mu.listeners {
		l.Close()
	}
	for c := range s.mu.conns {
		c.net.SetReadDeadline(time.Now()) // wakes those that wait for a command
	}
	s.mu.Unlock()
	defer s.kill()
	done := make(chan struct{})
	go func() {
		s.serving.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
	}
	s.kill()
	s.mu.Lock()
	for c := range s.mu.conns {
		c.net.Close()
	}
	s.mu.Unlock()
	<-done
	return fmt.Errorf("resp: connections were cut: %w", ctx.Err())
}

// Stats are totals since New.
type Stats struct {
	Connections    int    // open now
	Accepted       uint64 // connections
	Refused        uint64 // connections above MaxConns
	ProtocolErrors uint64 // connections closed for what they sent
}

// Stats returns the totals.
func (s *Server) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Stats{Connections: len(s.mu.conns), Accepted: s.stats.accepted.Load(), Refused: s.stats.refused.Load(),
		ProtocolErrors: s.stats.protocolErrors.Load()}
}
