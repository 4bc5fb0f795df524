package agent

import (
	"cmp"
	"slices"
	"sync"

	"github.com/spillgate/spillgate/hotkeys"
	"github.com/spillgate/spillgate/rules"
)

// active counts the distinct buckets of each rule that were checked of late, by rule, so that the
// count of a rule goes on when a new set has it too. Safe for concurrent use.
type active struct{ rules sync.Map } // of ruleName to *hotkeys.Distinct

type ruleName struct{ domain, name string }

// of is the counter of a rule; nil is the rule of buckets that callers name themselves.
func (a *active) of(r *rules.Rule) *hotkeys.Distinct {
	var name ruleName
	if r != nil {
		name = ruleName{r.Domain, r.Name}
	}
	if d, ok := a.rules.Load(name); ok {
		return d.(*hotkeys.Distinct)
	}
	fresh, err := hotkeys.NewDistinct(hotkeys.DistinctConfig{})
	if err != nil {
		panic(err) // the zero configuration is valid
	}
	d, _ := a.rules.LoadOrStore(name, fresh)
	return d.(*hotkeys.Distinct)
}

// keep drops the counters of rules that a set does not have.
func (a *active) keep(set *rules.Set) { keepRules(&a.rules, set) }

// keepRules drops from a map, whose keys are ruleNames, what is of rules that a set does not have. Buckets that callers name themselves
// are of no rule.
func keepRules(m *sync.Map, set *rules.Set) {
	m.Range(func(key, _ any) bool {
		if name := key.(ruleName); name != (ruleName{}) && set.Rule(name.domain, name.name) == nil {
			m.Delete(key)
		}
		return true
	})
}

// Active is the number of distinct buckets of one rule that were checked in the last minute or two, an
// estimate (hotkeys.Distinct).
type Active struct {
	Domain, Rule string // both empty for buckets that callers name themselves
	Buckets      uint64
}

// Active returns the active buckets by rule, sorted by name. Rules that were never checked are left out, and all
// rules on a direct store, where nothing follows the keys. It costs some microseconds per rule.
func (a *Agent) Active() []Active {
	var all []Active
	if a.desk == nil {
		return nil
	}
	now := a.desk.now()
	a.desk.active.rules.Range(func(key, value any) bool {
		name := key.(ruleName)
		all = append(all, Active{name.domain, name.name, value.(*hotkeys.Distinct).Count(now)})
		return true
	})
	slices.SortFunc(all, func(x, y Active) int { return cmp.Or(cmp.Compare(x.Domain, y.Domain), cmp.Compare(x.Rule, y.Rule)) })
	return all
}
