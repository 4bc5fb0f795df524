// Package rules turns the text of a rules file into an immutable, compiled
// rule set, and finds the rule that a request's descriptor falls under.
//
//	rules.yaml
//	  |   Load, Parse: once per version                               [1]
//	  |     read      text -> values with their places (yaml*.go)
//	  |     parser    values -> rules, or all problems (parse.go, options.go)
//	  |     insert    rules -> one tree per domain (tree.go)
//	Set
//	  |   Set.Match(domain, descriptor), on the path of every check   [2]
//	*Rule             limit.Rule, and Vary: which values name the bucket
//
// # What a rule matches
//
// A rule has a pattern for each entry of the descriptors that it applies to: a
// descriptor with the same number of entries, the same keys in the same order, and
// values that fit.
//
//	{key: user}                  Any      every value but the empty one, a bucket for each
//	{key: user, value: "*"}      Any      the same
//	{key: path, value: /api/*}   Prefix   every value that begins so, a bucket for each
//	{key: plan, value: free}     Exactly  this value
//	{key: user, value: ""}       Exactly  the empty value
//
// A star is a wildcard at the end of a value only; elsewhere it stands for itself.
// A value that ends in a star cannot be matched alone: "a**" fits what begins with "a*".
//
// Of the rules that match, the most specific one counts. Two rules are compared
// entry by entry from the left, and the first difference decides: exact value,
// then longer prefix, shorter prefix, any value. Since no two rules of a domain
// may have the same patterns, there is always one answer, and the order
// of the file does not matter.
//
// A caller who leaves out a value ("") falls under no Any and no Prefix
// pattern, so callers without a value never share a bucket by accident. Unless a
// rule says value: "", there is no rule for them, and no limit.
//
// # What a file may hold
//
// docs/rules.md has the fields. Nothing is ignored: an unknown field, a value out of range, an
// ambiguous rule or a feature of a later version is an Error with line and column.
// A file with any error is refused whole.
//
// The reader takes the part of YAML 1.2 that rules need, and JSON within it: one document of block
// and flow collections, scalars in one line, with or without quotes, comments.
// It refuses anchors, aliases, tags, directives, text over several lines, and a key twice.
//
// Why not a YAML library: github.com/goccy/go-yaml v1.19.2, tried first, takes about
// a second and 310 MB of allocations for 10,000 rules (this reader with the compiler:
// about 0.1 s and 31 MB); a file of a million "[" had the process killed; and it loses a tab inside a
// value. A sidecar beside a busy gateway cannot afford that for a push. Our reader was compared with
// libyaml on 800,000 damaged files: of 279,000 that both accept, all had the same values.
//
// # What it does not do
//
// It does not watch files, hold versions or decide anything about a request; a Set
// never changes, and whoever owns the pointer to it swaps it.
package rules
