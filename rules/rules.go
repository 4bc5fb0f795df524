package rules

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spillgate/spillgate/internal/strictyaml"
	"github.com/spillgate/spillgate/limit"
)

// Entry is a key and value of a request's descriptor.
type Entry struct{ Key, Value string }

// Descriptor is an ordered list of entries, as in Envoy's rate limit service.
type Descriptor []Entry

// Rule is a limit.Rule and what it applies to. Immutable.
type Rule struct {
	limit.Rule
	// Match has a pattern for each entry of the descriptors that the rule applies to, at least one.
	Match []Pattern
	// Vary are the positions of the entries whose values tell the rule's buckets
	// apart, ascending: those of the Any and Prefix patterns. Without any, all
	// requests of the rule share one bucket.
	Vary []int
	// Root begins the ids of the rule's buckets: domain and name, as limit.AppendPart writes them. The values
	// that Vary points to follow.
	Root []byte
	// NoSplit forbids to divide a viral bucket of the rule (split: off).
	NoSplit bool
	// Whole is the rule of which this is a data center's portion; nil if it is the rule as written. See Written.
	Whole *Rule
	// Empty says that an Any pattern of the rule fits the empty value too: its domain matches as
	// envoyproxy/ratelimit does.
	Empty bool
	// Label is another name, by which other rules may replace this one; "" for none. Several may share it.
	Label string
	// Replaces are names and labels of rules that do not count for a request to which this one applies.
	Replaces []string
}

// Fit is how a pattern compares values. The zero value is Any.
type Fit uint8

const (
	// Any fits every value but the empty one.
	Any Fit = iota
	// Prefix fits every value that begins with the pattern's, and so never the empty one.
	Prefix
	// Exactly fits the pattern's value, which may be empty.
	Exactly
)

// Pattern is what a rule asks of one entry of a descriptor.
type Pattern struct {
	Key string
	Fit Fit
	// Value to compare with; of a Prefix without the star, and never empty; "" with Any.
	Value string
}

// Fits reports whether the value of an entry with the pattern's key fits. Where domains match as
// envoyproxy/ratelimit does, Any fits the empty value too (Rule.Empty).
func (p Pattern) Fits(value string) bool {
	switch p.Fit {
	case Exactly:
		return value == p.Value
	case Prefix:
		return strings.HasPrefix(value, p.Value)
	}
	return value != ""
}

// String is the pattern in short: key, key=value or key=prefix*.
func (p Pattern) String() string {
	switch p.Fit {
	case Exactly:
		return p.Key + "=" + p.Value
	case Prefix:
		return p.Key + "=" + p.Value + "*"
	}
	return p.Key
}

// Set is an immutable, compiled rule set, safe for use by many goroutines. A
// nil Set has no rules and matches nothing, and so does the zero value.
type Set struct {
	rules   []*Rule
	domains map[string]*domain
	// replaces: some rule replaces others.
	replaces bool
}

// domain has the rules of one domain. A file has one; a Set is ready for more.
type domain struct {
	root   node
	byName map[string]*Rule
	// envoy: matching is that of envoyproxy/ratelimit, see node.follow.
	envoy bool
}

func (of *domain) match(d Descriptor) *Rule {
	if of.envoy {
		return of.root.follow(d)
	}
	return of.root.match(d)
}

// Match is the most specific rule for a descriptor, or nil if none applies.
//
// Hot path: 0 allocations, no lock, 1 + 2 map look-ups for each entry; more only where
// several patterns fit one value.
func (s *Set) Match(domain string, d Descriptor) *Rule {
	if s == nil {
		return nil
	}
	of := s.domains[domain]
	if of == nil {
		return nil
	}
	return of.match(d)
}

// Replaces reports whether some rule of the set replaces others. Without one, nobody needs to look.
func (s *Set) Replaces() bool { return s != nil && s.replaces }

// Rule is the rule of that name, or nil.
func (s *Set) Rule(domain, name string) *Rule {
	if s == nil {
		return nil
	}
	of := s.domains[domain]
	if of == nil {
		return nil
	}
	return of.byName[name]
}

// Has reports whether the set knows a domain.
func (s *Set) Has(domain string) bool { return s != nil && s.domains[domain] != nil }

// Rules are all rules in the order of the file. The slice is the caller's.
func (s *Set) Rules() []*Rule {
	if s == nil {
		return nil
	}
	return slices.Clone(s.rules)
}

// Len is the number of rules.
func (s *Set) Len() int {
	if s == nil {
		return 0
	}
	return len(s.rules)
}

// Load reads and parses the file at path. Errors in it are Errors, as
// with Parse; what keeps it from being read is an *os.PathError inside.
func Load(path string) (*Set, error) {
	text, err := strictyaml.ReadFile(path, MaxSize)
	if err != nil {
		return nil, fmt.Errorf("rules: %w", err)
	}
	return Parse(path, text)
}
