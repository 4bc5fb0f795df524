package config

import (
	"fmt"
	"net"
	"strings"

	"github.com/spillgate/spillgate/sidecar/socket"
)

// Validate reports what is wrong with c, all of it: values out of range, unless a flag or file was
// refused for them already, and values that contradict each other.
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
	p.doors()
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

// schemes are those of a store's URL, and whether they mean TLS.
var schemes = map[string]bool{"memory": false, "redis": false, "rediss": true, "redis+sentinel": false, "rediss+sentinel": true, "unix": false}

// store checks what redisshard does not see: the scheme, which chooses the store, and what the store of the process would
// ignore. No message quotes the URL, which may hold a password.
func (p *problems) store() {
	s := &p.c.Store
	scheme, rest, _ := strings.Cut(s.URL, "://")
	tls, known := schemes[scheme]
	switch {
	case !known:
		p.failf("store.url", " has no scheme that is known; write memory://, redis://host:port, rediss://host:port, "+
			"redis+sentinel://host:port/master-name or unix:///path")
		return
	case scheme == "memory" && rest != "":
		p.failf("store.url", " has something behind memory://; remove it")
	case scheme == "memory" && s.PasswordFile != "":
		p.failf("store.password_file", " does not go with the store memory://; remove it, or write a redis:// URL in store.url")
	}
	for _, f := range []struct{ key, name string }{
		{"store.tls.ca", s.TLS.CA}, {"store.tls.cert", s.TLS.Cert}, {"store.tls.key", s.TLS.Key},
	} {
		if f.name != "" && !tls {
			p.failf(f.key, " does not go with a store without TLS; remove it, or write rediss:// in store.url")
		}
	}
	switch {
	case s.TLS.Cert != "" && s.TLS.Key == "":
		p.failf("store.tls.cert", " is there without store.tls.key; name both files or none")
	case s.TLS.Cert == "" && s.TLS.Key != "":
		p.failf("store.tls.key", " is there without store.tls.cert; name both files or none")
	}
}

// doors checks what the addresses of the doors and the options of sockets have to do with each other.
func (p *problems) doors() {
	l := &p.c.Listen
	if !p.rejected["listen.admin"] && !l.AdminAllowRemote && remote(l.Admin) {
		p.failf("listen.admin", " %q can be reached from other machines; write 127.0.0.1:7117 or unix:///path, or set listen.admin_allow_remote to true", l.Admin)
	}
	if len(l.AllowUIDs) > 0 && !p.rejected["listen.resp"] && network(l.RESP) == "tcp" {
		p.failf("listen.allow_uids", " is set, but listen.resp is a TCP address, whose clients have no user; write unix:///path in listen.resp, or remove it")
	}
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
