package rules

import (
	"fmt"

	"github.com/spillgate/spillgate/internal/strictyaml"
)

// MostCandidates bounds the candidates of an Explanation, of each kind.
const MostCandidates = 10

// Explanation says which rule applies to a descriptor, and why none of the others does.
type Explanation struct {
	// Rule that applies; nil if none does.
	Rule *Rule
	// Fits are the other rules that fit, in the order of the file, and Near those that fail in one point. MoreFits and MoreNear count
	// those beyond MostCandidates.
	Fits, Near         []Candidate
	MoreFits, MoreNear int
}

// Candidate is a rule that does not apply.
type Candidate struct {
	Rule *Rule
	// Why it does not.
	Why string
}

// Explain is Match with reasons, for people: it looks at every rule.
func (s *Set) Explain(domain string, d Descriptor) (e Explanation) {
	if s == nil || s.domains[domain] == nil {
		return e
	}
	e.Rule = s.Match(domain, d)
	for _, r := range s.rules {
		if r == e.Rule || r.Domain != domain {
			continue
		}
		why, fits := r.misses(d)
		switch {
		case fits:
			e.Fits, e.MoreFits = take(e.Fits, e.MoreFits, Candidate{r, s.domains[domain].lost(r, e.Rule, d)})
		case why != "":
			e.Near, e.MoreNear = take(e.Near, e.MoreNear, Candidate{r, why})
		}
	}
	return e
}

func take(all []Candidate, more int, c Candidate) ([]Candidate, int) {
	if len(all) == MostCandidates {
		return all, more + 1
	}
	return append(all, c), more
}

// fits reports whether the i-th pattern fits a value.
func (r *Rule) fits(i int, value string) bool {
	return r.Match[i].Fits(value) || r.Empty && r.Match[i].Fit == Any
}

// misses says in which point a rule does not fit a descriptor, if it is only one.
func (r *Rule) misses(d Descriptor) (why string, fits bool) {
	wrong, keys := 0, 0
	for i := range min(len(r.Match), len(d)) {
		p, e := r.Match[i], d[i]
		switch {
		case p.Key != e.Key:
			keys++
			why = fmt.Sprintf("its entry %d is %s, not %s", i+1, strictyaml.Show(p.Key), strictyaml.Show(e.Key))
		case r.fits(i, e.Value):
			continue
		case e.Value == "":
			why = fmt.Sprintf("entry %d: the value is empty, and the pattern %s fits none such", i+1, p)
		default:
			why = fmt.Sprintf("entry %d: the value %s does not fit %s", i+1, strictyaml.Show(e.Value), p)
		}
		wrong++
	}
	switch {
	case len(r.Match) == len(d) && keys > 0 && r.hasKeysOf(d):
		return "the same keys in another order", false
	case wrong > 1 || wrong == 1 && len(r.Match) != len(d):
		return "", false
	case len(r.Match) != len(d):
		return fmt.Sprintf("its number of entries is %d, not %d", len(r.Match), len(d)), false
	}
	return why, wrong == 0
}

// hasKeysOf reports whether a rule has the keys of a descriptor, in some order.
func (r *Rule) hasKeysOf(d Descriptor) bool {
	count := make(map[string]int)
	for i := range d {
		count[d[i].Key]++
		count[r.Match[i].Key]--
	}
	for _, n := range count {
		if n != 0 {
			return false
		}
	}
	return true
}

// lost says why a rule that fits is not the one that applies.
func (of *domain) lost(r, applies *Rule, d Descriptor) string {
	if applies == nil { // only where there is no way back
		n := &of.root
		for i := range d {
			b := n.next[d[i].Key]
			chosen := b.choose(d[i].Value)
			if p := r.Match[i]; chosen != b.find(p) {
				return fmt.Sprintf("entry %d: a more specific one than %s fits the value, and here only that is followed (matching: envoy)", i+1, p)
			}
			n = chosen
		}
	}
	for i, p := range r.Match {
		if q := applies.Match[i]; p != q {
			return fmt.Sprintf("entry %d: %s is more specific than %s", i+1, q, p)
		}
	}
	panic(fmt.Sprintf("rules: two rules match the same: %s and %s", r.Name, applies.Name)) // insert refuses that
}

// find is the node behind a pattern, nil if there is none.
func (b *branch) find(p Pattern) *node {
	switch p.Fit {
	case Exactly:
		return b.exact[p.Value]
	case Prefix:
		return b.prefix[p.Value]
	}
	return b.any
}
