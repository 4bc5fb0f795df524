package socket

import (
	"log/slog"
	"net"
	"slices"
	"sync"
	"time"
)

// peer is the process at the other end of a Unix socket, when it connected or listened.
type peer struct {
	uid uint32
	pid int32
}

// logPause is the least time between two log lines about peers that were turned
// away, so that a stranger cannot fill the disk.
const logPause = time.Second

// peerListener lets in connections of allowed users only.
type peerListener struct {
	net.Listener
	allowed []uint32
	log     *slog.Logger

	mu struct {
		sync.Mutex
		logged  time.Time
		skipped int // turned away since logged without a line
	}
}

// Accept returns the next connection of an allowed user, [5].
func (l *peerListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		p, err := peerOf(conn)
		if err == nil && slices.Contains(l.allowed, p.uid) {
			return conn, nil
		}
		conn.Close()
		l.report(p, err)
	}
}

func (l *peerListener) report(p peer, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if now.Sub(l.mu.logged) < logPause {
		l.mu.skipped++
		return
	}
	attrs := []any{"socket", l.Addr().String(), "uid", p.uid, "pid", p.pid, "more_since_last", l.mu.skipped}
	if err != nil {
		attrs = append(attrs, "error", err)
	}
	l.log.Warn("connection refused: the user is not in allow_uids", attrs...)
	l.mu.logged, l.mu.skipped = now, 0
}
