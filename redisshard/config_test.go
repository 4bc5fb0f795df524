package redisshard

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
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
