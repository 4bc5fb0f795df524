package viral

import (
	"bytes"
	"context"
	"errors"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spillgate/spillgate/internal/redistest"
)

// TestRun is a small bench on a cluster of its own: whole, the bucket loads one master, and divided all three.
func TestRun(t *testing.T) {
	cfg := Default()
	cfg.Agents, cfg.Rounds, cfg.Settle, cfg.Duration = 8, 1, 2*time.Second, 3*time.Second
	cfg.SplitOps = 20 // so that the bucket stays divided, even on a busy machine, by what one agent tells of a second
	var out, progress bytes.Buffer
	rep, err := Run(t.Context(), cfg, &progress)
	if err != nil {
		t.Fatal(err)
	}
	if err := rep.Print(&out); err != nil {
		t.Fatal(err)
	}
	t.Logf("%s\n%s", &progress, &out)
	if len(rep.Runs) != 2 || len(rep.Masters) != ownMasters {
		t.Fatalf("%d runs on %d masters", len(rep.Runs), len(rep.Masters))
	}
	for _, r := range rep.Runs {
		if r.Checks == 0 || r.Admitted != r.Checks || r.Policy != 0 {
			t.Errorf("splitting %s: %d checks, %d admitted, %d without the store", r.Splitting, r.Checks, r.Admitted, r.Policy)
		}
	}
	whole, divided := rep.of(off)[0], rep.of(on)[0]
	if whole.Ways != 0 || whole.CallsRatio < 2.9 || whole.SpreadAfter != nil {
		t.Errorf("splitting off: %d parts, busiest/mean %.2f; want nearly all calls on one master", whole.Ways, whole.CallsRatio)
	}
	if divided.Ways < 2 || divided.CallsRatio > 2.7 {
		t.Errorf("splitting on: %d parts, busiest/mean %.2f; want them on all masters", divided.Ways, divided.CallsRatio)
	}
	for _, m := range divided.Masters {
		if share := 1000 * m.Calls / divided.PerSecond / divided.All; share < 0.05 {
			t.Errorf("splitting on: %s has %.2f of the calls", m.Addr, share)
		}
	}
	if divided.WholeAfter == nil {
		t.Error("the bucket did not become whole again")
	}
}

// TestPaced: with a rate both variants make no more checks than are due, however they catch up.
func TestPaced(t *testing.T) {
	cluster := redistest.StartCluster(t, redistest.WithShards(2, 0), redistest.WithPassword("a/b c@"))
	cfg := Default()
	cfg.Store = cluster.URL() + "?cluster=on"
	cfg.Agents, cfg.Rounds, cfg.Settle, cfg.Duration, cfg.Rate = 3, 1, 500*time.Millisecond, time.Second, 300
	var progress bytes.Buffer
	rep, err := Run(t.Context(), cfg, &progress)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(progress.String(), "warning: this loads the cluster of --store") || rep.Own {
		t.Errorf("no warning in %q", &progress)
	}
	for _, r := range rep.Runs {
		made := uint64(0)
		for _, s := range r.Slices {
			made += s.Checks
		}
		due := cfg.Rate * r.Slices[len(r.Slices)-1].At.Seconds()
		if callers := cfg.Agents * cfg.Connections; made == 0 || float64(made) > due+float64(callers) {
			t.Errorf("splitting %s: %d checks, of %.0f that were due", r.Splitting, made, due)
		}
		if r.Ways != 0 {
			t.Errorf("splitting %s: divided at 300 checks/s", r.Splitting)
		}
	}
}

// TestDueTimes: the callers' checks together come at the rate, evenly.
func TestDueTimes(t *testing.T) {
	l := &load{rate: 1000, callers: make([]caller, 4)}
	for check := range 20 {
		if got, want := l.due(check%4, check/4), time.Duration(check)*time.Millisecond; got != want {
			t.Errorf("check %d is due at %v, want %v", check, got, want)
		}
	}
	l.callers[0].admitted.Store(600)
	l.callers[3].denied.Store(150)
	if got := l.lag(time.Second); !near(got, 0.25) {
		t.Errorf("lag %v after 750 checks of 1,000", got)
	}
	if l.rate = 0; l.lag(time.Second) != 0 {
		t.Error("a closed loop lags")
	}
}

// TestInterrupted: nothing is left of a bench that was interrupted.
func TestInterrupted(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	ctx, cancel := context.WithCancel(t.Context())
	cfg := Default()
	cfg.Agents = 2
	if _, err := Run(ctx, cfg, cancelAt{"round 1", cancel}); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want that it was cancelled", err)
	}
	left, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(left) > 0 {
		t.Errorf("left over: %v", left)
	}
}

// cancelAt cancels when it is told a text.
type cancelAt struct {
	text   string
	cancel context.CancelFunc
}

func (c cancelAt) Write(p []byte) (int, error) {
	if strings.Contains(string(p), c.text) {
		time.AfterFunc(3*slice, c.cancel)
	}
	return len(p), nil
}

func TestValidate(t *testing.T) {
	for want, change := range map[string]func(*Config){
		"agents: ":      func(c *Config) { c.Agents = 0 },
		"connections: ": func(c *Config) { c.Connections = 1001 },
		"settle: ":      func(c *Config) { c.Settle = -1 },
		"duration: ":    func(c *Config) { c.Duration = slice },
		"rounds: ":      func(c *Config) { c.Rounds = 0 },
		"split-ops: ":   func(c *Config) { c.SplitOps = -1 },
		"limit: ":       func(c *Config) { c.Limit = 0 },
		"rate: ":        func(c *Config) { c.Rate = math.NaN() },
	} {
		cfg := Default()
		if err := cfg.Validate(); err != nil {
			t.Fatal(err)
		}
		change(&cfg)
		if err := cfg.Validate(); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%v, want an error that begins with %s", err, want)
		}
	}
}

func TestSeeds(t *testing.T) {
	seeds, err := seedsOf("rediss://u:p%40:x@a:1,[::1]:2,c/0?cluster=on")
	if err != nil {
		t.Fatal(err)
	}
	var addrs []string
	for _, s := range seeds {
		addrs = append(addrs, s.Addr)
		if s.Username != "u" || s.Password != "p@:x" || s.TLSConfig == nil {
			t.Errorf("%s: user %q, password %q, TLS %v", s.Addr, s.Username, s.Password, s.TLSConfig != nil)
		}
	}
	if want := []string{"a:1", "[::1]:2", "c:6379"}; !slices.Equal(addrs, want) {
		t.Errorf("%v, want %v", addrs, want)
	}
	if o := at(seeds[0], "10.0.0.1:1"); o.TLSConfig.ServerName != "a" || o.Password != "p@:x" {
		t.Errorf("an IP address answers as %q; want the name that was written", o.TLSConfig.ServerName)
	}
	if o := at(seeds[0], "n1:1"); o.TLSConfig.ServerName != "n1" {
		t.Errorf("n1 answers as %q", o.TLSConfig.ServerName)
	}
	for _, bad := range []string{"http://u:secret@a", "memory://", "redis://a:secret", "redis+sentinel://a/m", "unix:///secret"} {
		if _, err := seedsOf(bad); err == nil || !strings.HasPrefix(err.Error(), "--store: ") || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

func TestNodeAddr(t *testing.T) {
	for _, tt := range [][2]string{{"1.2.3.4:5", "1.2.3.4:5"}, {":5", "asked:5"}, {"?:5", "asked:5"}, {"[::1]:5", "[::1]:5"}} {
		if got := nodeAddr(tt[0], "asked:1"); got != tt[1] {
			t.Errorf("%s: %s, want %s", tt[0], got, tt[1])
		}
	}
}

func TestMasterOf(t *testing.T) {
	node := []any{"10.0.0.1", int64(7001), "id", []any{}}
	if addr, ok := masterOf([]any{int64(0), int64(5460), node, []any{"10.0.0.2", int64(7002)}}); !ok || addr != "10.0.0.1:7001" {
		t.Errorf("%s, %v", addr, ok)
	}
	if addr, ok := masterOf([]any{int64(0), int64(5460), []any{nil, int64(7001)}}); !ok || nodeAddr(addr, "asked:1") != "asked:7001" {
		t.Errorf("without a host: %s, %v", addr, ok)
	}
	for _, bad := range []any{nil, "x", []any{int64(0), int64(1)}, []any{int64(0), int64(1), "x"}, []any{int64(0), int64(1), []any{"h"}}, []any{int64(0), int64(1), []any{"h", "p"}}} {
		if addr, ok := masterOf(bad); ok {
			t.Errorf("%v: %s", bad, addr)
		}
	}
}
