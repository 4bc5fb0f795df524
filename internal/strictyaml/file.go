package strictyaml

import (
	"bytes"
	"fmt"
	"io"
	"iter"
	"os"
	"slices"
	"strings"
)

// File is a text that is being read and the problems that were found in it. Its
// methods go on after a problem, so that all of them are reported. For one goroutine.
type File struct {
	// Package that reads the file, for messages.
	Package string
	// Name of the file, for messages; may be empty.
	Name string
	// MaxSize bounds the text, in bytes.
	MaxSize int

	end   Pos // of the text
	errs  Errors
	more  *Error // the first for which errs had no room
	count int
}

// ReadFile reads a file of at most most bytes, and of a longer one one byte more: enough
// for Parse to see it. The error is an *os.PathError.
func ReadFile(path string, most int) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	size := 0 // unknown
	if info, err := f.Stat(); err == nil && info.Mode().IsRegular() {
		size = int(min(info.Size(), int64(most)))
	}
	text := bytes.NewBuffer(make([]byte, 0, size+1+bytes.MinRead)) // read without growing
	_, err = text.ReadFrom(io.LimitReader(f, int64(most)+1))
	return text.Bytes(), err
}

// Failf reports a problem. What else was reported does not matter: Err sorts.
func (f *File) Failf(at Pos, format string, args ...any) {
	f.count++
	switch {
	case len(f.errs) < MaxErrors-1:
		f.errs = append(f.errs, f.problem(at, fmt.Sprintf(format, args...)))
	case f.more == nil:
		f.more = f.problem(at, "too many problems; from here on they are not shown")
	}
}

func (f *File) problem(at Pos, message string) *Error {
	return &Error{Package: f.Package, File: f.Name, Line: int(at.Line), Column: int(at.Column), Message: message}
}

// Unsupported reports what is documented and this version does not do.
func (f *File) Unsupported(at Pos, what, instead string) {
	f.Failf(at, "%s is not supported in this version; %s", what, instead)
}

// Fields yields the fields of a mapping whose keys are known, and reports the others. of names the
// mapping in messages.
func (f *File) Fields(n *Node, of string, known []string) iter.Seq[*Field] {
	return func(yield func(*Field) bool) {
		for i := range n.Fields {
			field := &n.Fields[i]
			switch {
			case !slices.Contains(known, field.Key):
				f.unknown(field, of, known)
			case !yield(field):
				return
			}
		}
	}
}

// unknown reports a field that is none of the known ones.
func (f *File) unknown(field *Field, of string, known []string) {
	hint := DidYouMean(field.Key, known)
	if hint == "" {
		hint = "; the fields are " + strings.Join(known, ", ")
	}
	f.Failf(field.KeyPos, "unknown field %s in %s%s", Show(field.Key), of, hint)
}

// Count is the number of problems so far.
func (f *File) Count() int { return f.count }

// Err is nil, or all problems as Errors.
func (f *File) Err() error {
	if f.count == 0 {
		return nil
	}
	all := f.errs.sorted()
	if f.more != nil {
		all = append(all, f.more)
	}
	return all
}
