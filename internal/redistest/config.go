package redistest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// BinaryEnv names the environment variable that may hold the path of the
// redis-server to use.
const BinaryEnv = "SPILLGATE_REDIS_SERVER"

// ErrNoServer reports that there is no redis-server to start.
var ErrNoServer = errors.New("redistest: redis-server not found: install it " +
	"(Debian: apt-get install redis-server) or set " + BinaryEnv + " to its path")

// maxSocketPath is the longest Unix socket path that every system takes
// (sun_path holds 104 bytes on macOS, 108 on Linux, with the final zero).
const maxSocketPath = 103

// Config says what to launch. The zero value is one plain server, or a
// cluster of three masters with one replica each.
type Config struct {
	// Binary is the redis-server to run. Empty: the path in BinaryEnv, else
	// redis-server as found in PATH.
	Binary string

	// Password, when not empty, becomes requirepass and masterauth. The clients
	// made here use it.
	Password string

	// Users are added to the ACL. The default user stays as it is.
	Users []User

	// Lines are added to the end of redis.conf, where they override what stands
	// above them.
	Lines []string

	// Masters is the number of masters of a cluster. Default 3; Redis needs three
	// for an automatic failover. One server alone ignores it.
	Masters int

	// Replicas is the number of replicas of each master. 0 means the default, 1;
	// a negative number means none. One server alone ignores it.
	Replicas int

	// NodeTimeout is cluster-node-timeout. Default 1 s, rounded to milliseconds.
	// Lower finds a dead master sooner, but a busy machine then sees failovers
	// that nobody asked for.
	NodeTimeout time.Duration
}

// User is a user of the server's ACL.
type User struct {
	Name     string
	Password string
	Rules    []string // as in ACL SETUSER, for example "~sg:*", "+@all", "-time"
}

// Option changes the Config of Start and StartCluster.
type Option func(*Config)

// WithPassword makes the servers demand a password.
func WithPassword(password string) Option {
	return func(c *Config) { c.Password = password }
}

// WithUser adds an ACL user; rules are those of ACL SETUSER.
func WithUser(name, password string, rules ...string) Option {
	return func(c *Config) {
		c.Users = append(c.Users, User{Name: name, Password: password, Rules: rules})
	}
}

// WithConfig adds lines to redis.conf, such as "maxmemory 10mb".
func WithConfig(lines ...string) Option {
	return func(c *Config) { c.Lines = append(c.Lines, lines...) }
}

// WithShards sets the size of a cluster: its masters, and the replicas of each.
func WithShards(masters, replicasEach int) Option {
	return func(c *Config) {
		c.Masters, c.Replicas = masters, replicasEach
		if replicasEach == 0 {
			c.Replicas = -1
		}
	}
}

// WithNodeTimeout sets cluster-node-timeout.
func WithNodeTimeout(d time.Duration) Option {
	return func(c *Config) { c.NodeTimeout = d }
}

// ensureDefaults replaces zero values; it finds the binary.
func (c *Config) ensureDefaults() error {
	if c.Masters == 0 {
		c.Masters = 3
	}
	if c.Replicas == 0 {
		c.Replicas = 1
	}
	c.Replicas = max(c.Replicas, 0)
	if c.NodeTimeout == 0 {
		c.NodeTimeout = time.Second
	}
	if c.Binary == "" {
		c.Binary = os.Getenv(BinaryEnv)
	}
	if c.Binary == "" {
		c.Binary = "redis-server"
	}
	path, err := exec.LookPath(c.Binary)
	if err != nil {
		return fmt.Errorf("%w (%w)", ErrNoServer, err)
	}
	c.Binary = path
	return nil
}

// validate names the field that cannot be.
func (c *Config) validate() error {
	switch {
	case c.Masters < 1 || c.Masters > numSlots:
		return fmt.Errorf("redistest: Config.Masters is %d: want 1 to %d", c.Masters, numSlots)
	case c.NodeTimeout < time.Millisecond:
		return fmt.Errorf("redistest: Config.NodeTimeout is %v: want at least 1ms", c.NodeTimeout)
	case slices.ContainsFunc(c.Users, func(u User) bool { return u.Name == "" }):
		return errors.New("redistest: Config.Users holds a user without a name")
	}
	return nil
}

// render returns the text of redis.conf for a server in dir.
func (c *Config) render(dir string, port int, cluster bool) string {
	var b strings.Builder
	line := func(words ...string) {
		for i, w := range words {
			if i > 0 {
				b.WriteByte(' ')
				w = strconv.Quote(w)
			}
			b.WriteString(w)
		}
		b.WriteByte('\n')
	}
	line("bind", "127.0.0.1")
	line("port", strconv.Itoa(port))
	line("unixsocket", filepath.Join(dir, socketName))
	line("unixsocketperm", "700")
	line("dir", dir)
	line("daemonize", "no")
	line("save", "")
	line("appendonly", "no")
	// A replica syncs at the next tick instead of five seconds later.
	line("repl-diskless-sync", "yes")
	line("repl-diskless-sync-delay", "0")
	if c.Password != "" {
		line("requirepass", c.Password)
		line("masterauth", c.Password)
	}
	for _, u := range c.Users {
		line(append([]string{"user", u.Name, "on", ">" + u.Password}, u.Rules...)...)
	}
	if cluster {
		line("cluster-enabled", "yes")
		line("cluster-config-file", "nodes.conf")
		line("cluster-node-timeout", strconv.FormatInt(c.NodeTimeout.Milliseconds(), 10))
		// A replica stays with its shard, and may be promoted however long its
		// master has been away: tests want the same outcome every time.
		line("cluster-allow-replica-migration", "no")
		line("cluster-replica-validity-factor", "0")
	}
	for _, l := range c.Lines {
		b.WriteString(l)
		b.WriteByte('\n')
	}
	return b.String()
}
