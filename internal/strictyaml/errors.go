package strictyaml

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// MaxErrors bounds how many problems of a file are reported. The last of so many says that
// there are more.
const MaxErrors = 20

// Error is one problem of a file.
type Error struct {
	// Package is the name of the package that reads such files. The message begins with it.
	Package string
	// File as the caller named it; may be empty.
	File string
	// Line and Column count from 1; the column counts characters, not bytes. Line 0 is
	// a problem without a place.
	Line, Column int
	// Message says what is wrong and what would be right.
	Message string
}

// Error has the form "package: file:line:column: message", without the parts that are not known.
func (e *Error) Error() string {
	var place string
	switch {
	case e.File != "" && e.Line > 0:
		place = fmt.Sprintf("%s:%d:%d: ", e.File, e.Line, e.Column)
	case e.File != "":
		place = e.File + ": "
	case e.Line > 0:
		place = fmt.Sprintf("%d:%d: ", e.Line, e.Column)
	}
	return e.Package + ": " + place + e.Message
}

// Errors are all problems of a file, in the order of the file, at most
// MaxErrors. It is never empty.
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

// sorted puts the problems into the order of the file.
func (e Errors) sorted() Errors {
	e = slices.Clone(e)
	slices.SortStableFunc(e, func(a, b *Error) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return e
}
