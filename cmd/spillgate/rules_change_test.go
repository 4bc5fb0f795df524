package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/spillgate/spillgate/rules"
)

func TestChanges(t *testing.T) {
	set := func(text string) *rules.Set {
		t.Helper()
		s, err := rules.Parse("", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	const head = "domain: api\nrules:\n"
	const user = "  - {name: a, match: [{key: user}], limit: 100/m}\n"
	var many strings.Builder
	for i := range mostChanges + 2 {
		fmt.Fprintf(&many, "  - {name: r%d, match: [{key: k%d}], limit: 1/s}\n", i, i)
	}
	for name, c := range map[string]struct {
		before, after string
		want          []string
	}{
		"a comment":         {head + user, head + "# said\n" + user, []string{"no rule is different"}},
		"a limit":           {head + user, head + "  - {name: a, match: [{key: user}], limit: 1/m}\n", []string{"changed  a: 100/m -> 1/m"}},
		"to deny all":       {head + user, head + "  - {name: a, match: [{key: user}], limit: 0/m}\n", []string{"changed  a: 100/m -> denies all; token_bucket, mode leased -> default"}},
		"a match":           {head + user, head + "  - {name: a, match: [{key: ip}], limit: 100/m}\n", []string{"changed  a: user -> ip"}},
		"settings":          {head + user, head + "  - {name: a, match: [{key: user}], limit: 100/m, mode: exact, on_store_error: closed, label: l}\n", []string{"changed  a: mode leased -> mode exact, on_store_error closed, label l"}},
		"a setting less":    {head + "  - {name: a, match: [{key: user}], limit: 100/m, split: off}\n", head + user, []string{"changed  a: split off -> default"}},
		"matching":          {head + user, "matching: envoy\n" + head + user, []string{"changed  a: default -> matching envoy"}},
		"another name":      {head + user, head + "  - {name: b, match: [{key: user}], limit: 100/m}\n", []string{"gone     a: 100/m", "new      b: 100/m"}},
		"another domain":    {head + user, "domain: apl\nrules:\n" + user, []string{"domain   api -> apl: requests of the domain api have no rule any more"}},
		"no rules any more": {head + user, "domain: api\nrules: []\n", []string{"gone     a: 100/m"}},
		"the first rules":   {"domain: api\nrules: []\n", head + user, []string{"new      a: 100/m"}},
		"the order":         {head + user + "  - {name: b, match: [{key: ip}], limit: 1/s}\n", head + "  - {name: b, match: [{key: ip}], limit: 1/s}\n" + user, []string{"no rule is different"}},
		"more than it says": {head + user, head + user + many.String(), nil},
	} {
		t.Run(name, func(t *testing.T) {
			got := changes(set(c.before), set(c.after))
			if c.want == nil {
				if len(got) != mostChanges+1 || got[0] != "new      r0: 1/s" || got[mostChanges] != "new      2 more" {
					t.Errorf("got %q", got)
				}
				return
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}
