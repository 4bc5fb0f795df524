package redisshard

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillgate/spillgate/batcher"
)

// pauseBeforeResend is given to a cluster that is busy moving a slot or
// electing a master, before the one repetition.
const pauseBeforeResend = 5 * time.Millisecond

// target is where and how a call goes out.
type target struct {
	node   *redis.Client
	asking bool // precede by ASKING: the slot is being imported there
	full   bool // EVAL with the text: the server does not know the script
}

// run sends the call and sets the outcome of every entry. Each kind of proof that nothing ran
// buys one repetition.
func (s *Store) run(ctx context.Context, st *state, shard int, c *call) {
	c.divider = st
	var route string
	if st.nodes.clustered() {
		// After a change of layout a queue may hold buckets of several tags; the server then
		// refuses the call as a whole, and the next checks are placed anew.
		route = "{" + st.layout.tags[c.items[0].tag] + "}"
	}
	node, err := st.nodes.master(ctx, route)
	if err != nil {
		st.nodes.reload(ctx)
		s.fail(st, shard, c, "", verdictNotRun, err)
		return
	}
	to, tried := target{node: node}, uint32(0)
	for {
		sent, server := s.now(), to.node.Options().Addr
		reply, err := s.send(ctx, st, shard, to, c)
		if err == nil {
			again, err := s.accept(st, shard, c, server, sent, reply)
			if err != nil {
				s.fail(st, shard, c, server, verdictUnknown, err)
				return
			}
			if !again || tried&1 != 0 {
				// What is left the server keeps refusing: its clock was set back by more than a
				// generation while cells of the later time exist.
				s.giveUp(c, verdictNotRun, errClock)
				return
			}
			tried |= 1 // bit 0: the generations were wrong
			s.stats.resent.Add(1)
			continue
		}
		f := classify(err)
		if f.kind.staleTopology() {
			st.nodes.reload(ctx)
		}
		bit := uint32(1) << (1 + f.kind)
		if f.verdict != verdictResend || tried&bit != 0 || ctx.Err() != nil {
			s.fail(st, shard, c, server, f.verdict, err)
			return
		}
		tried |= bit
		s.stats.resent.Add(1)
		if to, err = st.nodes.redirect(ctx, to, route, f); err != nil {
			s.fail(st, shard, c, server, verdictNotRun, err)
			return
		}
	}
}

// redirect is the remedy for a refusal: where and how the call goes next.
func (n *nodes) redirect(ctx context.Context, to target, route string, f failure) (target, error) {
	switch f.kind {
	case kindNoScript:
		to.full = true
		return to, nil
	case kindMoved, kindAsk:
		return target{node: n.at(redirectAddr(f.addr, to.node.Options().Addr)), asking: f.kind == kindAsk, full: to.full}, nil
	}
	select {
	case <-time.After(pauseBeforeResend):
	case <-ctx.Done():
		return to, ctx.Err()
	}
	node, err := n.master(ctx, route)
	return target{node: node, full: to.full}, err
}

// send makes one attempt and returns the script's reply.
func (s *Store) send(ctx context.Context, st *state, shard int, to target, c *call) (string, error) {
	nanos, stamp := s.now()+st.offsets[shard].Load(), int64(0)
	if s.cfg.Clock == ClockAgent {
		nanos = time.Now().UnixNano()
		stamp = nanos / 1000
	}
	if s.stamp != nil {
		stamp = s.stamp()
		nanos = stamp * 1000
	}
	command, script := "evalsha", s.sha
	if to.full {
		command, script = "eval", debitScript
	}
	cmd := redis.NewCmd(ctx, c.encode(command, script, &s.names, nanos, stamp)...)
	s.stats.calls.Add(1)
	if !to.asking {
		_ = to.node.Process(ctx, cmd) // the command keeps the error
		return cmd.Text()
	}
	pipe := to.node.Pipeline()
	pipe.Do(ctx, "asking")
	_ = pipe.Process(ctx, cmd)
	_, _ = pipe.Exec(ctx)
	return cmd.Text()
}

// accept takes the reply of the server at addr to a call that was sent then. again is true when entries
// are left that the script refused because of the clock; the call then holds just those.
func (s *Store) accept(st *state, shard int, c *call, addr string, sent int64, reply string) (again bool, err error) {
	micros, err := c.decode([]byte(reply))
	if err != nil {
		return false, err
	}
	now := s.now()
	st.offsets[shard].Store(micros*1000 - now)
	st.heard(shard, addr, sent, now, micros)
	if st.faults[shard].Load() != nil {
		st.faults[shard].Store(nil)
	}
	left := c.items[:0]
	for _, it := range c.items {
		if it.entry.Err == errClock {
			left = append(left, it)
		}
	}
	c.items = left
	return len(left) > 0, nil
}

// fail sets the error of every entry that is left in the call, and the shard's fault. The server is the one that was asked, if any.
func (s *Store) fail(st *state, shard int, c *call, server string, v verdict, cause error) {
	st.faults[shard].Store(&fault{server, cause, s.now()})
	s.giveUp(c, v, cause)
}

// giveUp sets the error of every entry that is left in the call.
func (s *Store) giveUp(c *call, v verdict, cause error) {
	kind := batcher.ErrNotRun
	switch {
	case v == verdictUnknown:
		kind = batcher.ErrUnknown
		s.stats.unknown.Add(uint64(len(c.items)))
	case classify(cause).kind.noWrites():
		kind = batcher.ErrNoWrites
	}
	err := fmt.Errorf("%w: %w", kind, cause)
	for _, it := range c.items {
		it.entry.Err = err
	}
}

// release drops what the call refers to, before it is reused.
func (c *call) release() {
	clear(c.items[:cap(c.items)])
	clear(c.args[:cap(c.args)])
	c.items, c.args, c.layout, c.divider = c.items[:0], c.args[:0], nil, nil
}

// counters are the store's totals since it was opened.
type counters struct{ calls, resent, unknown atomic.Uint64 }

// Stats are totals since Open.
type Stats struct {
	// Calls sent, repetitions included.
	Calls uint64
	// Resent calls: the server proved that nothing ran.
	Resent uint64
	// Unknown debits: the reply was lost, they count as spent.
	Unknown uint64
}

// Stats returns the totals.
func (s *Store) Stats() Stats {
	return Stats{Calls: s.stats.calls.Load(), Resent: s.stats.resent.Load(), Unknown: s.stats.unknown.Load()}
}
