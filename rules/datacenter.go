package rules

import (
	"errors"
	"fmt"

	"github.com/spillgate/spillgate/limit"
)

// ForDatacenter is what one of several data centers enforces of the set, each with a store of its own: of every limit the portion
// share * (1 + headroom), but at most all of it (limit.Portion, limit.Rate.Scale). With all of it that is the set itself.
//
// Rules keep their names and so their buckets. An allowance is scaled as the burst is. Unlimited rules and limits of 0 stay as they are.
//
// The error names share or headroom, where one is out of range, or the rules of which the portion is too slow to be counted. It costs
// some microseconds for each rule.
func (s *Set) ForDatacenter(share, headroom float64) (*Set, error) {
	portion, err := limit.Portion(share, headroom)
	if err != nil {
		return nil, fmt.Errorf("rules: %w", err)
	}
	if s == nil || portion.Num == portion.Den {
		return s, nil
	}
	here := *s
	here.rules, here.domains = make([]*Rule, len(s.rules)), make(map[string]*domain, len(s.domains))
	for name, of := range s.domains {
		d := *of
		d.root, d.byName = node{}, make(map[string]*Rule, len(of.byName))
		here.domains[name] = &d
	}
	var tooSlow []error
	for i, written := range s.rules {
		r, err := written.scale(portion)
		if err != nil {
			tooSlow = append(tooSlow, fmt.Errorf("rules: the rule %q: %w; write a faster limit, or enlarge the data center's share", r.Name, err))
			continue
		}
		of := here.domains[r.Domain]
		of.byName[r.Name] = r
		of.root.insert(r)
		here.rules[i] = r
	}
	if err := errors.Join(tooSlow...); err != nil {
		return nil, err
	}
	return &here, nil
}

// scale is the portion of a rule.
func (r *Rule) scale(portion limit.Fraction) (*Rule, error) {
	here := *r
	here.Whole = r
	if r.Terms == nil {
		return &here, nil
	}
	if r.Allowance > 0 {
		here.Allowance = portion.AtLeastOne(r.Allowance)
		here.Rate.Debt = here.Allowance * limit.MaxAgents
	}
	var err error
	if here.Rate, err = here.Rate.Scale(portion); err == nil {
		here.Terms, err = here.Rate.Terms()
	}
	return &here, err
}

// Written is the rule as it is in its file: of one that ForDatacenter has scaled, the whole.
func (r *Rule) Written() *Rule {
	if r.Whole != nil {
		return r.Whole
	}
	return r
}
