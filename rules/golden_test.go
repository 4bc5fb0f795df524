package rules

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var rewrite = flag.Bool("rewrite", false, "write what Parse says into the testdata")

// TestGolden holds every message. A file of testdata is a row of cases: a text,
// a line "----", what Parse says of the text, a line "====". In texts the words of escapes stand for
// characters that an editor would not keep.
func TestGolden(t *testing.T) {
	escapes := strings.NewReplacer("<TAB>", "\t", "<CR>", "\r", "<NUL>", "\x00", "<FF>", "\xff", "<BOM>", "\ufeff", "<NONL>\n", "",
		"<128>", strings.Repeat("n", 128), "<129>", strings.Repeat("n", 129), "<1025>", strings.Repeat("v", 1025), "<65 [>", strings.Repeat("[", 65), "<99 ->", strings.Repeat("- ", 99))
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no testdata: %v", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			all, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var out strings.Builder
			for c := range strings.SplitSeq(strings.TrimSuffix(string(all), "====\n"), "====\n") {
				text, want, ok := strings.Cut(c, "----\n")
				if !ok && !*rewrite {
					t.Fatalf("a case without \"----\":\n%s", c)
				}
				got := verdict(Parse("r.yaml", []byte(escapes.Replace(text))))
				if got != want && !*rewrite {
					t.Errorf("%s\ngot:\n%swant:\n%s", text, got, want)
				}
				out.WriteString(text + "----\n" + got + "====\n")
			}
			if *rewrite {
				if err := os.WriteFile(file, []byte(out.String()), 0o644); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// verdict is the errors, or a line for each rule.
func verdict(s *Set, err error) string {
	if err != nil {
		return err.Error() + "\n"
	}
	var b strings.Builder
	for _, r := range s.Rules() {
		b.WriteString(describe(r) + "\n")
	}
	return b.String() + "ok\n"
}
