package rules

import (
	"slices"
	"strings"
	"unicode"

	"github.com/spillgate/spillgate/internal/strictyaml"
	"github.com/spillgate/spillgate/limit"
)

const (
	// MaxSize bounds a rules file, in bytes. strictyaml.MaxMarks bounds it too, to about
	// 32,000 rules in block style or 14,000 in JSON.
	MaxSize = 16 << 20
	// MaxName bounds domains, names of rules and keys of entries, in bytes.
	MaxName = 128
	// MaxValue bounds the values that rules match, in bytes.
	MaxValue = 1024
	// MaxMatch bounds the entries that a rule matches.
	MaxMatch = 16
	// MaxReplaces bounds the rules that a rule replaces.
	MaxReplaces = 64
)

// Fields of the mappings in a file. did-you-mean chooses from these lists.
var (
	fileFields  = []string{"domain", "rules", "matching"}
	ruleFields  = []string{"name", "match", "limit", "unlimited", "algorithm", "mode", "on_store_error", "deadline", "split", "shadow", "allowance", "label", "replaces"}
	matchFields = []string{"key", "value"}
	limitFields = []string{"requests", "per", "burst"}
)

// Parse compiles the text of a rules file. The file's name is only for
// messages. The error, if any, is of type Errors, and then there is no Set.
func Parse(file string, text []byte) (*Set, error) {
	p := &parser{
		File:   strictyaml.File{Package: "rules", Name: file, MaxSize: MaxSize},
		byName: make(map[string]*Rule),
		texts:  make(map[string]string),
	}
	if top := p.File.Parse(text); top != nil {
		p.top(top)
		p.finish()
	}
	if err := p.Err(); err != nil {
		return nil, err
	}
	return &Set{rules: p.rules, replaces: len(p.replaces) > 0,
		domains: map[string]*domain{p.domain: {root: p.root, byName: p.byName, envoy: p.envoy}}}, nil
}

// parser turns the values of a file into rules. It goes on after an error, to
// report all of them, and then nobody sees its rules.
type parser struct {
	strictyaml.File

	domain string
	rules  []*Rule
	begins []pos // where each of the rules begins in the text
	root   node
	byName map[string]*Rule
	texts  map[string]string // one copy of each text, so that rules do not keep the file's
	// envoy: matching is that of envoyproxy/ratelimit.
	envoy    bool
	replaces []reference
}

// Short names for what this package says a lot.
type (
	pos   = strictyaml.Pos
	value = strictyaml.Node
	field = strictyaml.Field
)

func (p *parser) top(v *value) {
	var name, rules *field
	switch {
	case v.Kind == strictyaml.Null:
		p.Failf(v.Pos, `the file is empty; write "domain:" and "rules:"`)
		return
	case v.Kind != strictyaml.Map:
		p.Failf(v.Pos, `a rules file is made of "domain: NAME" and "rules:"`)
		return
	case isEnvoy(v):
		p.envoyTop(v)
		return
	}
	for f := range p.Fields(v, "a rules file", fileFields) {
		switch f.Key {
		case "domain":
			name = f
		case "rules":
			rules = f
		case "matching":
			p.envoy = p.choose(f, "", "", "specific", "envoy") == "envoy"
		}
	}
	if name == nil {
		p.Failf(v.Pos, `no domain; write "domain: NAME", with the name that requests give`)
	} else {
		p.domain = p.label(name, MaxName)
	}
	switch {
	case rules == nil:
		p.Failf(v.Pos, `no rules; write "rules:" and a list, or "rules: []" for none`)
	case rules.Value.Kind != strictyaml.List:
		p.Failf(rules.Pos(), `rules is not a list; begin each rule with "- name:", or write "rules: []" for none`)
	default:
		for i := range rules.Value.Items {
			p.rule(&rules.Value.Items[i])
		}
	}
}

// rule reads one rule and adds it to the others.
func (p *parser) rule(v *value) {
	if v.Kind != strictyaml.Map {
		p.Failf(v.Pos, "a rule is made of fields: name, match, limit and others")
		return
	}
	r := &Rule{Rule: limit.Rule{Domain: p.domain}}
	p.rules, p.begins = append(p.rules, r), append(p.begins, v.Pos)
	var name, match, rate, unlimited, mode, allowance, policy *field
	for f := range p.Fields(v, "a rule", ruleFields) {
		switch f.Key {
		case "name":
			name = f
		case "match":
			match = f
		case "limit":
			rate = f
		case "unlimited":
			unlimited = f
			r.Unlimited = p.flag(f)
		case "mode":
			mode = f
		case "allowance":
			allowance = f
		case "on_store_error":
			policy = f
			p.policy(r, f)
		default:
			p.option(r, f)
		}
	}
	p.name(r, v, name)
	p.match(r, v, match)
	at := p.mode(r, mode, allowance)
	if a := r.Rate.Algorithm; a != limit.TokenBucket && r.OnStoreError == limit.Local {
		p.Failf(policy.Pos(), "on_store_error local is for token buckets, a %v has no shares; write open or closed", a)
	}
	switch {
	case rate != nil && r.Unlimited:
		p.Failf(unlimited.KeyPos, `a rule with a limit cannot be unlimited; remove "limit" or "unlimited"`)
	case rate != nil:
		if p.limit(r, rate) && r.Mode == limit.Optimistic {
			p.debt(r, at)
		}
	case !r.Unlimited:
		p.Failf(v.Pos, `a rule without a limit; add "limit: 100/s" or "unlimited: true"`)
	case r.Allowance > 0:
		p.Failf(at, "allowance: none goes with an unlimited rule; remove it")
	}
}

// name names the rule that v is.
func (p *parser) name(r *Rule, v *value, f *field) {
	if f == nil {
		p.Failf(v.Pos, `a rule without a name; add "name:", unique in the domain`)
		return
	}
	r.Name = p.label(f, MaxName)
	if r.Name == "" {
		return // reported
	}
	p.register(r, f.Value.Pos)
}

// register takes up a rule that has its name, which stands at a place.
func (p *parser) register(r *Rule, at pos) {
	r.Root = limit.AppendPart(limit.AppendPart(nil, r.Domain), r.Name)
	if first := p.byName[r.Name]; first != nil {
		p.Failf(at, "the rule in line %d is called %s too; give this one a name of its own", p.line(first), strictyaml.Show(r.Name))
		return
	}
	p.byName[r.Name] = r
}

// match reads the patterns of the rule that v is and puts it into the tree.
func (p *parser) match(r *Rule, v *value, f *field) {
	switch {
	case f == nil:
		p.Failf(v.Pos, `a rule without a match; add "match: [{key: NAME}]"`)
		return
	case f.Value.Kind != strictyaml.List || len(f.Value.Items) == 0:
		p.Failf(f.Pos(), `match is not a list with an entry or more; write "match: [{key: NAME}]"`)
		return
	case len(f.Value.Items) > MaxMatch:
		p.Failf(f.Value.Pos, "more than %d entries to match", MaxMatch)
		return
	}
	known := p.Count()
	r.Match = make([]Pattern, len(f.Value.Items))
	for i := range r.Match {
		r.Match[i] = p.pattern(&f.Value.Items[i])
	}
	if p.Count() > known {
		return
	}
	if same := p.root.insert(r); same != nil {
		p.Failf(f.Value.Pos, "the rule %s in line %d matches exactly the same; remove one, or make one more specific", strictyaml.Show(same.Name), p.line(same))
	}
}

// pattern reads one entry of a match.
func (p *parser) pattern(v *value) (pat Pattern) {
	if v.Kind != strictyaml.Map {
		p.Failf(v.Pos, `an entry to match is written {key: NAME} or {key: NAME, value: TEXT}`)
		return pat
	}
	keyed := false
	for f := range p.Fields(v, "an entry to match", matchFields) {
		switch f.Key {
		case "key":
			keyed = true
			pat.Key = p.label(f, MaxName)
		case "value":
			pat.Fit, pat.Value = p.fit(f)
		}
	}
	if !keyed {
		p.Failf(v.Pos, `an entry to match without a key; add "key:"`)
	}
	return pat
}

// fit reads the value of an entry to match.
func (p *parser) fit(f *field) (Fit, string) {
	if f.Value.Kind == strictyaml.Null {
		p.Failf(f.KeyPos, `value is null; leave it out for any value, each in its own bucket, or put "" or "null" in quotes`)
		return Any, ""
	}
	if f.Value.Kind == strictyaml.Quoted && f.Value.Text == "" {
		return Exactly, ""
	}
	text := p.label(f, MaxValue)
	prefix, wild := strings.CutSuffix(text, "*")
	switch {
	case !wild:
		return Exactly, text
	case strings.HasSuffix(prefix, `\`):
		p.Unsupported(f.Value.Pos, `a value that ends in \*`, `a star at the end stands for any rest and cannot be escaped; end the value before the backslash, as in "abc*"`)
		return Any, ""
	case prefix == "":
		return Any, ""
	}
	return Prefix, p.keep(prefix)
}

// line is where a rule begins.
func (p *parser) line(r *Rule) int { return int(p.begins[slices.Index(p.rules, r)].Line) }

// keep copies a text of the file.
func (p *parser) keep(text string) string {
	kept, ok := p.texts[text]
	if !ok {
		kept = strings.Clone(text)
		p.texts[kept] = kept
	}
	return kept
}

// label reads a text of at least one character and at most so many bytes, or
// reports what is wrong and returns "".
func (p *parser) label(f *field, most int) string {
	text := f.Value.Text
	switch {
	case f.Value.Kind == strictyaml.Null:
		p.Failf(f.KeyPos, "%s is null; write its text, in quotes if it is null", f.Key)
	case !f.Value.Scalar():
		p.Failf(f.Value.Pos, "%s is not a text; put it in quotes", f.Key)
	case text == "":
		p.Failf(f.Value.Pos, "%s is empty; write 1 to %d bytes", f.Key, most)
	case len(text) > most:
		p.Failf(f.Value.Pos, "%s has %d bytes; write at most %d", f.Key, len(text), most)
	case strings.ContainsFunc(text, unicode.IsControl):
		p.Failf(f.Value.Pos, "%s %s has a control character; remove it", f.Key, strictyaml.Show(text))
	default:
		return p.keep(text)
	}
	return ""
}
