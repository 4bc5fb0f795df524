package rules

import (
	"slices"

	"github.com/spillgate/spillgate/internal/strictyaml"
)

// In this file is what is done once the rules are known: which of them replace others.

// reference is a name that a rule replaces, and where it stands.
type reference struct {
	rule *Rule
	name string
	at   pos
}

// readReplaces reads a list of names.
func (p *parser) readReplaces(r *Rule, f *field) {
	if f.Value.Kind != strictyaml.List {
		p.Failf(f.Pos(), `replaces is not a list of names of rules; write "replaces: [NAME]"`)
		return
	}
	for i := range f.Value.Items {
		v := &f.Value.Items[i]
		p.replaced(r, &field{Key: "replaces", KeyPos: v.Pos, Value: *v})
	}
}

// replaced takes up one name.
func (p *parser) replaced(r *Rule, f *field) {
	name := p.label(f, MaxName)
	switch {
	case name == "" || slices.Contains(r.Replaces, name):
		return
	case len(r.Replaces) == MaxReplaces:
		p.Failf(f.Pos(), "replaces has more than %d names", MaxReplaces)
		return
	}
	r.Replaces = append(r.Replaces, name)
	p.replaces = append(p.replaces, reference{r, name, f.Pos()})
}

// finish completes the rules of a file, and looks whether the names that they replace are there.
func (p *parser) finish() {
	labels := make(map[string]bool)
	for _, r := range p.rules {
		r.Empty = p.envoy
		if r.Label != "" {
			labels[r.Label] = true
		}
		for i := range r.Match {
			if r.Match[i].Fit != Exactly {
				r.Vary = append(r.Vary, i)
			}
		}
	}
	for _, ref := range p.replaces {
		switch {
		case ref.name == ref.rule.Name || ref.name == ref.rule.Label:
			p.Failf(ref.at, "replaces: a rule cannot replace itself, %s is its own name", strictyaml.Show(ref.name))
		case p.byName[ref.name] == nil && !labels[ref.name]:
			p.Failf(ref.at, "replaces: no rule is called %s", strictyaml.Show(ref.name))
		}
	}
}
