package strictyaml

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"go.yaml.in/yaml/v4"
)

// MaxDepth bounds how deep lists and mappings nest. A rule needs five levels.
const MaxDepth = 64

// Kind is what a value of the file is. The zero value is null.
type Kind uint8

const (
	// Null is nothing at all, ~ or null.
	Null Kind = iota
	// Plain is a scalar without quotes.
	Plain
	// Quoted is a scalar in quotes, or a block of text ("|" or ">").
	Quoted
	// List is a sequence, in block style or in brackets.
	List
	// Map is a mapping, in block style or in braces.
	Map
)

// Pos is a place in a text. Line and column count from 1, the column in
// characters. The zero value is no place.
type Pos struct{ Line, Column int32 }

// Node is one value of the file and all that is in it. The zero value is a null without a place.
type Node struct {
	Kind   Kind
	Pos    Pos
	Text   string  // of a scalar, as written but for quotes, escapes and folded lines; also of a Null: ~
	Items  []Node  // of a List
	Fields []Field // of a Map, in the order of the file, no key twice
}

// Scalar reports whether n is a text, with quotes or without.
func (n *Node) Scalar() bool { return n.Kind == Plain || n.Kind == Quoted }

// Field is a key of a mapping and its value.
type Field struct {
	Key    string
	KeyPos Pos
	Value  Node
}

// Pos is where a message about the field's value points: at the key if there is no value to see.
func (f *Field) Pos() Pos {
	if f.Value.Kind == Null {
		return f.KeyPos
	}
	return f.Value.Pos
}

// Parse reads a text. Without any text it is Null; if there is any problem, it is nil.
func (f *File) Parse(text []byte) *Node {
	if len(text) > f.MaxSize {
		f.Failf(Pos{1, 1}, "the file has more than %d bytes; split it", f.MaxSize)
		return nil
	}
	src := strings.TrimPrefix(string(text), "\ufeff")
	if !f.checkText(src) {
		return nil
	}
	if root, ok := readPlain(src); ok {
		return root
	}
	f.end = posAt(src, len(src))
	doc, err := load(src)
	if err != nil {
		f.syntax(src, err)
		return nil
	}
	before := f.count
	root := Node{Pos: Pos{1, 1}}
	if doc != nil {
		root = f.convert(doc, 1)
	}
	if f.count > before {
		return nil
	}
	return &root
}

// load has the library read the only document of a text; nil if there is none. The error is
// a *yaml.LoadError.
func load(src string) (*yaml.Node, error) {
	loader, err := yaml.NewLoader(strings.NewReader(src), yaml.WithPlugin(strict{}))
	if err != nil {
		return nil, err
	}
	var doc, more yaml.Node
	if err := loader.Load(&doc); err == io.EOF {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	if err := loader.Load(&more); err == nil {
		return nil, yaml.NewLoadError("document", "a second document begins; keep one document in a file",
			yaml.Mark{Line: more.Line, Column: more.Column}, nil)
	} else if err != io.EOF {
		return nil, err
	}
	return doc.Content[0], nil
}

// strict is what the library asks while it reads. It implements yaml.LoaderLimitsPlugin,
// yaml.AliasDataPlugin and yaml.AliasDataContext.
type strict struct{}

var (
	errAnchor = errors.New(`anchors ("&") are not supported; write the value out, or put it in quotes`)
	errAlias  = errors.New(`aliases ("*" without quotes) are not supported; write "*" in quotes`)
	errDepth  = fmt.Errorf("lists and mappings nest more than %d deep", MaxDepth)
)

// CheckDepth is asked by the scanner, which does not recurse, and before the parser, which
// does. It counts brackets and indentation apart; convert counts their sum.
func (strict) CheckDepth(depth int, _ *yaml.DepthContext) error {
	if depth > MaxDepth {
		return errDepth
	}
	return nil
}

// CheckAlias has nothing to check: there are no aliases.
func (strict) CheckAlias(int, int) error { return nil }

// NewAliasDataContext is the policy itself: it remembers nothing.
func (strict) NewAliasDataContext(yaml.AliasDataServices) (yaml.AliasDataContext, error) {
	return strict{}, nil
}

// BeginDocument has nothing to do.
func (strict) BeginDocument() error { return nil }

// EndDocument has nothing to do.
func (strict) EndDocument() error { return nil }

// DefineAnchor refuses every anchor.
func (strict) DefineAnchor(string, *yaml.Node) error { return errAnchor }

// ResolveAlias refuses every alias.
func (strict) ResolveAlias(string) (*yaml.Node, bool, error) { return nil, false, errAlias }

// syntax reports an error of the library at its place.
func (f *File) syntax(src string, err error) {
	var e *yaml.LoadError
	if !errors.As(err, &e) {
		f.Failf(Pos{1, 1}, "%v", err)
		return
	}
	at := f.clamp(Pos{int32(e.Mark.Line), int32(e.Mark.Column)})
	f.Failf(at, "%s", explain(e, charAt(src, at)))
}

// explain is the library's message, or a better one where it says too little for a common mistake.
func explain(e *yaml.LoadError, at rune) string {
	switch {
	case e.ContextMsg == "while scanning an alias":
		return errAlias.Error()
	case e.Message == "found character that cannot start any token" && at == '\t':
		return "a tab in the indentation; use spaces"
	case e.Message == "found character that cannot start any token":
		return fmt.Sprintf("a value cannot begin with %q; put it in quotes", string(at))
	case e.Message == errDepth.Error() || e.ContextMsg == "":
		return e.Message
	case e.ContextMark.Line == 0:
		return fmt.Sprintf("%s (%s)", e.Message, e.ContextMsg)
	}
	return fmt.Sprintf("%s (%s that begins in line %d)", e.Message, e.ContextMsg, e.ContextMark.Line)
}

// convert makes our node of one of the library's, and reports what we do not accept in it. It
// recurses at most twice MaxDepth deep, thanks to CheckDepth, before it sees that this is too deep.
func (f *File) convert(n *yaml.Node, depth int) Node {
	out := Node{Pos: f.clamp(Pos{int32(n.Line), int32(n.Column)})}
	if n.Style&yaml.TaggedStyle != 0 || n.Tag == "!" {
		f.Failf(out.Pos, `tags ("!") are not supported; put the value in quotes`)
		return out
	}
	if n.Kind != yaml.ScalarNode && depth > MaxDepth {
		f.Failf(out.Pos, "%v", errDepth)
		return out
	}
	switch n.Kind {
	case yaml.SequenceNode:
		out.Kind = List
		out.Items = make([]Node, len(n.Content))
		for i, item := range n.Content {
			out.Items[i] = f.convert(item, depth+1)
		}
	case yaml.MappingNode:
		out.Kind = Map
		out.Fields = f.fields(n.Content, depth)
	default:
		out.Kind, out.Text = scalar(n)
	}
	return out
}

// quoted are the styles of scalars that are a text whatever they look like.
const quoted = yaml.DoubleQuotedStyle | yaml.SingleQuotedStyle | yaml.LiteralStyle | yaml.FoldedStyle

func scalar(n *yaml.Node) (Kind, string) {
	switch {
	case n.Style&quoted != 0:
		return Quoted, n.Value
	case n.Tag == "!!null":
		return Null, n.Value
	}
	return Plain, n.Value
}

// fields converts the keys and values of a mapping, which stand in turn.
func (f *File) fields(content []*yaml.Node, depth int) []Field {
	fields := make([]Field, 0, len(content)/2)
	keys := newKeySet(len(content) / 2)
	for i := 0; i+1 < len(content); i += 2 {
		key := f.key(content[i])
		if key.Kind != Null && !keys.add(key.Text, fields) {
			f.Failf(key.Pos, "%s is there twice; remove one", Show(key.Text))
		}
		fields = append(fields, Field{Key: key.Text, KeyPos: key.Pos, Value: f.convert(content[i+1], depth+1)})
	}
	return fields
}

// key reads the key of a field, or reports it and returns Null.
func (f *File) key(n *yaml.Node) Node {
	at := f.clamp(Pos{int32(n.Line), int32(n.Column)})
	if n.Kind != yaml.ScalarNode {
		f.Failf(at, "a key cannot be a list or a mapping; put it in quotes")
		return Node{Pos: at}
	}
	before := f.count
	key := f.convert(n, 0)
	switch {
	case f.count > before:
		return Node{Pos: at}
	case key.Kind == Null:
		f.Failf(at, `a key is null; write "key: value", in quotes if the key is null`)
	case key.Kind == Plain && key.Text == "<<":
		f.Failf(at, `merge keys ("<<") are not supported; write the fields out`)
		return Node{Pos: at}
	}
	return key
}

// keySet tells whether a key is new among the fields of a mapping. Small mappings are searched,
// since almost all are small; big ones get an index, so that no file takes quadratic time.
type keySet map[string]struct{}

func newKeySet(fields int) keySet {
	const small = 16
	if fields <= small {
		return nil
	}
	return make(keySet, fields)
}

func (s keySet) add(key string, before []Field) bool {
	if s == nil {
		for i := range before {
			if before[i].Key == key {
				return false
			}
		}
		return true
	}
	if _, twice := s[key]; twice {
		return false
	}
	s[key] = struct{}{}
	return true
}
