package strictyaml

import (
	"strings"
	"unicode/utf8"
)

// In this file is a reader for the texts that are written plainly, as nearly all are: block style with one pair, or one
// item, in a line; lists and mappings in brackets within a line; scalars of letters, digits and some marks, or in quotes
// without escapes; comments. It takes a fifth of the library's time and memory.
//
// It has no rules of its own: it reads a text exactly as the library does, or not at all. Whatever it does not know for certain (text over
// several lines, nulls, tabs, escapes, a key twice, all mistakes) it leaves to the library, which reads the text from the start.
// TestPlainIsTheLibrary and FuzzParse hold both together.

const (
	// plainDepth is how deep lists and mappings nest here. MaxDepth leaves room for them.
	plainDepth = 40
	// plainLine is how long a line with more than a comment may be, in bytes: columns are counted from its beginning.
	plainLine = 4096
)

// plainText is a text that is being read line by line. The current line is text[start:end], without the comment lines and empty lines
// before it; at is the place in it that is read next.
type plainText struct {
	text       string
	start, end int
	at         int
	indent     int // spaces before the first character
	line       int32
	done       bool // there is no line any more
}

// readPlain reads a text, if it is plain.
func readPlain(text string) (*Node, bool) {
	p := &plainText{text: text, end: -1}
	p.nextLine()
	if !p.done && p.text[p.start:p.end] == "---" {
		p.nextLine()
	}
	if p.done || p.indent != 0 {
		return nil, false
	}
	root, ok := p.block(1)
	return &root, ok && p.done
}

// nextLine goes to the next line that has more than a comment.
func (p *plainText) nextLine() {
	for {
		p.start = p.end + 1
		if p.start >= len(p.text) {
			p.done = true
			return
		}
		p.line++
		p.end = len(p.text)
		if n := strings.IndexByte(p.text[p.start:], '\n'); n >= 0 {
			p.end = p.start + n
		}
		p.at = p.start
		p.skipSpaces()
		if p.at < p.end && p.text[p.at] != '#' {
			p.indent = p.at - p.start
			return
		}
	}
}

func (p *plainText) skipSpaces() {
	for p.at < p.end && p.text[p.at] == ' ' {
		p.at++
	}
}

// peek is the next character of the line, 0 at its end.
func (p *plainText) peek() byte {
	if p.at < p.end {
		return p.text[p.at]
	}
	return 0
}

// place is where the line is read next.
func (p *plainText) place() Pos {
	return Pos{p.line, int32(utf8.RuneCountInString(p.text[p.start:p.at])) + 1}
}

// column is the same in bytes, as indentation counts.
func (p *plainText) column() int { return p.at - p.start }

// endLine goes to the next line, if nothing but a comment is left in this one.
func (p *plainText) endLine() bool {
	at := p.at
	p.skipSpaces()
	if p.at < p.end && (p.text[p.at] != '#' || p.at == at) {
		return false
	}
	p.nextLine()
	return true
}

// isItem reports whether a block item begins here: a dash and a space.
func (p *plainText) isItem() bool {
	return p.peek() == '-' && p.at+1 < p.end && p.text[p.at+1] == ' '
}

// block reads the list or mapping that begins here, and whose lines are indented by this column.
func (p *plainText) block(depth int) (Node, bool) {
	if depth > plainDepth {
		return Node{}, false
	}
	if p.isItem() {
		return p.items(depth)
	}
	return p.pairs(depth)
}

// items reads a list.
func (p *plainText) items(depth int) (n Node, ok bool) {
	n = Node{Kind: List, Pos: p.place()}
	column := p.column()
	for {
		p.at++
		if p.skipSpaces(); p.isItem() {
			return n, false
		}
		item, ok := p.item(depth + 1)
		if !ok || !p.done && p.indent > column {
			return n, false
		}
		n.Items = append(n.Items, item)
		if p.done || p.indent < column || !p.isItem() {
			return n, true
		}
	}
}

// item reads what follows a dash: a mapping that goes on in the next lines, or a value.
func (p *plainText) item(depth int) (Node, bool) {
	if start := p.at; isPlain(p.peek()) {
		if _, ok := p.key(); ok {
			p.at = start
			return p.block(depth)
		}
		p.at = start
	}
	n, ok := p.value(depth)
	return n, ok && p.endLine()
}

// pairs reads a mapping.
func (p *plainText) pairs(depth int) (n Node, ok bool) {
	n = Node{Kind: Map, Pos: p.place(), Fields: make([]Field, 0, 8)}
	column := p.column()
	for {
		f := Field{KeyPos: p.place()}
		if f.Key, ok = p.key(); !ok || hasKey(n.Fields, f.Key) {
			return n, false
		}
		if p.skipSpaces(); p.at == p.end || p.peek() == '#' {
			f.Value, ok = p.below(column, depth)
		} else if f.Value, ok = p.value(depth + 1); ok {
			ok = p.endLine()
		}
		if !ok || !p.done && p.indent > column {
			return n, false
		}
		n.Fields = append(n.Fields, f)
		if p.done || p.indent < column {
			return n, true
		}
	}
}

// below reads the value of a key that has none in its line: what is indented more, or a list that is not indented less.
func (p *plainText) below(column, depth int) (Node, bool) {
	p.nextLine()
	if p.done || p.indent < column || p.indent == column && !p.isItem() {
		return Node{}, false
	}
	return p.block(depth + 1)
}

// hasKey looks for a key. Mappings with many keys are none that people write.
func hasKey(fields []Field, key string) bool {
	for i := range fields {
		if fields[i].Key == key {
			return true
		}
	}
	return len(fields) >= 64
}

// key reads a key and its colon, and stops behind that.
func (p *plainText) key() (string, bool) {
	start := p.at
	for isPlain(p.peek()) {
		p.at++
	}
	if p.end-p.start > plainLine || p.at == start || !isFirst(p.text[start]) || p.at-start > 256 || p.peek() != ':' || p.at+1 < p.end && p.text[p.at+1] != ' ' {
		return "", false
	}
	key := p.text[start:p.at]
	p.at++
	return key, !isNull(key)
}

// value reads a value that ends in this line.
func (p *plainText) value(depth int) (Node, bool) {
	if p.end-p.start > plainLine {
		return Node{}, false
	}
	n := Node{Pos: p.place()}
	ok := false
	switch p.peek() {
	case '[':
		ok = depth <= plainDepth && p.flowItems(&n, depth)
	case '{':
		ok = depth <= plainDepth && p.flowPairs(&n, depth)
	case '"', '\'':
		n.Kind = Quoted
		n.Text, ok = p.quoted()
	default:
		n.Kind = Plain
		n.Text, ok = p.plain()
	}
	return n, ok
}

// flowItems reads a list in brackets.
func (p *plainText) flowItems(n *Node, depth int) bool {
	n.Kind = List
	p.at++
	if p.skipSpaces(); p.peek() == ']' {
		p.at++
		n.Items = []Node{}
		return true
	}
	for {
		item, ok := p.value(depth + 1)
		if !ok {
			return false
		}
		n.Items = append(n.Items, item)
		p.skipSpaces()
		switch p.peek() {
		case ',':
			p.at++
			p.skipSpaces()
		case ']':
			p.at++
			return true
		default:
			return false
		}
	}
}

// flowPairs reads a mapping in braces.
func (p *plainText) flowPairs(n *Node, depth int) bool {
	n.Kind = Map
	p.at++
	if p.skipSpaces(); p.peek() == '}' {
		p.at++
		n.Fields = []Field{}
		return true
	}
	for {
		f := Field{KeyPos: p.place()}
		var ok bool
		if f.Key, ok = p.key(); !ok || hasKey(n.Fields, f.Key) {
			return false
		}
		p.skipSpaces()
		if f.Value, ok = p.value(depth + 1); !ok {
			return false
		}
		n.Fields = append(n.Fields, f)
		p.skipSpaces()
		switch p.peek() {
		case ',':
			p.at++
			p.skipSpaces()
		case '}':
			p.at++
			return true
		default:
			return false
		}
	}
}

// quoted reads a text in quotes that ends in this line and has no escape.
func (p *plainText) quoted() (string, bool) {
	mark := p.peek()
	rest := p.text[p.at+1 : p.end]
	n := strings.IndexByte(rest, mark)
	if n < 0 {
		return "", false
	}
	text := rest[:n]
	p.at += n + 2
	return text, mark == '\'' || strings.IndexByte(text, '\\') < 0
}

// plain reads a text without quotes: words with one blank between them.
func (p *plainText) plain() (string, bool) {
	start := p.at
	if !isFirst(p.peek()) {
		return "", false
	}
	for isPlain(p.peek()) || p.peek() == ' ' && p.at+1 < p.end && isPlain(p.text[p.at+1]) {
		p.at++
	}
	text := p.text[start:p.at]
	return text, !isNull(text)
}

// isNull reports whether a text without quotes is none.
func isNull(text string) bool {
	return text == "null" || text == "Null" || text == "NULL"
}

// plains are the characters of texts without quotes, firsts those that one may begin with.
var plains, firsts = func() (all, first [256]bool) {
	for c := range 256 {
		first[c] = 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '/' || c == '_' || c == '.'
		all[c] = first[c] || c == '-' || c == '*' || c == '+' || c == '=' || c == '$'
	}
	return all, first
}()

func isPlain(c byte) bool { return plains[c] }
func isFirst(c byte) bool { return firsts[c] }
