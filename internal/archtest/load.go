package archtest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// listed is what we read of go list -json.
type listed struct {
	ImportPath string
	Dir        string
	Module     *struct{ Main bool }
	Imports    []string

	GoFiles, CgoFiles, IgnoredGoFiles, TestGoFiles, XTestGoFiles []string
}

// Load reads the module that the directory dir belongs to.
func Load(dir string) (House, error) {
	root, err := moduleRoot(dir)
	if err != nil {
		return House{}, err
	}
	if err := touchDirs(root); err != nil {
		return House{}, err
	}
	// -e: a package that does not compile is the compiler's business.
	out, err := goCmd(root, "list", "-e", "-deps",
		"-json=ImportPath,Dir,Module,Imports,GoFiles,CgoFiles,IgnoredGoFiles,TestGoFiles,XTestGoFiles", "./...")
	if err != nil {
		return House{}, err
	}
	h := House{Module: Module, Imports: map[string][]string{}}
	for dec := json.NewDecoder(strings.NewReader(out)); ; {
		var l listed
		if err := dec.Decode(&l); errors.Is(err, io.EOF) {
			return h, nil
		} else if err != nil {
			return House{}, fmt.Errorf("archtest: read go list: %w", err)
		}
		h.Imports[l.ImportPath] = l.Imports
		if l.Module == nil || !l.Module.Main {
			continue
		}
		p, err := scanPackage(l)
		if err != nil {
			return House{}, err
		}
		h.Packages = append(h.Packages, p)
	}
}

// scanPackage reads all Go files of a package, also those for other systems.
func scanPackage(l listed) (Package, error) {
	p := Package{Path: strings.TrimPrefix(strings.TrimPrefix(l.ImportPath, Module), "/")}
	for _, name := range slices.Concat(l.GoFiles, l.CgoFiles, l.IgnoredGoFiles, l.TestGoFiles, l.XTestGoFiles) {
		src, err := os.ReadFile(filepath.Join(l.Dir, name))
		if err != nil {
			return Package{}, fmt.Errorf("archtest: %w", err)
		}
		f, err := Scan(name, src)
		if err != nil {
			return Package{}, err
		}
		p.Files = append(p.Files, f)
	}
	return p, nil
}

func moduleRoot(dir string) (string, error) {
	out, err := goCmd(dir, "env", "GOMOD")
	if err != nil {
		return "", err
	}
	mod := strings.TrimSpace(out)
	if filepath.Base(mod) != "go.mod" {
		return "", fmt.Errorf("archtest: %s is in no module (GOMOD is %q)", dir, mod)
	}
	return filepath.Dir(mod), nil
}

// touchDirs opens every directory of the module. go test repeats a cached result
// while the files that the test opened are unchanged; it sees our opens but not
// those of go list, and would miss a new package.
func touchDirs(root string) error {
	return filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && path != root && strings.HasPrefix(d.Name(), ".") {
			return fs.SkipDir
		}
		return err
	})
}

func goCmd(dir string, args ...string) (string, error) {
	cmd := exec.Command("go", args...)
	cmd.Dir = dir
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("archtest: go %s: %w\n%s", args[0], err, stderr.String())
	}
	return string(out), nil
}
