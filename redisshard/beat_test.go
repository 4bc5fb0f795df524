package redisshard

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spillgate/spillgate/batcher"
	"github.com/spillgate/spillgate/internal/redistest"
)

var _ batcher.Countable = (*Store)(nil)

// beat is a beat that is answered.
func (s *Store) beat(t testing.TB, fleet, member string, life time.Duration) int {
	t.Helper()
	n, err := s.Beat(t.Context(), fleet, member, life)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestBeat counts members once each, by fleet. The key has a time to live.
func TestBeat(t *testing.T) {
	onServerAndCluster(t, func(t *testing.T, s *Store, keys func(string) (time.Duration, int64)) {
		for i := range 5 {
			for range 3 {
				if n := s.beat(t, "blue", fmt.Sprint(i), time.Minute); n != i+1 {
					t.Errorf("with member %d: %d", i, n)
				}
			}
		}
		if n := s.beat(t, "green", "0", time.Minute); n != 1 {
			t.Errorf("another fleet: %d", n)
		}
		if ttl, n := keys("sg:{fleet}:blue"); ttl <= 0 || ttl > time.Minute || n != 5 {
			t.Errorf("the key lives for %v with %d members", ttl, n)
		}
	})
}

// onServerAndCluster runs a test on both; keys tells of a sorted set its time to live and its members.
func onServerAndCluster(t *testing.T, test func(t *testing.T, s *Store, keys func(string) (time.Duration, int64))) {
	t.Run("server", func(t *testing.T) {
		_, url := sharedServer(t)
		admin := adminOf(t, url)
		test(t, openStore(t, Config{URL: url}), func(key string) (time.Duration, int64) {
			return admin.PTTL(t.Context(), key).Val(), admin.ZCard(t.Context(), key).Val()
		})
	})
	t.Run("cluster", func(t *testing.T) {
		c := sharedCluster(t)
		test(t, openStore(t, Config{URL: c.URL()}), func(key string) (ttl time.Duration, n int64) {
			for _, m := range c.Masters() {
				if k := m.Client().ZCard(t.Context(), key); k.Err() == nil && k.Val() > 0 {
					ttl, n = m.Client().PTTL(t.Context(), key).Val(), k.Val()
				}
			}
			return ttl, n
		})
	})
}

// TestBeatIsBounded: members beyond the most are refused, and those that are in go on.
func TestBeatIsBounded(t *testing.T) {
	_, url := sharedServer(t)
	s, admin := openStore(t, Config{URL: url}), adminOf(t, url)
	now := admin.Time(t.Context()).Val().UnixMilli()
	args := []any{"zadd", "sg:{fleet}:full"}
	for i := range mostMembers - 1 {
		args = append(args, now, fmt.Sprint("old", i))
	}
	redistest.Must(t, admin.Do(t.Context(), args...).Err())
	if n := s.beat(t, "full", "last", time.Minute); n != mostMembers {
		t.Errorf("the last one: %d", n)
	}
	if n, err := s.Beat(t.Context(), "full", "one too many", time.Minute); err == nil || !strings.Contains(err.Error(), "4096 agents") {
		t.Errorf("one more: %d, %v", n, err)
	}
	if n := s.beat(t, "full", "last", time.Minute); n != mostMembers {
		t.Errorf("the last one again: %d", n)
	}
}

// TestSilentMembersAreForgotten after their life.
func TestSilentMembersAreForgotten(t *testing.T) {
	_, url := sharedServer(t)
	s, admin := openStore(t, Config{URL: url}), adminOf(t, url)
	now := admin.Time(t.Context()).Val()
	for i, ago := range []time.Duration{2 * time.Hour, 61 * time.Second, 10 * time.Second} {
		redistest.Must(t, admin.Do(t.Context(), "zadd", "sg:{fleet}:quiet", now.Add(-ago).UnixMilli(), fmt.Sprint(i)).Err())
	}
	if n := s.beat(t, "quiet", "me", time.Minute); n != 2 {
		t.Errorf("%d live, want the last one and me", n)
	}
}

// TestBeatFromTheFuture: what a clock that was set back left behind does not live for ever.
func TestBeatFromTheFuture(t *testing.T) {
	_, url := sharedServer(t)
	s, admin := openStore(t, Config{URL: url}), adminOf(t, url)
	future := admin.Time(t.Context()).Val().Add(time.Hour).UnixMilli()
	redistest.Must(t, admin.Do(t.Context(), "zadd", "sg:{fleet}:late", future, "ghost").Err())
	if n := s.beat(t, "late", "me", time.Minute); n != 1 {
		t.Errorf("%d with the ghost", n)
	}
}

// TestBeatByTheAgentsClock needs no TIME.
func TestBeatByTheAgentsClock(t *testing.T) {
	_, url := sharedServer(t)
	s := openStore(t, Config{URL: url, Clock: ClockAgent})
	if n := s.beat(t, "f", "a", time.Minute) + s.beat(t, "f", "b", time.Minute); n != 3 {
		t.Errorf("one and two are %d", n)
	}
}

// TestBeatTrouble: a wrong type is an error and told once, and all is well when it is gone. A store that was not reached says so.
func TestBeatTrouble(t *testing.T) {
	_, url := sharedServer(t)
	admin := adminOf(t, url)
	var log journal
	s := openStore(t, Config{URL: url, Logger: log.logger()})
	redistest.Must(t, admin.Set(t.Context(), "sg:{fleet}:f", "x", 0).Err())
	for range 3 {
		if n, err := s.Beat(t.Context(), "f", "a", time.Minute); err == nil {
			t.Errorf("a string has %d members", n)
		}
	}
	if n := strings.Count(log.String(), "cannot be counted"); n != 1 {
		t.Errorf("told %d times:\n%s", n, log.String())
	}
	redistest.Must(t, admin.Del(t.Context(), "sg:{fleet}:f").Err())
	if n := s.beat(t, "f", "a", time.Minute); n != 1 {
		t.Errorf("afterwards %d", n)
	}
	away := openStore(t, Config{URL: "redis://127.0.0.1:1", Timeout: 100 * time.Millisecond})
	if _, err := away.Beat(context.Background(), "f", "a", time.Minute); err == nil {
		t.Error("a store that was never reached counts")
	}
}

// TestBeatsTogether: a hundred agents at once are a hundred.
func TestBeatsTogether(t *testing.T) {
	_, url := sharedServer(t)
	s := openStore(t, Config{URL: url})
	var all sync.WaitGroup
	for i := range 100 {
		all.Go(func() { s.beat(t, "many", fmt.Sprint(i), time.Minute) })
	}
	all.Wait()
	if n := s.beat(t, "many", "0", time.Minute); n != 100 {
		t.Errorf("%d", n)
	}
}
