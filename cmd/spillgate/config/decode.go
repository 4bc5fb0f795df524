package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/spillgate/spillgate/internal/strictyaml"
)

// Parse reads the text of a configuration file into c and then does what Validate does. Settings that flags
// set keep their values. The file's name is only for messages. What is wrong with the file is a strictyaml.Errors in
// the error, all of it; c is then not to be used.
func (c *Config) Parse(file string, text []byte) error {
	c.file = file
	p := newProblems(c)
	root := p.inFile.Parse(text)
	switch {
	case root == nil:
		return p.err()
	case root.Kind == strictyaml.Map:
		p.section(root, "")
	case root.Kind != strictyaml.Null:
		p.inFile.Failf(root.Pos, `a configuration is made of "key: value"; the keys are %s`, strings.Join(below(""), ", "))
	}
	p.validate()
	return p.err()
}

// problems reads and checks one Config and collects what is wrong with it.
type problems struct {
	c        *Config
	inFile   strictyaml.File // with a place
	outside  strictyaml.File // what flags and defaults did
	rejected map[string]bool // keys whose value could not be read
}

func newProblems(c *Config) *problems {
	return &problems{
		c:        c,
		inFile:   strictyaml.File{Package: "config", Name: c.file, MaxSize: maxSize},
		outside:  strictyaml.File{Package: "config"},
		rejected: make(map[string]bool),
	}
}

func (p *problems) err() error { return errors.Join(p.inFile.Err(), p.outside.Err()) }

// section reads the mapping at a path.
func (p *problems) section(n *strictyaml.Node, path string) {
	of := path
	if path == "" {
		of = "a configuration"
	}
	for field := range p.inFile.Fields(p.placed(n, path, of), of, below(path)) {
		key := strings.TrimPrefix(path+"."+field.Key, ".")
		switch s := find(key); {
		case s != nil:
			p.set(s, field)
		case field.Value.Kind == strictyaml.Map:
			p.section(&field.Value, key)
		default:
			p.inFile.Failf(field.Pos(), "%s is not a mapping; write %s: {%s: VALUE}", key, key, below(key)[0])
		}
	}
}

// placed is the mapping n without the fields that belong to another one, which it reports.
func (p *problems) placed(n *strictyaml.Node, path, of string) *strictyaml.Node {
	known, rest := below(path), *n
	rest.Fields = nil
	for _, field := range n.Fields {
		home := slices.IndexFunc(settings, func(s setting) bool { return strings.HasSuffix("."+s.key, "."+field.Key) })
		if slices.Contains(known, field.Key) || home < 0 {
			rest.Fields = append(rest.Fields, field)
			continue
		}
		p.inFile.Failf(field.KeyPos, "unknown field %s in %s; write %s", strictyaml.Show(field.Key), of, nested(settings[home].key))
	}
	return &rest
}

// nested is a key as it is written in a file: a.b is a: {b: VALUE}.
func nested(key string) string {
	names := strings.Split(key, ".")
	return strings.Join(names, ": {") + ": VALUE" + strings.Repeat("}", len(names)-1)
}

// set gives a setting the value of a field, or, if a flag did already, only looks at it.
func (p *problems) set(s *setting, field *strictyaml.Field) {
	to := p.c
	if p.c.from[s.key].flag != "" {
		to = Default("")
	} else {
		p.c.from[s.key] = source{at: field.Pos()}
	}
	v := s.value(to)
	text, err := textOf(&field.Value, v)
	if err == nil {
		err = v.Set(text)
	}
	if err != nil {
		p.rejected[s.key] = true
		p.inFile.Failf(field.Pos(), "%s: %v", s.key, err)
	}
}

// textOf is what a flag would say for the value n of v.
func textOf(n *strictyaml.Node, v pflag.Value) (string, error) {
	_, list := v.(*uids)
	switch {
	case n.Scalar():
		return n.Text, nil
	case n.Kind == strictyaml.Null:
		return "", errors.New(`null is no value; write "" for an empty one, or leave the key out`)
	case n.Kind == strictyaml.List && list:
		words := make([]string, len(n.Items))
		for i := range n.Items {
			if words[i] = n.Items[i].Text; words[i] == "" {
				words[i] = "?" // null, a list or a mapping: no number
			}
		}
		return strings.Join(words, ","), nil
	}
	return "", fmt.Errorf("a list or mapping cannot be its value; write one of type %s", v.Type())
}
