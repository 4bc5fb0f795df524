package redisshard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spillgate/spillgate/batcher"
	"github.com/spillgate/spillgate/internal/redistest"
	"github.com/spillgate/spillgate/limit"
)

func TestLayoutOfNewStore(t *testing.T) {
	cluster := sharedCluster(t)
	for _, tt := range []struct {
		name       string
		cfg        Config
		tags, bins int
	}{
		{"server", Config{}, 8, 1},
		{"configured", Config{Tags: 3, Bins: 7}, 3, 7},
		{"cluster", Config{URL: cluster.URL()}, 12, 1},
	} {
		if tt.cfg.URL == "" {
			_, tt.cfg.URL = sharedServer(t)
		}
		s := openStore(t, tt.cfg)
		l := s.state.Load().layout
		if len(l.tags) != tt.tags || l.bins != tt.bins {
			t.Errorf("%s: %d tags, %d bins; want %d, %d", tt.name, len(l.tags), l.bins, tt.tags, tt.bins)
		}
		shards := map[int]bool{}
		for i := range 1000 {
			b := s.bucket(fmt.Sprint(i))
			shards[s.Shard(&b, nil)] = true
		}
		if want := map[bool]int{true: tt.tags, false: 1}[tt.name == "cluster"]; len(shards) != want || !shards[0] || !shards[want-1] {
			t.Errorf("%s: shards %v, want %d", tt.name, shards, want)
		}
	}
}

// TestStoredLayoutWins: an agent that is configured otherwise says so, and shares the buckets.
func TestStoredLayoutWins(t *testing.T) {
	_, url := sharedServer(t)
	first := openStore(t, Config{URL: url, Tags: 4})
	var log journal
	second := openStore(t, Config{URL: url, Tags: 16, Bins: 2, Logger: log.logger()})
	for _, want := range []string{"level=WARN", "the stored one is used", "stored_tags=4", "configured_tags=16", "configured_bins=2"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log lacks %q: %s", want, log.String())
		}
	}
	second.refresh(t.Context(), second.state.Load())
	if n := strings.Count(log.String(), "the stored one is used"); n != 1 {
		t.Errorf("the log says so %d times, once is enough", n)
	}
	var quiet journal
	openStore(t, Config{URL: url, Logger: quiet.logger()})
	if quiet.String() != "" {
		t.Errorf("an agent that wishes for nothing complains: %s", quiet.String())
	}
	terms := compile(t, 10, time.Hour)
	b := first.bucket("b")
	first.must(t, b, terms, limit.Take, 6)
	if other := second.bucket("b"); other != b {
		t.Error("the second agent names the bucket otherwise")
	}
	if out := second.must(t, b, terms, limit.TakePartial, 100); out.Granted != 4 {
		t.Errorf("the second agent was granted %d of 4", out.Granted)
	}
}

func TestAgentsRaceForTheLayout(t *testing.T) {
	_, url := sharedServer(t)
	const agents = 8
	var stores [agents]*Store
	var all sync.WaitGroup
	for i := range stores {
		all.Go(func() { stores[i] = openStore(t, Config{URL: url, Tags: 1 + i}) })
	}
	all.Wait()
	for i, s := range stores {
		l, first := s.state.Load().layout, stores[0].state.Load().layout
		if l.secret != first.secret || len(l.tags) != len(first.tags) {
			t.Errorf("agent %d has a layout of its own", i)
		}
	}
	if ttl := adminOf(t, url).PTTL(t.Context(), layoutKey).Val(); ttl < 2*limit.MaxFill {
		t.Errorf("the layout lives for %v", ttl)
	}
}

// TestLayoutLost: who holds a layout puts it back, and who finds another one adopts it.
func TestLayoutLost(t *testing.T) {
	_, url := sharedServer(t)
	s, admin := openStore(t, Config{URL: url, Tags: 5}), adminOf(t, url)
	text := admin.Get(t.Context(), layoutKey).Val()
	redistest.Must(t, admin.FlushDB(t.Context()).Err())
	before, _ := s.Secret()
	s.refresh(t.Context(), s.state.Load())
	if got := admin.Get(t.Context(), layoutKey).Val(); got != text {
		t.Errorf("put back: %s, want %s", got, text)
	}
	checkTTLs(t, admin, "refresh")
	if after, ok := s.Secret(); !ok || *after != *before || s.Status() != nil {
		t.Errorf("the secret has changed, or %v", s.Status())
	}
	redistest.Must(t, admin.Persist(t.Context(), layoutKey).Err())
	s.refresh(t.Context(), s.state.Load())
	checkTTLs(t, admin, "refresh of a persisted layout")

	b, terms := s.bucket("b"), compile(t, 10, time.Hour)
	s.must(t, b, terms, limit.Take, 1)
	other := newLayout(3, 2)
	redistest.Must(t, admin.Set(t.Context(), layoutKey, other.encode(), 0).Err())
	s.refresh(t.Context(), s.state.Load())
	if secret, _ := s.Secret(); *secret != other.secret || len(s.state.Load().layout.tags) != 3 {
		t.Error("the new layout is not in force")
	}
	s.must(t, b, terms, limit.Take, 1) // a bucket that was named before the change
	checkTTLs(t, admin, "a new layout")
}

func TestDamagedLayout(t *testing.T) {
	_, url := sharedServer(t)
	admin := adminOf(t, url)
	good := newLayout(8, 1)
	edit := func(change func(*storedLayout)) string {
		var l storedLayout
		redistest.Must(t, json.Unmarshal([]byte(good.encode()), &l))
		change(&l)
		text, err := json.Marshal(l)
		redistest.Must(t, err)
		return string(text)
	}
	for _, tt := range []struct{ text, want string }{
		{"", "delete it"}, {"x", "delete it"}, {good.encode()[:20], "delete it"}, {"{}", "delete it"}, {"null", "delete it"},
		{edit(func(l *storedLayout) { l.Version = 2 }), "update it"},
		{edit(func(l *storedLayout) { l.Tags = 0 }), "delete it"},
		{edit(func(l *storedLayout) { l.Tags = maxTags + 1 }), "delete it"},
		{edit(func(l *storedLayout) { l.Bins = -1 }), "delete it"},
		{edit(func(l *storedLayout) { l.Secret = "00" }), "delete it"},
		{edit(func(l *storedLayout) { l.Secret = strings.Repeat("z", 32) }), "delete it"},
	} {
		redistest.Must(t, admin.Set(t.Context(), layoutKey, tt.text, time.Hour).Err())
		s, err := Open(t.Context(), Config{URL: url, Timeout: patience, Logger: new(journal).logger()})
		if err == nil {
			redistest.Must(t, s.Close())
			t.Errorf("%q: opened, status %v", tt.text, s.Status())
		} else if !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), layoutKey) {
			t.Errorf("%q: %v; want %q", tt.text, err, tt.want)
		}
	}
	redistest.Must(t, admin.Del(t.Context(), layoutKey).Err())
	redistest.Must(t, admin.RPush(t.Context(), layoutKey, "x").Err())
	if s, err := Open(t.Context(), Config{URL: url, Timeout: patience, Logger: new(journal).logger()}); err == nil {
		redistest.Must(t, s.Close())
		t.Errorf("a list for a layout: opened, status %v", s.Status())
	} else if !strings.Contains(err.Error(), "delete it") {
		t.Errorf("a list for a layout: %v", err)
	}
	// Who is running keeps what it has, and says that something is wrong.
	redistest.Must(t, admin.FlushDB(t.Context()).Err())
	var log journal
	s := openStore(t, Config{URL: url, Logger: log.logger()})
	redistest.Must(t, admin.Set(t.Context(), layoutKey, "x", time.Hour).Err())
	s.refresh(t.Context(), s.state.Load())
	if err := s.Status(); err == nil || !strings.Contains(err.Error(), layoutKey) {
		t.Errorf("status %v", err)
	}
	until(t, func() bool { return strings.Contains(log.String(), layoutKey) })
	s.must(t, s.bucket("b"), compile(t, 10, time.Hour), limit.Take, 1)
}

// TestFaultIsToldFromTheStart: what befalls a store before its background work has begun is reported too.
func TestFaultIsToldFromTheStart(t *testing.T) {
	_, url := sharedServer(t)
	var log journal
	s := openStore(t, Config{URL: url, Logger: log.logger()})
	s.stop()
	<-s.done
	redistest.Must(t, adminOf(t, url).Set(t.Context(), layoutKey, "x", time.Hour).Err())
	s.refresh(t.Context(), s.state.Load())
	ctx, stop := context.WithCancel(t.Context())
	s.stop, s.done = stop, make(chan struct{})
	go s.tend(ctx, nil)
	until(t, func() bool { return strings.Contains(log.String(), layoutKey) })
}

func TestOpenBeforeTheServer(t *testing.T) {
	srv := redistest.Start(t)
	redistest.Must(t, srv.Kill())
	var log journal
	s := openStore(t, Config{URL: srv.URL(), Logger: log.logger()})
	if _, ok := s.Secret(); ok || s.Status() == nil || !strings.Contains(s.Status().Error(), srv.Addr()) {
		t.Errorf("secret known: %v, status %v", ok, s.Status())
	}
	terms := compile(t, 10, time.Hour)
	e := batcher.Entry{Terms: terms, Op: limit.Take, N: 1}
	s.Apply(t.Context(), s.Shard(&e.Bucket, e.Part), []*batcher.Entry{&e})
	if !errors.Is(e.Err, batcher.ErrNotRun) {
		t.Errorf("before the server is there: %v", e.Err)
	}
	redistest.Must(t, srv.Restart(t.Context()))
	until(t, func() bool { _, ok := s.Secret(); return ok })
	if s.Status() != nil {
		t.Errorf("status %v", s.Status())
	}
	s.must(t, s.bucket("b"), terms, limit.Take, 1)
	until(t, func() bool { return strings.Contains(log.String(), "store answers") })

	// It dies with all its data, and comes back.
	redistest.Must(t, srv.Kill())
	if _, err := s.do(s.bucket("b"), terms, limit.Take, 1); !errors.Is(err, batcher.ErrNotRun) && !errors.Is(err, batcher.ErrUnknown) {
		t.Errorf("after its death: %v", err)
	}
	redistest.Must(t, srv.Restart(t.Context()))
	until(t, func() bool { _, err := s.do(s.bucket("b"), terms, limit.Take, 1); return err == nil })
}

func TestOpenRefuses(t *testing.T) {
	locked := redistest.Start(t, redistest.WithPassword("right"),
		redistest.WithUser("narrow", "pw", "~sg:*", "+@all", "-getex"))
	old := startFake(t, func(args []string) string {
		if strings.EqualFold(args[0], "hello") {
			return hello("6.0.16", "standalone")
		}
		return obey(args)
	})
	for _, tt := range []struct{ url, want string }{
		{"redis://:wrong@" + locked.Addr(), "password is wrong"},
		{"redis://" + locked.Addr(), "wants a password"},
		{"redis://" + old.addr, "want 6.2 or later"},
		{"redis://", "Config.URL"},
		{"redis://narrow:pw@" + locked.Addr(), "allow it to the user"},
	} {
		s, err := Open(context.Background(), Config{URL: tt.url, Timeout: patience, Logger: new(journal).logger()})
		if err == nil {
			redistest.Must(t, s.Close())
			t.Errorf("%s: opened, status %v", tt.url, s.Status())
		} else if !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "wrong@") {
			t.Errorf("%s: %v; want %q", tt.url, err, tt.want)
		}
	}
}

func TestClose(t *testing.T) {
	_, url := sharedServer(t)
	s, err := Open(context.Background(), Config{URL: url, Timeout: patience})
	redistest.Must(t, err)
	b := s.bucket("b")
	redistest.Must(t, s.Close())
	redistest.Must(t, s.Close())
	if _, err := s.do(b, compile(t, 10, time.Hour), limit.Take, 1); !errors.Is(err, batcher.ErrNotRun) {
		t.Errorf("after Close: %v", err)
	}
}

// TestUserWithoutARight: what the scripts may not do is an error of Open that says what to allow, and leaves no
// key behind. A user without TIME is served with the agent's clock.
func TestUserWithoutARight(t *testing.T) {
	quiet := slog.New(slog.DiscardHandler)
	for _, lacking := range []string{"time", "hmget", "hset", "hdel", "exists", "pexpire", "unlink", "eval", "evalsha"} {
		server := redistest.Start(t, redistest.WithUser("gate", "secret", "~sg:*", "+@all", "-"+lacking))
		url := "redis://gate:secret@" + server.Addr()
		s, err := Open(t.Context(), Config{URL: url, Timeout: patience, Logger: quiet})
		if err == nil {
			redistest.Must(t, s.Close())
		}
		if !isPermanent(err) || !strings.Contains(err.Error(), "allow") {
			t.Errorf("without %s: %v, want a permanent error that says what to allow", lacking, err)
		}
		if keys := scan(t, server.Client()); len(keys) > 1 || len(keys) == 1 && keys[0] != layoutKey {
			t.Errorf("without %s: left behind: %q", lacking, keys)
		}
		if lacking == "time" {
			s := openStore(t, Config{URL: url, Clock: ClockAgent})
			if out := s.must(t, s.bucket("b"), compile(t, 10, time.Second), limit.Take, 1); out.Granted != 1 {
				t.Errorf("with the agent's clock: %+v", out)
			}
		}
	}
}

// TestStatusFollowsTheStore: a store that goes is told by the first call that fails, and one that is
// back without any call.
func TestStatusFollowsTheStore(t *testing.T) {
	server := redistest.Start(t)
	var log journal
	s := openStore(t, Config{URL: server.URL(), Timeout: 5 * time.Second, Logger: log.logger()})
	b, terms := s.bucket("b"), compile(t, 10, time.Second)
	s.must(t, b, terms, limit.Take, 1)
	if err := s.Status(); err != nil {
		t.Fatal(err)
	}
	redistest.Must(t, server.Kill())
	if _, err := s.do(b, terms, limit.Take, 1); err == nil {
		t.Fatal("a dead server answered")
	}
	if s.Status() == nil {
		t.Error("a call has failed and the store is said to be well")
	}
	until(t, func() bool { return strings.Contains(log.String(), "store does not answer") })
	redistest.Must(t, server.Restart(t.Context()))
	until(t, func() bool { return s.Status() == nil })
	until(t, func() bool { return strings.Contains(log.String(), "store answers") })
}
