package source

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/spillgate/spillgate/rules"
)

// text is a rules file with one rule of that limit.
func text(limit string) []byte {
	return []byte("domain: api\nrules:\n  - {name: r, match: [{key: user}], limit: " + limit + "}\n")
}

func version(number int64, body []byte) rules.Version {
	return rules.Version{Head: rules.Head{Number: number, Sum: rules.SumOf(body)}, Author: "ann", Comment: "because {} \u2603",
		Time: time.Date(2026, 12, 1, 3, 4, 5, 6e6, time.UTC), Size: len(body), Text: body}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestSnapshot(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "snapshot")
	if v, err := readSnapshot(path); v != nil || err != nil {
		t.Errorf("without a file: %+v, %v", v, err)
	}
	for _, body := range [][]byte{text("1/s"), []byte("\n\n"), {}} {
		want := version(7, body)
		must(t, writeSnapshot(path, &want))
		got, err := readSnapshot(path)
		if err != nil || len(got.Text) != len(body) {
			t.Fatalf("%+v, %v", got, err)
		}
		if got.Text = want.Text; !reflect.DeepEqual(*got, want) {
			t.Errorf("read %+v, wrote %+v", got, want)
		}
	}
	info, err := os.Stat(path)
	must(t, err)
	if info.Mode() != 0o600 {
		t.Errorf("mode %v", info.Mode())
	}
	if files, _ := os.ReadDir(dir); len(files) != 1 {
		t.Errorf("left behind: %v", files)
	}
	// What is readable to all does not stay so.
	must(t, os.Chmod(path, 0o644))
	v := version(8, text("2/s"))
	must(t, writeSnapshot(path, &v))
	if info, err := os.Stat(path); err != nil || info.Mode() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if err := writeSnapshot(filepath.Join(dir, "none", "snapshot"), &v); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("without a directory: %v", err)
	}
}

// TestDamagedSnapshot: cut at any place, or with any byte changed, a snapshot is an error that names the file.
func TestDamagedSnapshot(t *testing.T) {
	path := filepath.Join(t.TempDir(), "snapshot")
	v := version(7, text("1/s"))
	must(t, writeSnapshot(path, &v))
	whole, err := os.ReadFile(path)
	must(t, err)
	damaged := func(what string, at int, b []byte) {
		t.Helper()
		if v, err := decodeSnapshot(b); err == nil {
			t.Errorf("%s %d: %+v", what, at, v)
		}
	}
	for i := range whole {
		damaged("cut at", i, whole[:i])
		b := append([]byte(nil), whole...)
		b[i] ^= 1
		damaged("changed at", i, b)
	}
	damaged("with a byte more", 0, append(whole, ' '))
	must(t, os.WriteFile(path, whole[:20], 0o600))
	if _, err := readSnapshot(path); err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "damaged") {
		t.Errorf("%v", err)
	}
}

func FuzzSnapshot(f *testing.F) {
	f.Add([]byte(""))
	f.Add([]byte(snapshotMagic))
	f.Add([]byte(snapshotMagic + rules.SumOf([]byte("{\"number\":1}\nx")).String() + "\n{\"number\":1}\nx"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if v, err := decodeSnapshot(b); err == nil && (v.Number < 1 || v.Sum != rules.SumOf(v.Text)) {
			t.Errorf("%+v", v)
		}
	})
}
