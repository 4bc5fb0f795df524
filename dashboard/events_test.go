package dashboard

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillgate/spillgate/agent/split"
	"github.com/spillgate/spillgate/limit"
)

// client reads a stream in its own goroutine, or does not while it is held.
type client struct {
	header http.Header
	hold   chan struct{} // empty: a write waits
	mu     sync.Mutex
	got    strings.Builder
	ended  bool
}

func (c *client) Header() http.Header { return c.header }
func (c *client) WriteHeader(int)     {}
func (c *client) Flush()              {}

func (c *client) Write(text []byte) (int, error) {
	<-c.hold
	c.hold <- struct{}{}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.got.Write(text)
}

// take is what has come since.
func (c *client) take() string {
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	text := c.got.String()
	if c.ended {
		text += "(ended)\n"
	}
	c.got.Reset()
	return text
}

// connect opens a stream within a synctest bubble.
func connect(ctx context.Context, a *API, lastID string) *client {
	c := &client{header: make(http.Header), hold: make(chan struct{}, 1)}
	c.hold <- struct{}{}
	r := httptest.NewRequest("GET", "/api/v1/events", nil).WithContext(ctx)
	if lastID != "" {
		r.Header.Set("Last-Event-ID", lastID)
	}
	go func() {
		a.Handler().ServeHTTP(c, r)
		c.mu.Lock()
		defer c.mu.Unlock()
		c.ended = true
	}()
	synctest.Wait()
	return c
}

// TestStream is the life of a stream, byte for byte: events, heartbeats, a client that comes back, one that is slow, the end.
func TestStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var k known
		a, log := open(t, &k, Config{Master: masters})
		a.feed.boot = "boot"
		var story strings.Builder
		tell := func(what string, c *client) { fmt.Fprintf(&story, "== %s\n%s", what, c.take()) }

		first := connect(t.Context(), a, "")
		fmt.Fprintf(&story, "%v\n", first.header)
		tell("nothing yet", first)
		i := info(idOf("api", "per-user", "42"), time.Now(), 0, 0, 0)
		time.Sleep(time.Second)
		a.OnSplit(split.Event{Kind: split.EventSplit, Info: i})
		tell("a split", first)
		time.Sleep(heartbeat)
		tell("a heartbeat", first)
		a.OnSplit(whole(split.EventMerged, i))
		tell("whole again", first)

		second := connect(t.Context(), a, "boot-1")
		tell("one that comes back has seen the first event", second)
		gone, leave := context.WithCancel(t.Context())
		third := connect(gone, a, "other-1")
		tell("one that was at another process has seen none", third)
		leave()
		tell("it leaves", third)
		if n := a.clients.Load(); n != 2 {
			t.Errorf("%d clients are counted", n)
		}

		<-first.hold
		for n := range keep + 10 {
			a.OnSplit(split.Event{Kind: split.EventEnded, Info: info(idOf("", fmt.Sprint(n)), time.Now())})
			synctest.Wait()
		}
		first.hold <- struct{}{}
		// It had begun to write the event that it was held at.
		text := regexp.MustCompile(`(?s)(event: lost.*?\n\n).*(id: \S+\n)`).FindStringSubmatch(first.take())
		if text == nil {
			t.Fatal("a client that was overtaken is not told")
		}
		fmt.Fprintf(&story, "== a slow client misses some and is told how many\n%s... %s", text[1], text[2])
		if n := strings.Count(second.take(), "event: ended\n"); n != keep+10 {
			t.Errorf("the other one, who was not slow, got %d events of %d", n, keep+10)
		}

		a.feed.close()
		tell("the end", first)
		tell("for all", second)
		golden(t, "stream.txt", story.String())
		lines := strings.SplitAfterN(log.String(), "\n", 4)
		golden(t, "log.txt", strings.Join(lines[:3], ""))
	})
}

// TestLogRedacted: where keys are hidden, the log and the stream hide them too.
func TestLogRedacted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		secret := limit.Secret{9}
		a, log := open(t, new(known), Config{Redact: func() (*limit.Secret, bool) { return &secret, true }})
		c := connect(t.Context(), a, "")
		a.OnSplit(split.Event{Kind: split.EventSplit, Info: info(idOf("api", "per-user", "alice"), time.Now(), 0, 0)})
		stream := c.take()
		for name, text := range map[string]string{"stream": stream, "log": log.String()} {
			if strings.Contains(text, "alice") || !strings.Contains(text, "hash:") || !strings.Contains(text, "per-user") {
				t.Errorf("the %s has %s", name, text)
			}
		}
		a.feed.close()
		c.take()
	})
}

// TestLogOfMany: when events come faster than lines can be written, the log says how many it lacks.
func TestLogOfMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, log := open(t, new(known), Config{})
		a.log(nil, 7)
		if want := "level=WARN msg=\"too many buckets were split or made whole to log each\" not_logged=7\n"; log.String() != want {
			t.Errorf("%q, want %q", log, want)
		}
	})
}

// TestLastWords: what happened before Close is in the log after it.
func TestLastWords(t *testing.T) {
	var log strings.Builder
	a := New(Config{Logger: textLog(&log)})
	a.Observe(new(known))
	for range 100 {
		a.OnSplit(split.Event{Kind: split.EventEnded, Info: info(idOf("", "k"), time.Now())})
	}
	a.Close()
	if n := strings.Count(log.String(), "bucket whole again"); n != 100 {
		t.Errorf("%d lines:\n%s", n, log.String())
	}
}

// TestStreamOverHTTP: a stream outlives the deadline that a server has for answers, and ends when the API is closed, so that
// the server can be shut down.
func TestStreamOverHTTP(t *testing.T) {
	a := New(Config{Logger: textLog(io.Discard)})
	a.Observe(new(known))
	srv := httptest.NewUnstartedServer(a.Handler())
	srv.Config.WriteTimeout = 50 * time.Millisecond
	srv.Start()
	defer srv.Close()
	r, err := srv.Client().Get(srv.URL + "/api/v1/events")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	lines := bufio.NewScanner(r.Body)
	next := func(want string) {
		t.Helper()
		for lines.Scan() {
			if strings.HasPrefix(lines.Text(), want) {
				return
			}
		}
		t.Fatalf("the stream ended without %q: %v", want, lines.Err())
	}
	next(": spillgate")
	time.Sleep(200 * time.Millisecond) // past it
	for range 2 {
		a.OnSplit(split.Event{Kind: split.EventSplit, Info: info(idOf("", "k"), time.Now(), 0, 0)})
		next(`data: {"event":"split"`)
		time.Sleep(100 * time.Millisecond)
	}
	a.Close()
	for lines.Scan() {
	}
	if err := lines.Err(); err != nil {
		t.Errorf("the stream ended with %v", err)
	}
	if err := srv.Config.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestStuckClient: one that takes nothing any more is dropped; the agent does not wait for it.
func TestStuckClient(t *testing.T) {
	a, _ := open(t, new(known), Config{})
	s := &stream{w: stuck{httptest.NewRecorder()}, control: http.NewResponseController(stuck{httptest.NewRecorder()}), api: a}
	s.follow(httptest.NewRequest("GET", "/", nil), 0) // returns
	if s.err != os.ErrDeadlineExceeded {
		t.Errorf("it ended with %v", s.err)
	}
}

// stuck is a connection whose write deadline has passed.
type stuck struct{ *httptest.ResponseRecorder }

func (stuck) Write([]byte) (int, error) { return 0, os.ErrDeadlineExceeded }
