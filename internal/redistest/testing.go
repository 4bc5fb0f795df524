package redistest

import (
	"context"
	"strings"
	"testing"
)

// logTail bounds what a failed test shows of a server's log, in bytes.
const logTail = 8 << 10

// Start launches one server for a test, closes it at the end and shows its log
// if the test failed. Without a redis-server the test fails.
func Start(tb testing.TB, opts ...Option) *Server {
	tb.Helper()
	s, err := Launch(context.Background(), "", configOf(opts))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		showLogs(tb, s)
		if err := s.Close(); err != nil {
			tb.Errorf("redistest: close %v: %v", s, err)
		}
	})
	return s
}

// StartCluster is Start for a cluster: 3 masters with a replica each unless the
// options say otherwise, ready to serve.
func StartCluster(tb testing.TB, opts ...Option) *Cluster {
	tb.Helper()
	c, err := LaunchCluster(context.Background(), "", configOf(opts))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		showLogs(tb, c.nodes...)
		if err := c.Close(); err != nil {
			tb.Errorf("redistest: close the cluster: %v", err)
		}
	})
	return c
}

// Must fails the test if a helper of this package returned an error:
//
//	redistest.Must(t, srv.Kill())
func Must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

func configOf(opts []Option) Config {
	var cfg Config
	for _, o := range opts {
		o(&cfg)
	}
	return cfg
}

func showLogs(tb testing.TB, servers ...*Server) {
	if !tb.Failed() {
		return
	}
	for _, s := range servers {
		log := s.Log()
		if cut := len(log) - logTail; cut > 0 {
			log = "...\n" + log[cut+strings.IndexByte(log[cut:], '\n')+1:]
		}
		tb.Logf("log of %v:\n%s", s, log)
	}
}
