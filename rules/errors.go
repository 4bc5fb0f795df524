package rules

import "github.com/spillgate/spillgate/internal/strictyaml"

// Error is one problem of a rules file. Its fields are
//
//	Package       "rules"
//	File          as it was given to Parse or Load; may be empty
//	Line, Column  from 1; the column counts characters, not bytes
//	Message       what is wrong and what would be right
//
// and its text is "rules: file:line:column: message".
type Error = strictyaml.Error

// Errors are all problems of a rules file, in the order of the file, at
// most 20, of which the last then says that there are more. It is never empty. Its text has
// a line for each problem; errors.As finds the first Error in it.
type Errors = strictyaml.Errors
