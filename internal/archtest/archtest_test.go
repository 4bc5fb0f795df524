package archtest

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// TestHouse holds the module as it is against its rules.
func TestHouse(t *testing.T) {
	h, err := Load(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range Check(h) {
		t.Error(v)
	}
	if !slices.ContainsFunc(h.Packages, func(p Package) bool { return p.Path == "internal/archtest" }) {
		t.Errorf("archtest did not see itself among %d packages: it looks at the wrong house", len(h.Packages))
	}
}

// TestEveryRoomHasAReason keeps the table itself in order.
func TestEveryRoomHasAReason(t *testing.T) {
	seen := map[string]bool{}
	for _, r := range Rooms {
		if r.Why == "" {
			t.Errorf("%s: a rule without a reason", r.Room)
		}
		if seen[r.Room] {
			t.Errorf("%s: two rules", r.Room)
		}
		seen[r.Room] = true
		for _, m := range r.May {
			if m != anything && !seen[m] {
				t.Errorf("%s may import %s, which is no room above it: dependencies point inwards", r.Room, m)
			}
		}
	}
}

// house builds a House from rows "package: import import ..."; a package path
// without a dot is ours. Every package of ours has one documented file.
func house(rows ...string) House {
	h := House{Module: Module, Imports: map[string][]string{}}
	full := func(path string) string {
		if strings.Contains(path, ".") {
			return path
		}
		return Module + "/" + path
	}
	for _, row := range rows {
		path, imports, _ := strings.Cut(row, ":")
		f := File{Name: "a.go", Doc: true, Lines: 10}
		for i, imp := range strings.Fields(imports) {
			f.Imports = append(f.Imports, Mark{Line: i + 1, Text: full(imp)})
			h.Imports[full(path)] = append(h.Imports[full(path)], full(imp))
		}
		if full(path) != path {
			h.Packages = append(h.Packages, Package{Path: path, Files: []File{f}})
		}
	}
	return h
}

func TestImportRules(t *testing.T) {
	const client = "github.com/redis/go-redis/v9"
	for _, tt := range []struct {
		name string
		rows []string
		want string // part of the only violation; empty for none
	}{
		{"limit alone", []string{"limit: example.com/x"}, ""},
		{"limit imports ours", []string{"limit: rules"}, "limit must not import rules"},
		{"rules on limit", []string{"rules: limit"}, ""},
		{"below rules", []string{"rules/envoy: limit rules"}, ""},
		{"rules on hotkeys", []string{"rules: hotkeys"}, "rules must not import hotkeys"},
		{"hotkeys on batcher", []string{"hotkeys: batcher"}, "hotkeys must not import batcher"},
		{"batcher on a store", []string{"batcher: limit memstore"}, "batcher must not import memstore"},
		{"below batcher on a store", []string{"batcher/x: redisshard"}, "batcher must not import redisshard"},
		{"redisshard", []string{"redisshard: limit batcher " + client}, ""},
		{"redisshard on agent", []string{"redisshard: agent"}, "redisshard must not import agent"},
		{"redisshard ships redistest", []string{"redisshard: internal/redistest"}, "must not import internal/redistest"},
		{"memstore on redisshard", []string{"memstore: redisshard"}, "memstore must not import redisshard"},
		{"memstore on a client", []string{"memstore: " + client}, "memstore must not reach github.com/redis"},
		{"agent", []string{"agent: limit rules hotkeys batcher"}, ""},
		{"agent on a store", []string{"agent: memstore"}, "agent must not import memstore"},
		{"agent on a client", []string{"agent: " + client}, "agent must not reach github.com/redis"},
		{"agent on grpc through others", []string{"agent: batcher", "batcher: x.org/y", "x.org/y: google.golang.org/grpc/codes"},
			"agent -> " + Module + "/batcher -> x.org/y -> google.golang.org/grpc/codes"},
		{"agent on otel", []string{"agent: go.opentelemetry.io/otel"}, "must not reach go.opentelemetry.io"},
		{"agent on prometheus", []string{"agent: github.com/prometheus/client_golang"}, "must not reach github.com/prometheus"},
		{"a like name is not below", []string{"agent: github.com/redis-like/x"}, ""},
		{"doors", []string{"sidecar/resp: agent limit rules sidecar/resp/wire", "sidecar/rls: agent google.golang.org/grpc"}, ""},
		{"door on door", []string{"sidecar/resp/wire: sidecar/http"}, "sidecar/resp must not import sidecar/http"},
		{"socket alone", []string{"sidecar/socket: limit"}, "sidecar/socket must not import limit"},
		{"door on socket", []string{"sidecar/resp: sidecar/socket"}, "sidecar/resp must not import sidecar/socket"},
		{"door on store", []string{"sidecar/http: redisshard"}, "sidecar/http must not import redisshard"},
		{"door on telemetry", []string{"sidecar/http: telemetry"}, "sidecar/http must not import telemetry"},
		{"telemetry", []string{"telemetry: agent batcher go.opentelemetry.io/otel"}, ""},
		{"telemetry on store", []string{"telemetry: memstore"}, "telemetry must not import memstore"},
		{"telemetry on dashboard", []string{"telemetry: dashboard"}, "telemetry must not import dashboard"},
		{"dashboard on store", []string{"dashboard: memstore"}, "dashboard must not import memstore"},
		{"cmd wires", []string{"cmd/spillgate: agent redisshard memstore telemetry sidecar/resp"}, ""},
		{"nobody imports cmd", []string{"dashboard: cmd/spillgate"}, "must not import cmd/spillgate"},
		{"redistest shares nothing", []string{"internal/redistest: redisshard"}, "must not import redisshard"},
		{"no room", []string{"util: limit"}, "unknown package"},
		{"no room for a like name", []string{"limits: "}, "unknown package"},
		{"no room for the root", []string{": "}, "unknown package"},
	} {
		t.Run(tt.name, func(t *testing.T) { wantOnly(t, Check(house(tt.rows...)), tt.want) })
	}
}

// wantOnly wants one violation that contains text, or none if text is empty.
func wantOnly(t *testing.T, vs []Violation, text string) {
	t.Helper()
	switch {
	case text == "" && len(vs) > 0:
		t.Errorf("unexpected: %v", vs)
	case text != "" && (len(vs) != 1 || !strings.Contains(vs[0].String(), text)):
		t.Errorf("got %v, want one violation with %q", vs, text)
	case text != "" && vs[0].Why == "":
		t.Errorf("%v has no reason", vs[0])
	}
}

func TestImportsOfTestsAreTheirOwnAffair(t *testing.T) {
	h := house("redisshard: limit")
	h.Packages[0].Files = append(h.Packages[0].Files, File{
		Name: "a_test.go", Test: true, Imports: []Mark{{Line: 3, Text: Module + "/internal/redistest"}},
	})
	wantOnly(t, Check(h), "")
}

func TestAnEmptyHouseIsAViolation(t *testing.T) {
	wantOnly(t, Check(House{Module: Module}), "no packages found")
}

func TestFileRules(t *testing.T) {
	env := []Mark{{Line: 7, Text: "os.Getenv"}}
	for _, tt := range []struct {
		name, pkg string
		file      File
		want      string
	}{
		{"fine", "limit", File{Doc: true, Lines: MaxLines}, ""},
		{"too long", "limit", File{Doc: true, Lines: MaxLines + 1}, "limit/a.go:601: 601 lines"},
		{"long test", "limit", File{Doc: true, Lines: 5000, Test: true}, ""},
		{"long generated", "limit", File{Doc: true, Lines: 5000, Generated: true}, ""},
		{"no comment", "limit", File{}, "limit: no package comment"},
		{"environment", "rules", File{Doc: true, EnvReads: env}, "rules/a.go:7: os.Getenv outside cmd"},
		{"environment in a test", "rules", File{Doc: true, Test: true, EnvReads: env}, ""},
		{"environment in cmd", "cmd/spillgate", File{Doc: true, EnvReads: env}, ""},
		{"environment in bench", "bench", File{Doc: true, EnvReads: env}, ""},
		{"environment in redistest", "internal/redistest", File{Doc: true, EnvReads: env}, ""},
		{"environment in sim", "internal/sim", File{Doc: true, EnvReads: env}, "internal/sim/a.go:7"},
		{"unfinished", "limit", File{Doc: true, Unfinished: []Mark{{3, "FIXME"}}}, "limit/a.go:3: a comment says FIXME"},
		{"unfinished test", "limit", File{Doc: true, Test: true, Unfinished: []Mark{{3, "FIXME"}}}, "limit/a.go:3"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.file.Name = "a.go"
			wantOnly(t, Check(House{Module: Module, Packages: []Package{{Path: tt.pkg, Files: []File{tt.file}}}}), tt.want)
		})
	}
}

func TestScan(t *testing.T) {
	const src = `// Code generated by hand. DO NOT EDIT.

// Package p is documented.
package p

import (
	"context"
	"os"
	sys "syscall"
)

/* a block comment
   whose second line says TODO: nothing */
var _ = context.TODO() // which is no mark
var _ = "FIXME in a string is none"

// TODOS and XFIXME are other words. FIXME
var a, _ = os.LookupEnv("A")
var b = sys.Environ
var c = os.Args
`
	f, err := Scan("p.go", []byte(src))
	if err != nil {
		t.Fatal(err)
	}
	got := fmt.Sprintf("%+v", f)
	want := fmt.Sprintf("%+v", File{
		Name: "p.go", Generated: true, Doc: true, Lines: 20,
		Imports:    []Mark{{7, "context"}, {8, "os"}, {9, "syscall"}},
		EnvReads:   []Mark{{18, "os.LookupEnv"}, {19, "sys.Environ"}},
		Unfinished: []Mark{{13, "TODO"}, {17, "FIXME"}},
	})
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}

	f, err = Scan("p_test.go", []byte("//go:build linux\n\npackage p\n"))
	if err != nil || !f.Test || f.Doc || f.Generated {
		t.Errorf("a bare test file: %+v, %v", f, err)
	}
	if _, err := Scan("p.go", []byte("package")); err == nil {
		t.Error("half a file was accepted")
	}
}

func TestLoadOutsideAModule(t *testing.T) {
	if _, err := Load(t.TempDir()); err == nil || !strings.Contains(err.Error(), "in no module") {
		t.Errorf("error is %v", err)
	}
}
