package dashboard

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spillgate/spillgate/agent"
	"github.com/spillgate/spillgate/agent/split"
	"github.com/spillgate/spillgate/limit"
	"github.com/spillgate/spillgate/rules"
)

// Config of an API. The zero value of each field stands for its default.
type Config struct {
	// Logger takes a line for each event. Default slog.Default().
	Logger *slog.Logger
	// Master, if set, is the address of the master that serves a part of a bucket, or its home if part is nil; "" if that is not
	// known.
	Master func(b *limit.Bucket, part *limit.Part) string
	// Redact, if set, has hashes shown in place of keys, everywhere, and is the secret that keys them; ok is false
	// while there is none.
	Redact func() (secret *limit.Secret, ok bool)
	// Datacenter, and what holds for rules that say nothing of it, for /api/v1/rules.
	Datacenter   Datacenter
	OnStoreError limit.Policy
	Deadline     time.Duration
	// Rules, if set, says which rules are in force.
	Rules func() rules.Status
}

// Agent is what is shown; an *agent.Agent.
type Agent interface {
	Rules() *rules.Set
	Splits() []split.Info
	Stats() agent.Stats
}

// API shows an agent. It is safe for concurrent use.
type API struct {
	cfg     Config
	agent   Agent
	feed    *feed
	clients atomic.Int32 // who follow events
	running sync.WaitGroup

	mu struct {
		sync.Mutex
		rates rates
	}
}

// New returns an API that shows nothing yet. Observe has to follow, unless nothing is to be served.
func New(cfg Config) *API {
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	return &API{cfg: cfg, feed: newFeed(strconv.FormatInt(time.Now().UnixMicro(), 36))}
}

// OnSplit takes an event, for agent.Config.OnSplit. It does not block.
func (a *API) OnSplit(e split.Event) { a.feed.add(time.Now(), e) }

// Observe has the API show an agent, until Close. It is apart from New, because the agent needs OnSplit when it is made.
func (a *API) Observe(of Agent) {
	a.agent = of
	now := time.Now()
	a.mu.rates = rates{sample{at: now}, sample{at: now}}
	a.running.Go(a.run)
}

// run looks at the counts and writes the log. [2] [3]
func (a *API) run() {
	tick := time.NewTicker(rateWindow)
	defer tick.Stop()
	seen := uint64(0)
	for {
		events, lost, more, open := a.feed.after(seen)
		seen += lost + uint64(len(events))
		if a.log(events, lost); !open {
			return
		}
		select {
		case <-more:
		case <-tick.C:
			a.count(time.Now())
		}
	}
}

func (a *API) count(now time.Time) {
	all := a.agent.Splits()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.mu.rates.take(now, all)
}

func (a *API) perSecond(now time.Time, i *split.Info) float64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.mu.rates.perSecond(now, i)
}

// log writes a line for each event.
func (a *API) log(events []happening, lost uint64) {
	if lost > 0 {
		a.cfg.Logger.Warn("too many buckets were split or made whole to log each", "not_logged", lost)
	}
	for i := range events {
		e := a.cfg.event(&events[i])
		message := "bucket whole again"
		if e.Event == split.EventSplit {
			message = "bucket split"
		}
		a.cfg.Logger.Info(message, "event", string(e.Event), "domain", e.Domain, "rule", e.Rule, "values", e.Values, "ways", e.Ways, "seconds", e.Seconds)
	}
}

// Close ends the streams of events, and what Observe began, once what had happened is in the log. The server that serves the API is shut down after it.
func (a *API) Close() {
	a.feed.close()
	a.running.Wait()
}

// Handler serves the paths below /api/.
func (a *API) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/api/v1/events", reads(a.serveEvents))
	mux.HandleFunc("/api/v1/rules", reads(func(w http.ResponseWriter, _ *http.Request) { show(w, a.rules()) }))
	mux.HandleFunc("/api/v1/splits", reads(func(w http.ResponseWriter, _ *http.Request) { show(w, a.splits(time.Now())) }))
	mux.HandleFunc("/api/v1/stats", reads(func(w http.ResponseWriter, _ *http.Request) {
		stats := a.agent.Stats()
		shown := showStats(&stats)
		if a.cfg.Rules != nil {
			shown.Rules = showRules(a.cfg.Rules())
		}
		show(w, shown)
	}))
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		fail(w, http.StatusNotFound, "there is no such page; there are /api/v1/events, /api/v1/rules, /api/v1/splits and /api/v1/stats")
	})
	return mux
}

// reads refuses methods that change things: nothing here does.
func reads(h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			fail(w, http.StatusMethodNotAllowed, fmt.Sprintf("%s is not allowed here; use GET", r.Method))
			return
		}
		h(w, r)
	}
}

// show answers with a value as JSON.
func show(w http.ResponseWriter, value any) { reply(w, http.StatusOK, value) }

// fail answers with an error as JSON.
func fail(w http.ResponseWriter, status int, message string) {
	reply(w, status, struct {
		Error string `json:"error"`
	}{message})
}

func reply(w http.ResponseWriter, status int, value any) {
	text, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		panic(fmt.Sprintf("dashboard: %v in %+v", err, value)) // texts and numbers always have a JSON
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	w.Write(append(text, '\n'))
}
