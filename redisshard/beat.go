package redisshard

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// beatScript counts a fleet.
//
//go:embed lua/beat.lua
var beatText string

var beatScript = redis.NewScript(beatText)

// mostMembers bounds a fleet's key: 64 bytes and some for each.
const mostMembers = 4096

var (
	errNotReached = errors.New("redisshard: the store has not been reached yet")
	errFleetFull  = fmt.Errorf("redisshard: the fleet has %d agents already, more are not counted", mostMembers)
)

// Beat implements batcher.Countable. The fleet's members are in one key of their own tag.
//
// It runs at most once: a lost reply is an error, and nothing is sent again but to a server that does not know the script.
func (s *Store) Beat(ctx context.Context, fleet, member string, life time.Duration) (agents int, err error) {
	st := s.state.Load()
	if st == nil {
		return 0, errNotReached
	}
	key, now := fleetKey(fleet), int64(0)
	if s.cfg.Clock == ClockAgent {
		now = time.Now().UnixMilli()
	}
	node, err := st.nodes.master(ctx, key)
	if err == nil {
		agents, err = beatScript.Run(ctx, node, []string{key}, member, life.Milliseconds(), mostMembers, now).Int()
	}
	if err == nil && agents == 0 {
		err = errFleetFull
	}
	if err == nil {
		s.beatTold.Store(false)
		return agents, nil
	}
	if classify(err).kind.staleTopology() {
		st.nodes.reload(ctx)
	}
	if ctx.Err() == nil && !s.beatTold.Swap(true) {
		s.cfg.Logger.Warn("the agents of the fleet cannot be counted", "fleet", fleet, "error", err)
	}
	return 0, fmt.Errorf("redisshard: beat: %w", err)
}
