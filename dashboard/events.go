package dashboard

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/spillgate/spillgate/agent/split"
)

const (
	// heartbeat is how often a client hears that the stream lives.
	heartbeat = 15 * time.Second
	// writePatience is how long a client may take no byte.
	writePatience = 10 * time.Second
	// mostClients is the most who follow events at once.
	mostClients = 64
)

// Event is what happened to a bucket.
type Event struct {
	Event split.EventKind `json:"event"`
	At    time.Time       `json:"at"`
	Split
}

// event shows a happening. How long a split lasted, or is there, is as of that time.
func (c *Config) event(h *happening) Event {
	return Event{h.kind, h.at.UTC(), c.describe(&h.info, h.at)}
}

// lostEvents tells a client how many events it has missed.
type lostEvents struct {
	Events uint64 `json:"events"`
}

// serveEvents is the stream of events. [4]
func (a *API) serveEvents(w http.ResponseWriter, r *http.Request) {
	if a.clients.Add(1) > mostClients {
		a.clients.Add(-1)
		fail(w, http.StatusServiceUnavailable, fmt.Sprintf("%d clients follow the events, and no more can; close one", mostClients))
		return
	}
	defer a.clients.Add(-1)
	s := &stream{w: w, control: http.NewResponseController(w), api: a}
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Accel-Buffering", "no") // asks nginx not to hold events back
	if r.Method == http.MethodHead {
		return
	}
	s.follow(r, a.feed.resume(r.Header.Get("Last-Event-ID")))
}

// stream writes to one client.
type stream struct {
	w       http.ResponseWriter
	control *http.ResponseController
	api     *API
	err     error
}

// follow sends what comes after an event, until the client or the feed ends.
func (s *stream) follow(r *http.Request, seen uint64) {
	tick := time.NewTicker(heartbeat)
	defer tick.Stop()
	s.comment("spillgate")
	for {
		events, lost, more, open := s.api.feed.after(seen)
		if lost > 0 {
			s.send("", "lost", lostEvents{lost})
		}
		for i := range events {
			h := &events[i]
			s.send(s.api.feed.id(h.number), string(h.kind), s.api.cfg.event(h))
		}
		seen += lost + uint64(len(events))
		if s.flush(); s.err != nil || !open {
			return
		}
		select {
		case <-more:
		case <-tick.C:
			s.comment("alive")
		case <-r.Context().Done():
			return
		}
	}
}

func (s *stream) send(id, event string, data any) {
	text, err := json.Marshal(data)
	if err != nil {
		panic(fmt.Sprintf("dashboard: %v in %+v", err, data)) // texts and numbers always have a JSON
	}
	if id != "" {
		id = "id: " + id + "\n"
	}
	s.write(fmt.Sprintf("%sevent: %s\ndata: %s\n\n", id, event, text))
}

func (s *stream) comment(text string) { s.write(": " + text + "\n\n") }

func (s *stream) write(text string) {
	if s.err == nil {
		// The door's own deadline is for answers that end. A writer that has none is one of a test.
		_ = s.control.SetWriteDeadline(time.Now().Add(writePatience))
		_, s.err = s.w.Write([]byte(text))
	}
}

func (s *stream) flush() {
	if s.err == nil {
		s.err = s.control.Flush()
	}
}
