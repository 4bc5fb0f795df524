package rules

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// equalSets says how two sets differ; "" if they do not.
func equalSets(a, b *Set) string {
	if a.Len() != b.Len() || a.Replaces() != b.Replaces() || len(a.domains) != len(b.domains) {
		return fmt.Sprintf("%d rules and %d", a.Len(), b.Len())
	}
	for name, of := range a.domains {
		if other := b.domains[name]; other == nil || other.envoy != of.envoy {
			return fmt.Sprintf("the domain %q", name)
		}
	}
	for i, r := range a.Rules() {
		if other := b.Rules()[i]; !reflect.DeepEqual(r, other) {
			return fmt.Sprintf("%s and %s", describe(r), describe(other))
		}
	}
	return ""
}

// holdsNative holds that what Native writes of a text's set is read as an equal one.
func holdsNative(t *rapid.T, text string) {
	s, err := Parse("", []byte(text))
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	native := s.Native()
	again, err := Parse("", []byte(native))
	if err != nil {
		t.Fatalf("%v in\n%s\nof\n%s", err, native, text)
	}
	if differs := equalSets(s, again); differs != "" {
		t.Fatalf("%s, in\n%s\nof\n%s", differs, native, text)
	}
	if twice := again.Native(); twice != native {
		t.Fatalf("first\n%s\nthen\n%s", native, twice)
	}
}

// anyName are texts as names may be: printable, with what has a meaning in YAML or in our own writing.
var anyName = rapid.Custom(func(t *rapid.T) string {
	return rapid.OneOf(rapid.StringMatching(`[a-c{}\[\]:,#&*!|>'"%@/\\=~ 0-9-]{1,8}`), rapid.SampledFrom([]string{"null", "~", "true", "NULL", "007",
		"😀", "日本", "a\u2028b", "\ufeffx", "- a", "a: b", "{}", "1e3", "<<", "---"})).Draw(t, "text")
})

// A file with every field that rules have, in random combinations.
func TestNative(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		draw := func(what string, words ...string) string { return rapid.SampledFrom(words).Draw(t, what) }
		var b strings.Builder
		fmt.Fprintf(&b, "domain: %s\n", anyJSON(t, "domain"))
		b.WriteString(draw("matching", "", "matching: envoy\n", "matching: specific\n"))
		names := rapid.SliceOfNDistinct(anyName, 1, 5, rapid.ID[string]).Draw(t, "names")
		b.WriteString("rules:\n")
		for i, name := range names {
			fmt.Fprintf(&b, "  - name: %s\n    match: [{key: %q}", text4(name), fmt.Sprint("k", i))
			for range rapid.IntRange(0, 3).Draw(t, "more") {
				value := strings.TrimRight(anyName.Draw(t, "value"), `*\`)
				switch rapid.IntRange(0, 3).Draw(t, "fit") {
				case 0:
					fmt.Fprintf(&b, ", {key: %s}", anyJSON(t, "key"))
				case 1:
					fmt.Fprintf(&b, ", {key: %s, value: %s}", anyJSON(t, "key"), text4(value))
				default:
					fmt.Fprintf(&b, ", {key: %s, value: %s}", anyJSON(t, "key"), text4(value+"*"))
				}
			}
			b.WriteString("]\n")
			limited, modes := true, []string{"", "    mode: exact\n", "    mode: leased\n"}
			switch n := rapid.IntRange(0, 3).Draw(t, "limit"); n {
			case 0:
				limited = false
				b.WriteString("    unlimited: true\n")
			case 1:
				fmt.Fprintf(&b, "    limit: %s/%s\n", draw("n", "0", "7", "4294967295"), draw("per", "s", "1s", "90m", "d", "30d", "1h30m", "1.5s", "1500us"))
			case 2:
				limited, modes = false, modes[:2]
				fmt.Fprintf(&b, "    limit: %s/%s\n    algorithm: %s\n", draw("n", "0", "7"), draw("per", "s", "90m", "1.5s"),
					draw("algorithm", "fixed_window", "sliding_window", "sliding_log"))
			default:
				fmt.Fprintf(&b, "    limit: {requests: %s, per: %s, burst: %s}\n", draw("n", "7", "100"), draw("per", "ms", "36h", "1001us"), draw("burst", "7", "9", "100"))
			}
			b.WriteString(draw("mode", modes...))
			b.WriteString(draw("policy", "", "    on_store_error: open\n", "    on_store_error: closed\n"))
			b.WriteString(draw("deadline", "", "    deadline: 10ms\n", "    deadline: 1234500ns\n", "    deadline: 1.5s\n"))
			b.WriteString(draw("split", "", "    split: off\n", "    split: auto\n"))
			b.WriteString(draw("shadow", "", "    shadow: true\n", "    shadow: false\n"))
			if rapid.Bool().Draw(t, "labelled") {
				fmt.Fprintf(&b, "    label: %s\n", text4(fmt.Sprint("label ", i%2)))
			}
			if i > 0 && rapid.Bool().Draw(t, "replaces") {
				fmt.Fprintf(&b, "    replaces: [%s]\n", text4(names[0]))
			}
			if limited && rapid.Bool().Draw(t, "optimistic") {
				fmt.Fprintf(&b, "  - {name: %s, match: [{key: %s}], limit: 100/s, mode: optimistic%s}\n", text4(fmt.Sprint(name, " optimistic")),
					text4(fmt.Sprint("o", i)), draw("allowance", "", ", allowance: 3"))
			}
		}
		holdsNative(t, b.String())
	})
}

// text4 writes a text with every character that needs it as an escape.
func text4(text string) string {
	var b strings.Builder
	for _, r := range text {
		if r < 0x7f && r != '"' && r != '\\' {
			b.WriteRune(r)
		} else {
			fmt.Fprintf(&b, `\U%08x`, r)
		}
	}
	return `"` + b.String() + `"`
}

func anyJSON(t *rapid.T, what string) string { return text4(anyName.Draw(t, what)) }

func TestNativeOfNothing(t *testing.T) {
	for _, s := range []*Set{nil, {}} {
		if got := s.Native(); got != "" {
			t.Errorf("%q", got)
		}
	}
	for _, text := range []string{"domain: a\nrules: []\n", "domain: a\nmatching: envoy\nrules: []\n"} {
		if got := mustParse(t, text).Native(); got != text {
			t.Errorf("%q, want %q", got, text)
		}
	}
}
