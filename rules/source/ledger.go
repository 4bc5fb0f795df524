package source

import (
	"errors"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/spillgate/spillgate/rules"
)

// ledger is what a source tells of itself. Safe for concurrent use.
type ledger struct {
	mu struct {
		sync.Mutex
		head rules.Head
		rules.Status
	}
}

// inForce notes what has come into force.
func (l *ledger) inForce(from rules.Source, head rules.Head, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if head.Sum != l.mu.head.Sum || l.mu.Since.IsZero() { // else the same rules under another number
		l.mu.Since = now
	}
	l.mu.head = head
	l.mu.Source, l.mu.Version, l.mu.Stale, l.mu.Missing = from, head.Number, "", ""
}

// head is what is in force.
func (l *ledger) head() rules.Head {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.head
}

// confirm says that what is in force is the latest.
func (l *ledger) confirm() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.Stale, l.mu.Missing = "", ""
}

// stale says why what is in force may not be the latest, or why there is nothing.
func (l *ledger) stale(why string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.From() == rules.NoSource {
		l.mu.Missing = why
		return
	}
	l.mu.Stale = why
}

// refuse counts a text that was not taken.
func (l *ledger) refuse() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.Refused++
}

// unsaved counts a snapshot that could not be written.
func (l *ledger) unsaved() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.SnapshotsFailed++
}

func (l *ledger) status() rules.Status {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.Status
}

// complain logs an error, a line for each problem of a text.
func complain(log *slog.Logger, message string, err error) {
	var problems rules.Errors
	if !errors.As(err, &problems) {
		log.Error(message, "error", err)
		return
	}
	for _, p := range problems {
		log.Error(message, "error", p)
	}
}

// brief is the first line of an error.
func brief(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return line
}
