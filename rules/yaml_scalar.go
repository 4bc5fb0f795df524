package rules

import (
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// refused says why a scalar cannot begin with a character, and what to write.
var refused = map[byte]string{
	'&': `anchors ("&") are not supported; write the value out, or put it in quotes`,
	'*': `aliases ("*" without quotes) are not supported; write "*" in quotes`,
	'!': `tags ("!") are not supported; put the value in quotes`,
	'|': `text over several lines ("|") is not supported; put the value in quotes, in one line`,
	'>': `text over several lines (">") is not supported; put the value in quotes, in one line`,
	'%': `directives ("%") are not supported; remove the line, or put a value in quotes`,
	'?': `a key or value cannot begin with "?"; put it in quotes`,
	'@': `a value cannot begin with "@"; put it in quotes`,
	'`': "a value cannot begin with \"`\"; put it in quotes",
	',': `"," without a value before it`,
	'[': `a key cannot be a list; put it in quotes`,
	'{': `a key cannot be a mapping; put it in quotes`,
	']': `"]" without "["`,
	'}': `"}" without "{"`,
	'#': `a value cannot begin with "#"; put it in quotes, or a blank before a comment`,
}

// scalar reads a word with or without quotes, all in one line.
func (r *reader) scalar(inFlow bool) (value, error) {
	switch c := r.src[r.off]; c {
	case '"':
		return r.double()
	case '\'':
		return r.single()
	case ':', '-':
		if r.plainEnds(r.off+1, inFlow) {
			return value{}, failf(r.off, "%q is no value; put it in quotes", string(c))
		}
	default:
		if why := refused[c]; why != "" {
			return value{}, failf(r.off, "%s", why)
		}
	}
	return r.plain(inFlow), nil
}

// plainEnds reports whether the byte at i ends a scalar without quotes if a
// colon stands before it.
func (r *reader) plainEnds(i int, inFlow bool) bool {
	return blankAt(r.src, i) || inFlow && strings.IndexByte(",[]{}", r.src[i]) >= 0
}

func (r *reader) plain(inFlow bool) value {
	start := r.off
scan:
	for ; r.off < len(r.src); r.off++ {
		switch r.src[r.off] {
		case '\n':
			break scan
		case ':':
			if r.plainEnds(r.off+1, inFlow) {
				break scan
			}
		case '#':
			if r.comment() {
				break scan
			}
		case ',', '[', ']', '{', '}':
			if inFlow {
				break scan
			}
		}
	}
	v := value{kind: kindPlain, pos: start, text: strings.TrimRight(r.src[start:r.off], " \t\r")}
	switch v.text {
	case "~", "null", "Null", "NULL":
		v.kind = kindNull
	}
	return v
}

// single reads a scalar in single quotes, where ” stands for one quote.
func (r *reader) single() (value, error) {
	v := value{kind: kindQuoted, pos: r.off}
	r.off++
	for start := r.off; ; r.off++ {
		if r.off == len(r.src) || r.src[r.off] == '\n' {
			return value{}, failf(v.pos, "the quote is not closed in its line")
		}
		if r.src[r.off] != '\'' {
			continue
		}
		if strings.HasPrefix(r.src[r.off:], "''") {
			r.off++
			continue
		}
		v.text = strings.ReplaceAll(r.src[start:r.off], "''", "'")
		r.off++
		return v, nil
	}
}

// double reads a scalar in double quotes.
func (r *reader) double() (value, error) {
	v := value{kind: kindQuoted, pos: r.off}
	r.off++
	start := r.off // of what is not in unescaped yet
	var unescaped []byte
	for r.off < len(r.src) && r.src[r.off] != '\n' {
		switch r.src[r.off] {
		case '"':
			v.text = r.src[start:r.off]
			if unescaped != nil {
				v.text = string(unescaped) + v.text
			}
			r.off++
			return v, nil
		case '\\':
			unescaped = append(unescaped, r.src[start:r.off]...)
			var err error
			if unescaped, err = r.escape(unescaped); err != nil {
				return value{}, err
			}
			start = r.off
		default:
			r.off++
		}
	}
	return value{}, failf(v.pos, "the quote is not closed in its line")
}

// escapes are the one-letter escapes of YAML 1.2.
var escapes = map[byte]rune{'0': 0, 'a': '\a', 'b': '\b', 't': '\t', 'n': '\n', 'v': '\v', 'f': '\f', 'r': '\r', 'e': 0x1b,
	' ': ' ', '"': '"', '/': '/', '\\': '\\', 'N': 0x85, '_': 0xa0, 'L': 0x2028, 'P': 0x2029}

// escape appends what the escape sequence here stands for.
func (r *reader) escape(to []byte) ([]byte, error) {
	at := r.off
	if at+1 == len(r.src) {
		r.off++
		return to, nil // the caller finds the end of the text
	}
	c := r.src[at+1]
	if char, ok := escapes[c]; ok {
		r.off += 2
		return utf8.AppendRune(to, char), nil
	}
	digits, ok := map[byte]int{'x': 2, 'u': 4, 'U': 8}[c]
	if !ok {
		return nil, failf(at, `unknown escape; write a backslash in double quotes twice, or use 'single quotes'`)
	}
	char, err := r.hex(digits)
	if err == nil && utf16.IsSurrogate(char) && strings.HasPrefix(r.src[r.off:], `\u`) {
		// JSON writes a character beyond 16 bits as two escapes.
		var low rune
		if low, err = r.hex(4); err == nil {
			char = utf16.DecodeRune(char, low)
			if char == utf8.RuneError {
				char = -1
			}
		}
	}
	if err != nil || !utf8.ValidRune(char) {
		return nil, failf(at, `escape of no character; write \x and 2, \u and 4 or \U and 8 hexadecimal digits`)
	}
	return utf8.AppendRune(to, char), nil
}

// hex reads an escape of so many hexadecimal digits, from its backslash on.
func (r *reader) hex(digits int) (rune, error) {
	from := r.off + len(`\x`)
	r.off = min(from+digits, len(r.src))
	n, err := strconv.ParseUint(r.src[min(from, r.off):r.off], 16, 31)
	return rune(n), err
}
