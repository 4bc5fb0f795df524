package strictyaml

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// parse reads a text; the verdict is the tree as JSON or all errors.
func parse(text string) string {
	f := &File{Package: "p", Name: "f.yaml", MaxSize: 1 << 20}
	if root := f.Parse([]byte(text)); root != nil {
		return json(root)
	}
	return f.Err().Error()
}

func TestParse(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		// Scalars are taken as they are written.
		{"[007, 1e3, yes, off, 2024-01-02, 1:30, .inf]", `["007", "1e3", "yes", "off", "2024-01-02", "1:30", ".inf"]`},
		{"[~, null, Null, NULL, '', \"null\", '~']", `[null, null, null, null, "", "null", "~"]`},
		{"a:\nb:", `{"a": null, "b": null}`},
		{"", "null"},
		{"# nothing\n", "null"},
		{"---\n", "null"},
		{"\ufeffa: b", `{"a": "b"}`},
		{"a: |\n  b\n  c\nd: >-\n  e\n  f\ng: h\n  i\n", `{"a": "b\U0000000ac\U0000000a", "d": "e f", "g": "h i"}`},
		{"? a\n: b", `{"a": "b"}`},
		{"a: 'it''s' # c", `{"a": "it's"}`},
		{`"<<": "<<"`, `{"<<": "<<"}`},

		// What is refused.
		{"a: &b c", `p: f.yaml:1:4: anchors ("&") are not supported; write the value out, or put it in quotes`},
		{"a: *b", `p: f.yaml:1:4: aliases ("*" without quotes) are not supported; write "*" in quotes`},
		{"a: *", `p: f.yaml:1:5: aliases ("*" without quotes) are not supported; write "*" in quotes`},
		{"a: !!str b", `p: f.yaml:1:4: tags ("!") are not supported; put the value in quotes`},
		{"a: ! b", `p: f.yaml:1:4: tags ("!") are not supported; put the value in quotes`},
		{"!a b: c", `p: f.yaml:1:1: tags ("!") are not supported; put the value in quotes`},
		{"!!map {}", `p: f.yaml:1:1: tags ("!") are not supported; put the value in quotes`},
		{"<<: {a: b}", `p: f.yaml:1:1: merge keys ("<<") are not supported; write the fields out`},
		{"a: b\nc: {d: 1, \"d\": 2}\na: e", "p: f.yaml:2:11: \"d\" is there twice; remove one\np: f.yaml:3:1: \"a\" is there twice; remove one"},
		{": a", `p: f.yaml:1:1: a key is null; write "key: value", in quotes if the key is null`},
		{"null: a", `p: f.yaml:1:1: a key is null; write "key: value", in quotes if the key is null`},
		{"[a]: b", "p: f.yaml:1:1: a key cannot be a list or a mapping; put it in quotes"},
		{"{{a: b}: c}", "p: f.yaml:1:2: a key cannot be a list or a mapping; put it in quotes"},
		{"a: b\n---\nc: d", "p: f.yaml:2:1: a second document begins; keep one document in a file"},
		{"a: b\n...\nc", "p: f.yaml:3:1: a second document begins; keep one document in a file"},
		{"%YAML 1.2\n---\na", `p: f.yaml:1:1: directives ("%") are not supported; remove the line, or put a value in quotes`},
		{"a\n%TAG ! b", `p: f.yaml:2:1: directives ("%") are not supported; remove the line, or put a value in quotes`},
		{"ü: \xff", "p: f.yaml:1:4: byte 0xff is not UTF-8; save the file as UTF-8"},
		{"\xff\xfea\x00", "p: f.yaml:1:1: byte 0xff is not UTF-8; save the file as UTF-8"},
		{"a: \x00", `p: f.yaml:1:4: control character '\x00'; remove it`},
		{"a: b\rc: d", `p: f.yaml:1:5: control character '\r'; remove it`},
		{"a: \u0085", `p: f.yaml:1:4: control character '\u0085'; remove it`},
		{"a: \u2028", `p: f.yaml:1:4: control character '\u2028'; remove it`},
		{"a: \ufeff", `p: f.yaml:1:4: control character '\ufeff'; remove it`},

		// Errors of the library, at their place.
		{"a:\n\tb: c", "p: f.yaml:2:1: a tab in the indentation; use spaces"},
		{"a: @b", `p: f.yaml:1:4: a value cannot begin with "@"; put it in quotes`},
		{"a: b: c", "p: f.yaml:1:5: mapping values are not allowed in this context"},
		{"日: \"\\q\"", "p: f.yaml:1:5: found unknown escape character (while scanning a quoted scalar that begins in line 1)"},
		{"a:\n- b\nc", "p: f.yaml:3:2: could not find expected ':' (while scanning a simple key that begins in line 3)"},
		{"[a, b", "p: f.yaml:1:6: did not find expected ',' or ']' (while parsing a flow sequence that begins in line 1)"},
		{`"\ud83d\ude00"`, "p: f.yaml:1:4: found invalid Unicode character escape code (while scanning a quoted scalar that begins in line 1)"},
	} {
		if got := parse(c.text); got != c.want {
			t.Errorf("%q:\n got %s\nwant %s", c.text, got, c.want)
		}
	}
}

func TestPlaces(t *testing.T) {
	f := &File{MaxSize: 1 << 10}
	root := f.Parse([]byte("# c\nä:  [é, 'b', {c: }]\nd:\n"))
	if root == nil {
		t.Fatal(f.Err())
	}
	list := root.Fields[0].Value
	for _, c := range []struct {
		what      string
		got, want Pos
	}{
		{"root", root.Pos, Pos{2, 1}},
		{"key", root.Fields[0].KeyPos, Pos{2, 1}},
		{"list", root.Fields[0].Pos(), Pos{2, 5}},
		{"é", list.Items[0].Pos, Pos{2, 6}},
		{"b", list.Items[1].Pos, Pos{2, 9}},
		{"map", list.Items[2].Pos, Pos{2, 14}},
		{"c", list.Items[2].Fields[0].Pos(), Pos{2, 15}},
		{"d", root.Fields[1].Pos(), Pos{3, 1}},
	} {
		if c.got != c.want {
			t.Errorf("%s at %v, want %v", c.what, c.got, c.want)
		}
	}
	if kinds := []Kind{list.Items[0].Kind, list.Items[1].Kind, list.Items[2].Kind, root.Fields[1].Value.Kind}; !slices.Equal(kinds, []Kind{Plain, Quoted, Map, Null}) {
		t.Errorf("kinds %v", kinds)
	}
}

// Each of the limits holds at its value and not below it.
func TestLimits(t *testing.T) {
	nested := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	mixed := func(n int) string { return strings.Repeat("- ", n/2) + nested(n/2) }
	var indentless strings.Builder // a list and a mapping for each level, both in one column
	for i := range MaxDepth {
		fmt.Fprintf(&indentless, "%*s\n%*s- b:\n", 2*i+2, "a:", 2*i, "")
	}
	deep := "lists and mappings nest more than 64 deep"
	for _, c := range []struct{ name, text, want string }{
		{"brackets", nested(MaxDepth), ""},
		{"too many brackets", nested(MaxDepth + 1), "p: 1:65: " + deep},
		{"dashes", strings.Repeat("- ", MaxDepth) + "a", ""},
		{"too many dashes", strings.Repeat("- ", MaxDepth+1) + "a", "p: 1:129: " + deep},
		{"mixed", mixed(MaxDepth), ""},
		{"too many mixed", mixed(MaxDepth + 2), "p: 1:98: " + deep},
		{"indentless", indentless.String(), deep},
		{"keys", strings.Repeat("? ", MaxDepth+1) + "a", deep},
		{"marks", strings.Repeat("-", MaxMarks), ""},
		{"too many marks", "a: b\n" + strings.Repeat("-", MaxMarks-1), "p: 2:1048575: more than 1048576 marks of punctuation in the file; split it"},
		{"size", "a:" + strings.Repeat(" ", 1<<21-2), ""},
		{"too long", strings.Repeat("a", 1<<21+1), "p: 1:1: the file has more than 2097152 bytes; split it"},
	} {
		f := &File{Package: "p", MaxSize: 1 << 21}
		root := f.Parse([]byte(c.text))
		switch err := f.Err(); {
		case c.want == "" && root == nil:
			t.Errorf("%s: %v", c.name, err)
		case c.want != "" && (root != nil || err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: %v, want %s", c.name, err, c.want)
		}
	}
}

// Texts whose reading time, memory or depth could grow faster than their size.
func TestHostile(t *testing.T) {
	const n = 1 << 16
	many := func(unit string) string { return strings.Repeat(unit, n/len(unit)) }
	var keys strings.Builder
	for i := range n / 16 {
		fmt.Fprintf(&keys, "key%d: 1\n", i)
	}
	for name, text := range map[string]string{
		"a million brackets": strings.Repeat("[", 1_000_000), "braces": many("{a: "), "keys in keys": many("? "), "dashes": many("- "), "colons": many(": "),
		"closed": "[" + many("[],"), "items": many("-\n"), "nulls": "[" + many("~,"), "fields": "{" + many("a:,"),
		"different keys": keys.String() + keys.String(), "one line": many("a"), "quotes": "'" + many("''"), "escapes": `"` + many(`\n`),
		"one key": many("k") + ": a", "lines": many("a\n"), "comments": many("#\n"), "comments of items": many("- #\n#\n"),
		"markers": many("---\n"), "tags": "[" + many("!a b,"), "anchors": "[" + many("&a b,"), "blanks": many(" "), "spread": "|\n" + many("\n"),
		"number": many("1"), "blocks": many("- |\n a\n"),
	} {
		start := time.Now()
		f := &File{Package: "p", MaxSize: 1 << 24}
		f.Parse([]byte(text))
		if err := f.Err(); err != nil && len(err.Error()) > 10_000 {
			t.Errorf("%s: an error of %d bytes", name, len(err.Error()))
		}
		if took := time.Since(start); took > 20*time.Second {
			t.Errorf("%s: %d bytes took %v", name, len(text), took)
		}
	}
}

func TestFields(t *testing.T) {
	f := &File{Package: "p", Name: "f", MaxSize: 1 << 10}
	root := f.Parse([]byte("name: a\nnmae: b\nxyzzy: c\nlimit: d\n"))
	var got []string
	for field := range f.Fields(root, "a rule", []string{"limit", "name"}) {
		got = append(got, field.Key+"="+field.Value.Text)
	}
	if want := []string{"name=a", "limit=d"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	for range f.Fields(root, "a rule", []string{"limit", "name"}) {
		break
	}
	f.Unsupported(Pos{1, 7}, "name a", "write b")
	want := `p: f:1:7: name a is not supported in this version; write b
p: f:2:1: unknown field "nmae" in a rule (did you mean "name"?)
p: f:3:1: unknown field "xyzzy" in a rule; the fields are limit, name`
	if err := f.Err(); err == nil || err.Error() != want {
		t.Errorf("got:\n%v\nwant:\n%s", err, want)
	}
}

func TestErrors(t *testing.T) {
	f := &File{Package: "p"}
	if f.Err() != nil || f.Count() != 0 {
		t.Errorf("%v, %d before any problem", f.Err(), f.Count())
	}
	for i := range MaxErrors + 5 {
		f.Failf(Pos{int32(MaxErrors + 5 - i), 1}, "problem %d", i)
	}
	var all Errors
	if !errors.As(f.Err(), &all) || len(all) != MaxErrors || f.Count() != MaxErrors+5 {
		t.Fatalf("%d of %d problems: %v", len(all), f.Count(), f.Err())
	}
	if all[0].Line != 7 || all[MaxErrors-1].Line != 6 || !strings.Contains(all[MaxErrors-1].Message, "not shown") {
		t.Errorf("not in order: %v", all)
	}
	var first *Error
	if !errors.As(f.Err(), &first) || first != all[0] {
		t.Errorf("%v is not the first problem", first)
	}
	for _, c := range []struct {
		e    Error
		want string
	}{
		{Error{"p", "f", 2, 3, "m"}, "p: f:2:3: m"},
		{Error{"p", "", 2, 3, "m"}, "p: 2:3: m"},
		{Error{"p", "--flag", 0, 0, "m"}, "p: --flag: m"},
		{Error{"p", "", 0, 0, "m"}, "p: m"},
	} {
		if got := c.e.Error(); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}

func TestDidYouMean(t *testing.T) {
	known := []string{"name", "match", "limit", "on_store_error", "p"}
	for word, want := range map[string]string{
		"nmae": "name", "names": "name", "limt": "limit", "on_stroe_error": "on_store_error", "on-store-error": "on_store_error",
		"Match": "match", "": "", "x": "", "rate": "", "unlimited": "",
	} {
		if want != "" {
			want = fmt.Sprintf(" (did you mean %q?)", want)
		}
		if got := DidYouMean(word, known); got != want {
			t.Errorf("%q: %q, want %q", word, got, want)
		}
	}
}

func TestShow(t *testing.T) {
	for text, want := range map[string]string{
		"a\n":                          `"a\n"`,
		strings.Repeat("a", 81):        `"` + strings.Repeat("a", 80) + `"...`,
		strings.Repeat("a", 79) + "ü!": `"` + strings.Repeat("a", 79) + `"...`,
	} {
		if got := Show(text); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

func TestReadFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(path, []byte("12345"), 0o600); err != nil {
		t.Fatal(err)
	}
	for most, want := range map[int]string{5: "12345", 4: "12345", 3: "1234"} {
		if got, err := ReadFile(path, most); string(got) != want || err != nil {
			t.Errorf("%d: %q, %v, want %q", most, got, err, want)
		}
	}
	var pathErr *os.PathError
	if _, err := ReadFile(path+"x", 1); !errors.As(err, &pathErr) {
		t.Errorf("%v is no PathError", err)
	}
}

func BenchmarkParse(b *testing.B) {
	text := []byte("rules:\n" + strings.Repeat("  - name: a\n    match: [{key: route, value: /pay}, {key: user}]\n    limit: 100/s\n", 1000))
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		f := &File{MaxSize: 1 << 20}
		if f.Parse(text) == nil {
			b.Fatal(f.Err())
		}
	}
}
