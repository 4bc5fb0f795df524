package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/spillgate/spillgate/internal/redistest"
)

// TestBenchOneMaster: a cluster of one master has none to spread a key to.
func TestBenchOneMaster(t *testing.T) {
	cluster := redistest.StartCluster(t, redistest.WithShards(1, 0))
	var out, err bytes.Buffer
	code := run([]string{"bench", "redis", "--store", cluster.URL()}, &out, &err)
	if code != exitError || !strings.Contains(err.String(), "spillgate: the cluster has one master, so there is none to spread a key to: ") {
		t.Errorf("exit code %d: %s", code, &err)
	}
}
