package redisshard

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestConfigDefaults(t *testing.T) {
	c := Config{URL: "redis://h:1"}
	c.ensureDefaults()
	if c.Timeout != 50*time.Millisecond || c.Logger == nil || c.Clock != ClockRedis {
		t.Errorf("defaults are %v, %v, %v", c.Timeout, c.Logger, c.Clock)
	}
	if err := c.validate(); err != nil {
		t.Error(err)
	}
}

func TestConfigValidateNamesTheField(t *testing.T) {
	tests := []struct {
		field  string
		change func(*Config)
	}{
		{"Config.URL", func(c *Config) { c.URL = "" }},
		{"Config.URL", func(c *Config) { c.URL = "redis://user@h:1" }},
		{"Config.TLS", func(c *Config) { c.TLS.CA = "ca.pem" }},
		{"Config.TLS", func(c *Config) { c.URL, c.TLS.Cert = "rediss://h:1", "cert.pem" }},
		{"Config.Clock", func(c *Config) { c.Clock = 2 }},
		{"Config.Timeout", func(c *Config) { c.Timeout = 50 }},
		{"Config.Timeout", func(c *Config) { c.Timeout = -time.Second }},
		{"Config.Tags", func(c *Config) { c.Tags = -1 }},
		{"Config.Tags", func(c *Config) { c.Tags = maxTags + 1 }},
		{"Config.Bins", func(c *Config) { c.Bins = maxBins + 1 }},
		{"Config.SplitWays", func(c *Config) { c.SplitWays = 1 }},
		{"Config.SplitWays", func(c *Config) { c.SplitWays = -2 }},
		{"Config.SplitWays", func(c *Config) { c.SplitWays = 65 }},
	}
	for i, test := range tests {
		c := Config{URL: "redis://h:1"}
		test.change(&c)
		c.ensureDefaults()
		if err := c.validate(); err == nil || !strings.HasPrefix(err.Error(), "redisshard: "+test.field) {
			t.Errorf("%d: error is %v, want one on %s", i, err, test.field)
		}
	}
	c := Config{URL: "redis://user@h:1", PasswordFile: "pw"}
	c.ensureDefaults()
	if err := c.validate(); err != nil {
		t.Errorf("user with a password file: %v", err)
	}
}

// TestValidateReportsAll: every problem by its field, files included, in words without Go names and passwords.
func TestValidateReportsAll(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	none, text, pw := filepath.Join(dir, "none"), file("text", "s3cret"), file("pw", "s3cret\n")
	for _, tt := range []struct {
		c    Config
		want []string // fields
	}{
		{Config{URL: "redis://h"}, nil},
		{Config{URL: "redis://user@h", PasswordFile: pw}, nil},
		{Config{URL: "redis://:s3cret@h:99999"}, []string{"URL"}},
		{Config{URL: "redis://s3cret@h"}, []string{"URL"}},
		{Config{URL: "redis://h", PasswordFile: none}, []string{"PasswordFile"}},
		{Config{URL: "redis://h", PasswordFile: file("empty", "\n")}, []string{"PasswordFile"}},
		{Config{URL: "redis://h", TLS: TLSConfig{CA: none}}, []string{"TLS.CA"}},
		{Config{URL: "rediss://h", TLS: TLSConfig{CA: text}}, []string{"TLS.CA"}},
		{Config{URL: "rediss://h", TLS: TLSConfig{CA: none, Key: none}}, []string{"TLS.Key", "TLS.CA"}},
		{Config{URL: "rediss://h", TLS: TLSConfig{Cert: text, Key: none}}, []string{"TLS.Key"}},
		{Config{URL: "rediss://h", TLS: TLSConfig{Cert: text, Key: text}}, []string{"TLS.Cert"}},
		{Config{URL: "rediss://h?foo=1", PasswordFile: none, TLS: TLSConfig{CA: none, Cert: none, Key: none}, Clock: 2, Timeout: 1, Tags: -1, Bins: -1},
			[]string{"URL", "Clock", "Timeout", "Tags", "Bins", "PasswordFile", "TLS.CA", "TLS.Cert", "TLS.Key"}},
	} {
		var all ConfigErrors
		err := tt.c.Validate()
		if errors.As(err, &all) != (err != nil) {
			t.Errorf("%s: %v", tt.c.URL, err)
		}
		var got []string
		for _, e := range all {
			got = append(got, e.Field)
			if text := e.Err.Error(); strings.Contains(text, "Config") || strings.Contains(text, "s3cret") {
				t.Errorf("%s: %s", e.Field, text)
			}
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%+v, %+v: %v, want %v", tt.c, tt.c.TLS, got, tt.want)
		}
	}
	if err := (Config{URL: "redis://h", PasswordFile: none}).Validate(); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v hides its cause", err)
	}
}

func TestConfigKeepsThePassword(t *testing.T) {
	c := Config{URL: "redis://user:s3cret@h1:1,h2:2/0"}
	var log bytes.Buffer
	logger := slog.New(slog.NewJSONHandler(&log, nil))
	logger.Info("x", "config", c)
	logger.Info("x", "config", &c)
	slog.New(slog.NewTextHandler(&log, nil)).Info("x", "config", c)
	out := log.String() + fmt.Sprintf("%v %+v %#v %s", c, &c, c, c)
	if strings.Contains(out, "s3cret") || !strings.Contains(out, "redis://user@h1:1,h2:2") {
		t.Errorf("shown: %s", out)
	}
}

func TestPasswordFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pw")
	c := Config{URL: "redis://user:url@h:1", PasswordFile: file}
	a, err := parseAddress(c.URL)
	if err != nil {
		t.Fatal(err)
	}
	read := c.credentials(a)
	for _, test := range []struct{ text, want string }{
		{"one\n", "one"}, {"two\r\n", "two"}, {" three ", " three "}, {"four\n\n", "four\n"},
	} {
		if err := os.WriteFile(file, []byte(test.text), 0o600); err != nil {
			t.Fatal(err)
		}
		user, password, err := read(t.Context())
		if user != "user" || password != test.want || err != nil {
			t.Errorf("%q: %q, %q, %v", test.text, user, password, err)
		}
	}
	for _, text := range []string{"", "\n"} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, _, err := read(t.Context()); err == nil {
			t.Errorf("%q is taken for a password", text)
		}
	}
}
