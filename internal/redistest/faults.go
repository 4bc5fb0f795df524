package redistest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
)

// Failover promotes a replica by CLUSTER FAILOVER, the orderly way that loses
// nothing, and waits until all nodes agree and the old master follows the new.
func (c *Cluster) Failover(ctx context.Context, replica *Server) error {
	ctx, cancel := withPatience(ctx)
	defer cancel()
	if err := replica.Client().ClusterFailover(ctx).Err(); err != nil {
		return fmt.Errorf("redistest: CLUSTER FAILOVER on %v: %w", replica, err)
	}
	what := fmt.Sprintf("%v is promoted", replica)
	return c.waitFor(ctx, what, func(r []*report) error {
		i := slices.Index(c.nodes, replica)
		if i < 0 || r[i] == nil {
			return halt{fmt.Errorf("%v is not a live node of this cluster", replica)}
		}
		me, err := r[i].self()
		if err != nil {
			return err
		}
		if me.master != "" || me.numSlots() == 0 {
			return errors.New("it is still a replica")
		}
		return errors.Join(agreed(r, c.ids), linked(r, c.ids))
	})
}

// WaitFailover waits until the cluster has replaced a master that the test
// killed or stopped, and returns the replica that was promoted. Redis takes the
// node timeout plus about a second for it.
func (c *Cluster) WaitFailover(ctx context.Context, dead *Server) (*Server, error) {
	slot, err := c.anySlotOf(dead)
	if err != nil {
		return nil, err
	}
	if len(c.Replicas(dead)) == 0 {
		return nil, fmt.Errorf("redistest: %v has no replica to take its place", dead)
	}
	what := fmt.Sprintf("a replica takes the place of %v", dead)
	err = c.waitFor(ctx, what, func(r []*report) error { return agreed(r, c.ids) })
	if err != nil {
		return nil, err
	}
	return c.MasterOfSlot(slot), nil
}

// anySlotOf returns a slot that the server owns according to the layout.
func (c *Cluster) anySlotOf(s *Server) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for slot, i := range c.mu.layout.owner {
		if c.nodes[i] == s {
			return slot, nil
		}
	}
	return 0, fmt.Errorf("redistest: %v owns no slots", s)
}

// Migration is a slot on its way from one master to another. From
// BeginMigration until Finish, the source answers ASK for keys of the slot that
// it does not hold, and the target serves them to those who say ASKING; a
// script or multi-key command whose keys are split between them gets TRYAGAIN.
// After Finish, the source answers MOVED.
type Migration struct {
	Slot     int
	From, To *Server

	c *Cluster
}

// BeginMigration marks a slot as importing on the target and migrating on its
// owner. No key moves yet.
func (c *Cluster) BeginMigration(ctx context.Context, slot int, to *Server) (*Migration, error) {
	m := &Migration{Slot: slot, From: c.MasterOfSlot(slot), To: to, c: c}
	if m.From == to {
		return nil, fmt.Errorf("redistest: slot %d is already on %v", slot, to)
	}
	// The target first: the source must not send anybody there too soon.
	if err := setSlot(ctx, to, slot, "IMPORTING", m.From.nodeID); err != nil {
		return nil, err
	}
	if err := setSlot(ctx, m.From, slot, "MIGRATING", to.nodeID); err != nil {
		return nil, err
	}
	return m, nil
}

// MoveKeys moves the named keys of the slot, or all that the source holds when
// none is named. A key that is not there is no error.
func (m *Migration) MoveKeys(ctx context.Context, keys ...string) error {
	if len(keys) > 0 {
		return m.move(ctx, keys)
	}
	const batch = 100
	for {
		keys, err := m.From.Client().ClusterGetKeysInSlot(ctx, m.Slot, batch).Result()
		if err != nil {
			return fmt.Errorf("redistest: list the keys of slot %d on %v: %w", m.Slot, m.From, err)
		}
		if len(keys) == 0 {
			return nil
		}
		if err := m.move(ctx, keys); err != nil {
			return err
		}
	}
}

// move is MIGRATE host port "" db timeout [AUTH password] KEYS key...
func (m *Migration) move(ctx context.Context, keys []string) error {
	host, port, err := net.SplitHostPort(m.To.Addr())
	if err != nil {
		return err
	}
	args := []any{"MIGRATE", host, port, "", 0, patience.Milliseconds()}
	if pw := m.c.cfg.Password; pw != "" {
		args = append(args, "AUTH", pw)
	}
	args = append(args, "KEYS")
	for _, k := range keys {
		args = append(args, k)
	}
	if err := m.From.Client().Do(ctx, args...).Err(); err != nil {
		return fmt.Errorf("redistest: MIGRATE %d keys of slot %d from %v to %v: %w",
			len(keys), m.Slot, m.From, m.To, err)
	}
	return nil
}

// Finish moves the keys that are left, gives the slot to the target and waits
// until all nodes know.
func (m *Migration) Finish(ctx context.Context) error {
	if err := m.MoveKeys(ctx); err != nil {
		return err
	}
	// The target first: were the source to forget the slot before somebody
	// else owns it, it would be nobody's.
	if err := setSlot(ctx, m.To, m.Slot, "NODE", m.To.nodeID); err != nil {
		return err
	}
	if err := setSlot(ctx, m.From, m.Slot, "NODE", m.To.nodeID); err != nil {
		return err
	}
	what := "all nodes know the new owner of slot " + strconv.Itoa(m.Slot)
	return m.c.waitFor(ctx, what, func(r []*report) error {
		i := slices.Index(m.c.nodes, m.To)
		if r[i] == nil {
			return halt{fmt.Errorf("%v is down", m.To)}
		}
		me, err := r[i].self()
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(me.slots, func(s slotRange) bool { return s.first <= m.Slot && m.Slot <= s.last }) {
			return errors.New("the target does not own it yet")
		}
		return agreed(r, m.c.ids)
	})
}

// MigrateSlot moves a slot with its keys to another master.
func (c *Cluster) MigrateSlot(ctx context.Context, slot int, to *Server) error {
	m, err := c.BeginMigration(ctx, slot, to)
	if err != nil {
		return err
	}
	return m.Finish(ctx)
}

func setSlot(ctx context.Context, s *Server, slot int, state, nodeID string) error {
	err := s.Client().Do(ctx, "CLUSTER", "SETSLOT", slot, state, nodeID).Err()
	if err != nil {
		return fmt.Errorf("redistest: CLUSTER SETSLOT %d %s on %v: %w", slot, state, s, err)
	}
	return nil
}
