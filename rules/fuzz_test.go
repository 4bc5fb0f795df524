package rules

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

// seeds are whole, valid files: one in each style of writing.
var seeds = []string{
	`# a comment
domain: api
rules:
  - name: per-user          # another
    match: [{key: route, value: /pay}, {key: user}]
    limit: {requests: 100, per: 1s, burst: 200}
    mode: exact
    on_store_error: closed
    deadline: 10ms
  - name: 'it''s free'
    match:
    - key: plan
      value: "fr\u00e9e 😀*"
    - {key: user, value: ""}
    unlimited: true
`,
	`{"domain":"api","rules":[{"name":"a","match":[{"key":"k","value":"\ud83d\ude00"}],"limit":"1/s"},
	{"name":"b","match":[{"key":"l"}],"limit":{"requests":0,"per":"h"},},]}`,
	"---\r\ndomain: a\r\nrules:\r\n-   name: x\r\n    match:\r\n      -\r\n        key: k\r\n    limit: 7/3s\r\n",
}

// check holds what Parse promises of any text.
func check(t *testing.T, text []byte) {
	t.Helper()
	s, err := Parse("f", text)
	if err != nil {
		checkErrors(t, s, err, text)
		return
	}
	for _, r := range s.Rules() {
		switch {
		case r.Name == "" || len(r.Name) > MaxName || !utf8.ValidString(r.Name) || s.Rule(r.Domain, r.Name) != r:
			t.Fatalf("%q: name %q", text, r.Name)
		case r.Unlimited && (r.Terms != nil || r.Rate.Requests != 0), !r.Unlimited && (r.Terms == nil) != (r.Rate.Requests == 0):
			t.Fatalf("%q: rate %v", text, r.Rate)
		case len(r.Match) == 0 || len(r.Match) > MaxMatch:
			t.Fatalf("%q: match %v", text, r.Match)
		}
		d := make(Descriptor, len(r.Match))
		for i, p := range r.Match {
			d[i] = Entry{p.Key, p.Value}
			if p.Fit == Any {
				d[i].Value = "no rule says this"
			}
		}
		if s.Match(r.Domain, d) == nil {
			t.Fatalf("%q: nothing matches %q, made for %v", text, d, r.Match)
		}
	}
}

func checkErrors(t *testing.T, s *Set, err error, text []byte) {
	t.Helper()
	var all Errors
	if s != nil || !errors.As(err, &all) || len(all) == 0 || len(all) > maxErrors {
		t.Fatalf("%q: %v, %v", text, s, err)
	}
	lines := strings.Split(strings.TrimPrefix(string(text), "\ufeff"), "\n")
	for _, e := range all {
		if e.Line < 1 || e.Line > len(lines) || e.Column < 1 || e.Column > len(lines[e.Line-1])+1 || e.Message == "" || !utf8.ValidString(e.Message) {
			t.Fatalf("%q: %+v", text, *e)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range seeds {
		f.Add([]byte(s))
	}
	f.Fuzz(check)
}

// FuzzRead holds that what is read means the same when it is written plainly.
func FuzzRead(f *testing.F) {
	for _, s := range seeds {
		f.Add(s)
	}
	f.Add("a:\n- b: ~\n-\n- [c, {d: e}, ]\nf: 'g''' # h\n\"i\":\n  j: \"\\x41\\\\\"\n")
	f.Fuzz(func(t *testing.T, text string) {
		v, err := read(text)
		if err != nil {
			return
		}
		again, err := read(json(v))
		if err != nil {
			t.Fatalf("%q: %s: %v", text, json(v), err)
		}
		if json(again) != json(v) {
			t.Fatalf("%q: %s, then %s", text, json(v), json(again))
		}
	})
}

// json writes a value in one style.
func json(v value) string {
	var parts []string
	for _, k := range v.kids {
		part := json(k.value)
		if v.kind == kindMap {
			part = quote(k.key) + ": " + part
		}
		parts = append(parts, part)
	}
	switch v.kind {
	case kindNull:
		return "null"
	case kindList:
		return "[" + strings.Join(parts, ", ") + "]"
	case kindMap:
		return "{" + strings.Join(parts, ", ") + "}"
	}
	return quote(v.text)
}

func quote(text string) string {
	var b strings.Builder
	for _, r := range text {
		if r < ' ' || r == '"' || r == '\\' || r == 0x7f {
			fmt.Fprintf(&b, `\x%02x`, r)
		} else {
			b.WriteRune(r)
		}
	}
	return `"` + b.String() + `"`
}

// A tree written in any mix of styles is read as that tree.
func TestReadWhatIsWritten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := anyValue(3).Draw(t, "value")
		text := writer{t}.block(want, 0)
		got, err := read(text)
		if err != nil {
			t.Fatalf("%v in\n%s", err, text)
		}
		if json(got) != json(want) {
			t.Fatalf("%s, want %s, in\n%s", json(got), json(want), text)
		}
	})
}

func anyValue(depth int) *rapid.Generator[value] {
	return rapid.Custom(func(t *rapid.T) value {
		k := kindList + kind(rapid.IntRange(0, 1).Draw(t, "kind"))
		if depth == 0 || depth < 3 && rapid.Bool().Draw(t, "leaf") {
			return value{kind: kindQuoted, text: rapid.OneOf(rapid.String(), rapid.StringMatching(`[a-c:#,'"*& {}\-]{0,6}`)).Draw(t, "text")}
		}
		v := value{kind: k}
		keys := rapid.SliceOfNDistinct(rapid.StringMatching(`[a-c :#-]{1,5}`), 1, 3, rapid.ID[string]).Draw(t, "keys")
		for _, key := range keys {
			if k == kindList {
				key = ""
			}
			v.kids = append(v.kids, kid{key: key, value: anyValue(depth-1).Draw(t, "kid")})
		}
		return v
	})
}

// writer writes values, choosing among styles.
type writer struct{ t *rapid.T }

func (w writer) coin(what string) bool { return rapid.Bool().Draw(w.t, what) }

// block writes v as the lines that begin at the given indentation.
func (w writer) block(v value, indent int) string {
	if v.kind < kindList || w.coin("flow") {
		return strings.Repeat(" ", indent) + w.flow(v) + "\n"
	}
	var b strings.Builder
	for _, k := range v.kids {
		head := "-"
		if v.kind == kindMap {
			head = w.scalar(k.key) + ":"
		}
		b.WriteString(strings.Repeat(" ", indent) + head)
		switch {
		case k.value.kind < kindList || w.coin("inline"):
			b.WriteString(" " + w.flow(k.value) + w.comment() + "\n")
		case v.kind == kindList && w.coin("compact"):
			b.WriteString(" " + strings.TrimLeft(w.block(k.value, indent+2), " "))
		default:
			b.WriteString(w.comment() + "\n" + w.block(k.value, indent+1))
		}
	}
	return b.String()
}

func (w writer) comment() string {
	if w.coin("comment") {
		return " # it's a comment: [\n\n   # more"
	}
	return ""
}

func (w writer) flow(v value) string {
	if v.kind < kindList {
		return w.scalar(v.text)
	}
	var parts []string
	for _, k := range v.kids {
		part := w.flow(k.value)
		if v.kind == kindMap {
			part = w.scalar(k.key) + ": " + part
		}
		parts = append(parts, part)
	}
	sep := rapid.SampledFrom([]string{",", ", ", ",\n\t ", " , # comment\n"}).Draw(w.t, "separator")
	inner := strings.Join(parts, sep)
	if v.kind == kindMap {
		return "{" + inner + "}"
	}
	return "[ " + inner + " ]"
}

// scalar writes a text without quotes if it cannot be misunderstood.
func (w writer) scalar(text string) string {
	if strings.Trim(text, "abc") == "" && text != "" && w.coin("plain") {
		return text
	}
	printable := !strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r == 0x7f })
	if printable && w.coin("single") {
		return "'" + strings.ReplaceAll(text, "'", "''") + "'"
	}
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range text {
		switch {
		case r == '"' || r == '\\':
			b.WriteString(`\` + string(r))
		case r < ' ' || r == 0x7f || r < 0x80 && w.coin("escape"):
			b.WriteString(`\x` + string("0123456789abcdef"[r>>4]) + string("0123456789abcdef"[r&15]))
		default:
			b.WriteRune(r)
		}
	}
	return b.String() + `"`
}
