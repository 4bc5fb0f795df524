package source

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/google/renameio/v2"

	"github.com/spillgate/spillgate/internal/strictyaml"
	"github.com/spillgate/spillgate/rules"
)

// A snapshot is a file of three parts:
//
//	spillgate rules snapshot 1 <SHA-256 of all that follows the line>
//	{"number":5,"author":"ann","comment":"...","time":"..."}
//	the text of the rules file, byte by byte
const snapshotMagic = "spillgate rules snapshot 1 "

// maxStory bounds what stands before the text.
const maxStory = 64 << 10

// errDamaged: what stands in a snapshot is none.
var errDamaged = errors.New("it is damaged; it is written anew with the next version, or remove it")

// story is the second line.
type story struct {
	Number  int64     `json:"number"`
	Author  string    `json:"author"`
	Comment string    `json:"comment"`
	Time    time.Time `json:"time"`
}

// writeSnapshot puts a version into the file at path. Whoever reads it meanwhile, or after a loss of
// power, finds the old one or the new one. Only the owner may read it.
func writeSnapshot(path string, v *rules.Version) error {
	line, err := json.Marshal(story{v.Number, v.Author, v.Comment, v.Time})
	if err != nil {
		return fmt.Errorf("source: snapshot %s: %w", path, err)
	}
	body := append(append(line, '\n'), v.Text...)
	text := append([]byte(snapshotMagic+rules.SumOf(body).String()+"\n"), body...)
	f, err := renameio.NewPendingFile(path, renameio.WithTempDir(filepath.Dir(path)), renameio.WithStaticPermissions(0o600))
	if err != nil {
		return fmt.Errorf("source: snapshot: %w", err)
	}
	defer f.Cleanup()
	if _, err := f.Write(text); err != nil {
		return fmt.Errorf("source: snapshot: %w", err)
	}
	if err := f.CloseAtomicallyReplace(); err != nil { // fsync, then rename
		return fmt.Errorf("source: snapshot: %w", err)
	}
	return nil
}

// readSnapshot reads the file at path; without one, the version is nil.
func readSnapshot(path string) (*rules.Version, error) {
	text, err := strictyaml.ReadFile(path, rules.MaxSize+maxStory)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("source: snapshot: %w", err)
	}
	v, err := decodeSnapshot(text)
	if err != nil {
		return nil, fmt.Errorf("source: snapshot %s: %w", path, err)
	}
	return v, nil
}

func decodeSnapshot(text []byte) (*rules.Version, error) {
	first, body, ok := bytes.Cut(text, []byte("\n"))
	if !ok || string(first) != snapshotMagic+rules.SumOf(body).String() {
		return nil, errDamaged
	}
	line, rest, ok := bytes.Cut(body, []byte("\n"))
	var s story
	if err := json.Unmarshal(line, &s); !ok || err != nil || s.Number < 1 {
		return nil, errDamaged
	}
	return &rules.Version{Head: rules.Head{Number: s.Number, Sum: rules.SumOf(rest)}, Author: s.Author, Comment: s.Comment, Time: s.Time,
		Size: len(rest), Text: rest}, nil
}
