package rules

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// branchOf is a descriptor of a file of envoyproxy/ratelimit, for the oracle.
type branchOf struct {
	key, value string // value "" is none
	limited    bool
	below      []*branchOf
}

// leads is how envoyproxy/ratelimit finds the limit of a request's descriptor, told naively: at each level the node
// with that value, else the first wildcard of the file that fits, else the one without a value; and there is no way back. nil is no limit.
func leads(level []*branchOf, d Descriptor) *branchOf {
	for i, e := range d {
		var next *branchOf
		for _, n := range level {
			if n.key == e.Key && n.value != "" && n.value == e.Value {
				next = n
			}
		}
		for _, n := range level {
			if prefix, wild := strings.CutSuffix(n.value, "*"); next == nil && n.key == e.Key && wild && strings.HasPrefix(e.Value, prefix) {
				next = n
			}
		}
		for _, n := range level {
			if next == nil && n.key == e.Key && n.value == "" {
				next = n
			}
		}
		if next == nil {
			return nil
		}
		if i == len(d)-1 {
			if next.limited {
				return next
			}
			return nil
		}
		level = next.below
	}
	return nil
}

// anyLevel is a list of descriptors that may stand beside each other here: wildcards from the longest to the shortest.
func anyLevel(depth int) *rapid.Generator[[]*branchOf] {
	return rapid.Custom(func(t *rapid.T) []*branchOf {
		nodes := rapid.SliceOfNDistinct(rapid.Custom(func(t *rapid.T) *branchOf {
			n := &branchOf{key: rapid.SampledFrom([]string{"k", "l"}).Draw(t, "key"), value: rapid.StringMatching(`[ab]{0,3}\*?`).Draw(t, "value"),
				limited: rapid.Bool().Draw(t, "limited")}
			if depth > 1 && rapid.Bool().Draw(t, "deeper") {
				n.below = anyLevel(depth-1).Draw(t, "below")
			}
			return n
		}), 1, 6, func(n *branchOf) string { return n.key + "=" + strings.TrimPrefix(n.value+"!", "*") }).Draw(t, "level")
		rank := func(n *branchOf) int {
			if strings.HasSuffix(n.value, "*") {
				return -len(n.value)
			}
			return 0
		}
		slices.SortStableFunc(nodes, func(a, b *branchOf) int { return rank(a) - rank(b) })
		return nodes
	})
}

// write is the file; limits are numbered in the order of the file, beginning above *n.
func write(b *strings.Builder, level []*branchOf, indent string, limits map[*branchOf]int) {
	for _, node := range level {
		fmt.Fprintf(b, "%s- key: %s\n", indent, node.key)
		if node.value != "" {
			fmt.Fprintf(b, "%s  value: %q\n", indent, node.value)
		}
		if node.limited {
			limits[node] = len(limits) + 1
			fmt.Fprintf(b, "%s  rate_limit: {unit: second, requests_per_unit: %d}\n", indent, limits[node])
		}
		if node.below != nil {
			fmt.Fprintf(b, "%s  descriptors:\n", indent)
			write(b, node.below, indent+"  ", limits)
		}
	}
}

// A file of envoyproxy/ratelimit limits what it limits there, and what --as-native makes of it is the same.
func TestEnvoyIsTheOracle(t *testing.T) {
	entry := rapid.Custom(func(t *rapid.T) Entry {
		return Entry{rapid.SampledFrom([]string{"k", "l"}).Draw(t, "key"), rapid.StringMatching(`[ab]{0,4}`).Draw(t, "value")}
	})
	rapid.Check(t, func(t *rapid.T) {
		top := anyLevel(3).Draw(t, "file")
		var b strings.Builder
		b.WriteString("domain: edge\ndescriptors:\n")
		limits := make(map[*branchOf]int)
		write(&b, top, "", limits)
		s, err := Parse("", []byte(b.String()))
		if err != nil {
			t.Fatalf("%v in\n%s", err, b.String())
		}
		for _, d := range rapid.SliceOfN(rapid.SliceOfN(entry, 1, 4), 1, 50).Draw(t, "descriptors") {
			want := 0
			if n := leads(top, d); n != nil {
				want = limits[n]
			}
			got, r := 0, s.Match("edge", d)
			if r != nil && !r.Unlimited {
				got = int(r.Rate.Requests)
			}
			if got != want {
				t.Fatalf("%q: limit %d, want %d, in\n%s", d, got, want, b.String())
			}
		}
		holdsNative(t, b.String())
	})
}

// Names of paths tell paths apart.
func TestPathNames(t *testing.T) {
	pattern := rapid.Custom(func(t *rapid.T) Pattern {
		p := Pattern{Key: rapid.StringMatching(`[a,=%2CD*]{1,3}`).Draw(t, "key"), Fit: Fit(rapid.IntRange(0, 2).Draw(t, "fit"))}
		if p.Fit != Any {
			p.Value = rapid.StringMatching(`[a,=%2CD]{1,3}`).Draw(t, "value") // values of files do not end in a star
		}
		return p
	})
	paths := rapid.SliceOfN(pattern, 1, 3)
	rapid.Check(t, func(t *rapid.T) {
		a, b := paths.Draw(t, "a"), paths.Draw(t, "b")
		if (pathName(a) == pathName(b)) != slices.Equal(a, b) {
			t.Fatalf("%v is %q, %v is %q", a, pathName(a), b, pathName(b))
		}
	})
	seen := make(map[string][]Pattern)
	for _, path := range [][]Pattern{ // fault 1: what looks alike when it is joined
		{{Key: "a", Fit: Exactly, Value: "x,b"}}, {{Key: "a", Fit: Exactly, Value: "x"}, {Key: "b"}},
		{{Key: "a,b"}}, {{Key: "a"}, {Key: "b"}},
		{{Key: "a=x"}}, {{Key: "a", Fit: Exactly, Value: "x"}}, {{Key: "a=x*"}}, {{Key: "a", Fit: Prefix, Value: "x"}},
		{{Key: "a%2Cb"}}, {{Key: "a%3Dx"}}, {{Key: "a", Fit: Exactly, Value: "x%2Cb"}},
		{{Key: "a", Fit: Exactly, Value: "x=y"}}, {{Key: "a=x", Fit: Exactly, Value: "y"}}, {{Key: "a"}}, {{Key: "a", Fit: Exactly}},
	} {
		if other := seen[pathName(path)]; other != nil {
			t.Errorf("%v and %v are both %q", path, other, pathName(path))
		}
		seen[pathName(path)] = path
	}
	long := []Pattern{{Key: strings.Repeat("日", 42), Fit: Exactly, Value: strings.Repeat("本", 300)}}
	if name := pathName(long); len(name) > MaxName || !strings.HasPrefix(name, "日日") || strings.ContainsRune(name, '\ufffd') {
		t.Errorf("%q", name)
	}
}

func TestReplaces(t *testing.T) {
	s := mustParse(t, `
domain: edge
descriptors:
  - {key: a, rate_limit: {name: wide, unit: second, requests_per_unit: 5}}
  - {key: b, rate_limit: {unit: second, requests_per_unit: 10, replaces: [{name: wide}]}}
`)
	if !s.Replaces() || mustParse(t, "domain: a\nrules: []\n").Replaces() || (*Set)(nil).Replaces() {
		t.Error("Replaces of the set")
	}
}

// Units in any case, and of a fixed length.
func TestEnvoyUnit(t *testing.T) {
	for name, hours := range map[string]int{"HOUR": 1, "Day": 24, "week": 7 * 24, "MONTH": 30 * 24, "yeAr": 365 * 24} {
		if got, ok := EnvoyUnit(name); !ok || got.Hours() != float64(hours) {
			t.Errorf("%s: %v, %v", name, got, ok)
		}
	}
	for _, name := range []string{"", "unknown", "seconds", "hour "} {
		if got, ok := EnvoyUnit(name); ok || got != 0 {
			t.Errorf("%q: %v", name, got)
		}
	}
}
