package redisshard

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spillgate/spillgate/limit"
)

const (
	defaultTimeout = 50 * time.Millisecond
	// leastTimeout keeps a mistaken unit (50 instead of 50ms) from passing.
	leastTimeout = time.Millisecond
)

// Clock says whose time decides.
type Clock uint8

const (
	// ClockRedis asks the server's TIME in every call: agents need no common time.
	ClockRedis Clock = iota
	// ClockAgent sends the agent's time along, for services that forbid TIME. The agents'
	// clocks must then agree: their skew moves every answer. Clocks 4 s apart or more (one
	// generation of the shortest class) lead to refused calls, and from 8 s on to agents that count apart.
	ClockAgent
)

// Config says where the store is and how to talk to it. Its zero value lacks
// only the URL.
type Config struct {
	// URL of the store:
	//
	//	redis://[user:password@]host:port[/db]
	//	redis://host1:port1,host2:port2?cluster=auto|on|off
	//	redis+sentinel://host1:port1,host2:port2/master-name[/db]
	//	unix:///path/to/redis.sock[?db=N]
	//
	// rediss:// and rediss+sentinel:// use TLS. Default of cluster: auto, which asks the server.
	URL string

	// PasswordFile names a file that holds the password; a newline at its end
	// does not count. It wins over the password in the URL and is read for each
	// new connection, so that a password can be changed under way.
	PasswordFile string

	// TLS names the files of a TLS connection.
	TLS TLSConfig

	// Clock says whose time decides. Default ClockRedis.
	Clock Clock

	// Timeout bounds one call to one server. Default 50 ms. Longer hides the
	// hiccups of a busy server, shorter frees the waiting checks sooner; a debit
	// whose reply did not come in time counts as spent.
	Timeout time.Duration

	// Tags and Bins are the layout that is wished for when the store has none
	// yet. 0: 4 tags per master and at least 8; 1 bin.
	Tags, Bins int

	// SplitWays, 2 to 64, forces the number of parts into which a hot bucket is divided, on one master too, where it
	// helps nobody: for tests and special cases. 0: one part for each master, or a few more or less
	// where slots are spread unevenly; none on a single master. More parts spread the load further, and leave each a
	// smaller share of the burst.
	SplitWays int

	// Logger takes what operators should know. Default slog.Default().
	Logger *slog.Logger
}

// TLSConfig holds file names, all optional.
type TLSConfig struct {
	CA   string // certificates (PEM) that may sign the server's; empty: those of the system
	Cert string // our certificate (PEM), for servers that ask for one
	Key  string // its key (PEM)
}

func (c *Config) ensureDefaults() {
	if c.Timeout == 0 {
		c.Timeout = defaultTimeout
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
}

// ConfigError is what is wrong with one field of a Config.
type ConfigError struct {
	Field string // its path below Config, such as URL or TLS.CA
	Err   error  // what is wrong and what would be right, without Go names, passwords and the field
}

// Error names the field.
func (e *ConfigError) Error() string { return "redisshard: Config." + e.Field + ": " + e.Err.Error() }

// Unwrap is Err.
func (e *ConfigError) Unwrap() error { return e.Err }

// ConfigErrors are all problems of a Config. It is never empty.
type ConfigErrors []*ConfigError

// Error has a line for each problem.
func (e ConfigErrors) Error() string { return errors.Join(e.Unwrap()...).Error() }

// Unwrap makes each problem visible to errors.As.
func (e ConfigErrors) Unwrap() []error {
	all := make([]error, len(e))
	for i, one := range e {
		all[i] = one
	}
	return all
}

// addf adds a problem.
func (e *ConfigErrors) addf(field, format string, args ...any) {
	*e = append(*e, &ConfigError{field, fmt.Errorf(format, args...)})
}

// has reports whether a field has a problem already.
func (e ConfigErrors) has(field string) bool {
	return slices.ContainsFunc(e, func(one *ConfigError) bool { return one.Field == field })
}

func (e ConfigErrors) orNil() error {
	if len(e) == 0 {
		return nil
	}
	return e
}

// Validate reports what Open would refuse without asking a server, as ConfigErrors: fields that
// cannot be, and files that cannot be read or hold something else. It dials nothing.
func (c Config) Validate() error {
	c.ensureDefaults()
	errs := c.fieldErrors()
	c.checkFiles(&errs)
	return errs.orNil()
}

// validate is Validate without the files, which are read anew at each attempt to connect.
func (c *Config) validate() error { return c.fieldErrors().orNil() }

// fieldErrors says of each field that cannot be what would be right.
func (c *Config) fieldErrors() (errs ConfigErrors) {
	a, err := parseAddress(c.URL)
	switch {
	case err != nil:
		errs.addf("URL", "%w", err)
	case a.user != "" && a.password == "" && c.PasswordFile == "": // the user may be a password, written in the wrong place
		errs.addf("URL", "it has a user without a password: write user:password@ (:password@ without a user) or name a password file")
	}
	for _, f := range c.TLS.files() {
		if f.name != "" && err == nil && !a.tls {
			errs.addf(f.field, "it does not go with a store without TLS: remove it, or write rediss:// in the URL")
		}
	}
	switch {
	case c.TLS.Cert != "" && c.TLS.Key == "":
		errs.addf("TLS.Cert", "it is there without the file of its key: name both files or none")
	case c.TLS.Cert == "" && c.TLS.Key != "":
		errs.addf("TLS.Key", "it is there without the file of its certificate: name both files or none")
	}
	if c.Clock > ClockAgent {
		errs.addf("Clock", "%d is none: want %d (redis) or %d (agent)", c.Clock, ClockRedis, ClockAgent)
	}
	if c.Timeout < leastTimeout {
		errs.addf("Timeout", "%v is too short: want at least %v", c.Timeout, leastTimeout)
	}
	if c.Tags < 0 || c.Tags > maxTags {
		errs.addf("Tags", "%d is out of range: want 1 to %d, or 0 to have it chosen", c.Tags, maxTags)
	}
	if c.Bins < 0 || c.Bins > maxBins {
		errs.addf("Bins", "%d is out of range: want 1 to %d, or 0 for 1", c.Bins, maxBins)
	}
	if c.SplitWays != 0 && (c.SplitWays < 2 || c.SplitWays > limit.MaxWays) {
		errs.addf("SplitWays", "%d is out of range: want 2 to %d, or 0 to have it chosen", c.SplitWays, limit.MaxWays)
	}
	return errs
}

// checkFiles reads the files of fields without a problem, as a connection would.
func (c *Config) checkFiles(errs *ConfigErrors) {
	if c.PasswordFile != "" {
		if _, err := readPassword(c.PasswordFile); err != nil {
			errs.addf("PasswordFile", "%w", err)
		}
	}
	for _, f := range c.TLS.files() {
		if f.name == "" || errs.has(f.field) {
			continue
		}
		_, err := os.ReadFile(f.name)
		if err == nil && f.field == "TLS.CA" {
			_, err = readCA(f.name)
		}
		if err != nil {
			errs.addf(f.field, "%w", err)
		}
	}
	if c.TLS.Cert == "" || errs.has("TLS.Cert") || errs.has("TLS.Key") {
		return
	}
	if _, err := tls.LoadX509KeyPair(c.TLS.Cert, c.TLS.Key); err != nil {
		errs.addf("TLS.Cert", "%s and %s: %w", c.TLS.Cert, c.TLS.Key, err)
	}
}

// tlsFile is one of the files of a TLSConfig.
type tlsFile struct{ field, name string }

func (c *TLSConfig) files() []tlsFile {
	return []tlsFile{{"TLS.CA", c.CA}, {"TLS.Cert", c.Cert}, {"TLS.Key", c.Key}}
}

// String is the store's address without the password, for messages.
func (c Config) String() string {
	a, err := parseAddress(c.URL)
	if err != nil {
		return "(no valid URL)"
	}
	return a.String()
}

// LogValue keeps the password out of logs that a Config gets into.
func (c Config) LogValue() slog.Value { return slog.StringValue(c.String()) }

// GoString keeps the password out of %#v.
func (c Config) GoString() string { return "redisshard.Config{" + c.String() + "}" }

// credentials gives the user and password for a new connection.
type credentials func(context.Context) (user, password string, err error)

func (c *Config) credentials(a *address) credentials {
	return func(context.Context) (string, string, error) {
		if c.PasswordFile == "" {
			return a.user, a.password, nil
		}
		password, err := readPassword(c.PasswordFile)
		if err != nil {
			return "", "", fmt.Errorf("%w: %w", errPasswordFile, err)
		}
		return a.user, password, nil
	}
}

// readPassword reads a file that holds a password and perhaps a newline.
func readPassword(file string) (string, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	password := strings.TrimSuffix(strings.TrimSuffix(string(text), "\n"), "\r")
	if password == "" {
		return "", fmt.Errorf("%s is empty", file)
	}
	return password, nil
}

// tlsConfig reads the files; nil for a URL without TLS. The client's certificate is
// read again for every connection, so that it can be renewed under way.
func (c *Config) tlsConfig(a *address) (*tls.Config, error) {
	if !a.tls {
		return nil, nil
	}
	conf := &tls.Config{MinVersion: tls.VersionTLS12}
	if c.TLS.CA != "" {
		pool, err := readCA(c.TLS.CA)
		if err != nil {
			return nil, fmt.Errorf("Config.TLS.CA: %w", err)
		}
		conf.RootCAs = pool
	}
	if c.TLS.Cert == "" {
		return conf, nil
	}
	load := func() (*tls.Certificate, error) {
		cert, err := tls.LoadX509KeyPair(c.TLS.Cert, c.TLS.Key)
		if err != nil {
			return nil, fmt.Errorf("Config.TLS.Cert and Key: %w", err)
		}
		return &cert, nil
	}
	if _, err := load(); err != nil {
		return nil, err
	}
	conf.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return load() }
	return conf, nil
}

// readCA reads the certificates that may sign others.
func readCA(file string) (*x509.CertPool, error) {
	pem, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s holds no certificate in PEM form", file)
	}
	return pool, nil
}
