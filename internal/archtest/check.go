package archtest

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// House is what the rules look at.
type House struct {
	Module   string
	Packages []Package
	// Imports maps the import path of every package in the build, ours or not, to
	// what it imports in code that ships.
	Imports map[string][]string
}

// Package is one package of the module.
type Package struct {
	Path  string // within the module, "" for its root
	Files []File
}

// Violation is a broken rule.
type Violation struct {
	Where string // package, or file:line
	What  string
	Why   string
}

func (v Violation) String() string { return fmt.Sprintf("%s: %s\n\t%s", v.Where, v.What, v.Why) }

// Check returns what breaks the rules of house.go, by place.
func Check(h House) []Violation {
	if len(h.Packages) == 0 {
		return []Violation{{Where: h.Module, What: "no packages found", Why: whyAny}}
	}
	var vs []Violation
	for _, p := range h.Packages {
		vs = append(vs, checkImports(h, p)...)
		vs = append(vs, checkDoc(p)...)
		for _, f := range p.Files {
			vs = append(vs, checkFile(p, f)...)
		}
	}
	slices.SortStableFunc(vs, func(a, b Violation) int { return cmp.Compare(a.Where, b.Where) })
	return vs
}

// checkImports holds a package against the rule of its room.
func checkImports(h House, p Package) []Violation {
	if !slices.ContainsFunc(p.Files, func(f File) bool { return !f.Test }) {
		return nil // nothing of it ships
	}
	rule, room, ok := ruleOf(p.Path)
	if !ok {
		return []Violation{{Where: p.Path, What: "unknown package", Why: whyListed}}
	}
	var vs []Violation
	for _, f := range p.Files {
		if f.Test {
			continue
		}
		for _, imp := range f.Imports {
			ours, isOurs := strings.CutPrefix(imp.Text, h.Module+"/")
			if isOurs && !within(ours, room) && !allowed(ours, rule.May) {
				vs = append(vs, Violation{
					Where: f.at(p, imp.Line),
					What:  fmt.Sprintf("%s must not import %s", room, ours),
					Why:   rule.Why,
				})
			}
		}
	}
	for _, never := range rule.Never {
		if chain := pathTo(h.Imports, h.Module+"/"+p.Path, never); chain != nil {
			vs = append(vs, Violation{
				Where: p.Path,
				What:  fmt.Sprintf("%s must not reach %s, but does: %s", room, never, strings.Join(chain, " -> ")),
				Why:   rule.Why,
			})
		}
	}
	return vs
}

// ruleOf returns the rule of the room that a package is in, and the room's
// directory.
func ruleOf(path string) (_ Rule, room string, ok bool) {
	for _, r := range Rooms {
		room := r.Room
		if parent, each := strings.CutSuffix(room, "/*"); each {
			below, inside := strings.CutPrefix(path, parent+"/")
			if !inside {
				continue
			}
			child, _, _ := strings.Cut(below, "/")
			room = parent + "/" + child
		}
		if within(path, room) {
			return r, room, true
		}
	}
	return Rule{}, "", false
}

// within reports whether path is dir or lies below it.
func within(path, dir string) bool { return path == dir || strings.HasPrefix(path, dir+"/") }

func allowed(path string, may []string) bool {
	return slices.ContainsFunc(may, func(room string) bool { return room == anything || within(path, room) })
}

// pathTo returns a shortest chain of imports from a package to one within a
// forbidden path, or nil.
func pathTo(imports map[string][]string, from, forbidden string) []string {
	cameFrom := map[string]string{from: ""}
	for queue := []string{from}; len(queue) > 0; queue = queue[1:] {
		at := queue[0]
		if within(at, forbidden) {
			var chain []string
			for ; at != ""; at = cameFrom[at] {
				chain = append(chain, at)
			}
			slices.Reverse(chain)
			return chain
		}
		for _, next := range imports[at] {
			if _, seen := cameFrom[next]; !seen {
				cameFrom[next] = at
				queue = append(queue, next)
			}
		}
	}
	return nil
}

func checkDoc(p Package) []Violation {
	if slices.ContainsFunc(p.Files, func(f File) bool { return f.Doc }) {
		return nil
	}
	return []Violation{{Where: p.Path, What: "no package comment", Why: whyDoc}}
}

// checkFile holds one file against the rules that need no other.
func checkFile(p Package, f File) []Violation {
	var vs []Violation
	if !f.Test && !f.Generated && f.Lines > MaxLines {
		vs = append(vs, Violation{
			Where: f.at(p, f.Lines),
			What:  fmt.Sprintf("%d lines, at most %d", f.Lines, MaxLines),
			Why:   whyLen,
		})
	}
	if !f.Test && !allowed(p.Path, EnvReaders) {
		for _, m := range f.EnvReads {
			vs = append(vs, Violation{Where: f.at(p, m.Line), What: m.Text + " outside cmd", Why: whyEnv})
		}
	}
	for _, m := range f.Unfinished {
		vs = append(vs, Violation{Where: f.at(p, m.Line), What: "a comment says " + m.Text, Why: whyMark})
	}
	return vs
}
