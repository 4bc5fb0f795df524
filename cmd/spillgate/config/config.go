package config

import (
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"time"

	"github.com/spillgate/spillgate/internal/strictyaml"
	"github.com/spillgate/spillgate/limit"
	"github.com/spillgate/spillgate/redisshard"
)

// maxSize bounds a configuration file, in bytes.
const maxSize = 1 << 20

// Config is the agent's configuration. Make one with Default: its zero value is not valid. For one goroutine.
type Config struct {
	Agent      Agent
	Store      Store
	Memory     Memory
	Listen     Listen
	Rules      Rules
	Hotkeys    Hotkeys
	Split      Split
	Datacenter Datacenter

	// file is the name of the one that was parsed, and from says of each key that was set where that was.
	file string
	from map[string]source
}

// Agent is the engine.
type Agent struct {
	// ID of this agent among its fleet, for people; the default is empty.
	ID string
	// Fleet of agents that share a store. They count each other, for limit.Local. Default "default".
	Fleet string
	// FleetSize is how many agents there are while they are not counted; 0, the default, is not known.
	FleetSize int
	// Deadline of a check whose rule has none; then OnStoreError answers. Default 25 ms. Longer waits out
	// a slow store, and makes callers wait.
	Deadline time.Duration
	// MaxPending bounds the claims that wait for the store; beyond it OnStoreError answers at
	// once. Default 65,536.
	MaxPending int
	// OnStoreError is the fail policy of rules without one. Default limit.Open.
	OnStoreError limit.Policy
	// Procs is GOMAXPROCS of the sidecar; 0, the default, leaves it to the agent.
	Procs int
}

// Store is where the buckets are.
type Store struct {
	// URL of the store, memory:// or one of redisshard.Config. May hold a password. Default memory://.
	URL string
	// Clock says whose time decides. Default redisshard.ClockRedis.
	Clock redisshard.Clock
	// Timeout bounds one call to one server. Default 50 ms.
	Timeout time.Duration
	// PasswordFile holds the password; it wins over one in the URL. Default none.
	PasswordFile string
	TLS          TLS
	Layout       Layout
}

// InMemory reports whether the store is that of the process itself.
func (s *Store) InMemory() bool { return strings.HasPrefix(s.URL, "memory:") }

// TLS names the files of a TLS connection to the store, all optional.
type TLS struct {
	CA   string // certificates (PEM) that may sign the server's; empty: those of the system
	Cert string // our certificate (PEM), for servers that ask for one
	Key  string // its key (PEM)
}

// Layout is wished for when the store has none yet.
type Layout struct {
	Tags int // 0, the default, has it chosen
	Bins int // default 1
}

// Memory is the store of memory://.
type Memory struct {
	// MaxCells bounds the cells in memory, about 100 bytes each. Default 16,777,216.
	MaxCells int
}

// Listen has the doors. An address is host:port, :port, unix:///path, unix://./path or Off.
type Listen struct {
	RESP  string // default: spillgate.sock in the runtime directory, or else in the working directory
	HTTP  string // default Off
	GRPC  string // default Off
	Admin string // default 127.0.0.1:7117; other machines only with AdminAllowRemote

	SocketMode  fs.FileMode // of Unix sockets, default 0660
	SocketGroup string      // that Unix sockets get, a name or a number; default: left to the system
	// AllowUIDs are the users who may connect to Unix sockets, all of them; empty, the default, leaves it to
	// the mode.
	AllowUIDs        []uint32
	AdminAllowRemote bool // default false
	RedactKeys       bool // default false
}

// Off is the address of a closed door.
const Off = "off"

// Rules says where the rules are.
type Rules struct {
	// File of rules; it is watched. Default none: no rules.
	File string
	// Store has the rules of the store instead: the versions that spillgate rules push makes. Default false.
	Store bool
	// CacheTTL is how long rules from the store are good without a look at it. Default 30 s. Shorter asks the store more often, and
	// notices sooner what was not announced.
	CacheTTL time.Duration
	// Snapshot is the file that keeps the store's rules, for a start without it. Default none.
	Snapshot string
}

// Hotkeys says which buckets are hot: those can be answered from leases.
type Hotkeys struct {
	// Top is how many can be hot at once. Default 1000. More takes memory; a bucket beyond it asks the
	// store at every check.
	Top int
	// MinRate is the tokens a second, asked of this agent, that make a bucket hot. Default 5. Lower puts more buckets on
	// lease, with fewer checks to each call that it takes.
	MinRate float64
}

// Split says when a bucket that the whole fleet asks for is divided over the store's masters, and how far.
type Split struct {
	// Ops is the number of entries per second on one bucket, of all agents, from which it is divided; 0 never
	// divides, and makes whole what other agents divide. Default 5,000. Lower divides earlier, and a divided bucket costs more entries.
	Ops int
	// Ways is into how many parts, 2 to 64; 0, the default, as it suits the store's masters. More parts leave
	// each a smaller share of the burst.
	Ways int
}

// Datacenter is this one's part of the limits, where there are several that each have a store of their own.
type Datacenter struct {
	// Name is for people. Default none.
	Name string
	// Share of each limit, above 0 to 1; those of all data centers should add up to 1. Default 1, all of it.
	Share float64
	// Headroom is by how much more than its share it may admit, 0 to 10, but never more than the limit. Default 0.2. More lets traffic move
	// between data centers, and more through in all of them together.
	Headroom float64
}

// Redis is the configuration of the store, if that is not in memory.
func (c *Config) Redis() redisshard.Config {
	s := &c.Store
	return redisshard.Config{
		URL:          s.URL,
		PasswordFile: s.PasswordFile,
		TLS:          redisshard.TLSConfig{CA: s.TLS.CA, Cert: s.TLS.Cert, Key: s.TLS.Key},
		Clock:        s.Clock,
		Timeout:      s.Timeout,
		Tags:         s.Layout.Tags,
		Bins:         s.Layout.Bins,
		SplitWays:    c.Split.Ways,
	}
}

// source is where a setting was set: at a place in the file or by a flag.
type source struct {
	at   strictyaml.Pos
	flag string
}

// Default is the configuration of an agent about which nothing was said. runtimeDir is where the user's
// sockets belong ($XDG_RUNTIME_DIR); "" or a relative one stands for the working directory.
func Default(runtimeDir string) *Config {
	resp := "unix://./spillgate.sock"
	if filepath.IsAbs(runtimeDir) {
		resp = "unix://" + filepath.Join(runtimeDir, "spillgate.sock")
	}
	return &Config{
		Agent:      Agent{Fleet: "default", Deadline: 25 * time.Millisecond, MaxPending: 1 << 16},
		Store:      Store{URL: "memory://", Timeout: 50 * time.Millisecond, Layout: Layout{Bins: 1}},
		Memory:     Memory{MaxCells: 1 << 24},
		Listen:     Listen{RESP: resp, HTTP: Off, GRPC: Off, Admin: "127.0.0.1:7117", SocketMode: 0o660},
		Rules:      Rules{CacheTTL: 30 * time.Second},
		Hotkeys:    Hotkeys{Top: 1000, MinRate: 5},
		Split:      Split{Ops: 5000},
		Datacenter: Datacenter{Share: 1, Headroom: 0.2},
		from:       make(map[string]source),
	}
}

// Load reads the file at path into c, as Parse does. What keeps it from being read is an *os.PathError inside.
func (c *Config) Load(path string) error {
	text, err := strictyaml.ReadFile(path, maxSize)
	if err != nil {
		return fmt.Errorf("config: %w", err)
	}
	return c.Parse(path, text)
}
