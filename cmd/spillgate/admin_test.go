package main

import (
	"bufio"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/spillgate/spillgate/agent/split"
	"github.com/spillgate/spillgate/dashboard"
)

// TestEventsOutliveTheDoorsDeadline: the admin door has a deadline for answers, which end. A stream goes on.
func TestEventsOutliveTheDoorsDeadline(t *testing.T) {
	api := dashboard.New(dashboard.Config{})
	defer api.Close()
	srv := newAdmin(slog.Default(), func() (string, error) { return "", nil }, http.NotFoundHandler(), api.Handler())
	srv.WriteTimeout = 50 * time.Millisecond
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go srv.Serve(ln)
	defer srv.Close()
	r, err := http.Get("http://" + ln.Addr().String() + "/api/v1/events")
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
	api.OnSplit(split.Event{Kind: split.EventSplit})
	next("event: split")
}

// TestIndexNamesWhatIsThere: every page that the index of the admin door links is there.
func TestIndexNamesWhatIsThere(t *testing.T) {
	s := newService(testConfig(t), slog.New(slog.DiscardHandler))
	if err := s.open(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer s.close()
	ask := func(path string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		s.admin.server.Handler.ServeHTTP(w, httptest.NewRequest("HEAD", path, nil))
		return w
	}
	index := httptest.NewRecorder()
	s.admin.server.Handler.ServeHTTP(index, httptest.NewRequest("GET", "/", nil))
	links := strings.Split(index.Body.String(), `<a href="`)[1:]
	if len(links) < 7 {
		t.Fatalf("%d links in %s", len(links), index.Body)
	}
	for _, link := range links {
		path, _, _ := strings.Cut(link, `"`)
		if w := ask("/" + path); w.Code != http.StatusOK {
			t.Errorf("/%s: %d", path, w.Code)
		}
	}
}

// TestReboundNamesAreRefused: a request to loopback must name loopback.
func TestReboundNamesAreRefused(t *testing.T) {
	srv := httptest.NewServer(refuseRebound(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, "in") })))
	defer srv.Close()
	_, port, err := net.SplitHostPort(srv.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	for host, want := range map[string]int{
		"127.0.0.1:" + port: 200, "localhost:" + port: 200, "LOCALHOST": 200, "[::1]:" + port: 200, "127.0.0.53": 200,
		"evil.example": 421, "evil.example:" + port: 421, "localhost.evil.example": 421, "10.0.0.1": 421, "0.0.0.0:" + port: 421,
	} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, srv.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Host = host
		reply, err := srv.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		reply.Body.Close()
		if reply.StatusCode != want {
			t.Errorf("Host %s: %d, want %d", host, reply.StatusCode, want)
		}
	}
}
