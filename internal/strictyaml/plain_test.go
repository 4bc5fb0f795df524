package strictyaml

import (
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// byLibrary is what the library makes of a text, and nil if it is refused.
func byLibrary(src string) *Node {
	f := &File{Package: "p", MaxSize: 1 << 20}
	if !f.checkText(src) {
		return nil
	}
	f.end = posAt(src, len(src))
	doc, err := load(src)
	if err != nil || doc == nil {
		return nil
	}
	root := f.convert(doc, 1)
	if f.count > 0 {
		return nil
	}
	return &root
}

// checkPlain holds that a text that is read plainly is read as the library does. It reports whether it was.
func checkPlain(t interface{ Fatalf(string, ...any) }, text string) bool {
	f := &File{Package: "p", MaxSize: 1 << 20}
	if !f.checkText(text) {
		return false
	}
	got, ok := readPlain(text)
	if !ok {
		return false
	}
	if want := byLibrary(text); !reflect.DeepEqual(got, want) {
		t.Fatalf("%q:\nplain   %+v\nlibrary %+v", text, got, want)
	}
	return true
}

// plainly are texts that are to be read without the library.
var plainly = []string{
	"a: b\n",
	"a: b",
	"---\na: b c  # comment\n",
	"# c\n\na:\n  b: c\n  d:\n  - e\n  - f: g\n    h: [i, \"j k\", {l: 'm', n: []}, {}]\n  -   o: p\n      q: r\n\n  # c\ns: 1.5\n",
	"a:\n- b\n- c: d\n  e: f\ng: h\n",
	"a:\n    - {b: c}\n    - [d]\n",
	"a: \"ü#: {}\" # ü\nb: {c: \"日\", d: 'e\"f'}\n",
	"- a: b\n- c\n- [d, e]\n",
	"a: [ b , c ]\nd: { e: f , g: h }\n",
	"a:   # c\n  b: c\n",
}

func TestPlain(t *testing.T) {
	for _, text := range plainly {
		if !checkPlain(t, text) {
			t.Errorf("%q was left to the library", text)
		}
	}
}

// What is not known for certain is left to the library.
func TestNotPlain(t *testing.T) {
	for _, text := range []string{"", "#\n", "a", "a:\n", "a: ~\n", "a: null\n", "null: a\n", "a: b\n  c\n", "a: b\na: c\n", "a: {b: c, b: d}\n", "a: [b,\n c]\n",
		"a: \"b\\n\"\n", "a: 'b''c'\n", "a: \"b\n", "a: b: c\n", "a: |\n  b\n", "a: &b c\n", "a: *b\n", "a: !b c\n", "<<: {a: b}\n", "? a\n: b\n", "a: - b\n", "- - a\n",
		"a: b\n---\nc: d\n", "a: b\n...\n", "a: [b, ]\n", "a: {b, c}\n", "a: {b: }\n", "a: b\n c: d\n", "  a: b\n", "a:\n  b: c\n d: e\n", "a: [b] c\n", "a: \"b\" c\n",
		"a: b#c\n", "a:b\n", "a: b\tc\n", "a: b\r\n", "a: -b\n", "a: b  c\n", "a:\n- b\n - c\n", "a: [b]#c\n", "a: {b: c}}\n",
		"a: [" + strings.Repeat("b, ", plainLine/3) + "b]\n",
		"a: " + strings.Repeat("[", plainDepth+1) + strings.Repeat("]", plainDepth+1)} {
		if _, ok := readPlain(text); ok {
			t.Errorf("%q was not left to the library", text)
		}
	}
}

// Every plain text cut short, and with a character changed or added.
func TestPlainDamaged(t *testing.T) {
	n := 0
	for _, text := range append(plainly, seeds...) {
		for i := range len(text) {
			texts := []string{text[:i]}
			for _, c := range "\n :-{}[]'\"\\*#,abn~.?|>&!%@`1" {
				texts = append(texts, text[:i]+string(c)+text[i+1:], text[:i]+string(c)+text[i:])
			}
			for _, damaged := range texts {
				if checkPlain(t, damaged) {
					n++
				}
			}
		}
	}
	if n < 1000 {
		t.Errorf("only %d texts were read plainly", n)
	}
}

// plainWriter writes values as people do.
type plainWriter struct{ *rapid.T }

func (w plainWriter) pick(what string, of ...string) string {
	return rapid.SampledFrom(of).Draw(w.T, what)
}

// block writes a list or a mapping as lines with an indentation; the first one goes on behind what is written already.
func (w plainWriter) block(depth, indent int) string {
	var b strings.Builder
	list := rapid.Bool().Draw(w.T, "list")
	for i := range rapid.IntRange(1, 4).Draw(w.T, "size") {
		if i > 0 {
			b.WriteString(w.pick("between", "", "", "# c: [\n", "\n", "      \n") + strings.Repeat(" ", indent))
		}
		deeper := depth > 0 && rapid.Bool().Draw(w.T, "deeper")
		switch {
		case list && deeper:
			below := w.block(depth-1, indent+2)
			if strings.HasPrefix(below, "- ") {
				below = w.flow(1) + "\n" // lists directly in lists are left to the library
			}
			b.WriteString("- " + below)
		case list:
			b.WriteString("-" + w.pick("gap", " ", "  ") + w.flow(depth) + w.end())
		case deeper:
			more := rapid.IntRange(1, 3).Draw(w.T, "indent")
			b.WriteString(w.key(i) + ":" + w.end() + strings.Repeat(" ", indent+more) + w.block(depth-1, indent+more))
		default:
			b.WriteString(w.key(i) + ":" + w.pick("gap", " ", "  ") + w.flow(depth) + w.end())
		}
	}
	return b.String()
}

func (w plainWriter) end() string { return w.pick("end", "\n", "\n", " # c\n", "  \n") }

func (w plainWriter) key(i int) string {
	return w.pick("key", "k", "a.b", "x-y", "/p") + strings.Repeat("1", i)
}

func (w plainWriter) flow(depth int) string {
	if depth == 0 || rapid.Bool().Draw(w.T, "scalar") {
		return w.pick("text", "a", "12", "/v1/*", "a b c", "1.5s", `"ü, #: {"`, "'it'", `""`, "x=y", "true")
	}
	var parts []string
	list := rapid.Bool().Draw(w.T, "list")
	for i := range rapid.IntRange(0, 3).Draw(w.T, "size") {
		if list {
			parts = append(parts, w.flow(depth-1))
		} else {
			parts = append(parts, w.key(i)+": "+w.flow(depth-1))
		}
	}
	inner := strings.Join(parts, w.pick("comma", ",", ", ", " , "))
	if list {
		return "[" + inner + "]"
	}
	return "{ " + inner + "}"
}

// What people write is read plainly, and that as the library does; so is what is nearly so, or it is left to the library.
func TestPlainIsTheLibrary(t *testing.T) {
	line := rapid.OneOf(
		rapid.StringMatching(` {0,4}(- ){0,2}[a-c]{1,2}:( [a-c1/.*-]{1,3})?( #[a:])?`),
		rapid.StringMatching(` {0,4}- {1,2}[a-c"'\[\]{}:, ]{1,6}`),
		rapid.StringMatching(` {0,3}[a-c]: (\[|\{)([a-c]{1,2}(: [a-c"']{1,3})?,? ?){0,3}(\]|\})`),
		rapid.StringMatching(`[ abc:#,"'{}\[\]*&!|>?%~-]{0,8}`),
		rapid.SampledFrom([]string{"", "#", "---", "...", "a: null", "a: ~"}),
	)
	rapid.Check(t, func(t *rapid.T) {
		text := plainWriter{t}.block(3, 0)
		if !checkPlain(t, text) {
			t.Fatalf("%q was left to the library", text)
		}
		at, c := rapid.IntRange(0, len(text)-1).Draw(t, "at"), rapid.SampledFrom([]string{" ", "\n", "a", ":", "-", "#", ",", "{", "]", "\"", "'", "*", "null"}).Draw(t, "put")
		checkPlain(t, text[:at]+c+text[at+rapid.IntRange(0, 1).Draw(t, "instead"):])
		checkPlain(t, strings.Join(rapid.SliceOfN(line, 1, 6).Draw(t, "lines"), "\n"))
		tree := anyNode(3).Draw(t, "value")
		checkPlain(t, writer{t}.block(&tree, 0))
	})
}
