package main

import (
	"bytes"
	"context"
	"log/slog"
	"runtime"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/cobra"
)

// TestHelpFitsAScreen: every command's help has at most 24 lines of 80 columns and an example.
func TestHelpFitsAScreen(t *testing.T) {
	var visit func(cmd *cobra.Command, args []string)
	visit = func(cmd *cobra.Command, args []string) {
		t.Run(cmd.CommandPath(), func(t *testing.T) {
			var out, err bytes.Buffer
			if code := run(append(args, "--help"), &out, &err); code != exitOK || err.Len() > 0 {
				t.Fatalf("exit code %d: %s", code, &err)
			}
			lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
			if len(lines) > 24 {
				t.Errorf("%d lines, at most 24", len(lines))
			}
			for _, l := range lines {
				if utf8.RuneCountInString(l) > 80 {
					t.Errorf("over 80 columns: %s", l)
				}
			}
			if !strings.Contains(out.String(), "Examples:\n  spillgate") {
				t.Error("no example")
			}
			if t.Failed() {
				t.Log("\n" + out.String())
			}
		})
		for _, sub := range cmd.Commands() {
			if sub.Name() != "help" {
				visit(sub, append(args[:len(args):len(args)], sub.Name()))
			}
		}
	}
	visit(newRoot(), nil)
}

func TestDecisionInWords(t *testing.T) {
	for _, tt := range []struct {
		d    decision
		want string
	}{
		{decision{Admitted: true, Reason: "ok", Limit: 10, Remaining: 9, RetryAfterMS: -1, ResetAfterMS: 100, Rule: "r"},
			"admitted: ok, 9 of 10 left, full in 100ms (rule r)"},
		{decision{Reason: "over_limit", Limit: 10, RetryAfterMS: 1500, ResetAfterMS: 90_000, Rule: "r"},
			"denied: over_limit, 0 of 10 left, retry in 1.5s, full in 1m30s (rule r)"},
		{decision{Reason: "never", Limit: 10, Remaining: 10, RetryAfterMS: -1, Rule: "r"},
			"denied: never (the cost is above the limit, or the limit is 0), 10 of 10 left (rule r)"},
		{decision{Reason: "never", Limit: 10, RetryAfterMS: -1, Rule: "r"}, "denied: never (the cost is above the limit, or the limit is 0) (rule r)"},
		{decision{Admitted: true, Reason: "store_open", Limit: 20, RetryAfterMS: -1, Rule: "r"}, "admitted: store_open (rule r)"},
		{decision{Reason: "overloaded", Limit: 20, RetryAfterMS: -1, Rule: "r"}, "denied: overloaded (rule r)"},
		{decision{Admitted: true, Reason: "no_rule", RetryAfterMS: -1},
			"admitted: no_rule (no rule applies, so nothing is limited; spillgate rules explain says why)"},
		{decision{Reason: "store_closed", Limit: 20, RetryAfterMS: 1<<63 - 1}, "denied: store_closed, retry in 2562047h47m16.854s"},
	} {
		if got := tt.d.text(1); got != tt.want {
			t.Errorf("got  %s\nwant %s", got, tt.want)
		}
	}
	empty := decision{Admitted: true, Reason: "ok", Limit: 10, RetryAfterMS: -1, ResetAfterMS: 1000, Rule: "r"}
	if got, want := empty.text(0), "nothing taken, 0 of 10 left, full in 1s (rule r)"; got != want {
		t.Errorf("a look: got %s, want %s", got, want)
	}
}

func TestReadAnswer(t *testing.T) {
	good := []any{int64(1), int64(10), int64(9), int64(-1), int64(5), "r", "ok"}
	if d, ok := readAnswer(good); !ok || d != (decision{true, 10, 9, -1, 5, "r", "ok"}) {
		t.Errorf("%+v, %v", d, ok)
	}
	if _, ok := readAnswer(append(good[:7:7], "more")); !ok {
		t.Error("a longer answer of a later agent was refused")
	}
	for i := range good {
		if _, ok := readAnswer(good[:i]); ok {
			t.Errorf("%d fields were taken for an answer", i)
		}
		bad := append([]any(nil), good...)
		bad[i] = nil
		if _, ok := readAnswer(bad); ok {
			t.Errorf("nothing in field %d was taken for an answer", i)
		}
	}
}

// TestClientLog: the Redis client cannot flood the log.
func TestClientLog(t *testing.T) {
	var b bytes.Buffer
	l := &clientLog{log: slog.New(slog.NewTextHandler(&b, nil))}
	for i := range 5 {
		l.Printf(context.Background(), "attempt %d", i)
	}
	if got := b.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, `message="attempt 0"`) {
		t.Errorf("logged:\n%s", got)
	}
	l.mu.last = l.mu.last.Add(-clientLogPause)
	l.Printf(context.Background(), "attempt 5")
	if got := b.String(); !strings.Contains(got, `message="attempt 5" more_since_last=4`) {
		t.Errorf("logged:\n%s", got)
	}
}

// TestProcs: the configuration wins over the environment, and that over the default.
func TestProcs(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	for _, tt := range []struct {
		configured int
		env        string
		want       int
	}{
		{0, "", defaultProcs},
		{0, "5", 4}, // what the runtime made of it
		{3, "", 3},
		{3, "5", 3},
	} {
		runtime.GOMAXPROCS(4)
		t.Setenv("GOMAXPROCS", tt.env)
		setProcs(tt.configured)
		if got := runtime.GOMAXPROCS(0); got != tt.want {
			t.Errorf("agent.procs %d, GOMAXPROCS=%q: %d threads, want %d", tt.configured, tt.env, got, tt.want)
		}
	}
}
