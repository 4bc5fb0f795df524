package config

import (
	"errors"
	"fmt"
	"net"
	"os/user"
	"slices"
	"strconv"
	"strings"

	"github.com/spillgate/spillgate/internal/strictyaml"
	"github.com/spillgate/spillgate/redisshard"
	"github.com/spillgate/spillgate/sidecar/socket"
)

// Validate reports what is wrong with c, all of it: values out of range, unless a flag or file was
// refused for them already, values that contradict each other, and files of the store that cannot be used.
func (c *Config) Validate() error {
	p := newProblems(c)
	p.validate()
	return p.err()
}

// failf reports a problem of a setting where it was set.
func (p *problems) failf(key, format string, args ...any) {
	message := key + fmt.Sprintf(format, args...)
	switch from := p.c.from[key]; {
	case from.flag != "":
		p.outside.Failf(from.at, "%s: %s", from.flag, message)
	case from.at.Line > 0:
		p.inFile.Failf(from.at, "%s", message)
	default:
		p.outside.Failf(from.at, "%s", message)
	}
}

func (p *problems) validate() {
	p.values()
	p.store()
	p.rules()
	p.doors()
}

// rules checks where the rules come from: a file or the store, and what belongs to the latter.
func (p *problems) rules() {
	r, defaults := &p.c.Rules, Default("").Rules
	if p.rejected["rules.store"] {
		return
	}
	if !r.Store {
		if !p.rejected["rules.cache_ttl"] && r.CacheTTL != defaults.CacheTTL {
			p.failf("rules.cache_ttl", " is set, but the rules do not come from the store; remove it, or set rules.store to true")
		}
		if r.Snapshot != "" {
			p.failf("rules.snapshot", " is set, but the rules do not come from the store; remove it, or set rules.store to true")
		}
		return
	}
	if r.File != "" {
		p.failf("rules.store", " is true, and rules.file names a file; remove one of them")
	}
	if !p.rejected["store.url"] && p.c.Store.InMemory() {
		p.failf("rules.store", " does not go with the store memory://; name a file in rules.file, or write a redis:// URL in store.url")
	}
}

// values checks each value alone, by reading its own text again: what a program set is held to the same bounds.
func (p *problems) values() {
	for i := range settings {
		s := &settings[i]
		v := s.value(p.c)
		if p.rejected[s.key] {
			continue
		}
		if err := v.Set(v.String()); err != nil {
			p.rejected[s.key] = true
			p.failf(s.key, ": %v", err)
		}
	}
}

// storeSchemes are those of redisshard.
var storeSchemes = []string{"redis", "rediss", "redis+sentinel", "rediss+sentinel", "unix"}

// store checks the scheme, which chooses the store, and has the store's package check the rest. No message quotes
// the URL, which may hold a password.
func (p *problems) store() {
	scheme, rest, _ := strings.Cut(p.c.Store.URL, "://")
	switch {
	case p.rejected["store.url"]:
	case slices.Contains(storeSchemes, scheme):
		p.redis()
	case scheme != "memory":
		p.failf("store.url", " has no scheme that is known; write memory://, redis://host:port, rediss://host:port, "+
			"redis+sentinel://host:port/master-name or unix:///path")
	default:
		if rest != "" {
			p.failf("store.url", " has something behind memory://; remove it")
		}
		p.memory()
	}
}

// memory refuses what the store of the process would ignore.
func (p *problems) memory() {
	defaults := Default("")
	for i := range settings {
		s := &settings[i]
		if slices.Contains(redisOnly, s.key) && !p.rejected[s.key] && s.value(p.c).String() != s.value(defaults).String() {
			p.failf(s.key, " does not go with the store memory://; remove it, or write a redis:// URL in store.url")
		}
	}
}

// redisOnly are the keys that mean nothing to the store of the process.
var redisOnly = []string{"store.clock", "store.password_file", "store.tls.ca", "store.tls.cert", "store.tls.key",
	"store.layout.tags", "store.layout.bins", "split.ways", "agent.fleet", "agent.fleet_size"}

// redisKeys are the keys of the fields of a redisshard.Config.
var redisKeys = map[string]string{"URL": "store.url", "Clock": "store.clock", "Timeout": "store.timeout", "PasswordFile": "store.password_file",
	"TLS.CA": "store.tls.ca", "TLS.Cert": "store.tls.cert", "TLS.Key": "store.tls.key", "Tags": "store.layout.tags", "Bins": "store.layout.bins",
	"SplitWays": "split.ways"}

// redis reports what redisshard would refuse before it dials.
func (p *problems) redis() {
	var found redisshard.ConfigErrors
	errors.As(p.c.Redis().Validate(), &found)
	for _, e := range found {
		if key := redisKeys[e.Field]; !p.rejected[key] {
			p.failf(key, ": %v", e.Err)
		}
	}
}

// doors checks what the addresses of the doors and the options of sockets have to do with each other.
func (p *problems) doors() {
	l := &p.c.Listen
	if err := checkGroup(l.SocketGroup); err != nil {
		p.failf("listen.socket_group", ": %v", err)
	}
	if !p.rejected["listen.admin"] && !l.AdminAllowRemote && remote(l.Admin) {
		p.failf("listen.admin", " %q can be reached from other machines; write 127.0.0.1:7117 or unix:///path, or set listen.admin_allow_remote to true", l.Admin)
	}
	if len(l.AllowUIDs) > 0 && !p.rejected["listen.resp"] && network(l.RESP) == "tcp" {
		p.failf("listen.allow_uids", " is set, but listen.resp is a TCP address, whose clients have no user; write unix:///path in listen.resp, or remove it")
	}
}

// checkGroup looks a group up as the socket will.
func checkGroup(name string) error {
	if name == "" {
		return nil
	}
	if _, err := strconv.ParseUint(name, 10, 31); err == nil {
		return nil // any number will do
	}
	_, err := user.LookupGroup(name)
	if errors.As(err, new(user.UnknownGroupError)) {
		return fmt.Errorf("there is no group %s; write the name or number of one, or leave it out", strictyaml.Show(name))
	}
	return err
}

// network is "tcp", "unix" or, of a closed door, "".
func network(addr string) string {
	if addr == Off {
		return ""
	}
	network, _, _ := socket.Parse(addr)
	return network
}

// remote reports whether other machines can reach an address.
func remote(addr string) bool {
	if network(addr) != "tcp" {
		return false
	}
	host, _, _ := net.SplitHostPort(addr)
	ip := net.ParseIP(host)
	return host != "localhost" && (ip == nil || !ip.IsLoopback())
}
