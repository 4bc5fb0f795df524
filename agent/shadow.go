package agent

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/spillgate/spillgate/limit"
	"github.com/spillgate/spillgate/rules"
)

// shadows count, by rule, what shadow rules would have denied. Safe for concurrent use.
type shadows struct{ rules sync.Map } // of ruleName to *atomic.Uint64

func (s *shadows) add(r *rules.Rule) {
	name := ruleName{r.Domain, r.Name}
	n, ok := s.rules.Load(name)
	if !ok {
		n, _ = s.rules.LoadOrStore(name, new(atomic.Uint64))
	}
	n.(*atomic.Uint64).Add(1)
}

// keep drops the counts of rules that a set does not have.
func (s *shadows) keep(set *rules.Set) { keepRules(&s.rules, set) }

// ShadowDenied is how often one shadow rule would have denied a descriptor of a request, since it was first in force.
type ShadowDenied struct {
	Domain, Rule string
	Denied       uint64
}

// all are the counts, sorted by name. Rules that denied nothing are left out.
func (s *shadows) all() (all []ShadowDenied) {
	s.rules.Range(func(key, value any) bool {
		name := key.(ruleName)
		all = append(all, ShadowDenied{name.domain, name.name, value.(*atomic.Uint64).Load()})
		return true
	})
	slices.SortFunc(all, func(x, y ShadowDenied) int {
		return cmp.Or(cmp.Compare(x.Domain, y.Domain), cmp.Compare(x.Rule, y.Rule))
	})
	return all
}

// isShadow reports whether the item's rule counts and does not deny.
func (it *item) isShadow() bool { return it.rule != nil && it.rule.Shadow && !it.overridden }

// lift makes an admission of what a shadow rule denied. It took nothing, so nothing of it is to be refunded.
func (it *item) lift(a *Agent) {
	d := &it.decision
	if d.Admitted || !it.isShadow() {
		return
	}
	d.Admitted, d.RetryAfter = true, limit.NoRetry
	switch d.Reason {
	case limit.StoreClosed, limit.StoreLocal: // nobody knows whether it would have been denied
		d.Reason = limit.StoreOpen
	case limit.Overloaded:
	default:
		d.Reason, d.Remaining, it.over = limit.ShadowOver, 0, true
		a.shadows.add(it.rule)
	}
}

// outranks reports whether an item speaks for its check rather than another: see outranks of decisions. Shadow rules speak only where no
// other rule counts, so that they change nothing in the answer.
func (it *item) outranks(of *item) bool {
	d, e := &it.decision, &of.decision
	if d.Admitted && e.Admitted && d.Limit != 0 && e.Limit != 0 && it.isShadow() != of.isShadow() {
		return of.isShadow()
	}
	return outranks(d, e)
}
