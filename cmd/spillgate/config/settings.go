package config

import (
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/spillgate/spillgate/limit"
	"github.com/spillgate/spillgate/redisshard"
	"github.com/spillgate/spillgate/rules"
)

// setting is one thing that can be set.
type setting struct {
	key   string // its path in the file
	flag  string // the name of its flag; "": the path with dashes
	usage string
	value func(c *Config) pflag.Value
}

// settings are all of them, in the order of the manual.
var settings = []setting{
	{"agent.id", "", "name of this agent in its fleet, for people",
		func(c *Config) pflag.Value {
			return &pattern{&c.Agent.ID, agentID, "up to 64 letters, digits, dots, underscores, dashes and colons"}
		}},
	{"agent.fleet", "", "name of the agents that share a store, and its rules",
		func(c *Config) pflag.Value {
			return &pattern{&c.Agent.Fleet, fleetName, "1 to 64 letters, digits, dots, underscores and dashes"}
		}},
	{"agent.fleet_size", "", "agents in the fleet, for on_store_error local before they are counted (0: not known)",
		func(c *Config) pflag.Value { return integer(&c.Agent.FleetSize, 0, 4096) }},
	{"agent.deadline", "", "how long a check may wait for the store, where its rule does not say",
		func(c *Config) pflag.Value { return duration(&c.Agent.Deadline, rules.MinDeadline, rules.MaxDeadline) }},
	{"agent.max_pending", "", "most claims that wait for the store at once",
		func(c *Config) pflag.Value { return integer(&c.Agent.MaxPending, 1, 1<<24) }},
	{"agent.on_store_error", "", "answer when the store gives none in time, where the rule does not say",
		func(c *Config) pflag.Value {
			return &choice[limit.Policy]{&c.Agent.OnStoreError, []string{"open", "closed", "local"}, []limit.Policy{limit.Open, limit.Closed, limit.Local}, ""}
		}},
	{"agent.procs", "", "threads that run at once, GOMAXPROCS (0: chosen)",
		func(c *Config) pflag.Value { return integer(&c.Agent.Procs, 0, 1024) }},

	{"store.url", "store", "memory://, redis://host:port/db, rediss://, redis+sentinel:// or unix:///redis.sock",
		func(c *Config) pflag.Value { return (*text)(&c.Store.URL) }},
	{"store.clock", "", "whose time decides",
		func(c *Config) pflag.Value {
			return &choice[redisshard.Clock]{&c.Store.Clock, []string{"redis", "agent"}, []redisshard.Clock{redisshard.ClockRedis, redisshard.ClockAgent}, ""}
		}},
	{"store.timeout", "", "most time of one call to one server",
		func(c *Config) pflag.Value { return duration(&c.Store.Timeout, time.Millisecond, time.Minute) }},
	{"store.password_file", "", "file with the store's password",
		func(c *Config) pflag.Value { return (*text)(&c.Store.PasswordFile) }},
	{"store.tls.ca", "", "certificates (PEM) that may sign the store's (empty: the system's)",
		func(c *Config) pflag.Value { return (*text)(&c.Store.TLS.CA) }},
	{"store.tls.cert", "", "our certificate (PEM) for the store",
		func(c *Config) pflag.Value { return (*text)(&c.Store.TLS.Cert) }},
	{"store.tls.key", "", "key (PEM) of our certificate",
		func(c *Config) pflag.Value { return (*text)(&c.Store.TLS.Key) }},
	{"store.layout.tags", "", "tags of a new store (0: chosen by its size)",
		func(c *Config) pflag.Value { return integer(&c.Store.Layout.Tags, 0, 4096) }},
	{"store.layout.bins", "", "bins per tag of a new store",
		func(c *Config) pflag.Value { return integer(&c.Store.Layout.Bins, 1, 4096) }},
	{"memory.max_cells", "", "most buckets of the store memory://, about 100 bytes each",
		func(c *Config) pflag.Value { return integer(&c.Memory.MaxCells, 64, 1<<30) }},

	{"listen.resp", "resp", "address of the RESP door, or off",
		func(c *Config) pflag.Value { return (*address)(&c.Listen.RESP) }},
	{"listen.http", "http", "later; off in this version",
		func(c *Config) pflag.Value { return later{(*address)(&c.Listen.HTTP), Off, "write off"} }},
	{"listen.grpc", "grpc", "later; off in this version",
		func(c *Config) pflag.Value { return later{(*address)(&c.Listen.GRPC), Off, "write off"} }},
	{"listen.admin", "admin", "address of the admin door, or off",
		func(c *Config) pflag.Value { return (*address)(&c.Listen.Admin) }},
	{"listen.socket_mode", "", "mode of Unix sockets",
		func(c *Config) pflag.Value { return (*mode)(&c.Listen.SocketMode) }},
	{"listen.socket_group", "", "group of Unix sockets (empty: the system's choice)",
		func(c *Config) pflag.Value { return (*text)(&c.Listen.SocketGroup) }},
	{"listen.allow_uids", "", "users who may connect to Unix sockets (empty: whom the mode lets)",
		func(c *Config) pflag.Value { return (*uids)(&c.Listen.AllowUIDs) }},
	{"listen.admin_allow_remote", "", "let the admin door be reached from other machines",
		func(c *Config) pflag.Value { return (*boolean)(&c.Listen.AdminAllowRemote) }},
	{"listen.redact_keys", "", "show hashes for the text of keys on the admin door and in the log",
		func(c *Config) pflag.Value { return (*boolean)(&c.Listen.RedactKeys) }},

	{"rules.file", "rules", "file of rules (empty: no rules)",
		func(c *Config) pflag.Value { return (*text)(&c.Rules.File) }},
	{"rules.store", "", "take the rules from the store",
		func(c *Config) pflag.Value { return (*boolean)(&c.Rules.Store) }},
	{"rules.cache_ttl", "", "how long rules from the store are good without a look at it",
		func(c *Config) pflag.Value { return duration(&c.Rules.CacheTTL, time.Second, time.Hour) }},
	{"rules.snapshot", "", "file that keeps the store's rules, for a start without it",
		func(c *Config) pflag.Value { return (*text)(&c.Rules.Snapshot) }},

	{"hotkeys.top", "", "hot keys that are followed at once",
		func(c *Config) pflag.Value { return integer(&c.Hotkeys.Top, 1, 1<<20) }},
	{"hotkeys.min_rate", "", "checks a second that make a bucket hot",
		func(c *Config) pflag.Value { return decimal(&c.Hotkeys.MinRate, 0.001, 1e9) }},

	{"split.ops", "", "entries a second on one bucket, of all agents, that divide it over masters (0: never)",
		func(c *Config) pflag.Value { return integer(&c.Split.Ops, 0, 1<<30) }},
	{"split.ways", "", "parts of a divided bucket (0: as it suits the masters)",
		func(c *Config) pflag.Value { return ways{integer(&c.Split.Ways, 0, limit.MaxWays)} }},

	{"datacenter.name", "", "name of this data center, for people",
		func(c *Config) pflag.Value { return (*text)(&c.Datacenter.Name) }},
	{"datacenter.share", "", "part of each limit that is this data center's, such as 0.5 or 1/3",
		func(c *Config) pflag.Value { return (*share)(&c.Datacenter.Share) }},
	{"datacenter.headroom", "", "by how much more than its share it may admit",
		func(c *Config) pflag.Value { return decimal(&c.Datacenter.Headroom, 0, 10) }},
}

// aliases are second names of flags, by their key.
var aliases = map[string]string{"agent.deadline": "deadline"}

// name is the name of the setting's flag.
func (s *setting) name() string {
	if s.flag != "" {
		return s.flag
	}
	return strings.NewReplacer(".", "-", "_", "-").Replace(s.key)
}

// find is the setting of a key, or nil.
func find(key string) *setting {
	i := slices.IndexFunc(settings, func(s setting) bool { return s.key == key })
	if i < 0 {
		return nil
	}
	return &settings[i]
}

// below are the names that can follow a path in a file, "" for the whole file.
func below(path string) []string {
	var names []string
	for _, s := range settings {
		rest, ok := s.key, true
		if path != "" {
			rest, ok = strings.CutPrefix(s.key, path+".")
		}
		if name, _, _ := strings.Cut(rest, "."); ok && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// Bind defines a flag for every setting. Parsing them sets c, and what they set stays
// even if a file is loaded later. In the usage the defaults are what c has now.
func Bind(flags *pflag.FlagSet, c *Config) {
	for i := range settings {
		s := &settings[i]
		define(flags, c, s, s.name())
		if alias := aliases[s.key]; alias != "" {
			define(flags, c, s, alias).Hidden = true
		}
	}
}

func define(flags *pflag.FlagSet, c *Config, s *setting, name string) *pflag.Flag {
	v := &flagValue{Value: s.value(c), c: c, key: s.key, name: name}
	f := flags.VarPF(v, name, "", s.usage)
	if b, ok := v.Value.(interface{ IsBoolFlag() bool }); ok && b.IsBoolFlag() {
		f.NoOptDefVal = "true"
	}
	return f
}

// flagValue remembers that a flag set its value.
type flagValue struct {
	pflag.Value
	c         *Config
	key, name string
}

// Set sets the value.
func (v *flagValue) Set(s string) error {
	v.c.from[v.key] = source{flag: "--" + v.name}
	return v.Value.Set(s)
}
