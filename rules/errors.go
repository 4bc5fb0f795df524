package rules

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Error is one problem of a rules file.
type Error struct {
	// File as it was given to Parse or Load; may be empty.
	File string
	// Line and Column count from 1; the column counts characters, not bytes.
	Line, Column int
	// Message says what is wrong and what would be right.
	Message string
}

func (e *Error) Error() string {
	if e.File == "" {
		return fmt.Sprintf("rules: %d:%d: %s", e.Line, e.Column, e.Message)
	}
	return fmt.Sprintf("rules: %s:%d:%d: %s", e.File, e.Line, e.Column, e.Message)
}

// Errors are all problems of a rules file, in the order of the file, at
// most maxErrors. It is never empty.
type Errors []*Error

// Error has a line for each problem.
func (e Errors) Error() string {
	lines := make([]string, len(e))
	for i, one := range e {
		lines[i] = one.Error()
	}
	return strings.Join(lines, "\n")
}

// Unwrap makes each problem visible to errors.As.
func (e Errors) Unwrap() []error {
	all := make([]error, len(e))
	for i, one := range e {
		all[i] = one
	}
	return all
}

// maxErrors bounds how many problems are reported. The last of so many says that there are more.
const maxErrors = 20

// sort puts the problems into the order of the file.
func (e Errors) sort() {
	slices.SortStableFunc(e, func(a, b *Error) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
}

// newError gives a message at a byte offset its line and column.
func newError(file, text string, pos int, message string) *Error {
	before := text[:pos]
	start := strings.LastIndexByte(before, '\n') + 1
	return &Error{
		File:    file,
		Line:    lineAt(text, pos),
		Column:  utf8.RuneCountInString(before[start:]) + 1,
		Message: message,
	}
}

func lineAt(text string, pos int) int { return strings.Count(text[:pos], "\n") + 1 }

// show quotes a text of the file for a message, cut where it is very long.
func show(text string) string {
	const most = 80
	if len(text) <= most {
		return strconv.Quote(text)
	}
	return strconv.Quote(strings.ToValidUTF8(text[:most], "")) + "..."
}

// didYouMean is a hint at the word that was probably meant, or "".
func didYouMean(word string, known []string) string {
	best, least := "", 3
	for _, k := range known {
		if d := distance(word, k); d < least && 2*d < len(k) {
			best, least = k, d
		}
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf(" (did you mean %q?)", best)
}

// distance is the number of bytes to insert, delete, replace or swap with their neighbour that
// makes b of a; words of very different lengths are just far apart.
func distance(a, b string) int {
	if d := len(a) - len(b); d > 2 || d < -2 {
		return 3
	}
	above2, above, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range above {
		above[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			change := 1
			if a[i-1] == b[j-1] {
				change = 0
			}
			row[j] = min(above[j]+1, row[j-1]+1, above[j-1]+change)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], above2[j-2]+1)
			}
		}
		above2, above, row = above, row, above2
	}
	return above[len(b)]
}
