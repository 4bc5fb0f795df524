package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/spillgate/spillgate/rules"
)

func TestNotesOfStars(t *testing.T) {
	for values, want := range map[string][]string{
		`/a/*`:     nil,
		`*`:        nil,
		`/a/*/b`:   {"Rule r0, k0=/a/*/b: a star that is not at the end is no wildcard, it fits a star alone."},
		`/a/*/b/*`: {"Rule r0, k0=/a/*/b/*: a star that is not at the end is no wildcard, it fits a star alone."},
		strings.Repeat("*x ", mostNotes+2): append(slices.Collect(func(yield func(string) bool) {
			for i := range mostNotes {
				if !yield(fmt.Sprintf("Rule r%d, k%d=*x: a star that is not at the end is no wildcard, it fits a star alone.", i, i)) {
					return
				}
			}
		}), "And 2 more such stars."),
	} {
		text := "domain: api\nrules:\n"
		for i, v := range strings.Fields(values) {
			text += fmt.Sprintf("  - {name: r%d, match: [{key: k%d, value: %q}], limit: 1/s}\n", i, i, v)
		}
		set, err := rules.Parse("", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if got := notesOf(set); !slices.Equal(got, want) {
			t.Errorf("%s:\ngot  %q\nwant %q", values, got, want)
		}
	}
}
