package dashboard

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillgate/spillgate/agent"
	"github.com/spillgate/spillgate/batcher"
	"github.com/spillgate/spillgate/hotkeys"
	"github.com/spillgate/spillgate/limit"
	"github.com/spillgate/spillgate/memstore"
	"github.com/spillgate/spillgate/rules"
)

// several plays a store of four masters: a memory store that is not direct, and divides buckets by four.
type several struct{ memory *memstore.Store }

func (s several) Secret() (*limit.Secret, bool)               { return s.memory.Secret() }
func (s several) Shard(b *limit.Bucket, part *limit.Part) int { return s.memory.Shard(b, part) }
func (s several) Divisible() bool                             { return true }

func (s several) Apply(ctx context.Context, shard int, entries []*batcher.Entry) {
	for _, e := range entries {
		if e.Op == limit.Touch {
			part := *e.Part
			part.Ways, part.Stride = 4, 1
			e.Part = &part
		}
	}
	s.memory.Apply(ctx, shard, entries)
}

// TestAgent: a real agent's splits show, while they last and as events.
func TestAgent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory, err := memstore.New(memstore.Config{})
		if err != nil {
			t.Fatal(err)
		}
		set, err := rules.Parse("r", []byte("domain: api\nrules:\n- {name: per-user, match: [{key: user}], limit: 100000/s, mode: exact}\n"))
		if err != nil {
			t.Fatal(err)
		}
		api := New(Config{Logger: textLog(t.Output()), Master: masters})
		a, err := agent.New(agent.Config{Store: several{memory}, Rules: set, SplitOps: 200, Hotkeys: hotkeys.Config{MinRate: 5}, OnSplit: api.OnSplit})
		if err != nil {
			t.Fatal(err)
		}
		api.Observe(a)
		c := connect(t.Context(), api, "")
		check := func(seconds int, pause time.Duration) {
			for range time.Duration(seconds) * time.Second / pause {
				d, err := a.Check(t.Context(), agent.Request{Domain: "api", Hits: 1, Descriptors: []rules.Descriptor{{{Key: "user", Value: "alice"}}}})
				if err != nil || !d.Admitted {
					t.Fatalf("%+v, %v", d, err)
				}
				time.Sleep(pause)
			}
		}

		check(6, time.Millisecond)
		got := api.splits(time.Now())
		if len(got) != 1 || got[0].Rule != "per-user" || got[0].Values[0] != "alice" || got[0].Ways != 4 || len(got[0].Parts) != 4 || len(got[0].Masters) != 3 {
			t.Fatalf("%+v", got)
		}
		if s := got[0]; s.Seconds < 1 || s.OpsPerSecond < 500 || s.OpsPerSecond > 2000 || s.Spread < 1 || s.Remaining < 1 {
			t.Errorf("of 1,000 checks a second: %+v", s)
		}
		check(10, 100*time.Millisecond)
		if got := api.splits(time.Now()); len(got) > 0 {
			t.Errorf("still there without load: %+v", got)
		}

		var kinds []string
		for line := range strings.SplitSeq(c.take(), "\n") {
			var e Event
			if text, ok := strings.CutPrefix(line, "data: "); ok {
				if err := json.Unmarshal([]byte(text), &e); err != nil {
					t.Fatal(err)
				}
				kinds = append(kinds, string(e.Event))
				if e.Rule != "per-user" || e.Ways != 4 || e.Since.IsZero() {
					t.Errorf("%s", line)
				}
			}
		}
		if got := strings.Join(kinds, " "); got != "split merged" {
			t.Errorf("the events are %q", got)
		}
		if err := a.Close(t.Context()); err != nil {
			t.Error(err)
		}
		api.Close()
		if got := c.take(); !strings.HasSuffix(got, "(ended)\n") {
			t.Errorf("the stream goes on: %q", got)
		}
	})
}
