// Package rules turns the text of a rules file into an immutable, compiled
// rule set, and finds the rule that a request's descriptor falls under.
//
//	rules.yaml
//	  |   Load, Parse: once per version                               [1]
//	  |     read      text -> values with their places (internal/strictyaml)
//	  |     parser    values -> rules, or all problems (parse.go, options.go)
//	  |     insert    rules -> one tree per domain (tree.go)
//	Set
//	  |   Set.ForDatacenter: the portion of one of several data centers, if there are (datacenter.go)
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
// The text is YAML, and JSON within it, read by internal/strictyaml: one document, scalars taken as
// they are written (a name 007 is "007"), without anchors, aliases, tags and a key twice.
// docs/adr/0004-yaml-library.md has the reason for the library under it.
//
// # What it does not do
//
// It does not watch files or a store (package source below it does), and decides nothing about a request; a Set
// never changes, and whoever owns the pointer to it swaps it. A Version is only the words in which stores and
// sources speak of a text.
package rules
