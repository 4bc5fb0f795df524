package agent

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/spillgate/spillgate/limit"
	"github.com/spillgate/spillgate/rules"
)

// policies count the answers without the store's, by rule. Safe for concurrent use.
type policies struct{ rules sync.Map } // of ruleName to *policyCounts

type policyCounts struct {
	denied, admitted [16]atomic.Uint64 // by reason
}

// count adds an answer; a nil rule is that of buckets that callers name themselves.
func (p *policies) count(r *rules.Rule, d *limit.Decision) {
	var name ruleName
	if r != nil {
		name = ruleName{r.Domain, r.Name}
	}
	c, ok := p.rules.Load(name)
	if !ok {
		c, _ = p.rules.LoadOrStore(name, new(policyCounts))
	}
	if d.Admitted {
		c.(*policyCounts).admitted[d.Reason].Add(1)
	} else {
		c.(*policyCounts).denied[d.Reason].Add(1)
	}
}

// countPolicy counts an item's answer without the store's, as it is told: a shadow rule admits.
func (it *item) countPolicy(a *Agent) {
	it.lift(a)
	a.policies.count(it.rule, &it.decision)
}

// keep drops the counts of rules that a set does not have.
func (p *policies) keep(set *rules.Set) { keepRules(&p.rules, set) }

// ByPolicy is how many descriptors of one rule were answered by its fail policy, or by the agent's share of the limit.
type ByPolicy struct {
	Domain, Rule string // both empty for buckets that callers name themselves
	Admitted     bool
	Reason       limit.Reason // StoreOpen, StoreClosed, StoreLocal or Overloaded
	Answers      uint64
}

// ByPolicy returns the answers by policy, by rule, outcome and reason, in that order; what did not occur is left out.
func (a *Agent) ByPolicy() []ByPolicy {
	var all []ByPolicy
	a.policies.rules.Range(func(key, value any) bool {
		name, counts := key.(ruleName), value.(*policyCounts)
		for _, r := range limit.Reasons() {
			if n := counts.admitted[r].Load(); n > 0 {
				all = append(all, ByPolicy{name.domain, name.name, true, r, n})
			}
			if n := counts.denied[r].Load(); n > 0 {
				all = append(all, ByPolicy{name.domain, name.name, false, r, n})
			}
		}
		return true
	})
	slices.SortStableFunc(all, func(x, y ByPolicy) int { return cmp.Or(cmp.Compare(x.Domain, y.Domain), cmp.Compare(x.Rule, y.Rule)) })
	return all
}
