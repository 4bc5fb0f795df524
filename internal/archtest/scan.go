package archtest

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"regexp"
	"strconv"
	"strings"
)

// File is what the rules need to know of a source file.
type File struct {
	Name       string // without directory
	Test       bool
	Generated  bool
	Doc        bool // carries a package comment
	Lines      int
	Imports    []Mark
	EnvReads   []Mark // calls or mentions of what reads the environment
	Unfinished []Mark // comments that admit unfinished work
}

// Mark is something found on a line.
type Mark struct {
	Line int
	Text string
}

// at returns the place of a line, from the root of the module.
func (f File) at(p Package, line int) string {
	return fmt.Sprintf("%s:%d", path.Join(p.Path, f.Name), line)
}

// envReaders are the functions that read the environment, by package.
var envReaders = map[string][]string{
	"os":      {"Getenv", "LookupEnv", "Environ", "ExpandEnv"},
	"syscall": {"Getenv", "Environ"},
}

var unfinished = regexp.MustCompile(`\b(?:TODO|FIXME)\b`)

// Scan reads a Go source file.
func Scan(name string, src []byte) (File, error) {
	fset := token.NewFileSet()
	tree, err := parser.ParseFile(fset, name, src, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return File{}, fmt.Errorf("archtest: scan: %w", err)
	}
	line := func(p token.Pos) int { return fset.Position(p).Line }
	f := File{
		Name:      name,
		Test:      strings.HasSuffix(name, "_test.go"),
		Generated: ast.IsGenerated(tree),
		Doc:       tree.Doc != nil && strings.TrimSpace(tree.Doc.Text()) != "",
		Lines:     strings.Count(string(src), "\n"),
	}
	for _, imp := range tree.Imports {
		target, err := strconv.Unquote(imp.Path.Value)
		if err != nil {
			return File{}, fmt.Errorf("archtest: scan %s: import %s: %w", name, imp.Path.Value, err)
		}
		f.Imports = append(f.Imports, Mark{line(imp.Pos()), target})
	}
	for _, group := range tree.Comments {
		for _, c := range group.List {
			for _, at := range unfinished.FindAllStringIndex(c.Text, -1) {
				before := strings.Count(c.Text[:at[0]], "\n")
				f.Unfinished = append(f.Unfinished, Mark{line(c.Pos()) + before, c.Text[at[0]:at[1]]})
			}
		}
	}
	readers := envSelectors(tree)
	ast.Inspect(tree, func(n ast.Node) bool {
		if sel, ok := n.(*ast.SelectorExpr); ok {
			if pkg, ok := sel.X.(*ast.Ident); ok && readers[pkg.Name+"."+sel.Sel.Name] {
				f.EnvReads = append(f.EnvReads, Mark{line(sel.Pos()), pkg.Name + "." + sel.Sel.Name})
			}
		}
		return true
	})
	return f, nil
}

// envSelectors returns the selectors that read the environment under the names
// by which this file imports their packages.
func envSelectors(tree *ast.File) map[string]bool {
	selectors := map[string]bool{}
	for _, imp := range tree.Imports {
		target, _ := strconv.Unquote(imp.Path.Value)
		name := target
		if imp.Name != nil {
			name = imp.Name.Name
		}
		for _, f := range envReaders[target] {
			selectors[name+"."+f] = true
		}
	}
	return selectors
}
