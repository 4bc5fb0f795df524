package rules

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// A file of 50 MB is refused without reading all of it, and a memory that holds one of the largest allowed.
func TestHugeFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "huge.yaml")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err = f.WriteString("domain: api\nrules:\n"); err == nil {
		err = f.Truncate(50 << 20)
	}
	if err != nil || f.Close() != nil {
		t.Fatal(err)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	s, err := Load(path)
	runtime.ReadMemStats(&after)
	want := "rules: " + path + ":1:1: the file has more than 16777216 bytes; split it"
	if s != nil || err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	if took := after.TotalAlloc - before.TotalAlloc; took > MaxSize+1<<20 {
		t.Errorf("%d bytes of memory for a file that is refused", took)
	}
}

// Files that would be much larger than they look, or deeper, in either shape: a few errors with places, and no memory to speak of.
func TestBombs(t *testing.T) {
	aliases := "a: &a [x, x, x, x, x, x, x, x, x]\n"
	for c := 'b'; c < 'k'; c++ {
		aliases += fmt.Sprintf("%c: &%c [%s]\n", c, c, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*%c,", c-1), 9), ","))
	}
	deep := func(open, close string, n int) string { return strings.Repeat(open, n) + strings.Repeat(close, n) }
	for name, c := range map[string]struct{ text, want string }{
		"laughs":          {"domain: api\n" + aliases + "rules: *j\n", `anchors ("&") are not supported`},
		"laughs of envoy": {"domain: api\n" + aliases + "descriptors: *j\n", `anchors ("&") are not supported`},
		"merge keys":      {"domain: api\nrules:\n- &a {name: a}\n- {<<: *a}\n", `anchors ("&") are not supported`},
		"deep":            {"domain: api\ndescriptors: " + deep("[{key: a, descriptors: ", "}]", 100_000), "nest more than"},
		"deep, in lines":  {"domain: api\n" + nested(20), "descriptors nest more than 16 deep"},
		"wide":            {"domain: api\ndescriptors: [" + strings.Repeat("{key: a},", 100_000) + "]", "has the same key and value"},
		"wide and wrong":  {"domain: api\ndescriptors: [" + strings.Repeat("{},", 200_000) + "]", "too many problems"},
		"wildcards": {"domain: api\ndescriptors: [" + wildcards(3000) + "]",
			"stands before this one and fits all that it does"},
	} {
		s, err := Parse("r.yaml", []byte(c.text))
		if s != nil || err == nil || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), "rules: r.yaml:") {
			t.Errorf("%s: %.200v, want %s", name, err, c.want)
		} else if len(err.Error()) > 10_000 {
			t.Errorf("%s: an error of %d bytes", name, len(err.Error()))
		}
	}
}

// nested is descriptors in lines, so deep.
func nested(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "%*sdescriptors:\n%*s- key: a\n", 2*i, "", 2*i, "")
	}
	return b.String()
}

// wildcards are of many lengths, from the shortest to the longest, each of which hides the next.
func wildcards(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "{key: a, value: '%s*'},", strings.Repeat("x", 1+i%1000)+strings.Repeat("y", i/1000))
	}
	return b.String()
}

// A rule's name and its values may be nearly anything, but no ends of lines.
func TestNewlines(t *testing.T) {
	for _, text := range []string{
		"domain: api\nrules:\n- {name: \"a\\nb\", match: [{key: k}], limit: 1/s}\n",
		"domain: api\nrules:\n- {name: a, match: [{key: k, value: \"b\\nc\"}], limit: 1/s}\n",
		"domain: api\ndescriptors:\n- {key: \"a\\nb\"}\n",
		"domain: api\ndescriptors:\n- {key: a, value: \"b\\r\"}\n",
		"domain: api\ndescriptors:\n- key: a\n  value: |\n    b\n",
	} {
		if _, err := Parse("r.yaml", []byte(text)); err == nil || !strings.Contains(err.Error(), "has a control character; remove it") {
			t.Errorf("%q: %v", text, err)
		}
	}
}
