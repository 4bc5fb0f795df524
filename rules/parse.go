package rules

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/spillgate/spillgate/limit"
)

const (
	// MaxSize bounds a rules file, in bytes: about 80,000 rules, which take
	// some 250 MB to read.
	MaxSize = 16 << 20
	// MaxName bounds domains, names of rules and keys of entries, in bytes.
	MaxName = 128
	// MaxValue bounds the values that rules match, in bytes.
	MaxValue = 1024
	// MaxMatch bounds the entries that a rule matches.
	MaxMatch = 16
)

// Fields of the mappings in a file. did-you-mean chooses from these lists.
var (
	fileFields  = []string{"domain", "rules"}
	ruleFields  = []string{"name", "match", "limit", "unlimited", "algorithm", "mode", "on_store_error", "deadline", "split", "shadow", "allowance"}
	matchFields = []string{"key", "value"}
	limitFields = []string{"requests", "per", "burst"}
)

// Parse compiles the text of a rules file. The file's name is only for
// messages. The error, if any, is of type Errors, and then there is no Set.
func Parse(file string, text []byte) (*Set, error) {
	p := &parser{file: file, byName: make(map[string]*Rule), texts: make(map[string]string)}
	if len(text) > MaxSize {
		p.failf(0, "the file has more than %d bytes; split it", MaxSize)
		return nil, p.errs
	}
	p.text = strings.TrimPrefix(string(text), "\ufeff")
	top, err := read(p.text)
	var syntax *problem
	if errors.As(err, &syntax) {
		p.failf(syntax.pos, "%s", syntax.message)
		return nil, p.errs
	}
	p.top(&top)
	if len(p.errs) > 0 {
		p.errs.sort()
		if p.more != nil {
			p.errs = append(p.errs, p.more)
		}
		return nil, p.errs
	}
	return &Set{rules: p.rules, domains: map[string]*domain{p.domain: {root: p.root, byName: p.byName}}}, nil
}

// parser turns the values of a file into rules. It goes on after an error, to
// report all of them, and then nobody sees its rules.
type parser struct {
	file, text string
	errs       Errors
	more       *Error // where errs was full

	domain string
	rules  []*Rule
	begins []int // where each of the rules begins in the text
	root   node
	byName map[string]*Rule
	texts  map[string]string // one copy of each text, so that rules do not keep the file's
}

func (p *parser) failf(pos int, format string, args ...any) {
	switch {
	case len(p.errs) < maxErrors-1:
		p.errs = append(p.errs, newError(p.file, p.text, pos, fmt.Sprintf(format, args...)))
	case p.more == nil:
		p.more = newError(p.file, p.text, pos, "too many problems; from here on they are not shown")
	}
}

// place is where a message about a field's value points.
func (f *kid) place() int {
	if f.value.kind == kindNull {
		return f.keyPos
	}
	return f.value.pos
}

// unknown reports a field that is none of the known ones.
func (p *parser) unknown(f *kid, of string, known []string) {
	hint := didYouMean(f.key, known)
	if hint == "" {
		hint = "; the fields are " + strings.Join(known, ", ")
	}
	p.failf(f.keyPos, "unknown field %s in %s%s", show(f.key), of, hint)
}

// later reports what INTERFACE names and this version does not do.
func (p *parser) later(pos int, what, instead string) {
	p.failf(pos, "%s is not supported in this version; %s", what, instead)
}

func (p *parser) top(v *value) {
	var name, rules *kid
	if v.kind != kindMap {
		p.failf(v.pos, `a rules file is made of "domain: NAME" and "rules:"`)
		return
	}
	for i := range v.kids {
		switch f := &v.kids[i]; f.key {
		case "domain":
			name = f
		case "rules":
			rules = f
		case "descriptors":
			p.later(f.keyPos, `"descriptors", the form of envoyproxy/ratelimit,`,
				`write "rules:" and a list of rules, each with name, match and limit`)
			return
		default:
			p.unknown(f, "a rules file", fileFields)
		}
	}
	if name == nil {
		p.failf(v.pos, `no domain; write "domain: NAME", with the name that requests give`)
	} else {
		p.domain = p.label(name, MaxName)
	}
	switch {
	case rules == nil:
		p.failf(v.pos, `no rules; write "rules:" and a list, or "rules: []" for none`)
	case rules.value.kind != kindList:
		p.failf(rules.place(), `rules is not a list; begin each rule with "- name:", or write "rules: []" for none`)
	default:
		for i := range rules.value.kids {
			p.rule(&rules.value.kids[i].value)
		}
	}
}

// rule reads one rule and adds it to the others.
func (p *parser) rule(v *value) {
	if v.kind != kindMap {
		p.failf(v.pos, "a rule is made of fields: name, match, limit and others")
		return
	}
	r := &Rule{Rule: limit.Rule{Domain: p.domain}}
	p.rules, p.begins = append(p.rules, r), append(p.begins, v.pos)
	var name, match, rate, unlimited *kid
	for i := range v.kids {
		switch f := &v.kids[i]; f.key {
		case "name":
			name = f
		case "match":
			match = f
		case "limit":
			rate = f
		case "unlimited":
			unlimited = f
			r.Unlimited = p.flag(f)
		default:
			p.option(r, f)
		}
	}
	p.name(r, v, name)
	p.match(r, v, match)
	switch {
	case rate != nil && r.Unlimited:
		p.failf(unlimited.keyPos, `a rule with a limit cannot be unlimited; remove "limit" or "unlimited"`)
	case rate != nil:
		p.limit(r, rate)
	case !r.Unlimited:
		p.failf(v.pos, `a rule without a limit; add "limit: 100/s" or "unlimited: true"`)
	}
}

// name names the rule that v is.
func (p *parser) name(r *Rule, v *value, f *kid) {
	if f == nil {
		p.failf(v.pos, `a rule without a name; add "name:", unique in the domain`)
		return
	}
	r.Name = p.label(f, MaxName)
	if r.Name == "" {
		return // reported
	}
	if first := p.byName[r.Name]; first != nil {
		p.failf(f.value.pos, "the rule in line %d is called %s too; give this one a name of its own", p.line(first), show(r.Name))
		return
	}
	p.byName[r.Name] = r
}

// match reads the patterns of the rule that v is and puts it into the tree.
func (p *parser) match(r *Rule, v *value, f *kid) {
	switch {
	case f == nil:
		p.failf(v.pos, `a rule without a match; add "match: [{key: NAME}]"`)
		return
	case f.value.kind != kindList || len(f.value.kids) == 0:
		p.failf(f.place(), `match is not a list with an entry or more; write "match: [{key: NAME}]"`)
		return
	case len(f.value.kids) > MaxMatch:
		p.failf(f.value.pos, "more than %d entries to match", MaxMatch)
		return
	}
	known := len(p.errs)
	r.Match = make([]Pattern, len(f.value.kids))
	for i := range r.Match {
		r.Match[i] = p.pattern(&f.value.kids[i].value)
		if r.Match[i].Fit != Exactly {
			r.Vary = append(r.Vary, i)
		}
	}
	if len(p.errs) > known {
		return
	}
	if same := p.root.insert(r); same != nil {
		p.failf(f.value.pos, "the rule %s in line %d matches exactly the same; remove one, or make one more specific", show(same.Name), p.line(same))
	}
}

// pattern reads one entry of a match.
func (p *parser) pattern(v *value) (pat Pattern) {
	if v.kind != kindMap {
		p.failf(v.pos, `an entry to match is written {key: NAME} or {key: NAME, value: TEXT}`)
		return pat
	}
	keyed := false
	for i := range v.kids {
		switch f := &v.kids[i]; f.key {
		case "key":
			keyed = true
			pat.Key = p.label(f, MaxName)
		case "value":
			pat.Fit, pat.Value = p.fit(f)
		default:
			p.unknown(f, "an entry to match", matchFields)
		}
	}
	if !keyed {
		p.failf(v.pos, `an entry to match without a key; add "key:"`)
	}
	return pat
}

// fit reads the value of an entry to match.
func (p *parser) fit(f *kid) (Fit, string) {
	if f.value.kind == kindNull {
		p.failf(f.keyPos, `value is null; leave it out for any value, each in its own bucket, or put "" or "null" in quotes`)
		return Any, ""
	}
	if f.value.kind == kindQuoted && f.value.text == "" {
		return Exactly, ""
	}
	text := p.label(f, MaxValue)
	prefix, wild := strings.CutSuffix(text, "*")
	switch {
	case !wild:
		return Exactly, text
	case strings.HasSuffix(prefix, `\`):
		p.later(f.value.pos, `a value that ends in \*`, `a star at the end stands for any rest and cannot be escaped; end the value before the backslash, as in "abc*"`)
		return Any, ""
	case prefix == "":
		return Any, ""
	}
	return Prefix, p.keep(prefix)
}

// line is where a rule begins.
func (p *parser) line(r *Rule) int { return lineAt(p.text, p.begins[slices.Index(p.rules, r)]) }

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
func (p *parser) label(f *kid, most int) string {
	text := f.value.text
	switch {
	case f.value.kind == kindNull:
		p.failf(f.keyPos, "%s is null; write its text, in quotes if it is null", f.key)
	case f.value.kind > kindQuoted:
		p.failf(f.value.pos, "%s is not a text; put it in quotes", f.key)
	case text == "":
		p.failf(f.value.pos, "%s is empty; write 1 to %d bytes", f.key, most)
	case len(text) > most:
		p.failf(f.value.pos, "%s has %d bytes; write at most %d", f.key, len(text), most)
	case strings.ContainsFunc(text, unicode.IsControl):
		p.failf(f.value.pos, "%s %s has a control character; remove it", f.key, show(text))
	default:
		return p.keep(text)
	}
	return ""
}
