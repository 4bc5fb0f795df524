package agent

import (
	"context"
	"fmt"

	"github.com/spillgate/spillgate/limit"
	"github.com/spillgate/spillgate/rules"
)

// Handle is a rule looked up beforehand: its checks need no matching. It is
// safe for concurrent use. After SetRules it follows the rule of its name; when that is
// gone or takes other entries, its checks answer limit.NoRule.
type Handle struct {
	agent  *Agent
	domain string
	name   string
}

// Handle returns the handle of a rule in force, or an error if there is none of that name.
func (a *Agent) Handle(domain, name string) (*Handle, error) {
	rule := a.rules.Load().Rule(domain, name)
	if rule == nil {
		return nil, fmt.Errorf("agent: no rule %q in domain %q", name, domain)
	}
}

// Check decides on the rule's bucket for the values, one for each entry of the
// rule's match, in order. n is the cost in tokens, 0 to limit.MaxTokens; 0 peeks. Values
// that the rule fixes only hold their place. Like Agent.Check it
// always has an answer; a wrong number of values, an empty value that tells buckets apart, or
// a cost out of range is answered like an unmatched request: admitted, limit.NoRule.
//
// Hot path on a direct store: 1 map look-up for the rule, 1 lock, 0 allocations.
func (h *Handle) Check(ctx context.Context, n limit.Tokens, values ...string) limit.Decision {
	b := h.agent.batches.Get().(*Batch)
	b.Begin()
	i := b.handle(h, n, values)
	b.Decide(ctx)
	d, err := b.Decision(i)
	h.agent.batches.Put(b)
	if err != nil {
		return limit.Decision{Admitted: true, Reason: limit.NoRule, RetryAfter: limit.NoRetry}
	}
	return d
}

// handle adds a check of a handle's rule.
func (b *Batch) handle(h *Handle, n limit.Tokens, values []string) int {
	c := b.open()
	if n < 0 || n > limit.MaxTokens {
		return b.refuse(c, ErrHits)
	}
	rule := h.agent.rules.Load().Rule(h.domain, h.name)
	if rule != nil && !b.nameValues(rule, values) {
		rule = nil
	}
	b.addRule(rule, n, limit.Take)
	return b.close(c)
}

// nameValues puts the id of a rule's bucket into b.id. It is false if the values do not fit the rule.
func (b *Batch) nameValues(rule *rules.Rule, values []string) bool {
	if len(values) != len(rule.Match) {
		return false
	}
	b.id = appendRule(b.id[:0], rule)
	for _, at := range rule.Vary {
		if values[at] == "" {
			return false
		}
		b.id = limit.AppendPart(b.id, values[at])
	}
	return true
}
