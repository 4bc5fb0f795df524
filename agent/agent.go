package agent

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spillgate/spillgate/batcher"
	"github.com/spillgate/spillgate/limit"
	"github.com/spillgate/spillgate/rules"
)

// Errors of a request that cannot be decided. A denial is no error.
var (
	// ErrNoDomain: the request names no domain.
	ErrNoDomain = errors.New("agent: the domain is empty")
	// ErrNoDescriptors: the request has no descriptor, or one without entries.
	ErrNoDescriptors = errors.New("agent: the request has no descriptors")
	// ErrHits: the hits are negative or above limit.MaxTokens.
	ErrHits = errors.New("agent: hits must be 0 to 1099511627776")
	// ErrNoKey: a bucket that the caller names itself has an empty name.
	ErrNoKey = errors.New("agent: the key is empty")
	// ErrClosed: the agent is closed.
	ErrClosed = errors.New("agent: closed")
)

// Agent decides checks. It is safe for concurrent use.
type Agent struct {
	cfg     Config
	store   batcher.Store
	direct  batcher.Direct   // nil unless the store answers without waiting
	batcher *batcher.Batcher // nil if direct
	desk    *desk            // nil if direct
	fleet   *fleet           // nil if direct
	rules   atomic.Pointer[rules.Set]
	stats   counters
	shadows shadows
	// policies count what the store did not decide.
	policies policies
	closed   atomic.Bool
	batches  sync.Pool
}

// New returns a running agent. Close ends its goroutines.
func New(cfg Config) (*Agent, error) {
	cfg.ensureDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	a := &Agent{cfg: cfg, store: cfg.Store}
	a.batches.New = func() any { return a.NewBatch() }
	a.rules.Store(cfg.Rules)
	if direct, ok := cfg.Store.(batcher.Direct); ok {
		a.direct = direct
	} else {
		var err error
		a.batcher, err = batcher.New(batcher.Config{Store: cfg.Store, MaxPending: cfg.MaxPending,
			Timeout: cfg.StoreTimeout, Recovery: cfg.recovery(), OnCall: cfg.OnCall})
		if err != nil {
			return nil, fmt.Errorf("agent: %w", err)
		}
		if a.desk, err = newDesk(&a.cfg, a.batcher); err != nil {
			return nil, fmt.Errorf("agent: %w", err)
		}
		a.desk.tend(a.store, a.tendShares)
		a.fleet = newFleet(&a.cfg, a.batcher.Troubled)
	}
	return a, nil
}

// Close answers new checks with ErrClosed, returns what is on lease, sends what is queued and waits for the
// store, until ctx ends. Checks in progress should have returned before. The store stays open.
func (a *Agent) Close(ctx context.Context) error {
	if a.closed.Swap(true) {
		return nil
	}
	if a.batcher == nil {
		return nil
	}
	a.fleet.close()
	a.desk.close()
	err := a.batcher.Close(ctx)
	a.desk.memory.close()
	return err
}

// Rules returns the set in force; nil has no rules.
func (a *Agent) Rules() *rules.Set { return a.rules.Load() }

// SetRules replaces the rules. Checks that begin afterwards see the new set;
// a bucket whose rule keeps its name keeps its cell.
func (a *Agent) SetRules(set *rules.Set) {
	a.rules.Store(set)
	a.shadows.keep(set)
	if a.desk != nil {
		a.desk.active.keep(set)
	}
	a.policies.keep(set)
}

// Ready reports whether the store has been reached, so that checks can be decided by it.
func (a *Agent) Ready() bool {
	_, ok := a.store.Secret()
	return ok
}

// Request is what a caller asks.
type Request struct {
	// Domain of the rules. Required.
	Domain string
	// Descriptors of the request, at least one, each with at least one entry. Each is counted by its
	// most specific rule.
	Descriptors []rules.Descriptor
	// Hits is the cost in tokens; 0 peeks: nothing is charged.
	Hits limit.Tokens
	// Overrides, if not nil, has an Override for each descriptor.
	Overrides []Override
}

// Check decides a request: admitted only if the rule of every descriptor
// admits, and a denial charges none of them. The decision is that of the rule that denied
// with the longest wait, or else of the rule with the fewest tokens left. The error is
// one of this package; the store never causes one, since the rule's policy answers.
//
// Hot path, for one descriptor on a hot bucket of a leased rule: 1 match, 1 clock read, 1 atomic
// read-modify-write, 0 allocations.
func (a *Agent) Check(ctx context.Context, r Request) (d limit.Decision, err error) {
	if len(r.Descriptors) == 1 && a.desk != nil && r.Overrides == nil && a.local(&r, &d) {
		return d, nil
	}
	b := a.batches.Get().(*Batch)
	b.Begin()
	i := b.CheckWith(r.Domain, r.Descriptors, r.Hits, r.Overrides)
	b.Decide(ctx)
	d, err = b.Decision(i)
	a.batches.Put(b)
	return d, err
}

// idSpace holds the ids of most buckets.
const idSpace = 2 * limit.MaxID

// leases reports whether a check of n tokens may be decided from leases, and nothing more is to be done about it.
func (a *Agent) leases(rule *rules.Rule, n limit.Tokens) bool {
	return rule != nil && rule.Terms != nil && rule.Mode != limit.Exact && !rule.Shadow && n >= 1 && n <= rule.Terms.Burst &&
		a.desk != nil && !a.closed.Load() && !a.cautious(rule)
}

// local decides a request of one descriptor, if its bucket is hot and what is leased of it decides.
func (a *Agent) local(r *Request, d *limit.Decision) bool {
	descriptor := r.Descriptors[0]
	if r.Domain == "" || len(descriptor) == 0 {
		return false
	}
	rule := a.rules.Load().Match(r.Domain, descriptor)
	if !a.leases(rule, r.Hits) {
		return false
	}
	var space [idSpace]byte
	id := append(space[:0], rule.Root...)
	for _, at := range rule.Vary {
		id = limit.AppendPart(id, descriptor[at].Value)
	}
	if !a.desk.Local(id, rule.Terms, r.Hits, d) {
		return false
	}
	d.Rule = rule.Name
	return true
}

// Throttle decides on a bucket that the caller names and describes itself, without rules.
func (a *Agent) Throttle(ctx context.Context, key string, t *limit.Terms, n limit.Tokens) (limit.Decision, error) {
	b := a.batches.Get().(*Batch)
	b.Begin()
	i := b.Throttle([]byte(key), t, n)
	b.Decide(ctx)
	d, err := b.Decision(i)
	a.batches.Put(b)
	return d, err
}

// policy is what answers for a rule, or for a bucket without one, when the store does not.
func (a *Agent) policy(r *rules.Rule) limit.Policy {
	if r == nil {
		return a.cfg.OnStoreError
	}
	return r.Policy(a.cfg.OnStoreError)
}

func (a *Agent) deadline(r *rules.Rule) time.Duration {
	if r != nil && r.Deadline > 0 {
		return r.Deadline
	}
	return a.cfg.Deadline
}

// retryAfterOutage is what a caller is told who was denied because the store did not answer.
const retryAfterOutage = time.Second

// byPolicy is the decision when the store gave none.
func (a *Agent) byPolicy(r *rules.Rule, t *limit.Terms, cause error) limit.Decision {
	d := limit.Decision{Limit: t.Burst, RetryAfter: limit.NoRetry}
	switch a.policy(r) {
	case limit.Open:
		d.Admitted, d.Reason = true, limit.StoreOpen
	case limit.Local: // unless there is a share of the bucket, see item.byShare
		d.Reason, d.RetryAfter = limit.StoreLocal, retryAfterOutage
	default:
		d.Reason, d.RetryAfter = limit.StoreClosed, retryAfterOutage
	}
	if errors.Is(cause, batcher.ErrOverloaded) {
		d.Reason = limit.Overloaded
	}
	return d
}
