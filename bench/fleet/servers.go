package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spillgate/spillgate/internal/redistest"
)

// servers are the masters of a run.
type servers struct {
	url   string
	nodes []*redistest.Server
	stop  func() error
}

// startServers starts one server, or a cluster of three masters.
func startServers(ctx context.Context, cluster bool) (*servers, error) {
	if cluster {
		c, err := redistest.LaunchCluster(ctx, "", redistest.Config{Replicas: -1})
		if err != nil {
			return nil, err
		}
		return &servers{c.URL(), c.Masters(), c.Close}, nil
	}
	s, err := redistest.Launch(ctx, "", redistest.Config{})
	if err != nil {
		return nil, err
	}
	return &servers{s.URL(), []*redistest.Server{s}, s.Close}, nil
}

// empty removes all data.
func (s *servers) empty(ctx context.Context) error {
	for _, node := range s.nodes {
		if err := node.Client().FlushAll(ctx).Err(); err != nil {
			return err
		}
	}
	return nil
}

// cpu is what all servers have used so far, in user and kernel mode.
func (s *servers) cpu(ctx context.Context) (time.Duration, error) {
	var sum float64
	for _, node := range s.nodes {
		info, err := node.Client().Info(ctx, "cpu").Result()
		if err != nil {
			return 0, err
		}
		seconds, err := cpuOf(info)
		if err != nil {
			return 0, fmt.Errorf("%v: %w", node, err)
		}
		sum += seconds
	}
	return time.Duration(sum * float64(time.Second)), nil
}

// cpuOf adds the two fields of INFO.
func cpuOf(info string) (seconds float64, err error) {
	found := 0
	for line := range strings.Lines(info) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		if name == "used_cpu_user" || name == "used_cpu_sys" {
			v, err := strconv.ParseFloat(value, 64)
			if err != nil {
				return 0, err
			}
			seconds += v
			found++
		}
	}
	if found != 2 {
		return 0, fmt.Errorf("no CPU times in INFO: %q", info)
	}
	return seconds, nil
}
