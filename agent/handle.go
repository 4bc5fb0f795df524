package agent

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/spillgate/spillgate/limit"
	"github.com/spillgate/spillgate/rules"
)

// errValues: a handle's check has too few or too many values.
var errValues = errors.New("agent: a handle takes one value for each entry of its rule's match")

// Handle is a rule looked up beforehand: its checks need no matching. It is
// safe for concurrent use. After SetRules it follows the rule of its name; when
// that is gone, its checks answer limit.NoRule.
type Handle struct {
	agent  *Agent
	domain string
	name   string
	latest atomic.Pointer[lookedUp]
}

// lookedUp is the rule of a handle's name in one set; nil if the set has none.
type lookedUp struct {
	set  *rules.Set
	rule *rules.Rule
}

// rule is the handle's rule in the set in force. It is looked up once per set.
func (h *Handle) rule() *rules.Rule {
	set := h.agent.rules.Load()
	l := h.latest.Load()
	if l == nil || l.set != set {
		l = &lookedUp{set, set.Rule(h.domain, h.name)}
		h.latest.Store(l)
	}
	return l.rule
}

// Handle returns the handle of a rule in force, or an error if there is none of that name.
func (a *Agent) Handle(domain, name string) (*Handle, error) {
	rule := a.rules.Load().Rule(domain, name)
	if rule == nil {
		return nil, fmt.Errorf("agent: no rule %q in domain %q", name, domain)
	}
	return &Handle{agent: a, domain: domain, name: name}, nil
}

// Check decides on the rule's bucket for the values, one for each entry of the
// rule's match, in order; values that the rule fixes only hold their place. n is the cost in
// tokens, 0 to limit.MaxTokens; 0 peeks. An empty value where the rule tells buckets
// apart matches no rule, as in Agent.Check. A wrong number of values or a cost
// out of range is a mistake of the program: it is denied, limit.Never. After Close the
// agent's fail policy answers, without a rule's name.
//
// Hot path on a direct store: 1 clock read, 1 lock, 0 allocations. On a hot bucket of a leased rule elsewhere:
// 1 clock read, 1 atomic read-modify-write, 0 allocations.
func (h *Handle) Check(ctx context.Context, n limit.Tokens, values ...string) (d limit.Decision) {
	rule := h.rule()
	if h.agent.leases(rule, n) && len(values) == len(rule.Match) {
		var space [idSpace]byte
		id := append(space[:0], rule.Root...)
		for _, at := range rule.Vary {
			id = limit.AppendPart(id, values[at])
		}
		if h.agent.desk.Local(id, rule.Terms, n, &d) {
			d.Rule = rule.Name
			return d
		}
	}
	return h.check(ctx, n, values)
}

// check is Check through a batch, for what local does not decide.
func (h *Handle) check(ctx context.Context, n limit.Tokens, values []string) limit.Decision {
	b := h.agent.batches.Get().(*Batch)
	b.Begin()
	i := b.handle(h, n, values)
	b.Decide(ctx)
	d, err := b.Decision(i)
	h.agent.batches.Put(b)
	switch {
	case err == nil:
		return d
	case errors.Is(err, ErrClosed):
		return h.agent.byPolicy(nil, &limit.Terms{}, err)
	}
	return limit.Decision{Reason: limit.Never, RetryAfter: limit.NoRetry}
}

// handle adds a check of a handle's rule.
func (b *Batch) handle(h *Handle, n limit.Tokens, values []string) int {
	c := b.open()
	switch {
	case n < 0 || n > limit.MaxTokens:
		return b.refuse(c, ErrHits)
	case h.agent.closed.Load():
		return b.refuse(c, ErrClosed)
	}
	b.sole = true
	rule := h.rule()
	if rule != nil {
		if len(values) != len(rule.Match) {
			return b.refuse(c, errValues)
		}
		if !b.nameValues(rule, values) {
			rule = nil
		}
	}
	b.addRule(rule, n, limit.Take)
	return b.close(c)
}

// nameValues puts the id of a rule's bucket into b.id. It is false if a value that tells
// buckets apart is empty.
func (b *Batch) nameValues(rule *rules.Rule, values []string) bool {
	b.id = append(b.id[:0], rule.Root...)
	for _, at := range rule.Vary {
		if values[at] == "" && !rule.Empty {
			return false
		}
		b.id = limit.AppendPart(b.id, values[at])
	}
	return true
}
