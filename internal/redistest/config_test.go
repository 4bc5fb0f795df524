package redistest

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"
)

func TestDefaults(t *testing.T) {
	t.Setenv(BinaryEnv, "/bin/sh")
	for _, tt := range []struct {
		name              string
		opts              []Option
		masters, replicas int
	}{
		{"zero value", nil, 3, 1},
		{"no replicas", []Option{WithShards(3, 0)}, 3, 0},
		{"other sizes", []Option{WithShards(5, 2)}, 5, 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cfg := configOf(tt.opts)
			Must(t, cfg.ensureDefaults())
			if cfg.Masters != tt.masters || cfg.Replicas != tt.replicas {
				t.Errorf("%d masters, %d replicas each; want %d, %d", cfg.Masters, cfg.Replicas, tt.masters, tt.replicas)
			}
			if cfg.Binary != "/bin/sh" {
				t.Errorf("binary is %q, not the one in %s", cfg.Binary, BinaryEnv)
			}
		})
	}
}

func TestValidateNamesTheField(t *testing.T) {
	for field, cfg := range map[string]Config{
		"Config.Masters":     {Masters: -1},
		"Config.NodeTimeout": {NodeTimeout: time.Nanosecond},
		"Config.Users":       {Users: []User{{Password: "x"}}},
	} {
		_, err := LaunchCluster(context.Background(), "", cfg)
		if err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("error %v does not name %s", err, field)
		}
	}
}

func TestRender(t *testing.T) {
	cfg := configOf([]Option{
		WithPassword(`a "b`),
		WithUser("agent", "pw", "~sg:*", "+@all"),
		WithConfig("maxmemory 10mb", "hz 50"),
		WithNodeTimeout(1500 * time.Millisecond),
	})
	conf := cfg.render("/d", 12345, true)
	for _, want := range []string{
		"bind \"127.0.0.1\"\n",
		"port \"12345\"\n",
		"save \"\"\n",
		`requirepass "a \"b"` + "\n",
		`user "agent" "on" ">pw" "~sg:*" "+@all"` + "\n",
		"cluster-node-timeout \"1500\"\n",
		"maxmemory 10mb\nhz 50\n",
	} {
		if !strings.Contains(conf, want) {
			t.Errorf("no line %q in\n%s", want, conf)
		}
	}
	if conf := cfg.render("/d", 12345, false); strings.Contains(conf, "cluster") {
		t.Errorf("a lone server was configured for a cluster:\n%s", conf)
	}
}

func TestNoServerFailsWithTheRemedy(t *testing.T) {
	t.Setenv(BinaryEnv, "/nowhere/redis-server")
	_, err := Launch(context.Background(), "", Config{})
	if !errors.Is(err, ErrNoServer) {
		t.Fatalf("error is %v, want ErrNoServer", err)
	}

	fake := &fakeTB{TB: t}
	fake.run(func() { Start(fake) })
	if !fake.failed || fake.skipped {
		t.Fatalf("without a server Start must fail, not skip: failed %v, skipped %v", fake.failed, fake.skipped)
	}
	if !strings.Contains(fake.text, "apt-get install redis-server") {
		t.Errorf("no remedy in %q", fake.text)
	}
}
