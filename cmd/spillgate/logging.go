package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// newLogger writes text to a terminal and JSON elsewhere.
func newLogger(w *os.File) *slog.Logger {
	if info, err := w.Stat(); err == nil && info.Mode()&os.ModeCharDevice != 0 {
		return slog.New(slog.NewTextHandler(w, nil))
	}
	return slog.New(slog.NewJSONHandler(w, nil))
}

// clientLogPause is the least time between two lines of the Redis client. Without
// a store it would write one for every check.
const clientLogPause = time.Second

// clientLog takes what go-redis would print to standard error by itself.
type clientLog struct {
	log *slog.Logger

	mu struct {
		sync.Mutex
		last    time.Time
		skipped int // since last
	}
}

// adoptClientLog sends the messages of go-redis, which has one logger per process, to log.
func adoptClientLog(log *slog.Logger) { redis.SetLogger(&clientLog{log: log}) }

// Printf implements go-redis's logger.
func (l *clientLog) Printf(ctx context.Context, format string, v ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if now.Sub(l.mu.last) < clientLogPause {
		l.mu.skipped++
		return
	}
	l.log.WarnContext(ctx, "redis client", "message", fmt.Sprintf(format, v...), "more_since_last", l.mu.skipped)
	l.mu.last, l.mu.skipped = now, 0
}
