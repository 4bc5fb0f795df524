package agent

import (
	"time"

	"github.com/spillgate/spillgate/agent/share"
	"github.com/spillgate/spillgate/batcher"
	"github.com/spillgate/spillgate/limit"
	"github.com/spillgate/spillgate/rules"
)

// In this file is what an agent does for rules that fail to their share of the limit (limit.Local): package share, with a clock,
// the number of agents, and the batcher's word on how a shard is.

const (
	// duePerTend and sweepPerTend bound what one round over the shares looks at: ten rounds a second.
	duePerTend   = 1024
	sweepPerTend = 4096
)

// ownShare decides a check of n tokens by the agent's share of a bucket. told says that there will be nothing to charge.
func (a *Agent) ownShare(b *limit.Bucket, t *limit.Terms, n limit.Tokens, h batcher.Health, told bool) limit.Decision {
	agents, known := a.Fleet()
	if !known || agents > share.MostAgents {
		return limit.Decision{Reason: limit.StoreLocal, Limit: t.Burst, RetryAfter: retryAfterOutage}
	}
	ask := share.Ask{Bucket: b, Terms: t, N: n, Agents: agents, Now: a.desk.now(), Told: told}
	if !h.Since.IsZero() {
		ask.Since = a.desk.at(h.Since)
	}
	return a.desk.shares.Take(ask)
}

// at is a moment in the desk's time, at least 1.
func (d *desk) at(t time.Time) int64 { return max(0, int64(t.Sub(d.start))) + 1 }

// cautious reports whether a rule fails to its share, and some shard is or was away.
//
// Hot path: 1 atomic load while all is well.
func (a *Agent) cautious(r *rules.Rule) bool {
	return a.batcher.Troubled() && a.policy(r) == limit.Local
}

// careful takes up an item of a rule that makes the agent cautious. It reports whether it did: if the
// item's shard is back, but others may not know yet, the agent's share has to admit it, and then
// the store, without leases.
func (b *Batch) careful(it *item, secret *limit.Secret) bool {
	a := b.agent
	if it.op != limit.Take {
		return false
	}
	var name limit.Bucket
	secret.Name(&name, b.id)
	h := a.batcher.Health(&name, nil)
	if !h.Recovering {
		return false
	}
	if d := a.ownShare(&name, it.terms, it.n, h, true); !d.Admitted && it.n <= it.terms.Burst {
		it.decision = d
		it.countPolicy(a)
		it.nameRule()
		return true
	}
	b.claim(it, &name)
	return true
}

// byShare decides an item that the store gave no outcome for, if its rule fails to its share. Its reason stays.
func (it *item) byShare(a *Agent) {
	if a.desk == nil || it.claim == nil || it.op != limit.Take || a.policy(it.rule) != limit.Local {
		return
	}
	reason := it.decision.Reason
	it.decision = a.ownShare(&it.claim.Bucket, it.terms, it.n, a.batcher.Health(&it.claim.Bucket, it.claim.Part), false)
	it.decision.Reason = reason
	it.shared = it.decision.Admitted
}

// unreached decides an item whose bucket's id is in b.id, before the store has been reached for the first time. The bucket has no name
// yet, so its share is under one of the agent's own, empty as of the agent's start, and is not charged.
func (b *Batch) unreached(it *item) {
	a := b.agent
	if a.desk == nil || it.op != limit.Take || a.policy(it.rule) != limit.Local || it.n > it.terms.Burst {
		it.fail(a, batcher.ErrNotRun)
		return
	}
	var name limit.Bucket
	a.desk.ownSecret.Name(&name, b.id)
	it.decision = a.ownShare(&name, it.terms, it.n, batcher.Health{Since: a.desk.start}, true)
	it.err = batcher.ErrNotRun
	it.countPolicy(a)
	it.nameRule()
}

// tendShares charges what was admitted by shares, and forgets those that are full.
func (a *Agent) tendShares() {
	now := a.desk.now()
	for _, c := range a.desk.shares.Due(now, duePerTend, a.well) {
		a.desk.Charge(&c.Bucket, c.Terms, c.N, func(n limit.Tokens) { a.desk.shares.Failed(&c.Bucket, n) })
	}
	a.desk.shares.Sweep(now, sweepPerTend)
}

// well reports whether the shard of a bucket can be told something.
func (a *Agent) well(b *limit.Bucket) bool {
	h := a.batcher.Health(b, nil)
	return h.Since.IsZero() || h.Recovering
}
