package dashboard

import (
	"bytes"
	"encoding/json"
	"flag"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/spillgate/spillgate/agent"
	"github.com/spillgate/spillgate/agent/lease"
	"github.com/spillgate/spillgate/agent/split"
	"github.com/spillgate/spillgate/batcher"
	"github.com/spillgate/spillgate/limit"
	"github.com/spillgate/spillgate/rules"
)

var rewrite = flag.Bool("rewrite", false, "write what the API says into testdata")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// golden compares a text with a file of testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := "testdata/" + name
	if *rewrite {
		if err := os.WriteFile(path, []byte(got), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s: go test ./dashboard -rewrite, and look at the difference\ngot:\n%swant:\n%s", name, got, want)
	}
}

// known is an agent that knows what the test says.
type known struct {
	mu     sync.Mutex
	splits []split.Info
	stats  agent.Stats
	rules  *rules.Set
}

func (k *known) Rules() *rules.Set { return k.rules }

func (k *known) Splits() []split.Info {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.splits
}

func (k *known) Stats() agent.Stats { return k.stats }

func (k *known) know(splits ...split.Info) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.splits = splits
}

// masters puts the parts on three masters, and knows nothing of part 4. Home is on the last.
func masters(_ *limit.Bucket, part *limit.Part) string {
	if part == nil {
		return "10.0.0.3:6379"
	}
	return []string{"10.0.0.2:6379", "10.0.0.1:6379", "10.0.0.3:6379", "10.0.0.1:6379", ""}[part.Index]
}

// open returns an API on an agent, with a log. It is closed with the test.
func open(t *testing.T, of Agent, cfg Config) (*API, *bytes.Buffer) {
	var log bytes.Buffer
	cfg.Logger = textLog(&log)
	a := New(cfg)
	a.Observe(of)
	t.Cleanup(a.Close)
	return a, &log
}

// textLog writes lines without their time.
func textLog(w io.Writer) *slog.Logger {
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))
}

// ask is the answer of the API to a request, its status and kind before it.
func ask(a *API, method, path string) string {
	w := httptest.NewRecorder()
	a.Handler().ServeHTTP(w, httptest.NewRequest(method, path, nil))
	return strings.Join([]string{method, path, http.StatusText(w.Code), w.Header().Get("Content-Type"), w.Header().Get("Cache-Control"),
		w.Header().Get("Allow")}, " ") + "\n" + w.Body.String()
}

// TestSplits: the answer byte for byte, from none to several buckets, shown and hidden.
func TestSplits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var k known
		a, _ := open(t, &k, Config{Master: masters})
		secret := limit.Secret{9}
		hiding, _ := open(t, &k, Config{Redact: func() (*limit.Secret, bool) { return &secret, true }})
		got := ask(a, "GET", "/api/v1/splits")
		since := time.Now()
		time.Sleep(3*time.Second + 250*time.Millisecond) // the last two looks were 3 and 2 s after the start
		user := info(idOf("api", "per-user", "/pay", "42"), since, 400, 100, 200, 50, 50)
		user.Parts[2].Failing, user.Closing = true, true
		long := info(idOf("api", "per-user", strings.Repeat("long", 20)), since.Add(time.Hour), 0, 0) // a clock that is ahead
		long.ID = long.Bucket.ID()
		k.know(user, info(idOf("", "tenant:7"), since, 1, 3), long, info(idOf("api", "all"), since.Add(time.Second), 5, 7), info(idOf("api", "per-user", "/", "43"), since, 0, 0),
			info(idOf("zoo", "aaa", "1"), since, 0, 0))
		got += ask(a, "GET", "/api/v1/splits")
		k.know(user)
		got += ask(hiding, "GET", "/api/v1/splits")
		golden(t, "splits.txt", got)
	})
}

func TestStats(t *testing.T) {
	k := known{stats: agent.Stats{
		Checks: []agent.Count{{Admitted: true, Reason: limit.OK, Checks: 11}, {Reason: limit.OverLimit, Checks: 12}},
		Batcher: batcher.Stats{Calls: 21, Entries: 22, Claims: 23, NotRun: 24, Unknown: 25, Damaged: 26,
			Overloaded: 27, GivenUp: 28, Refunded: 29, Waiting: 30},
		Leases: lease.Stats{
			Counts:   lease.Counts{Promoted: 41, Demoted: 42, KnownDenied: 43, Charged: 44, ChargesLost: 45},
			Totals:   lease.Totals{Granted: 46, Rode: 47, Spent: 48, Returned: 49, Expired: 50, Asks: 51, Admitted: 52, Denied: 53},
			Holdings: 54, Held: 55,
		},
		Splits: split.Totals{Active: 61, Split: 62, Merged: 63, Ended: 64, Touches: 65, Refused: 66, Overflow: 67},
	}}
	a, _ := open(t, &k, Config{})
	none, _ := open(t, new(known), Config{})
	golden(t, "stats.txt", ask(none, "GET", "/api/v1/stats")+ask(a, "GET", "/api/v1/stats"))
}

// TestStatsOfRules: which rules are in force, and why they may not be the latest.
func TestStatsOfRules(t *testing.T) {
	since := time.Date(2026, 12, 1, 3, 4, 5, 0, time.FixedZone("", 3600))
	for _, tt := range []struct {
		status rules.Status
		want   string
	}{
		{rules.Status{}, `{"source":"none","version":0,"stale":false,"reason":"","refused":0,"snapshots_failed":0}`},
		{rules.Status{Source: rules.FromStore, Version: 5, Since: since, Stale: "away", Refused: 2, SnapshotsFailed: 3},
			`{"source":"store","version":5,"since":"2026-12-01T02:04:05Z","stale":true,"reason":"away","refused":2,"snapshots_failed":3}`},
		{rules.Status{Missing: "none yet"}, `{"source":"none","version":0,"stale":true,"reason":"none yet","refused":0,"snapshots_failed":0}`},
	} {
		a, _ := open(t, new(known), Config{Rules: func() rules.Status { return tt.status }})
		_, body, _ := strings.Cut(ask(a, "GET", "/api/v1/stats"), "\n")
		var stats struct{ Rules json.RawMessage }
		if err := json.Unmarshal([]byte(body), &stats); err != nil {
			t.Fatal(err)
		}
		var got bytes.Buffer
		if err := json.Compact(&got, stats.Rules); err != nil || got.String() != tt.want {
			t.Errorf("got %s, want %s", &got, tt.want)
		}
	}
}

// TestErrors: mistakes are told as JSON, and HEAD is answered as GET is.
func TestErrors(t *testing.T) {
	a, _ := open(t, new(known), Config{})
	var got string
	for _, r := range [][2]string{{"GET", "/api/v1/nothing"}, {"GET", "/api/"}, {"POST", "/api/v1/splits"}, {"DELETE", "/api/v1/stats"},
		{"PUT", "/api/v1/events"}, {"GET", "/api/v1/splits/"}, {"HEAD", "/api/v1/splits"}, {"HEAD", "/api/v1/events"}} {
		got += ask(a, r[0], r[1])
	}
	a.clients.Add(mostClients)
	got += ask(a, "GET", "/api/v1/events")
	golden(t, "errors.txt", got)
	if n := a.clients.Load(); n != mostClients {
		t.Errorf("%d clients are counted, there are %d", n, mostClients)
	}
}
