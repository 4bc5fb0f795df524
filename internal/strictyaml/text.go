package strictyaml

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// MaxMarks bounds the marks of punctuation that YAML gives a meaning, and the ends of lines, of
// one text. Every token that the library makes of a text begins with one or follows
// one, so this bounds the memory that it takes for the worst text, to about a
// gigabyte. A rule in block style has about 32 of them, in JSON about 73.
const MaxMarks = 1 << 20

// marks are the characters that MaxMarks counts.
var marks = func() (is [256]bool) {
	for _, c := range []byte("-?:,[]{}#&*!|>'\"%@`\n") {
		is[c] = true
	}
	return is
}()

// checkText refuses what is no text, what would take the library too long, and what would make
// its lines and columns differ from an editor's.
func (f *File) checkText(text string) bool {
	left := MaxMarks
	for i := 0; i < len(text); i++ {
		c := text[i]
		if marks[c] {
			if left--; left < 0 {
				f.Failf(posAt(text, i), "more than %d marks of punctuation in the file; split it", MaxMarks)
				return false
			}
		}
		switch {
		case c == '%' && (i == 0 || text[i-1] == '\n'):
			f.Failf(posAt(text, i), `directives ("%%") are not supported; remove the line, or put a value in quotes`)
			return false
		case c == '\t' || c == '\n' || c == '\r' && strings.HasPrefix(text[i+1:], "\n"):
		case c >= ' ' && c < 0x7f:
		default:
			r, size := utf8.DecodeRuneInString(text[i:])
			if r == utf8.RuneError && size == 1 {
				f.Failf(posAt(text, i), "byte %#02x is not UTF-8; save the file as UTF-8", c)
				return false
			}
			if refused(r) {
				f.Failf(posAt(text, i), "control character %q; remove it", r)
				return false
			}
			i += size - 1
		}
	}
	return true
}

// refused reports whether a character is none that a text can have: controls, what some readers
// take for the end of a line, and what Unicode says is no character.
func refused(r rune) bool {
	return unicode.IsControl(r) || r == '\u2028' || r == '\u2029' || r == '\ufeff' || r == '\ufffe' || r == '\uffff'
}

// posAt is the place of a byte.
func posAt(text string, offset int) Pos {
	before := text[:offset]
	start := strings.LastIndexByte(before, '\n') + 1
	return Pos{
		Line:   int32(strings.Count(before, "\n")) + 1,
		Column: int32(utf8.RuneCountInString(before[start:])) + 1,
	}
}

// clamp moves a place that lies behind the text to its end: the library counts an end of the
// last line that the text may not have.
func (f *File) clamp(at Pos) Pos {
	switch {
	case at.Line < 1:
		return Pos{1, 1}
	case at.Line > f.end.Line || at.Line == f.end.Line && at.Column > f.end.Column:
		return f.end
	}
	return at
}

// charAt is the character at a place, or 0 at the end of a line.
func charAt(text string, at Pos) rune {
	for range at.Line - 1 {
		_, text, _ = strings.Cut(text, "\n")
	}
	line, _, _ := strings.Cut(text, "\n")
	for _, r := range line {
		if at.Column--; at.Column == 0 {
			return r
		}
	}
	return 0
}
