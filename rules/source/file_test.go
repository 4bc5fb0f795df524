package source

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/spillgate/spillgate/rules"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// journal is a log that tests can read while it is written.
type journal struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.buf.Write(p)
}

func (j *journal) count(text string) int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return strings.Count(j.buf.String(), text)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.buf.String()
}

// taken are the limits of the sets that came into force, in order.
type taken struct {
	mu     sync.Mutex
	limits []string
}

func (u *taken) use(set *rules.Set) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.limits = append(u.limits, limitOf(set))
}

func (u *taken) String() string {
	u.mu.Lock()
	defer u.mu.Unlock()
	return strings.Join(u.limits, " ")
}

// limitOf is the burst of the rule of text.
func limitOf(set *rules.Set) string {
	r := set.Rule("api", "r")
	if r == nil {
		return "none"
	}
	return fmt.Sprint(r.Terms.Burst)
}

// patience bounds every wait for a file. It only decides how soon a hopeless test gives up.
const patience = 30 * time.Second

func until(t *testing.T, what string, so func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !so(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", patience, what)
		}
	}
}

// fileRig is a File on a directory of its own.
type fileRig struct {
	*testing.T
	*File
	taken
	path string
	log  journal
}

// newFileRig follows dir/rules.yaml, which prepare makes.
func newFileRig(t *testing.T, cfg FileConfig, prepare func(dir string)) *fileRig {
	t.Helper()
	dir := t.TempDir()
	r := &fileRig{T: t, path: filepath.Join(dir, "rules.yaml")}
	prepare(dir)
	cfg.Path, cfg.Logger = r.path, slog.New(slog.NewTextHandler(&r.log, nil))
	if cfg.Settle == 0 {
		cfg.Settle = 100 * time.Millisecond
	}
	if cfg.Poll == 0 {
		cfg.Poll = time.Hour // events alone
	}
	var err error
	r.File, err = NewFile(cfg)
	must(t, err)
	set, err := r.Begin(t.Context())
	must(t, err)
	r.taken.use(set)
	r.Follow(r.taken.use)
	t.Cleanup(r.Close)
	return r
}

// wants waits until these are the limits that came into force, and that many texts were refused; and then that it stays so.
func (r *fileRig) wants(limits string, refused uint64) {
	r.Helper()
	so := func() bool { return r.taken.String() == limits && r.Status().Refused == refused }
	for end := time.Now().Add(patience); !so(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			r.Fatalf("in force came %q, and %d were refused; want %q and %d\n%s", &r.taken, r.Status().Refused, limits, refused, &r.log)
		}
	}
	time.Sleep(2 * r.cfg.Settle) // nothing is to be awaited: a second swap would come in this time
	if !so() {
		r.Fatalf("then came %q, %d refused; want %q and %d\n%s", &r.taken, r.Status().Refused, limits, refused, &r.log)
	}
}

// write writes over the file, or makes it. Nobody ever sees half of that, however long this process has to wait for a core: a text of
// fixed length is one write, and a new file comes by its name. What has not settled is looked at in TestWatch.
func (r *fileRig) write(body []byte) {
	r.Helper()
	body = padded(body)
	old, err := os.OpenFile(r.path, os.O_WRONLY, 0)
	if errors.Is(err, os.ErrNotExist) {
		must(r.T, os.WriteFile(r.path+".made", body, 0o600))
		must(r.T, os.Rename(r.path+".made", r.path))
		return
	}
	must(r.T, err)
	_, err = old.Write(body)
	must(r.T, errors.Join(err, old.Close()))
}

// padded is a text with spaces at the end of its first line.
func padded(body []byte) []byte {
	first, rest, _ := bytes.Cut(body, []byte("\n"))
	return fmt.Appendf(nil, "%-*s\n%s", 300-len(rest), first, rest)
}

// TestFileWritten: a plain write, a rename over the file and its removal are each noticed once, whatever is wrong with them is
// told once, and what was good last goes on.
func TestFileWritten(t *testing.T) {
	t.Parallel()
	r := newFileRig(t, FileConfig{}, func(dir string) { must(t, os.WriteFile(filepath.Join(dir, "rules.yaml"), padded(text("1/s")), 0o600)) })
	if s := r.Status(); s.Source != rules.FromFile || s.Version != 0 || s.Since.IsZero() || s.Stale != "" {
		t.Errorf("begin: %+v", s)
	}
	r.write(text("2/s"))
	r.wants("1 2", 0)
	r.write(text("2/s")) // the same
	r.wants("1 2", 0)
	must(t, os.WriteFile(r.path+".new", padded(text("3/s")), 0o600))
	must(t, os.Rename(r.path+".new", r.path))
	r.wants("1 2 3", 0)

	since := r.Status().Since
	for i, bad := range []struct{ body, want string }{
		{"domain: api\nrules:\n  - {nmae: r}\n", `rules.yaml:3:6: unknown field \"nmae\"`},
		{"domain: api\nrules: [\n", "rules.yaml:3:1: "},
		{string(text("1/s")) + "  - {name: r, match: [{key: x}], limit: 1/s}\n", "rules.yaml:4:12: "},
	} {
		r.write([]byte(bad.body))
		r.wants("1 2 3", uint64(i+1))
		if s := r.Status(); !strings.Contains(s.Stale, "rules.yaml:") || s.Since != since {
			t.Errorf("a bad file: %+v", s)
		}
		if n := r.log.count(bad.want); n != 1 {
			t.Errorf("%q is %d times in the log:\n%s", bad.want, n, &r.log)
		}
	}
	must(t, os.Remove(r.path))
	r.wants("1 2 3", 4)
	if n := r.log.count("no such file"); n != 1 || !strings.Contains(r.Status().Stale, "no such file") {
		t.Errorf("removed: %d times in the log:\n%s", n, &r.log)
	}
	r.write(text("3/s")) // back as it was
	until(t, "the latest", func() bool { return r.Status().Stale == "" })
	r.wants("1 2 3", 4)
	if s := r.Status(); s.Since != since {
		t.Errorf("the same rules are in force since %v, and since %v", since, s.Since)
	}
	r.write(text("4/s"))
	r.wants("1 2 3 4", 4)
}

// TestConfigMap: Kubernetes swaps a symbolic link to a directory above the file.
func TestConfigMap(t *testing.T) {
	t.Parallel()
	put := func(dir, name string, body []byte) {
		must(t, os.Mkdir(filepath.Join(dir, name), 0o700))
		must(t, os.WriteFile(filepath.Join(dir, name, "rules.yaml"), body, 0o600))
		must(t, os.Symlink(name, filepath.Join(dir, "..data_tmp")))
		must(t, os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")))
	}
	var dir string
	r := newFileRig(t, FileConfig{}, func(d string) {
		dir = d
		put(dir, "..2026_1", text("1/s"))
		must(t, os.Symlink("..data/rules.yaml", filepath.Join(dir, "rules.yaml")))
	})
	for i := 2; i <= 5; i++ {
		put(dir, fmt.Sprint("..2026_", i), text(fmt.Sprintf("%d/s", i)))
		must(t, os.RemoveAll(filepath.Join(dir, fmt.Sprint("..2026_", i-1))))
		r.wants("1 2 3 4 5"[:2*i-1], 0)
	}
	put(dir, "..2026_6", text("5/s")) // another map with the same text
	r.wants("1 2 3 4 5", 0)
}

// TestFilePolled: what raises no event in the file's directory is found by looking; here, behind a link to another directory.
func TestFilePolled(t *testing.T) {
	t.Parallel()
	target := filepath.Join(t.TempDir(), "target.yaml")
	must(t, os.WriteFile(target, padded(text("1/s")), 0o600))
	r := newFileRig(t, FileConfig{Poll: 5 * time.Millisecond}, func(dir string) { must(t, os.Symlink(target, filepath.Join(dir, "rules.yaml"))) })
	r.write(text("2/s")) // through the link
	r.wants("1 2", 0)
}

// TestFileDirectoryReplaced: a directory that goes and comes back is watched again.
func TestFileDirectoryReplaced(t *testing.T) {
	t.Parallel()
	r := newFileRig(t, FileConfig{Poll: 5 * time.Millisecond}, func(dir string) { must(t, os.WriteFile(filepath.Join(dir, "rules.yaml"), padded(text("1/s")), 0o600)) })
	must(t, os.RemoveAll(filepath.Dir(r.path)))
	r.wants("1", 1)
	must(t, os.Mkdir(filepath.Dir(r.path), 0o700))
	r.write(text("2/s"))
	r.wants("1 2", 1)
}

// TestReload: it takes what is there without waiting, tells in any case, and counts nothing twice.
func TestReload(t *testing.T) {
	t.Parallel()
	r := newFileRig(t, FileConfig{Settle: time.Hour}, func(dir string) { must(t, os.WriteFile(filepath.Join(dir, "rules.yaml"), padded(text("1/s")), 0o600)) })
	await := func(what string, n int) {
		t.Helper()
		until(t, what, func() bool { return r.log.count(what) == n })
	}
	r.Reload()
	await("changed=false", 1)
	r.write(text("2/s"))
	r.Reload()
	await("changed=true", 1)
	r.write([]byte("rules: []\n"))
	r.Reload()
	await("rules not reloaded", 1)
	r.Reload()
	await("rules not reloaded", 2)
	if s := r.Status(); s.Refused != 1 || r.taken.String() != "1 2" {
		t.Errorf("%+v, in force came %q", s, &r.taken)
	}
}

// TestBeginWithABadFile: there is nothing to serve, so it is an error.
func TestBeginWithABadFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rules.yaml")
	f, err := NewFile(FileConfig{Path: path})
	must(t, err)
	if _, err := f.Begin(context.Background()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	must(t, os.WriteFile(path, []byte("domain: api\n"), 0o600))
	if _, err := f.Begin(context.Background()); !errors.As(err, new(rules.Errors)) {
		t.Errorf("a bad file: %v", err)
	}
	f.Close() // what never followed ends as well
	if _, err := NewFile(FileConfig{}); err == nil {
		t.Error("no path: no error")
	}
}

// TestDirectoryWatchedAgain: after renew, events of a directory that was replaced come again.
func TestDirectoryWatchedAgain(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "etc")
	must(t, os.Mkdir(dir, 0o700))
	f, err := NewFile(FileConfig{Path: filepath.Join(dir, "rules.yaml")})
	must(t, err)
	s := f.listen()
	defer s.close()
	await := func(what string, is func(name string) bool) {
		t.Helper()
		giveUp := time.After(patience)
		for {
			select {
			case e := <-s.events:
				if is(e.Name) {
					return
				}
			case <-giveUp:
				t.Fatalf("no event of %s", what)
			}
		}
	}
	must(t, os.RemoveAll(dir))
	await("the directory that is gone", func(name string) bool { return name == dir })
	s.renew() // not there: that is no trouble
	must(t, os.Mkdir(dir, 0o700))
	s.renew()
	s.renew() // watched already: nor is that
	must(t, os.WriteFile(f.cfg.Path, text("1/s"), 0o600))
	await("the file", func(name string) bool { return name == f.cfg.Path })
}
