// Package strictyaml reads the YAML files that operators write, rules and configuration, into a
// tree in which everything has a place, and collects what is wrong with them.
//
//	text
//	  |  File.Parse                                                     [1]
//	  |    checkText   UTF-8, control characters, size, marks            (text.go)
//	  |    readPlain   texts that are written plainly: done              (plain.go)
//	  |    go.yaml.in/yaml/v4, with limits, without anchors              (parse.go)
//	  |    convert     its nodes -> ours; keys twice, tags, merge keys   (parse.go)
//	Node
//	  |  the caller reads what it knows: Fields, Unknown, Failf         [2]
//	  |  File.Err                                                       [3]
//	Errors   "rules: rules.yaml:4:5: unknown field ...", all at once
//
// # Why a layer over the library
//
// The library decodes into structs, and so decides by itself that 007 is seven, that a field given
// twice is an error without a column, and that null is nothing to speak of. A rules file and
// a configuration are read by people who need the place of every mistake, and all mistakes
// at once. So we take the library's tree, and hand on scalars as they are written.
//
// # What is refused
//
// Anchors, aliases, tags, merge keys, directives, a second document, a key twice, a key
// that is no scalar or null, control characters, what is not UTF-8; nesting over MaxDepth,
// more than MaxMarks marks of punctuation, and more bytes than the caller wants.
//
// The limits are there because the library is at the mercy of its input: it holds
// all tokens of a collection in brackets until the last bracket, some hundred bytes for
// each, and with directives a short tag can stand for a long one. MaxMarks bounds
// the former and the refusal of directives the latter; neither is left to the library, since
// it would find out only after it has taken the memory.
//
// # What it does not do
//
// It knows no field and no type: what a text means is the caller's business.
package strictyaml
