package rules

import (
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spillgate/spillgate/internal/strictyaml"
	"github.com/spillgate/spillgate/limit"
)

// seeds are whole, valid files: one in each style of writing.
var seeds = []string{
	`# a comment
domain: api
rules:
  - name: per-user          # another
    match: [{key: route, value: /pay}, {key: user}]
    limit: {requests: 100, per: 1s, burst: 200}
    mode: exact
    on_store_error: closed
    deadline: 10ms
  - name: 'it''s free'
    match:
    - key: plan
      value: "fr\u00e9e 😀*"
    - {key: user, value: ""}
    unlimited: true
`,
	"domain: api\nrules:\n- {name: a, match: [{key: k}], limit: 500/s, mode: optimistic}\n- {name: b, match: [{key: l}], limit: 9/d, mode: optimistic, allowance: 2}\n",
	`{"domain":"api","rules":[{"name":"a","match":[{"key":"k","value":"\u00fc\U0001F600"}],"limit":"1/s"},
	{"name":"b","match":[{"key":"l"}],"limit":{"requests":0,"per":"h"},},]}`,
	"domain: edge\ndescriptors:\n- key: a\n  value: b*\n  rate_limit: {unit: Hour, requests_per_unit: 5, name: n}\n  shadow_mode: true\n" +
		"  descriptors:\n  - {key: c, rate_limit: {unlimited: true, replaces: [{name: n}]}}\n- key: a\n",
	"domain: a\nmatching: envoy\nrules:\n- {name: x, match: [{key: k}], limit: 1/s, label: l, shadow: true}\n- {name: y, match: [{key: m}], limit: 1/s, replaces: [l]}\n",
	"---\r\ndomain: a\r\nrules:\r\n-   name: x\r\n    match:\r\n      -\r\n        key: k\r\n    limit: 7/3s\r\n",
}

// check holds what Parse promises of any text.
func check(t *testing.T, text []byte) {
	t.Helper()
	s, err := Parse("f", text)
	if err != nil {
		checkErrors(t, s, err, text)
		return
	}
	again, err := Parse("f", []byte(s.Native()))
	if err != nil {
		t.Fatalf("%q: %v in %q", text, err, s.Native())
	}
	if differs := equalSets(s, again); differs != "" {
		t.Fatalf("%q: %s in %q", text, differs, s.Native())
	}
	for _, r := range s.Rules() {
		switch {
		case r.Name == "" || len(r.Name) > MaxName || !utf8.ValidString(r.Name) || s.Rule(r.Domain, r.Name) != r:
			t.Fatalf("%q: name %q", text, r.Name)
		case r.Unlimited && (r.Terms != nil || r.Rate.Requests != 0), !r.Unlimited && (r.Terms == nil) != (r.Rate.Requests == 0):
			t.Fatalf("%q: rate %v", text, r.Rate)
		case (r.Allowance > 0) != (r.Mode == limit.Optimistic && r.Terms != nil), r.Rate.Debt != r.Allowance*limit.MaxAgents,
			r.Allowance > 0 && r.Allowance > r.Terms.Burst:
			t.Fatalf("%q: mode %v, allowance %d, rate %v", text, r.Mode, r.Allowance, r.Rate)
		case len(r.Match) == 0 || len(r.Match) > MaxMatch:
			t.Fatalf("%q: match %v", text, r.Match)
		}
		d := make(Descriptor, len(r.Match))
		for i, p := range r.Match {
			d[i] = Entry{p.Key, p.Value}
			if p.Fit == Any {
				d[i].Value = "no rule says this"
			}
		}
		if s.Match(r.Domain, d) == nil && !r.Empty { // else a more specific pattern may lead elsewhere
			t.Fatalf("%q: nothing matches %q, made for %v", text, d, r.Match)
		}
	}
}

func checkErrors(t *testing.T, s *Set, err error, text []byte) {
	t.Helper()
	var all Errors
	if s != nil || !errors.As(err, &all) || len(all) == 0 || len(all) > strictyaml.MaxErrors {
		t.Fatalf("%q: %v, %v", text, s, err)
	}
	lines := strings.Split(strings.TrimPrefix(string(text), "\ufeff"), "\n")
	for _, e := range all {
		if e.Line < 1 || e.Line > len(lines) || e.Column < 1 || e.Column > len(lines[e.Line-1])+1 || e.Message == "" || !utf8.ValidString(e.Message) {
			t.Fatalf("%q: %+v", text, *e)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range seeds {
		f.Add([]byte(s))
	}
	f.Fuzz(check)
}
