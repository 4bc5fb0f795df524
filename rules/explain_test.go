package rules

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// told is an explanation in lines.
func told(e Explanation) string {
	var b strings.Builder
	name := "none"
	if e.Rule != nil {
		name = e.Rule.Name
	}
	fmt.Fprintf(&b, "%s\n", name)
	for _, c := range e.Fits {
		fmt.Fprintf(&b, "fits %s: %s\n", c.Rule.Name, c.Why)
	}
	for _, c := range e.Near {
		fmt.Fprintf(&b, "near %s: %s\n", c.Rule.Name, c.Why)
	}
	if e.MoreFits+e.MoreNear > 0 {
		fmt.Fprintf(&b, "and %d, %d\n", e.MoreFits, e.MoreNear)
	}
	return b.String()
}

func TestExplain(t *testing.T) {
	s := mustParse(t, `
domain: api
rules:
  - {name: pay user,  match: [{key: route, value: /pay}, {key: user}], limit: 1/s}
  - {name: any bob,   match: [{key: route}, {key: user, value: bob}], limit: 1/s}
  - {name: p user,    match: [{key: route, value: /p*}, {key: user}], limit: 1/s}
  - {name: route,     match: [{key: route}], limit: 1/s}
  - {name: user,      match: [{key: user}, {key: route}], limit: 1/s}
  - {name: device,    match: [{key: route}, {key: device}], limit: 1/s}
  - {name: three,     match: [{key: route}, {key: user}, {key: device}], limit: 1/s}
  - {name: far,       match: [{key: client}, {key: device}], limit: 1/s}
`)
	for _, c := range []struct {
		d    Descriptor
		want string
	}{
		{d("route", "/pay", "user", "bob"), `pay user
fits any bob: entry 1: route=/pay is more specific than route
fits p user: entry 1: route=/pay is more specific than route=/p*
near route: its number of entries is 1, not 2
near user: the same keys in another order
near device: its entry 2 is "device", not "user"
near three: its number of entries is 3, not 2
`},
		{d("route", "/get", "user", ""), `none
near any bob: entry 2: the value is empty, and the pattern user=bob fits none such
near route: its number of entries is 1, not 2
near user: the same keys in another order
near device: its entry 2 is "device", not "user"
`},
		{d("route", "/pay", "user", ""), `none
near pay user: entry 2: the value is empty, and the pattern user fits none such
near any bob: entry 2: the value is empty, and the pattern user=bob fits none such
near p user: entry 2: the value is empty, and the pattern user fits none such
`},
		{d("route", "/get", "user", "eve"), `none
near pay user: entry 1: the value "/get" does not fit route=/pay
near any bob: entry 2: the value "eve" does not fit user=bob
near p user: entry 1: the value "/get" does not fit route=/p*
near route: its number of entries is 1, not 2
near user: the same keys in another order
near device: its entry 2 is "device", not "user"
near three: its number of entries is 3, not 2
`},
	} {
		if got := told(s.Explain("api", c.d)); !strings.HasPrefix(got, c.want) {
			t.Errorf("%v:\n%s\nwant\n%s", c.d, got, c.want)
		}
	}
	for _, e := range []Explanation{s.Explain("web", d("user", "x")), (*Set)(nil).Explain("api", d("user", "x"))} {
		if told(e) != "none\n" {
			t.Errorf("%+v", e)
		}
	}
}

func TestExplainEnvoy(t *testing.T) {
	s := mustParse(t, `
domain: edge
descriptors:
  - key: path
    rate_limit: {unit: second, requests_per_unit: 5}
    descriptors: [{key: user, rate_limit: {unit: second, requests_per_unit: 5}}]
  - {key: path, value: /a*, descriptors: [{key: host, rate_limit: {unit: second, requests_per_unit: 5}}]}
`)
	hidden := "entry 1: a more specific one than path fits the value, and here only that is followed (matching: envoy)\n"
	for _, c := range []struct {
		d    Descriptor
		want string
	}{
		{d("path", "/a1"), "none\nfits path: " + hidden},
		{d("path", "/a1", "user", "x"), "none\nfits path,user: " + hidden},
		{d("path", "", "user", ""), "path,user\n"},
	} {
		if got := told(s.Explain("edge", c.d)); !strings.HasPrefix(got, c.want) {
			t.Errorf("%v:\n%s\nwant\n%s", c.d, got, c.want)
		}
	}
}

func TestExplainIsShort(t *testing.T) {
	s := realistic(t, 1000)
	e := s.Explain("api", d("route", "/none", "user", "42"))
	if e.Rule == nil || e.Rule.Name != "any" || len(e.Near) != MostCandidates || e.MoreNear != 999-MostCandidates || len(e.Fits)+e.MoreFits != 0 {
		t.Errorf("%s", told(e))
	}
}

// What Explain says applies is what Match finds, and what it says fits does.
func TestExplainIsMatch(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limits := make(map[*branchOf]int)
		var b strings.Builder
		b.WriteString("domain: edge\ndescriptors:\n")
		write(&b, anyLevel(2).Draw(t, "file"), "", limits)
		text := b.String()
		s, err := Parse("", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if rapid.Bool().Draw(t, "specific") {
			text = strings.Replace(s.Native(), "matching: envoy", "matching: specific", 1)
			if s, err = Parse("", []byte(text)); err != nil {
				t.Fatalf("%v in\n%s", err, text)
			}
		}
		of := make(Descriptor, rapid.IntRange(1, 3).Draw(t, "entries"))
		for i := range of {
			of[i] = Entry{rapid.SampledFrom([]string{"k", "l"}).Draw(t, "key"), rapid.StringMatching(`[ab]{0,3}`).Draw(t, "value")}
		}
		e := s.Explain("edge", of)
		if e.Rule != s.Match("edge", of) {
			t.Fatalf("%v, want %v in\n%s", e.Rule, s.Match("edge", of), text)
		}
		n := 0
		for _, r := range s.Rules() {
			fits := len(r.Match) == len(of)
			for i := range r.Match {
				fits = fits && r.Match[i].Key == of[i].Key && (r.Match[i].Fits(of[i].Value) || r.Match[i].Fit == Any && r.Empty)
			}
			if fits && r != e.Rule {
				n++
			}
		}
		if len(e.Fits)+e.MoreFits != n {
			t.Fatalf("%d rules fit beside, want %d: %s", len(e.Fits)+e.MoreFits, n, told(e))
		}
		for _, c := range append(e.Fits, e.Near...) {
			if c.Why == "" {
				t.Fatal("a candidate without a reason")
			}
		}
	})
}
