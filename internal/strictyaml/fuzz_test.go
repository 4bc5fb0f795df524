package strictyaml

import (
	"fmt"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"pgregory.net/rapid"
)

// seeds are texts in each style of writing.
var seeds = []string{
	"# a comment\na: b # another\nc:\n- d: 'it''s'\n  e: \"\\u00e9\\n\"\n-\n- [f, {g: ~}, ]\n",
	`{"a":"b","c":[{"d":1,"e":[]},{"f":{}},],}`,
	"---\r\na: b\r\nc:\r\n  -   d: 1\r\n...\r\n",
	"a: |\n  b\n  c\n\nd: >-\n  e\n  f\ng: h\n  i\n? j\n: k\n",
	"a: &b c\n", "a: *b\n", "a: !c d\n", "<<: {a: b}\n", "a: b\n---\nc: d\n", "%YAML 1.2\n---\na\n", "a: 1\na: 2\n",
}

// check holds what Parse promises of any text.
func check(t *testing.T, text string) {
	t.Helper()
	f := &File{Package: "p", Name: "f", MaxSize: 1 << 20}
	root := f.Parse([]byte(text))
	if (root == nil) != (f.Err() != nil) {
		t.Fatalf("%q: %v, %v", text, root, f.Err())
	}
	lines := strings.Split(strings.TrimPrefix(text, "\ufeff"), "\n")
	if root == nil {
		for _, e := range f.Err().(Errors) {
			checkPos(t, text, lines, Pos{int32(e.Line), int32(e.Column)})
			if e.Message == "" || !utf8.ValidString(e.Message) {
				t.Fatalf("%q: %+v", text, *e)
			}
		}
		return
	}
	checkNode(t, text, lines, root)
	checkPlain(t, strings.TrimPrefix(text, "\ufeff"))
	again := &File{Package: "p", MaxSize: 1 << 24}
	same := again.Parse([]byte(json(root)))
	if same == nil {
		t.Fatalf("%q: %s: %v", text, json(root), again.Err())
	}
	if json(same) != json(root) {
		t.Fatalf("%q: %s, then %s", text, json(root), json(same))
	}
}

func checkPos(t *testing.T, text string, lines []string, at Pos) {
	t.Helper()
	if at.Line < 1 || int(at.Line) > len(lines) || at.Column < 1 || int(at.Column) > utf8.RuneCountInString(lines[at.Line-1])+1 {
		t.Fatalf("%q: %d:%d is no place in the text", text, at.Line, at.Column)
	}
}

// checkNode holds that values stand where they say.
func checkNode(t *testing.T, text string, lines []string, n *Node) {
	t.Helper()
	checkPos(t, text, lines, n.Pos)
	if n.Kind == Plain {
		first := n.Text[:strings.IndexAny(n.Text+" ", " \t\n")]
		line := []rune(lines[n.Pos.Line-1])
		if !strings.HasPrefix(string(line[n.Pos.Column-1:]), first) {
			t.Fatalf("%q: %q does not stand at %d:%d", text, n.Text, n.Pos.Line, n.Pos.Column)
		}
	}
	seen := make(map[string]bool)
	for i := range n.Items {
		checkNode(t, text, lines, &n.Items[i])
	}
	for i := range n.Fields {
		field := &n.Fields[i]
		if seen[field.Key] {
			t.Fatalf("%q: %q twice", text, field.Key)
		}
		seen[field.Key] = true
		checkPos(t, text, lines, field.KeyPos)
		checkPos(t, text, lines, field.Pos())
		checkNode(t, text, lines, &field.Value)
	}
}

// FuzzParse holds that what is read stands where it says, and means the same when it is
// written plainly.
func FuzzParse(f *testing.F) {
	for _, s := range append(plainly, seeds...) {
		f.Add(s)
	}
	f.Fuzz(check)
}

// Every text cut short, and with a byte changed or added.
func TestDamaged(t *testing.T) {
	for _, text := range seeds {
		for i := range len(text) {
			check(t, text[:i])
			for _, c := range "\t\n\r :-{}[]'\"\\*&#!?|>%\x00\xff" {
				check(t, text[:i]+string(c)+text[i+1:])
				check(t, text[:i]+string(c)+text[i:])
			}
		}
	}
}

// json writes a value in one style.
func json(n *Node) string {
	var parts []string
	for i := range n.Items {
		parts = append(parts, json(&n.Items[i]))
	}
	for i := range n.Fields {
		parts = append(parts, quote(n.Fields[i].Key)+": "+json(&n.Fields[i].Value))
	}
	switch n.Kind {
	case Null:
		return "null"
	case List:
		return "[" + strings.Join(parts, ", ") + "]"
	case Map:
		return "{" + strings.Join(parts, ", ") + "}"
	}
	return quote(n.Text)
}

func quote(text string) string {
	var b strings.Builder
	for _, r := range text {
		switch {
		case r == '"' || r == '\\':
			b.WriteString(`\` + string(r))
		case unprintable(r):
			fmt.Fprintf(&b, `\U%08x`, r)
		default:
			b.WriteRune(r)
		}
	}
	return `"` + b.String() + `"`
}

// unprintable are the characters that only an escape can stand for.
func unprintable(r rune) bool { return unicode.IsControl(r) || refused(r) }

// A tree written in any mix of styles is read as that tree.
func TestReadWhatIsWritten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := anyNode(3).Draw(t, "value")
		text := writer{t}.block(&want, 0)
		f := &File{MaxSize: 1 << 20}
		got := f.Parse([]byte(text))
		if got == nil {
			t.Fatalf("%v in\n%s", f.Err(), text)
		}
		if json(got) != json(&want) {
			t.Fatalf("%s, want %s, in\n%s", json(got), json(&want), text)
		}
	})
}

func anyNode(depth int) *rapid.Generator[Node] {
	return rapid.Custom(func(t *rapid.T) Node {
		if depth == 0 || depth < 3 && rapid.Bool().Draw(t, "leaf") {
			return Node{Kind: Quoted, Text: rapid.OneOf(rapid.String(), rapid.StringMatching(`[a-c:#,'"*& {}\-]{0,6}`)).Draw(t, "text")}
		}
		n := Node{Kind: rapid.SampledFrom([]Kind{List, Map}).Draw(t, "kind")}
		for _, key := range rapid.SliceOfNDistinct(rapid.StringMatching(`[a-c :#-]{1,5}`), 1, 3, rapid.ID[string]).Draw(t, "keys") {
			kid := anyNode(depth-1).Draw(t, "kid")
			if n.Kind == List {
				n.Items = append(n.Items, kid)
			} else {
				n.Fields = append(n.Fields, Field{Key: key, Value: kid})
			}
		}
		return n
	})
}

// writer writes values, choosing among styles.
type writer struct{ t *rapid.T }

func (w writer) coin(what string) bool { return rapid.Bool().Draw(w.t, what) }

// block writes n as the lines that begin at the given indentation.
func (w writer) block(n *Node, indent int) string {
	if n.Scalar() || w.coin("flow") {
		return strings.Repeat(" ", indent) + w.flow(n) + "\n"
	}
	var b strings.Builder
	for i := range n.Items {
		b.WriteString(strings.Repeat(" ", indent) + "-")
		if kid := &n.Items[i]; !kid.Scalar() && w.coin("compact") {
			b.WriteString(" " + strings.TrimLeft(w.block(kid, indent+2), " "))
		} else {
			b.WriteString(w.below(kid, indent))
		}
	}
	for i := range n.Fields {
		b.WriteString(strings.Repeat(" ", indent) + w.scalar(n.Fields[i].Key) + ":" + w.below(&n.Fields[i].Value, indent))
	}
	return b.String()
}

// below writes what follows a dash or a colon, in the same line or the next ones.
func (w writer) below(n *Node, indent int) string {
	if n.Scalar() || w.coin("inline") {
		return " " + w.flow(n) + w.comment() + "\n"
	}
	return w.comment() + "\n" + w.block(n, indent+1)
}

func (w writer) comment() string {
	if w.coin("comment") {
		return " # it's a comment: [\n\n   # more"
	}
	return ""
}

func (w writer) flow(n *Node) string {
	if n.Scalar() {
		return w.scalar(n.Text)
	}
	var parts []string
	for i := range n.Items {
		parts = append(parts, w.flow(&n.Items[i]))
	}
	for i := range n.Fields {
		parts = append(parts, w.scalar(n.Fields[i].Key)+": "+w.flow(&n.Fields[i].Value))
	}
	inner := strings.Join(parts, rapid.SampledFrom([]string{",", ", ", ",\n\t ", " , # comment\n          "}).Draw(w.t, "separator")) // indented more than the block around it
	if n.Kind == Map {
		return "{" + inner + "}"
	}
	return "[ " + inner + " ]"
}

// scalar writes a text without quotes if it cannot be misunderstood.
func (w writer) scalar(text string) string {
	if strings.Trim(text, "abc") == "" && text != "" && w.coin("plain") {
		return text
	}
	if !strings.ContainsFunc(text, unprintable) && w.coin("single") {
		return "'" + strings.ReplaceAll(text, "'", "''") + "'"
	}
	return quote(text)
}
