package agent

import "github.com/spillgate/spillgate/rules"

// In this file is what a rule does that replaces others: they do not count for the descriptors of the same request.

// replace collects the names that the rules of a request replace.
func (b *Batch) replace(set *rules.Set, domain string, ds []rules.Descriptor, overrides []Override) {
	if b.replaced == nil {
		b.replaced = make(map[string]bool)
	}
	clear(b.replaced)
	for i, d := range ds {
		if overrides != nil && overrides[i].limits() {
			continue
		}
		if rule := set.Match(domain, d); rule != nil && !rule.Shadow { // a shadow changes no answer
			for _, name := range rule.Replaces {
				b.replaced[name] = true
			}
		}
	}
}

// isReplaced reports whether the rule of the i-th descriptor does not count.
func (b *Batch) isReplaced(rule *rules.Rule, i int, overrides []Override) bool {
	return rule != nil && (b.replaced[rule.Name] || b.replaced[rule.Label]) && (overrides == nil || !overrides[i].limits())
}
