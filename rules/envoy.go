package rules

import (
	"errors"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/spillgate/spillgate/internal/strictyaml"
	"github.com/spillgate/spillgate/limit"
)

// In this file is how a configuration file of envoyproxy/ratelimit becomes rules: a tree of descriptors
// instead of a list, of which each node with a rate_limit, and each leaf without one, is a rule.

// Fields of the mappings in such a file. The last ones of a line are known and refused, see unsupported.
var (
	envoyFields      = []string{"domain", "descriptors"}
	descriptorFields = []string{"key", "value", "rate_limit", "descriptors", "shadow_mode", "detailed_metric", "value_to_metric", "share_threshold", "quota_mode"}
	rateLimitFields  = []string{"unit", "requests_per_unit", "unlimited", "name", "replaces", "unit_multiplier", "algorithm"}
	replacesFields   = []string{"name"}
)

// unsupported says what to do instead of using a feature of envoyproxy/ratelimit that there is not.
var unsupported = map[string]string{
	"detailed_metric": "remove it: metrics tell rules apart, and not values",
	"value_to_metric": "remove it: metrics tell rules apart, and not values",
	"share_threshold": "remove it and each value has a bucket of its own, or have the caller send one value for all of them",
	"quota_mode":      "remove it and the rule denies",
	"unit_multiplier": `write the limit in a file of rules, such as "limit: 100/30s"; rules lint --as-native makes one`,
	"algorithm":       "remove it",
}

// envoyUnits are the periods of envoyproxy/ratelimit. They have a fixed length.
var envoyUnits = map[string]time.Duration{"second": time.Second, "minute": time.Minute, "hour": time.Hour, "day": day,
	"week": 7 * day, "month": 30 * day, "year": 365 * day}

// EnvoyUnit is the period with that name in envoyproxy/ratelimit, in any case: SECOND to YEAR. A month has 30 days, a year 365.
func EnvoyUnit(name string) (period time.Duration, ok bool) {
	period, ok = envoyUnits[strings.ToLower(name)]
	return period, ok
}

// isEnvoy reports whether a file has the shape of envoyproxy/ratelimit's.
func isEnvoy(v *value) bool {
	return slices.ContainsFunc(v.Fields, func(f field) bool { return f.Key == "descriptors" })
}

// envoyTop reads a whole file.
func (p *parser) envoyTop(v *value) {
	p.envoy = true
	var name, descriptors *field
	for f := range p.Fields(v, "a file of envoyproxy/ratelimit (with descriptors)", envoyFields) {
		switch f.Key {
		case "domain":
			name = f
		case "descriptors":
			descriptors = f
		}
	}
	if name == nil {
		p.Failf(v.Pos, `no domain; write "domain: NAME", with the name that requests give`)
	} else {
		p.domain = p.label(name, MaxName)
	}
	p.descriptors(descriptors, nil)
}

// descriptors reads the nodes below one, which is reached by the patterns above.
func (p *parser) descriptors(f *field, above []Pattern) {
	if f.Value.Kind != strictyaml.List {
		p.Failf(f.Pos(), `descriptors is not a list; begin each descriptor with "- key:"`)
		return
	}
	if len(above) == MaxMatch && len(f.Value.Items) > 0 {
		p.Failf(f.KeyPos, "descriptors nest more than %d deep", MaxMatch)
		return
	}
	among := siblings{seen: make(map[Pattern]pos, len(f.Value.Items)), sizes: make(map[string][]int)}
	for i := range f.Value.Items {
		p.descriptor(&f.Value.Items[i], above, &among)
	}
}

// descriptor reads a node and all that is below it.
func (p *parser) descriptor(v *value, above []Pattern, among *siblings) {
	if v.Kind != strictyaml.Map {
		p.Failf(v.Pos, "a descriptor is made of fields: key, value, rate_limit and others")
		return
	}
	pat := Pattern{}
	var keyed, shadow, bad bool
	var rate, below *field
	for f := range p.Fields(v, "a descriptor", descriptorFields) {
		known := p.Count()
		switch f.Key {
		case "key":
			keyed = true
			pat.Key = p.label(f, MaxName)
			bad = bad || p.Count() > known
		case "value":
			pat.Fit, pat.Value = p.envoyValue(f)
			bad = bad || p.Count() > known
		case "rate_limit":
			rate = f
		case "descriptors":
			below = f
		case "shadow_mode":
			if shadow = p.flag(f); shadow && !slices.ContainsFunc(v.Fields, func(f field) bool { return f.Key == "rate_limit" }) {
				p.Failf(f.KeyPos, "shadow_mode belongs to a rate_limit, and here is none; those of the descriptors below need their own")
			}
		default:
			p.refuse(f)
		}
	}
	if !keyed {
		p.Failf(v.Pos, `a descriptor without a key; add "key:"`)
	}
	if bad || !keyed || !among.add(p, pat, v.Pos) {
		return // of what belongs to it no more can be said before that is known
	}
	if pat.Fit == Prefix && pat.Value == "" {
		pat.Fit = Any
	}
	path := append(slices.Clip(above), pat)
	if rate != nil || below == nil || below.Value.Kind == strictyaml.List && len(below.Value.Items) == 0 {
		r := &Rule{Rule: limit.Rule{Domain: p.domain, Shadow: shadow}, Match: path}
		p.rules, p.begins = append(p.rules, r), append(p.begins, v.Pos)
		if rate == nil {
			r.Unlimited = true
		} else {
			p.rateLimit(r, rate)
		}
		r.Name = p.keep(pathName(path))
		p.register(r, v.Pos)
		p.root.insert(r) // its siblings have other patterns
	}
	if below != nil {
		p.descriptors(below, path)
	}
}

// refuse refuses a feature that there is not, unless it is switched off.
func (p *parser) refuse(f *field) {
	if f.Value.Kind == strictyaml.Plain && f.Value.Text == "false" {
		return
	}
	p.Unsupported(f.KeyPos, f.Key, unsupported[f.Key])
}

// envoyValue reads the value of a descriptor as it is written: a lone star is a Prefix of nothing. Without a text it is Any.
func (p *parser) envoyValue(f *field) (Fit, string) {
	switch {
	case f.Value.Kind == strictyaml.Null:
		p.Failf(f.KeyPos, `value is null; leave it out for any value, each in its own bucket, or put "null" in quotes`)
		return Any, ""
	case f.Value.Kind == strictyaml.Quoted && f.Value.Text == "":
		return Any, ""
	}
	text := p.label(f, MaxValue)
	prefix, wild := strings.CutSuffix(text, "*")
	switch {
	case strings.Contains(prefix, "*"):
		p.Unsupported(f.Value.Pos, "a star inside a value", "end the value with the first star")
		return Any, ""
	case wild && strings.HasSuffix(prefix, `\`):
		p.Unsupported(f.Value.Pos, `a value that ends in \*`, "end it before the backslash")
		return Any, ""
	case wild:
		return Prefix, p.keep(prefix)
	}
	return Exactly, text
}

// rateLimit reads the rate_limit of a descriptor.
func (p *parser) rateLimit(r *Rule, f *field) {
	if f.Value.Kind != strictyaml.Map {
		p.Failf(f.Pos(), "rate_limit is not made of fields: unit and requests_per_unit, or unlimited")
		return
	}
	known := p.Count()
	var unit, requests, unlimited *field
	for g := range p.Fields(&f.Value, "a rate_limit", rateLimitFields) {
		switch g.Key {
		case "unit":
			unit = g
			r.Rate.Period = p.envoyUnit(g)
		case "requests_per_unit":
			requests = g
			r.Rate.Requests = p.tokens(g)
		case "unlimited":
			unlimited = g
			r.Unlimited = p.flag(g)
		case "name":
			r.Label = p.label(g, MaxName)
		case "replaces":
			p.envoyReplaces(r, g)
		default:
			p.refuse(g)
		}
	}
	switch {
	case r.Unlimited && (unit != nil || requests != nil):
		p.Failf(unlimited.KeyPos, "a rate_limit that is unlimited has neither unit nor requests_per_unit; remove them, or unlimited")
	case r.Unlimited:
	case unit == nil:
		p.Failf(f.Value.Pos, `a rate_limit without a unit; add "unit: second"`)
	case requests == nil:
		p.Failf(f.Value.Pos, `a rate_limit without requests_per_unit; add it (0 denies everything)`)
	case p.Count() > known:
	case r.Rate.Requests < 0 || r.Rate.Requests > math.MaxUint32:
		p.Failf(requests.Value.Pos, "requests_per_unit: %d is not between 0 and %d", r.Rate.Requests, uint32(math.MaxUint32))
	default:
		var err error
		var field *limit.FieldError
		if r.Terms, err = r.Rate.Terms(); errors.As(err, &field) {
			p.Failf(requests.Value.Pos, "requests_per_unit: %s", field.Problem)
		}
	}
}

// envoyUnit reads a unit.
func (p *parser) envoyUnit(f *field) time.Duration {
	period, ok := EnvoyUnit(f.Value.Text)
	if !f.Value.Scalar() || !ok {
		words := []string{"second", "minute", "hour", "day", "week", "month", "year"}
		p.Failf(f.Pos(), "unit %s is not %s%s", strictyaml.Show(f.Value.Text), strings.Join(words, " or "), strictyaml.DidYouMean(f.Value.Text, words))
	}
	return period
}

// envoyReplaces reads a list of {name: NAME}.
func (p *parser) envoyReplaces(r *Rule, f *field) {
	if f.Value.Kind != strictyaml.List {
		p.Failf(f.Pos(), `replaces is not a list; write "replaces: [{name: NAME}]"`)
		return
	}
	for i := range f.Value.Items {
		v := &f.Value.Items[i]
		if v.Kind != strictyaml.Map || len(v.Fields) == 0 {
			p.Failf(v.Pos, "what is replaced is written {name: NAME}")
			continue
		}
		for g := range p.Fields(v, "what is replaced", replacesFields) {
			p.replaced(r, g)
		}
	}
}

// siblings are the nodes that have one parent.
type siblings struct {
	seen  map[Pattern]pos
	sizes map[string][]int // by key, the lengths of the wildcards
}

// add takes up a node, and refuses what can never match beside the others. There, the first wildcard of the file counts, here the
// longest. It reports whether the node may stay.
func (s *siblings) add(p *parser, pat Pattern, at pos) bool {
	if first, twice := s.seen[pat]; twice {
		p.Failf(at, "the descriptor in line %d has the same key and value; remove one", first.Line)
		return false
	}
	s.seen[pat] = at
	star, any := Pattern{pat.Key, Prefix, ""}, Pattern{pat.Key, Any, ""}
	if pat == any || pat == star {
		other := star
		if pat == star {
			other = any
		}
		if first, both := s.seen[other]; both {
			p.Failf(at, `without a value and with the value "*" mean the same; remove this descriptor or the one in line %d`, first.Line)
			return false
		}
	}
	if pat.Fit != Prefix {
		return true
	}
	for _, size := range s.sizes[pat.Key] {
		if size > len(pat.Value) {
			continue
		}
		if first, hides := s.seen[Pattern{pat.Key, Prefix, pat.Value[:size]}]; hides && size < len(pat.Value) {
			p.Failf(at, "the wildcard in line %d stands before this one and fits all that it does, so it would never count; move this one up", first.Line)
			return false
		}
	}
	if !slices.Contains(s.sizes[pat.Key], len(pat.Value)) {
		s.sizes[pat.Key] = append(s.sizes[pat.Key], len(pat.Value))
	}
	return true
}
