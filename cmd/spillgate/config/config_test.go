package config

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/spillgate/spillgate/internal/strictyaml"
	"github.com/spillgate/spillgate/limit"
	"github.com/spillgate/spillgate/redisshard"
)

var rewrite = flag.Bool("rewrite", false, "write what Parse says into the testdata")

// parse reads a file after a command line.
func parse(t *testing.T, text string, args ...string) (*Config, error) {
	t.Helper()
	c := Default("")
	flags := pflag.NewFlagSet("agent", pflag.ContinueOnError)
	Bind(flags, c)
	if err := flags.Parse(args); err != nil {
		return c, err
	}
	return c, c.Parse("c.yaml", []byte(text))
}

// TestGolden holds every message. A file of testdata is a row of cases: flags in a line "$ ..." if any, a file, a
// line "----", what is wrong with it, a line "====".
func TestGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no testdata: %v", err)
	}
	long := strings.NewReplacer("<LONG>", strings.Repeat("x", 200), "<NUL>", "\x00")
	for _, file := range files {
		all, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var out strings.Builder
		for c := range strings.SplitSeq(strings.TrimSuffix(string(all), "====\n"), "====\n") {
			text, want, _ := strings.Cut(c, "----\n")
			args, rest, ok := strings.Cut(strings.TrimPrefix(text, "$ "), "\n")
			if !ok || !strings.HasPrefix(text, "$ ") {
				args, rest = "", text
			}
			got := "ok\n"
			if _, err := parse(t, long.Replace(rest), strings.Fields(args)...); err != nil {
				got = err.Error() + "\n"
			}
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
	}
}

// samples has for every key a text that is not its default.
var samples = map[string]string{
	"agent.id": "a1", "agent.fleet": "eu", "agent.fleet_size": "20", "agent.deadline": "10ms", "agent.max_pending": "7", "agent.on_store_error": "closed", "agent.procs": "3",
	"store.url": "rediss://h:1", "store.clock": "agent", "store.timeout": "70ms", "store.password_file": "pw", "store.tls.ca": "ca.pem",
	"store.tls.cert": "cert.pem", "store.tls.key": "key.pem", "store.layout.tags": "16", "store.layout.bins": "2", "memory.max_cells": "100000",
	"listen.resp": "unix:///run/s.sock", "listen.http": ":7101", "listen.grpc": ":7102", "listen.admin": "unix://./admin.sock", "listen.socket_mode": "0600",
	"listen.socket_group": "web", "listen.allow_uids": "0,1000", "listen.admin_allow_remote": "true", "listen.redact_keys": "true",
	"rules.file": "r.yaml", "rules.store": "true", "rules.cache_ttl": "1m0s", "rules.snapshot": "s",
	"hotkeys.top": "10", "hotkeys.min_rate": "0.5", "split.ops": "100", "split.ways": "4", "datacenter.name": "dc1", "datacenter.share": "0.5", "datacenter.headroom": "0.3",
}

// leaves are the names and values of all fields of a Config.
func leaves(v reflect.Value, path string, into map[string]any) {
	for i := range v.NumField() {
		field := v.Type().Field(i)
		switch name := path + "." + field.Name; {
		case !field.IsExported():
		case field.Type.Kind() == reflect.Struct:
			leaves(v.Field(i), name, into)
		default:
			into[name] = v.Field(i).Interface()
		}
	}
}

func leavesOf(c *Config) map[string]any {
	into := make(map[string]any)
	leaves(reflect.ValueOf(c).Elem(), "", into)
	return into
}

// Every field has exactly one setting, every setting a flag, and every flag a setting.
func TestEveryFieldHasAKeyAndAFlag(t *testing.T) {
	before := leavesOf(Default(""))
	reached := make(map[string]string)
	for _, s := range settings {
		sample, ok := samples[s.key]
		if !ok {
			t.Errorf("%s has no sample", s.key)
			continue
		}
		c := Default("")
		_ = s.value(c).Set(sample) // refuses what this version does not do, after setting it
		if got := s.value(c).String(); got != sample {
			t.Errorf("%s is %q after it was set to %q", s.key, got, sample)
		}
		for field, value := range leavesOf(c) {
			if reflect.DeepEqual(value, before[field]) {
				continue
			}
			if reached[field] != "" {
				t.Errorf("%s is set by %s and %s", field, reached[field], s.key)
			}
			reached[field] = s.key
		}
	}
	for field := range before {
		if reached[field] == "" {
			t.Errorf("%s has no key", field)
		}
	}
	if len(samples) != len(settings) {
		t.Errorf("%d samples, %d settings", len(samples), len(settings))
	}

	flags := pflag.NewFlagSet("agent", pflag.ContinueOnError)
	Bind(flags, Default("")) // panics if two flags have one name
	names := make(map[string]bool)
	flags.VisitAll(func(f *pflag.Flag) {
		names[f.Name] = true
		if f.Usage == "" {
			t.Errorf("--%s has no usage", f.Name)
		}
	})
	for _, s := range settings {
		if !names[s.name()] {
			t.Errorf("%s has no flag --%s", s.key, s.name())
		}
	}
	if len(names) != len(settings)+len(aliases) {
		t.Errorf("%d flags for %d settings and %d aliases", len(names), len(settings), len(aliases))
	}
	for _, name := range []string{"store", "rules", "resp", "http", "grpc", "admin", "deadline", "agent-deadline", "store-timeout", "listen-socket-mode", "store-tls-ca"} {
		if !names[name] {
			t.Errorf("no flag --%s", name)
		}
	}
	for _, name := range []string{"config", "check-config", "help"} {
		if names[name] {
			t.Errorf("--%s belongs to the command", name)
		}
	}
}

// A key of the file and its flag do the same.
func TestKeysAndFlagsAgree(t *testing.T) {
	for _, s := range settings {
		path := strings.Split(s.key, ".")
		text := ""
		for i, name := range path {
			text += strings.Repeat(" ", i) + name + ":\n"
		}
		text = strings.TrimSuffix(text, "\n") + fmt.Sprintf(" %q\n", samples[s.key])
		fromFile := Default("")
		fileErr := fromFile.Parse("c.yaml", []byte(text))
		fromFlag := Default("")
		flags := pflag.NewFlagSet("agent", pflag.ContinueOnError)
		Bind(flags, fromFlag)
		flagErr := flags.Parse([]string{"--" + s.name() + "=" + samples[s.key]})
		if flagErr == nil {
			flagErr = fromFlag.Validate()
		}
		if (fileErr == nil) != (flagErr == nil) {
			t.Errorf("%s: %v, --%s: %v", s.key, fileErr, s.name(), flagErr)
		}
		if got, want := leavesOf(fromFile), leavesOf(fromFlag); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %v, --%s: %v", s.key, got, s.name(), want)
		}
	}
}

func TestWholeFile(t *testing.T) {
	// The example of the interface.
	c, err := parse(t, `
agent:   {id: "", fleet: default, deadline: 25ms, max_pending: 65536}   # a rule may set its own deadline
store:   {url: "rediss://127.0.0.1:7001", clock: redis, timeout: 50ms, password_file: "", tls: {ca: "", cert: "", key: ""}, layout: {tags: 0, bins: 1}}
listen:  {resp: "unix:///run/spillgate/spillgate.sock", http: "off", grpc: off, admin: "127.0.0.1:7117", socket_mode: "0600", socket_group: "", allow_uids: [0, 1000]}
rules:   {file: rules.yaml}
hotkeys: {top: 1000, min_rate: 5}
datacenter: {name: "", share: 1.0, headroom: 0.2}
`, "--store", "redis://h:1", "--listen-admin-allow-remote", "--deadline=1s")
	if err != nil {
		t.Fatal(err)
	}
	want := Default("")
	want.Agent.Deadline = time.Second
	want.Store.URL = "redis://h:1"
	want.Listen.RESP = "unix:///run/spillgate/spillgate.sock"
	want.Listen.SocketMode = 0o600
	want.Listen.AllowUIDs = []uint32{0, 1000}
	want.Listen.AdminAllowRemote = true
	want.Rules.File = "rules.yaml"
	if got, want := leavesOf(c), leavesOf(want); !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// Flags win whether the file is loaded before or after the command line is parsed.
func TestFlagsWin(t *testing.T) {
	const file = "agent: {procs: 2, max_pending: 2}"
	c := Default("")
	flags := pflag.NewFlagSet("agent", pflag.ContinueOnError)
	Bind(flags, c)
	if err := errors.Join(c.Parse("c.yaml", []byte(file)), flags.Parse([]string{"--agent-procs=3"}), c.Validate()); err != nil {
		t.Fatal(err)
	}
	later, err := parse(t, file, "--agent-procs=3")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []*Config{c, later} {
		if c.Agent.Procs != 3 || c.Agent.MaxPending != 2 {
			t.Errorf("procs %d, max_pending %d", c.Agent.Procs, c.Agent.MaxPending)
		}
	}
}

// TestRedis: what is set of the store reaches it.
func TestRedis(t *testing.T) {
	c, err := parse(t, `{store: {url: "redis://h", clock: agent, timeout: 70ms, layout: {tags: 16, bins: 2}}, split: {ways: 4}}`)
	if err != nil {
		t.Fatal(err)
	}
	want := redisshard.Config{URL: "redis://h", Clock: redisshard.ClockAgent, Timeout: 70 * time.Millisecond, Tags: 16, Bins: 2, SplitWays: 4}
	if got := c.Redis(); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func TestDefault(t *testing.T) {
	for dir, want := range map[string]string{
		"":              "unix://./spillgate.sock",
		"run":           "unix://./spillgate.sock",
		"/run/user/42":  "unix:///run/user/42/spillgate.sock",
		"/run/user/42/": "unix:///run/user/42/spillgate.sock",
	} {
		c := Default(dir)
		if c.Listen.RESP != want {
			t.Errorf("%q: %s, want %s", dir, c.Listen.RESP, want)
		}
		if err := c.Validate(); err != nil {
			t.Errorf("%q: %v", dir, err)
		}
	}
	if err := Default("/" + strings.Repeat("x", 107)).Validate(); err == nil || !strings.Contains(err.Error(), "config: listen.resp: the path /x") {
		t.Errorf("a directory that is too long: %v", err)
	}
}

// What a program sets is held to the same bounds, all at once.
func TestValidate(t *testing.T) {
	c := Default("")
	c.Agent.MaxPending = 0
	c.Agent.OnStoreError = limit.Policy(9)
	c.Store.Clock = redisshard.Clock(9)
	c.Store.TLS.Cert = "cert.pem"
	c.Listen.HTTP = ":80"
	c.Listen.SocketMode = 0
	c.Split = Split{Ops: -1, Ways: 1}
	want := `config: agent.max_pending: "0" is out of range; write 1 to 16777216
config: agent.on_store_error: "unknown limit.Policy" is not open or closed or local
config: store.clock: "unknown redisshard.Clock" is not redis or agent
config: listen.http: ":80" is not supported in this version; write off
config: listen.socket_mode: "0000" is no mode of a file; write four octal digits such as 0660
config: split.ops: "-1" is out of range; write 0 to 1073741824
config: split.ways: "1" divides nothing; write 2 to 64, or 0 to have it chosen, or split.ops: 0 to divide nothing
config: store.tls.cert does not go with the store memory://; remove it, or write a redis:// URL in store.url`
	if err := c.Validate(); err == nil || err.Error() != want {
		t.Errorf("got:\n%v\nwant:\n%s", err, want)
	}
}

// No message shows the store's password.
func TestPasswordStaysSecret(t *testing.T) {
	for _, text := range []string{`store: {url: "reds://:hunter2@h:1"}`, `store: {url: "hunter2"}`, `store: {url: "memory://hunter2"}`, `store: {url: ["hunter2"]}`,
		`store: {url: "redis://hunter2@h:1"}`, `store: {url: "redis://:hunter2@h:99999"}`, `store: {url: "redis://u:hunter2@h?foo=1"}`, `store: {url: "redis://:hunter2"}`} {
		if _, err := parse(t, text); err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// TestDocs: the complete file of the manual has every key, at its default but for two, and the table has a row for each.
func TestDocs(t *testing.T) {
	manual, err := os.ReadFile("../../../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(manual), "```yaml\n")
	text, _, _ = strings.Cut(text, "```")
	c, err := parse(t, text)
	if err != nil {
		t.Fatal(err)
	}
	want := Default("")
	want.Store.URL, want.Rules.File = "redis://127.0.0.1:6379", "rules.yaml"
	if got, want := leavesOf(c), leavesOf(want); !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	for _, s := range settings {
		if c.from[s.key].at.Line == 0 {
			t.Errorf("%s is not in the complete file", s.key)
		}
		if row := fmt.Sprintf("\n| `%s` | `--%s`", s.key, s.name()); !strings.Contains(string(manual), row) {
			t.Errorf("no row in the table that begins with %s", row[1:])
		}
	}
}

func TestLoad(t *testing.T) {
	path := filepath.Join(t.TempDir(), "c.yaml")
	if err := os.WriteFile(path, []byte("agent: {procs: 2}\nagnet: 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var first *strictyaml.Error
	if err := Default("").Load(path); !errors.As(err, &first) || first.File != path || first.Line != 2 {
		t.Errorf("%v", err)
	}
	var pathErr *os.PathError
	if err := Default("").Load(path + "x"); !errors.As(err, &pathErr) || !strings.HasPrefix(err.Error(), "config: ") {
		t.Errorf("%v", err)
	}
}

func TestRemote(t *testing.T) {
	for addr, want := range map[string]bool{
		"off": false, "unix:///s": false, "127.0.0.1:1": false, "127.9.9.9:1": false, "[::1]:1": false, "localhost:1": false,
		":1": true, "0.0.0.0:1": true, "[::]:1": true, "10.0.0.1:1": true, "example.com:1": true, "localhost.example.com:1": true,
	} {
		if got := remote(addr); got != want {
			t.Errorf("%s: %v, want %v", addr, got, want)
		}
	}
}

// FuzzParse holds that any file either is refused, in places that it has, or gives a valid configuration.
func FuzzParse(f *testing.F) {
	f.Add("agent: {id: a, deadline: 25ms}\nlisten:\n  resp: ':7100'\n  allow_uids: [1, 2]\n")
	f.Add("store: {url: 'redis://h', tls: {ca: c}, layout: {tags: 1}}\nrules:\n  file: r\n  store: true\n")
	f.Add("listen: {admin: ':1'}\nagent:\nstore: 1\nhotkeys: {min_rate: nan}\n")
	f.Fuzz(func(t *testing.T, text string) {
		c := Default("")
		err := c.Parse("f", []byte(text))
		if err == nil {
			if err := c.Validate(); err != nil {
				t.Fatalf("%q: %v", text, err)
			}
			return
		}
		var all strictyaml.Errors
		if !errors.As(err, &all) {
			t.Fatalf("%q: %v", text, err)
		}
		lines := strings.Count(text, "\n") + 1
		if i := slices.IndexFunc(all, func(e *strictyaml.Error) bool { return e.Line < 1 || e.Line > lines || e.Column < 1 }); i >= 0 {
			t.Fatalf("%q: %v", text, all[i])
		}
	})
}
