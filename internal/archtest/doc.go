// Package archtest holds the rules of the house as tests: who may import whom,
// who may read the environment, that every package introduces itself, that no
// file outgrows its reader and that no work is left marked as unfinished.
//
//	house.go   the rules, as tables: the file to read, and to change on purpose
//	check.go   the rules applied to a House; pure, returns Violations
//	scan.go    one source file -> the facts the rules speak of; pure
//	load.go    the module on disk -> a House
//
// The import rules speak of code that ships: what a _test file imports is its
// own affair. A package that the table does not know is a violation too, so that
// a new package gets its place on purpose.
//
// The nested module bench/compare is out of sight here: it exists to import
// what we may not.
package archtest
