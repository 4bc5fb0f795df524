package main

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/spillgate/spillgate/cmd/spillgate/config"
	"github.com/spillgate/spillgate/internal/redistest"
)

// syncBuffer is a log that is read while it is written.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// testConfig has its doors in a short directory of its own.
func testConfig(t *testing.T) *config.Config {
	t.Helper()
	dir, err := os.MkdirTemp("", "sg")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	cfg := config.Default("")
	cfg.Listen.RESP = "unix://" + filepath.Join(dir, "resp")
	cfg.Listen.Admin = "unix://" + filepath.Join(dir, "admin")
	return cfg
}

// TestServiceLeavesNothing: after a whole life no goroutine and no file is left, whatever
// the store, and whether or not the start succeeds.
func TestServiceLeavesNothing(t *testing.T) {
	srv := redistest.Start(t)
	for _, tt := range []struct {
		name string
		set  func(*config.Config)
		want string // part of the error; empty if it serves
	}{
		{"memory", func(*config.Config) {}, ""},
		{"redis", func(c *config.Config) { c.Store.URL = srv.URL() }, ""},
		{"redis away", func(c *config.Config) { c.Store.URL = "unix:///nowhere/redis.sock" }, ""},
		{"no admin", func(c *config.Config) { c.Listen.Admin = config.Off }, ""},
		{"bad rules", func(c *config.Config) { c.Rules.File = "nowhere.yaml" }, "nowhere.yaml"},
		{"bad store", func(c *config.Config) { c.Store.URL = "http://x" }, "scheme"},
		{"bad admin", func(c *config.Config) { c.Listen.Admin = "unix:///nowhere/admin" }, "listen.admin"},
		{"bad admin on redis", func(c *config.Config) {
			c.Store.URL = srv.URL()
			c.Listen.Admin = "unix:///nowhere/admin"
		}, "listen.admin"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
			cfg := testConfig(t)
			tt.set(cfg)
			var log syncBuffer
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			ended := make(chan error, 1)
			go func() {
				ended <- newService(cfg, slog.New(slog.NewTextHandler(&log, nil))).run(ctx, nil, func() {})
			}()
			if tt.want == "" {
				awaitText(t, &log, "spillgate serves")
				stop()
			}
			err := <-ended
			switch {
			case tt.want == "" && err != nil:
				t.Error(err)
			case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)):
				t.Errorf("error is %v, want one with %q", err, tt.want)
			}
			path := strings.TrimPrefix(cfg.Listen.RESP, "unix://")
			if files, _ := os.ReadDir(filepath.Dir(path)); len(files) > 0 {
				t.Errorf("left behind: %v", files)
			}
			if strings.Contains(log.String(), "not closed cleanly") {
				t.Error(log.String())
			}
		})
	}
}

// TestFailingDoorEndsTheService: an agent that nobody can reach is no agent.
func TestFailingDoorEndsTheService(t *testing.T) {
	cfg := testConfig(t)
	var log syncBuffer
	s := newService(cfg, slog.New(slog.NewTextHandler(&log, nil)))
	ended := make(chan error, 1)
	go func() { ended <- s.run(t.Context(), nil, func() {}) }()
	awaitText(t, &log, "spillgate serves")
	s.resp.ln.Close()
	select {
	case err := <-ended:
		if err == nil || !strings.Contains(err.Error(), net.ErrClosed.Error()) {
			t.Errorf("error is %v", err)
		}
	case <-time.After(scriptPatience):
		t.Fatal("it goes on without its door")
	}
}

// TestSplitOps: 0 is never to an operator, and the default to the agent.
func TestSplitOps(t *testing.T) {
	for ops, want := range map[int]int64{0: -1, 1: 1, 5000: 5000} {
		if got := splitOps(ops); got != want {
			t.Errorf("%d: %d, want %d", ops, got, want)
		}
	}
}

// TestReloadWithoutFile: SIGHUP without a rules file is told, and the agent goes on.
func TestReloadWithoutFile(t *testing.T) {
	cfg := testConfig(t)
	var log syncBuffer
	ctx, stop := context.WithCancel(t.Context())
	reload, ended := make(chan os.Signal), make(chan error, 1)
	go func() { ended <- newService(cfg, slog.New(slog.NewTextHandler(&log, nil))).run(ctx, reload, func() {}) }()
	reload <- syscall.SIGHUP
	awaitText(t, &log, "no rules to reload")
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func awaitText(t *testing.T, log *syncBuffer, text string) {
	t.Helper()
	for end := time.Now().Add(scriptPatience); !strings.Contains(log.String(), text); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("no %q in the log:\n%s", text, log)
		}
	}
}
