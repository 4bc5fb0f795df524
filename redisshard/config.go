package redisshard

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"
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

// validate names the field that cannot be and says what would be right.
func (c *Config) validate() error {
	a, err := parseAddress(c.URL)
	switch {
	case err != nil:
		return fmt.Errorf("redisshard: Config.URL: %w", err)
	case a.user != "" && a.password == "" && c.PasswordFile == "":
		return fmt.Errorf("redisshard: Config.URL names the user %q without a password: write %s:password@ or set PasswordFile", a.user, a.user)
	case !a.tls && c.TLS != TLSConfig{}:
		return fmt.Errorf("redisshard: Config.TLS is set but the URL is not a TLS one: write rediss:// or leave TLS empty")
	case (c.TLS.Cert == "") != (c.TLS.Key == ""):
		return errors.New("redisshard: Config.TLS needs both Cert and Key, or neither")
	case c.Clock > ClockAgent:
		return fmt.Errorf("redisshard: Config.Clock is %d: want ClockRedis or ClockAgent", c.Clock)
	case c.Timeout < leastTimeout:
		return fmt.Errorf("redisshard: Config.Timeout is %v: want at least %v", c.Timeout, leastTimeout)
	case c.Tags < 0 || c.Tags > maxTags:
		return fmt.Errorf("redisshard: Config.Tags is %d: want 1 to %d, or 0 to have it chosen", c.Tags, maxTags)
	case c.Bins < 0 || c.Bins > maxBins:
		return fmt.Errorf("redisshard: Config.Bins is %d: want 1 to %d, or 0 for 1", c.Bins, maxBins)
	}
	return nil
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
		text, err := os.ReadFile(c.PasswordFile)
		if err != nil {
			return "", "", fmt.Errorf("%w: %w", errPasswordFile, err)
		}
		password := strings.TrimSuffix(strings.TrimSuffix(string(text), "\n"), "\r")
		if password == "" {
			return "", "", fmt.Errorf("%w: %s is empty", errPasswordFile, c.PasswordFile)
		}
		return a.user, password, nil
	}
}

// tlsConfig reads the files; nil for a URL without TLS. The client's certificate is
// read again for every connection, so that it can be renewed under way.
func (c *Config) tlsConfig(a *address) (*tls.Config, error) {
	if !a.tls {
		return nil, nil
	}
	conf := &tls.Config{MinVersion: tls.VersionTLS12}
	if c.TLS.CA != "" {
		pem, err := os.ReadFile(c.TLS.CA)
		if err != nil {
			return nil, fmt.Errorf("Config.TLS.CA: %w", err)
		}
		conf.RootCAs = x509.NewCertPool()
		if !conf.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("Config.TLS.CA: %s holds no certificate in PEM form", c.TLS.CA)
		}
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
