package rules

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spillgate/spillgate/limit"
)

// describe is a rule in one line.
func describe(r *Rule) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%q %q", r.Domain, r.Name)
	for _, p := range r.Match {
		fmt.Fprintf(&b, " [%s]", p)
	}
	fmt.Fprintf(&b, " vary %v", r.Vary)
	switch {
	case r.Unlimited:
		b.WriteString(" unlimited")
	case r.Terms == nil:
		b.WriteString(" denies all")
	case r.Rate.Algorithm != limit.TokenBucket:
		fmt.Fprintf(&b, " %d per %v %v", r.Terms.Burst, r.Terms.Class.Window, r.Terms.Algorithm)
	default:
		fmt.Fprintf(&b, " %d per %v burst %d", r.Rate.Requests, r.Rate.Period, r.Terms.Burst)
	}
	fmt.Fprintf(&b, " %v", r.Mode)
	if r.Allowance > 0 {
		fmt.Fprintf(&b, " allowance %d", r.Allowance)
	}
	if r.HasPolicy {
		fmt.Fprintf(&b, " %v", r.OnStoreError)
	}
	if r.Deadline > 0 {
		fmt.Fprintf(&b, " deadline %v", r.Deadline)
	}
	if r.NoSplit {
		b.WriteString(" unsplit")
	}
	if r.Shadow {
		b.WriteString(" shadow")
	}
	if r.Empty {
		b.WriteString(" empty too")
	}
	if r.Label != "" {
		fmt.Fprintf(&b, " label %q", r.Label)
	}
	if r.Replaces != nil {
		fmt.Fprintf(&b, " replaces %q", r.Replaces)
	}
	return b.String()
}

func mustParse(t testing.TB, text string) *Set {
	t.Helper()
	s, err := Parse("test.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// d makes a descriptor of keys and values in turn.
func d(words ...string) Descriptor {
	var all Descriptor
	for i := 0; i < len(words); i += 2 {
		all = append(all, Entry{words[i], words[i+1]})
	}
	return all
}

func TestMatch(t *testing.T) {
	s := mustParse(t, `
domain: api
rules:
  - {name: user,          match: [{key: user}], limit: 1/s}
  - {name: no user,       match: [{key: user, value: ""}], limit: 1/s}
  - {name: alice,         match: [{key: user, value: alice}], limit: 1/s}
  - {name: path,          match: [{key: path}], limit: 1/s}
  - {name: path /v*,      match: [{key: path, value: /v*}], limit: 1/s}
  - {name: path /v1/*,    match: [{key: path, value: /v1/*}], limit: 1/s}
  - {name: path /v1/pay,  match: [{key: path, value: /v1/pay}], limit: 1/s}
  - {name: pay user,      match: [{key: path, value: /v1/pay}, {key: user}], limit: 1/s}
  - {name: v1 alice,      match: [{key: path, value: /v1/*}, {key: user, value: alice}], limit: 1/s}
  - {name: any bob,       match: [{key: path}, {key: user, value: bob}], limit: 1/s}
  - {name: exact x,       match: [{key: path, value: /x}, {key: user, value: a*}], limit: 1/s}
  - {name: star,          match: [{key: star, value: a*b}], limit: 1/s}
  - {name: 2 stars,       match: [{key: star, value: a**}], limit: 1/s}
  - {name: joined 1,      match: [{key: a, value: b_c}, {key: k, value: x}], limit: 1/s}
  - {name: joined 2,      match: [{key: a_b, value: c}, {key: k, value: x}], limit: 1/s}
  - {name: joined 3,      match: [{key: a, value: "b:c"}, {key: d, value: x}], limit: 1/s}
  - {name: joined 4,      match: [{key: a, value: b}, {key: "c:d", value: x}], limit: 1/s}
  - {name: empty then x,  match: [{key: p, value: ""}, {key: q, value: x}], limit: 1/s}
  - {name: x then empty,  match: [{key: p, value: x}, {key: q, value: ""}], limit: 1/s}
  - {name: braces,        match: [{key: "{t}", value: "}{"}], limit: 1/s}
`)
	for _, c := range []struct {
		d    Descriptor
		want string // "" for no rule
	}{
		{d("user", "carol"), "user"},
		{d("user", "alice"), "alice"},
		{d("user", "*"), "user"},
		{d("USER", "alice"), ""},

		// Fault 24: no value, no rule but the one that says so.
		{d("user", ""), "no user"},
		{d("path", ""), ""},
		{d("path", "/v1/pay", "user", ""), ""},
		{d("path", "", "user", "bob"), ""},

		// The most specific one.
		{d("path", "/"), "path"},
		{d("path", "/v"), "path /v*"},
		{d("path", "/v1"), "path /v*"},
		{d("path", "/v1/"), "path /v1/*"},
		{d("path", "/v1/pay"), "path /v1/pay"},
		{d("path", "/v1/pays"), "path /v1/*"},
		{d("path", "/v1/pay", "user", "alice"), "pay user"}, // the left entry decides
		{d("path", "/v1/get", "user", "alice"), "v1 alice"},
		{d("path", "/v1/get", "user", "bob"), "any bob"}, // back from /v1/*
		{d("path", "/v1/get", "user", "carol"), ""},
		{d("path", "/x", "user", "bob"), "any bob"}, // back from /x
		{d("path", "/x", "user", "al"), "exact x"},

		// The same number of entries in the same order.
		{nil, ""},
		{d("user", "alice", "path", "/v1/pay"), ""},
		{d("path", "/v1/pay", "user", "alice", "x", "y"), ""},

		// A star is a wildcard at the end only.
		{d("star", "a*b"), "star"},
		{d("star", "axb"), ""},
		{d("star", "a*"), "2 stars"},
		{d("star", "a*c"), "2 stars"},

		// Fault 1: parts that look alike when joined.
		{d("a", "b_c", "k", "x"), "joined 1"},
		{d("a_b", "c", "k", "x"), "joined 2"},
		{d("a", "b:c", "d", "x"), "joined 3"},
		{d("a", "b", "c:d", "x"), "joined 4"},
		{d("p", "", "q", "x"), "empty then x"},
		{d("p", "x", "q", ""), "x then empty"},
		{d("a", "b\x00c", "k", "x"), ""},
		{d("{t}", "}{"), "braces"},
	} {
		got := ""
		if r := s.Match("api", c.d); r != nil {
			got = r.Name
		}
		if got != c.want {
			t.Errorf("%q: %q, want %q", c.d, got, c.want)
		}
		if r := s.Match("web", c.d); r != nil {
			t.Errorf("%q of another domain: %q", c.d, r.Name)
		}
	}
}

func TestSet(t *testing.T) {
	s := mustParse(t, "domain: api\nrules:\n- {name: b, match: [{key: k}], limit: 1/s}\n- {name: a, match: [{key: l}], limit: 1/s}\n")
	if s.Len() != 2 {
		t.Errorf("%d rules, want 2", s.Len())
	}
	rules := s.Rules()
	if len(rules) != 2 || rules[0].Name != "b" || rules[1].Name != "a" {
		t.Errorf("rules %v are not in the order of the file", rules)
	}
	if s.Rule("api", "a") != rules[1] || s.Rule("api", "c") != nil || s.Rule("web", "a") != nil {
		t.Error("Rule finds the wrong rule")
	}
	rules[0] = nil
	if s.Rules()[0] == nil {
		t.Error("the slice of Rules is not the caller's own")
	}
	for _, empty := range []*Set{nil, {}} {
		if empty.Match("api", d("k", "v")) != nil || empty.Rule("api", "a") != nil || empty.Rules() != nil || empty.Len() != 0 {
			t.Errorf("%v is not empty", empty)
		}
	}
}

func TestRuleIsWhole(t *testing.T) {
	s := mustParse(t, "domain: api\nrules:\n- {name: a, match: [{key: k}], limit: {requests: 100, per: 1s, burst: 200}, "+
		"mode: exact, on_store_error: closed, deadline: 10ms, split: off}\n")
	got := *s.Rule("api", "a")
	rate := limit.Rate{Requests: 100, Period: time.Second, Burst: 200}
	terms, err := rate.Terms()
	if err != nil {
		t.Fatal(err)
	}
	if *got.Terms != *terms {
		t.Errorf("terms %v, want %v", *got.Terms, *terms)
	}
	got.Terms = nil
	want := limit.Rule{Domain: "api", Name: "a", Rate: rate, Mode: limit.Exact, OnStoreError: limit.Closed, HasPolicy: true,
		Deadline: 10 * time.Millisecond}
	if got.Rule != want || !got.NoSplit {
		t.Errorf("%+v, want %+v, unsplit", got, want)
	}
}

// TestPolicies: each word is a policy of the rule's own; without one the agent's counts.
func TestPolicies(t *testing.T) {
	s := mustParse(t, `
domain: api
rules:
  - {name: open, match: [{key: a}], limit: 1/s, on_store_error: open}
  - {name: closed, match: [{key: b}], limit: 1/s, on_store_error: closed}
  - {name: local, match: [{key: c}], limit: 1/s, on_store_error: local}
  - {name: none, match: [{key: d}], limit: 1/s}
`)
	for name, want := range map[string]limit.Policy{"open": limit.Open, "closed": limit.Closed, "local": limit.Local} {
		if r := s.Rule("api", name); !r.HasPolicy || r.OnStoreError != want || r.OnStoreError.String() != name {
			t.Errorf("%s: %v, %v", name, r.OnStoreError, r.HasPolicy)
		}
	}
	if s.Rule("api", "none").HasPolicy {
		t.Error("a rule without a policy has one")
	}
}

// The terms of an optimistic rule count the debts of a fleet; nothing else changes for it.
func TestOptimisticTerms(t *testing.T) {
	s := mustParse(t, `
domain: api
rules:
  - {name: given,     match: [{key: a}], limit: {requests: 100, per: 1s, burst: 2000}, mode: optimistic, allowance: 7}
  - {name: hundredth, match: [{key: b}], limit: {requests: 100, per: 1s, burst: 2000}, mode: optimistic}
  - {name: one,       match: [{key: c}], limit: 100/s, mode: optimistic}
  - {name: all,       match: [{key: d}], limit: 100/s, mode: optimistic, allowance: 100}
  - {name: least,     match: [{key: e}], limit: 7/s, mode: optimistic}
`)
	for name, allowance := range map[string]limit.Tokens{"given": 7, "hundredth": 20, "one": 1, "all": 100, "least": 1} {
		r := s.Rule("api", name)
		rate := r.Rate
		rate.Debt = allowance * limit.MaxAgents
		terms, err := rate.Terms()
		if err != nil {
			t.Fatal(err)
		}
		if r.Mode != limit.Optimistic || r.Allowance != allowance || r.Rate != rate || *r.Terms != *terms {
			t.Errorf("%s: %+v with %+v, want allowance %d, terms %+v", name, r.Rule, *r.Terms, allowance, *terms)
		}
		if room := r.Terms.Ceiling - r.Terms.Depth; room != limit.Ticks(allowance)*limit.MaxAgents*r.Terms.Emission {
			t.Errorf("%s: room for a debt of %d ticks", name, room)
		}
	}
}

// Every file cut short is a set or an error with a place, and so is every file
// with a byte changed.
func TestDamaged(t *testing.T) {
	for _, text := range []string{seeds[0], seeds[3]} { // one in each shape
		for i := range len(text) {
			check(t, []byte(text[:i]))
			for _, c := range "\t\n\r :-{}[]'\"\\*&#\x00\xff" {
				check(t, []byte(text[:i]+string(c)+text[i+1:]))
				check(t, []byte(text[:i]+string(c)+text[i:]))
			}
		}
	}
}

func TestTooLong(t *testing.T) {
	_, err := Parse("r.yaml", make([]byte, MaxSize+1))
	want := "rules: r.yaml:1:1: the file has more than 16777216 bytes; split it"
	if err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

// Bad files with many values: a few errors, soon. What no YAML reader should choke on is
// the business of strictyaml's tests.
func TestHostile(t *testing.T) {
	const n = 1 << 18
	for name, text := range map[string]string{
		"items":     "rules:\n" + strings.Repeat("-\n", n/2),
		"nulls":     "rules: [" + strings.Repeat("~,", n/2) + "]",
		"one line":  "domain: " + strings.Repeat("a", n),
		"bad rules": "domain: a\nrules:\n" + strings.Repeat("- {a: 1}\n", n/9),
		"one name":  "domain: a\nrules:\n" + strings.Repeat("- {name: a, match: [{key: k}], limit: 1/s}\n", n/44),
	} {
		start := time.Now()
		if _, err := Parse("", []byte(text)); err == nil {
			t.Errorf("%s: no error", name)
		} else if len(err.Error()) > 10_000 {
			t.Errorf("%s: an error of %d bytes", name, len(err.Error()))
		}
		if took := time.Since(start); took > 30*time.Second {
			t.Errorf("%s: %d bytes took %v", name, len(text), took)
		}
	}
}

// The examples of the manual are true.
func TestDocs(t *testing.T) {
	manual, err := os.ReadFile("../docs/rules.md")
	if err != nil {
		t.Fatal(err)
	}
	examples := strings.Split(string(manual), "```yaml\n")[1:]
	for _, text := range examples {
		text, _, _ = strings.Cut(text, "```")
		if !strings.HasPrefix(text, "domain:") {
			text = "domain: api\nrules:\n" + text
		}
		s := mustParse(t, text)
		if r := s.Rule("api", "exports"); r != nil && (!r.NoSplit || s.Rule("api", "per-user").NoSplit) {
			t.Error("of the viral buckets, exports is to stay whole, and per-user need not")
		}
		if s.Has("edge") {
			internal, bob := s.Match("edge", d("tenant", "internal")), s.Match("edge", d("tenant", "internal", "user", "bob"))
			if internal == nil || !internal.Unlimited || bob != nil {
				t.Errorf("the internal tenant falls under %v, its users under %v", internal, bob)
			}
		}
	}
	if len(examples) != 10 {
		t.Errorf("%d examples, want 10", len(examples))
	}
}

func TestLoad(t *testing.T) {
	dir := t.TempDir()
	good := filepath.Join(dir, "good.yaml")
	bad := filepath.Join(dir, "bad.yaml")
	if err := errors.Join(os.WriteFile(good, []byte(seeds[0]), 0o600), os.WriteFile(bad, []byte("domain: api\nruels: []\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
	if s, err := Load(good); err != nil || s.Len() == 0 {
		t.Errorf("%d rules, %v", s.Len(), err)
	}
	s, err := Load(bad)
	var first *Error
	if s != nil || !errors.As(err, &first) || first.File != bad || first.Line != 1 {
		t.Errorf("%v, %v", s, err)
	}
	var all Errors
	if !errors.As(err, &all) || len(all) != 2 || all[1].Line != 2 {
		t.Errorf("%v, want a problem in line 2", err)
	}
	for _, path := range []string{filepath.Join(dir, "absent.yaml"), dir} {
		var pathErr *os.PathError
		if _, err := Load(path); !errors.As(err, &pathErr) || !strings.HasPrefix(err.Error(), "rules: ") {
			t.Errorf("%v", err)
		}
	}
}

func TestMatchDoesNotAllocate(t *testing.T) {
	s := realistic(t, 1000)
	hit, miss := d("route", "/v1/orders/7", "user", "42"), d("route", "/none", "user", "")
	if n := testing.AllocsPerRun(100, func() { s.Match("api", hit); s.Match("api", miss); s.Rule("api", "rule-1") }); n != 0 {
		t.Errorf("%v allocations, want 0", n)
	}
}
