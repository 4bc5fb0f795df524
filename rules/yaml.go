package rules

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// kind is what a value of the file is. The zero value is null.
type kind uint8

const (
	kindNull   kind = iota // nothing at all, ~ or null
	kindPlain              // a scalar without quotes
	kindQuoted             // a scalar in quotes
	kindList               // block or [flow]
	kindMap                // block or {flow}
)

// value is one value of the file and all that is in it. It shares the text.
type value struct {
	kind kind
	pos  int    // byte offset in the file
	text string // of a scalar, without quotes and escapes
	kids []kid  // of a list or mapping
}

// kid is a field of a mapping or, with no key, an item of a list.
type kid struct {
	key    string
	keyPos int
	value  value
}

const (
	// maxDepth bounds how deep lists and mappings nest. A rule needs five levels.
	maxDepth = 64
	// maxFields bounds the fields of one mapping, so that looking for
	// duplicates is cheap. A rule has twelve.
	maxFields = 64
	// maxValues bounds the values of a file, and with them the memory that the worst file takes
	// to read to less than a gigabyte. Rules have about twenty values each.
	maxValues = 2 << 20
)

// problem is an error at a byte offset; Parse gives it a line and a column.
type problem struct {
	pos     int
	message string
}

func (p *problem) Error() string { return p.message }

func failf(pos int, format string, args ...any) error {
	return &problem{pos, fmt.Sprintf(format, args...)}
}

// reader reads the subset of YAML 1.2 that doc.go names: one pass, time and memory linear in
// the text. Whatever is outside the subset is an error at its place. What it accepts means the
// same to a full YAML reader.
//
// Comments say that a thing is "here" if src[off] is its first byte.
type reader struct {
	src   string
	off   int
	line  int   // where the line of off begins
	depth int   // open lists and mappings
	count int   // values so far
	begun bool  // a document has begun; another "---" would be a second one
	rest  int   // where a second document begins; 0 if none does
	kids  []kid // of the open lists and mappings, the innermost last
}

// read reads the whole text. The error is a *problem.
func read(src string) (value, error) {
	if err := checkText(src); err != nil {
		return value{}, err
	}
	r := &reader{src: src}
	if !r.next() {
		return value{}, failf(0, `the file is empty; write "domain:" and "rules:"`)
	}
	r.begun = true
	v, err := r.block()
	if err != nil {
		return value{}, err
	}
	if r.next() {
		if v.kind < kindList {
			return value{}, failf(v.pos, `no ": " after %s; write "key: value"`, show(v.text))
		}
		return value{}, failf(r.off, "this line does not belong to the lines above it; line it up with one of them")
	}
	if r.rest > 0 {
		return value{}, failf(r.rest, "a second document begins; keep one document in a file")
	}
	return v, nil
}

// checkText refuses what is no text at all, so that nothing else has to look for it.
func checkText(src string) error {
	for i := 0; i < len(src); i++ {
		switch c := src[i]; {
		case c == '\t' || c == '\n' || c == '\r' && strings.HasPrefix(src[i+1:], "\n"):
		case c < ' ' || c == 0x7f:
			return failf(i, `control character %q; remove it`, c)
		case c < utf8.RuneSelf:
		default:
			r, size := utf8.DecodeRuneInString(src[i:])
			if r == utf8.RuneError && size == 1 {
				return failf(i, "byte %#02x is not UTF-8; save the file as UTF-8", c)
			}
			i += size - 1
		}
	}
	return nil
}

// next goes to the next token, over blanks, comments and ends of lines. It is
// false at the end of the document.
func (r *reader) next() bool {
	for r.off < len(r.src) {
		c := r.src[r.off]
		switch {
		case r.off == r.line && r.marker():
			if r.begun || c == '.' {
				r.rest, r.src = r.off, r.src[:r.off]
				return false
			}
			r.begun = true
			r.off += len("---")
		case c == '\n':
			r.off++
			r.line = r.off
		case c == ' ' || c == '\t' || c == '\r':
			r.off++
		case r.comment():
			r.skipLine()
		default:
			return true
		}
	}
	return false
}

// marker reports whether a line "---" or "..." begins here.
func (r *reader) marker() bool {
	rest := r.src[r.off:]
	return (strings.HasPrefix(rest, "---") || strings.HasPrefix(rest, "...")) && blankAt(rest, 3)
}

// comment reports whether a comment begins here: "#" after a blank or first in its line.
func (r *reader) comment() bool {
	return r.src[r.off] == '#' && (r.off == r.line || r.src[r.off-1] == ' ' || r.src[r.off-1] == '\t')
}

func (r *reader) skipLine() {
	if n := strings.IndexByte(r.src[r.off:], '\n'); n >= 0 {
		r.off += n
		return
	}
	r.off = len(r.src)
}

func (r *reader) skipBlanks() {
	for r.off < len(r.src) && (r.src[r.off] == ' ' || r.src[r.off] == '\t') {
		r.off++
	}
}

// blankAt reports whether s[i] ends a word: a blank, the end of the line or of s.
func blankAt(s string, i int) bool {
	return i >= len(s) || strings.IndexByte(" \t\r\n", s[i]) >= 0
}

// indent is the column, from 0, of the token here.
func (r *reader) indent() (int, error) {
	if i := strings.IndexByte(r.src[r.line:r.off], '\t'); i >= 0 {
		return 0, failf(r.line+i, "a tab in the indentation; use spaces")
	}
	return r.off - r.line, nil
}

// entry reports whether the "-" of a list's item is here.
func (r *reader) entry() bool { return r.src[r.off] == '-' && blankAt(r.src, r.off+1) }

// open begins a list or mapping. Its kids are r.kids[first:] until it is closed.
func (r *reader) open() (first int, err error) {
	if r.depth++; r.depth > maxDepth {
		return 0, failf(r.off, "lists and mappings nest more than %d deep", maxDepth)
	}
	return len(r.kids), nil
}

// close ends the list or mapping that was opened last.
func (r *reader) close(k kind, pos, first int) value {
	r.depth--
	v := value{kind: k, pos: pos, kids: slices.Clone(r.kids[first:])}
	r.kids = r.kids[:first]
	return v
}

// add adds a kid to the list or mapping that is open.
func (r *reader) add(k kid) error {
	if r.count++; r.count > maxValues {
		return failf(k.value.pos, "more than %d values in the file; split it", maxValues)
	}
	r.kids = append(r.kids, k)
	return nil
}

// field adds a field to the mapping that is open.
func (r *reader) field(first int, key, v value) error {
	fields := r.kids[first:]
	for i := range fields {
		if fields[i].key == key.text {
			return failf(key.pos, "%s is there twice; remove one", show(key.text))
		}
	}
	if len(fields) == maxFields {
		return failf(key.pos, "more than %d fields in one mapping", maxFields)
	}
	return r.add(kid{key: key.text, keyPos: key.pos, value: v})
}

// block reads the value that begins with the token here, the first of its line or of a list's
// item: the only places where a list or a mapping without brackets can begin.
func (r *reader) block() (value, error) {
	col, err := r.indent()
	if err != nil {
		return value{}, err
	}
	if r.entry() {
		return r.blockList(col)
	}
	v, err := r.node(false)
	if err != nil {
		return value{}, err
	}
	if v.kind <= kindQuoted && r.colon(v, false) {
		return r.blockMap(col, v)
	}
	return v, r.endLine()
}

// blockList reads a list whose dashes stand in column col, from its first dash on.
func (r *reader) blockList(col int) (value, error) {
	first, err := r.open()
	if err != nil {
		return value{}, err
	}
	for pos := r.off; ; {
		item := value{pos: r.off}
		r.off++
		if r.next() {
			at, err := r.indent()
			if err != nil {
				return value{}, err
			}
			if at > col {
				if item, err = r.block(); err != nil {
					return value{}, err
				}
			}
		}
		if err := r.add(kid{value: item}); err != nil {
			return value{}, err
		}
		more, err := r.sibling(col)
		if err != nil {
			return value{}, err
		}
		if !more || !r.entry() {
			return r.close(kindList, pos, first), nil
		}
	}
}

// blockMap reads a mapping whose keys begin in column col, from the colon after
// its first key on.
func (r *reader) blockMap(col int, key value) (value, error) {
	first, err := r.open()
	if err != nil {
		return value{}, err
	}
	for pos := key.pos; ; {
		field, err := r.blockValue(col)
		if err != nil {
			return value{}, err
		}
		if err := r.field(first, key, field); err != nil {
			return value{}, err
		}
		more, err := r.sibling(col)
		if err != nil {
			return value{}, err
		}
		if !more {
			return r.close(kindMap, pos, first), nil
		}
		if r.entry() {
			return value{}, failf(r.off, `a list's item among the fields of a mapping; indent it, or write "key: value"`)
		}
		if key, err = r.scalar(false); err != nil {
			return value{}, err
		}
		if !r.colon(key, false) {
			return value{}, failf(key.pos, `no ": " after %s; write "key: value"`, show(key.text))
		}
	}
}

// blockValue reads the value after the colon here, of a key in column col.
func (r *reader) blockValue(col int) (value, error) {
	v := value{pos: r.off}
	line := r.line
	r.off++
	if !r.next() {
		return v, nil
	}
	if r.line != line {
		at, err := r.indent()
		if err != nil {
			return value{}, err
		}
		if at > col || at == col && r.entry() {
			return r.block()
		}
		return v, nil
	}
	if r.entry() {
		return value{}, failf(r.off, `a list's item in the line of its key; begin a line with it, or write "[...]"`)
	}
	v, err := r.node(false)
	if err != nil {
		return value{}, err
	}
	return v, r.endLine()
}

// sibling goes on to the next token and reports whether it continues a list or
// mapping in column col. One further left belongs to an outer one.
func (r *reader) sibling(col int) (bool, error) {
	if !r.next() {
		return false, nil
	}
	at, err := r.indent()
	if err != nil {
		return false, err
	}
	if at > col {
		return false, failf(r.off, "this line is indented more than the lines that it follows; "+
			"line it up with them (a value that goes over several lines is not supported)")
	}
	return at == col, nil
}

// endLine refuses anything but a comment in the rest of the line.
func (r *reader) endLine() error {
	r.skipBlanks()
	switch {
	case blankAt(r.src, r.off) || r.comment():
		return nil
	case r.src[r.off] == ':':
		return failf(r.off, `": " in a value; put the value in quotes, or begin a line with the key`)
	}
	return failf(r.off, "unexpected text after the value; put the whole value in quotes")
}

// node reads a list or mapping in brackets, or a scalar.
func (r *reader) node(inFlow bool) (value, error) {
	switch r.src[r.off] {
	case '[':
		return r.flow(kindList, "]", r.flowItem)
	case '{':
		return r.flow(kindMap, "}", r.flowField)
	}
	return r.scalar(inFlow)
}

// flow reads a list or mapping in brackets; part reads one item or field of it.
func (r *reader) flow(k kind, end string, part func(first int) error) (value, error) {
	first, err := r.open()
	if err != nil {
		return value{}, err
	}
	pos := r.off
	unclosed := func() error { return failf(pos, "%q is not closed; its %q is missing", r.src[pos:pos+1], end) }
	for {
		r.off++ // the opening bracket or a comma
		if !r.next() {
			return value{}, unclosed()
		}
		if r.src[r.off] != end[0] {
			if err := part(first); err != nil {
				return value{}, err
			}
			if !r.next() {
				return value{}, unclosed()
			}
		}
		switch r.src[r.off] {
		case end[0]:
			r.off++
			return r.close(k, pos, first), nil
		case ',':
		default:
			return value{}, failf(r.off, `%q or "," is missing here; put a value that has one of ,[]{} in quotes, and all of it in one line`, end)
		}
	}
}

func (r *reader) flowItem(int) error {
	v, err := r.node(true)
	if err != nil {
		return err
	}
	return r.add(kid{value: v})
}

func (r *reader) flowField(first int) error {
	key, err := r.scalar(true)
	if err != nil {
		return err
	}
	if !r.colon(key, true) {
		return failf(key.pos, `no ": " after %s; write {key: value}`, show(key.text))
	}
	v := value{pos: r.off}
	r.off++
	if r.next() && r.src[r.off] != ',' && r.src[r.off] != '}' {
		if v, err = r.node(true); err != nil {
			return err
		}
	}
	return r.field(first, key, v)
}

// colon goes on to the colon that makes key a key and reports whether there is one.
func (r *reader) colon(key value, inFlow bool) bool {
	r.skipBlanks()
	return r.off < len(r.src) && r.src[r.off] == ':' && (r.plainEnds(r.off+1, inFlow) || inFlow && key.kind == kindQuoted)
}
