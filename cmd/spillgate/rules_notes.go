package main

import (
	"fmt"
	"strings"

	"github.com/spillgate/spillgate/rules"
)

// mostNotes bounds the notes of lint.
const mostNotes = 10

// notesOf are remarks on what is right in a file, and perhaps not meant. A pattern with a star that is no wildcard hardly ever fits,
// and who falls under no rule is not limited.
func notesOf(set *rules.Set) (notes []string) {
	more := 0
	for _, r := range set.Rules() {
		for _, p := range r.Match {
			switch {
			case !strings.Contains(p.Value, "*"):
			case len(notes) == mostNotes:
				more++
			default:
				notes = append(notes, fmt.Sprintf("Rule %s, %s: a star that is not at the end is no wildcard, it fits a star alone.", r.Name, p))
			}
		}
	}
	if more > 0 {
		notes = append(notes, fmt.Sprintf("And %d more such stars.", more))
	}
	return notes
}
