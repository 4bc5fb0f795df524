package redisshard

import (
	"context"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/spillgate/spillgate/batcher"
	"github.com/spillgate/spillgate/internal/redistest"
	"github.com/spillgate/spillgate/internal/storetest"
)

// counted is a store whose cells the suite can count, by looking into Redis.
type counted struct {
	*Store
	tb      testing.TB
	masters []*redis.Client
}

func (c counted) Cells() (n int) {
	for _, m := range c.masters {
		for _, key := range scan(c.tb, m) {
			if key != layoutKey {
				n += int(m.HLen(context.Background(), key).Val()) - 1 // the clock
			}
		}
	}
	return n
}

// scan lists all keys of a database.
func scan(tb testing.TB, client *redis.Client) (keys []string) {
	tb.Helper()
	for it := client.Scan(context.Background(), 0, "*", 1000).Iterator(); it.Next(context.Background()); {
		keys = append(keys, it.Val())
	}
	return keys
}

// TestConformance: what every store must do, this one does too.
func TestConformance(t *testing.T) {
	for _, tt := range []struct {
		name string
		cfg  Config
	}{
		{"server", Config{}},
		{"server/bins", Config{Tags: 3, Bins: 5}},
		{"server/clock=agent", Config{Clock: ClockAgent}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, url := sharedServer(t)
			tt.cfg.URL = url
			s := counted{openStore(t, tt.cfg), t, []*redis.Client{adminOf(t, url)}}
			storetest.Run(t, func(*testing.T) batcher.Store { return s })
		})
	}
	t.Run("cluster", func(t *testing.T) {
		cluster := sharedCluster(t)
		s := counted{openStore(t, Config{URL: cluster.URL()}), t, nil}
		for _, m := range cluster.Masters() {
			redistest.Must(t, m.Client().ConfigResetStat(t.Context()).Err())
			s.masters = append(s.masters, m.Client())
		}
		storetest.Run(t, func(*testing.T) batcher.Store { return s })
		for _, m := range cluster.Masters() {
			if stats := m.Client().Info(t.Context(), "errorstats").Val(); strings.Contains(stats, "CROSSSLOT") {
				t.Errorf("a call crossed slots: %s", stats)
			}
		}
	})
}
