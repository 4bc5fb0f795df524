package agent

import (
	"fmt"
	"time"

	"github.com/spillgate/spillgate/agent/share"
	"github.com/spillgate/spillgate/agent/split"
	"github.com/spillgate/spillgate/batcher"
	"github.com/spillgate/spillgate/hotkeys"
	"github.com/spillgate/spillgate/limit"
	"github.com/spillgate/spillgate/rules"
)

// Config of an Agent. The zero value of each field but Store stands for its default.
type Config struct {
	// Store keeps the cells: memstore.New or redisshard.Open. Required. Close it after the agent.
	Store batcher.Store
	// Rules to begin with; nil has none. SetRules replaces them.
	Rules *rules.Set
	// Deadline of a check whose rule has none of its own; then the fail policy
	// answers. Longer waits out a slow store, and makes callers wait. Default 25 ms.
	Deadline time.Duration
	// ID names this agent in its fleet, for people: two may have the same. Default none.
	ID string
	// Fleet is the name of the agents that share the store: 1 to 64 of a-z, A-Z, 0-9, ".", "_" and "-". They count each other, for
	// limit.Local. Default "default".
	Fleet string
	// FleetSize is how many agents there are as long as they are not counted; too small, and the fleet may be over its
	// limits while the store is away. Default 0, not known: then limit.Local denies.
	FleetSize int
	// OnStoreError is the fail policy of rules without one, and of buckets that a caller
	// names itself. Default limit.Open.
	OnStoreError limit.Policy
	// MaxPending bounds the claims that wait for the store; beyond it the fail
	// policy answers at once, with reason overloaded. Default 65,536.
	MaxPending int
	// StoreTimeout bounds one call to the store. Default: the larger of 50 ms and Deadline.
	StoreTimeout time.Duration
	// Hotkeys says which buckets are hot: those are answered from leases. Not used on a direct store.
	Hotkeys hotkeys.Config
	// SplitOps is the number of entries per second on one bucket, of all agents, from which it is divided over several masters, if the
	// store has them. Lower divides earlier, and a divided bucket costs more entries. Default 5,000; below 0 never
	// divides, and ends what other agents have divided.
	SplitOps int64
	// OnSplit, if set, is told when a bucket is divided, and when it is whole again. It must not block.
	OnSplit func(split.Event)
	// OnCall, if set, is told of every call to the store. It must not block.
	OnCall func(batcher.CallInfo)
}

func (c *Config) ensureDefaults() {
	if c.Deadline == 0 {
		c.Deadline = 25 * time.Millisecond
	}
	if c.Fleet == "" {
		c.Fleet = "default"
	}
	if c.Hotkeys.Top == 0 {
		c.Hotkeys.Top = 1000
	}
	if c.SplitOps == 0 {
		c.SplitOps = 5000
	}
	if c.StoreTimeout == 0 {
		c.StoreTimeout = max(50*time.Millisecond, c.Deadline)
	}
}

// recovery is how long after a shard's return other agents may not know of it yet: the longest pause between two looks, the looks' own time,
// and what is left for charges.
func (c *Config) recovery() time.Duration { return time.Second + c.StoreTimeout }

func (c *Config) validate() error {
	switch {
	case c.Store == nil:
		return fmt.Errorf("agent: Store is missing: open one with memstore.New or redisshard.Open")
	case c.Deadline < 0:
		return fmt.Errorf("agent: Deadline is %v, it must be positive", c.Deadline)
	case !fleetName.MatchString(c.Fleet):
		return fmt.Errorf("agent: Fleet is %q, it must be 1 to 64 letters, digits, dots, underscores or dashes", c.Fleet)
	case len(c.ID) > mostID:
		return fmt.Errorf("agent: ID has %d bytes, it must have %d at most", len(c.ID), mostID)
	case c.FleetSize < 0 || c.FleetSize > share.MostAgents:
		return fmt.Errorf("agent: FleetSize is %d, it must be 0 to %d", c.FleetSize, share.MostAgents)
	case c.StoreTimeout < 0:
		return fmt.Errorf("agent: StoreTimeout is %v, it must be positive", c.StoreTimeout)
	}
	return nil
}
