package redisshard

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

const (
	defaultPort         = "6379"
	defaultSentinelPort = "26379"
)

// address is a URL taken apart. Its zero value names nothing.
type address struct {
	scheme   string
	hosts    []string // host:port; a socket's path if network is unix
	network  string   // tcp or unix
	user     string
	password string
	db       int
	tls      bool
	cluster  clusterMode
	sentinel bool
	master   string // the name that the sentinels know
}

// clusterMode says whether the servers form a Redis Cluster.
type clusterMode uint8

const (
	clusterAuto clusterMode = iota // ask the server
	clusterOn
	clusterOff
)

// parseAddress takes a URL apart. url.Parse refuses the several colons of a
// host list, and its errors quote the URL with the password in it, so this is
// done by hand. No error here quotes anything that can be part of a password.
func parseAddress(text string) (*address, error) {
	scheme, rest, found := strings.Cut(text, "://")
	if !found {
		return nil, errors.New("it has no scheme: want redis://, rediss://, redis+sentinel:// or unix://")
	}
	a := &address{scheme: scheme, network: "tcp"}
	switch scheme {
	case "redis":
	case "rediss":
		a.tls = true
	case "redis+sentinel":
		a.sentinel = true
	case "rediss+sentinel":
		a.sentinel, a.tls = true, true
	case "unix":
		a.network = "unix"
	default:
		return nil, errors.New("its scheme is unknown: want redis, rediss (TLS), redis+sentinel, rediss+sentinel or unix")
	}
	rest, err := a.takeUser(rest)
	if err != nil {
		return nil, err
	}
	if strings.Contains(rest, "#") {
		return nil, errors.New("it has a #: write %23")
	}
	rest, query, _ := strings.Cut(rest, "?")
	if a.network == "unix" {
		err = a.takeSocket(rest)
	} else {
		hosts, path, _ := strings.Cut(rest, "/")
		if err = a.takeHosts(hosts); err == nil {
			err = a.takePath(path)
		}
	}
	if err == nil {
		err = a.takeQuery(query)
	}
	if err != nil {
		return nil, err
	}
	return a, a.check()
}

// takeUser removes user:password@. Whatever stands before the last @ is taken
// for it, in whatever order things are written, so that a password with a
// sign that should have been escaped is never mistaken for a host.
func (a *address) takeUser(rest string) (string, error) {
	at := strings.LastIndexByte(rest, '@')
	if at < 0 || a.network == "unix" && strings.HasPrefix(rest, "/") {
		return rest, nil
	}
	info, rest := rest[:at], rest[at+1:]
	if strings.ContainsAny(info, "/?#") {
		return "", errors.New("its user or password holds a /, ? or #: write %2F, %3F or %23")
	}
	user, password, _ := strings.Cut(info, ":")
	var err1, err2 error
	a.user, err1 = url.PathUnescape(user)
	a.password, err2 = url.PathUnescape(password)
	if err1 != nil || err2 != nil {
		return "", errors.New("its user or password holds a % that starts no escape: write %25")
	}
	return rest, nil
}

func (a *address) takeSocket(path string) error {
	if !strings.HasPrefix(path, "/") {
		return errors.New("the socket's path is not absolute: write unix:///path/to/redis.sock")
	}
	path, err := url.PathUnescape(path)
	if err != nil {
		return errors.New("the socket's path holds a % that starts no escape: write %25")
	}
	a.hosts = []string{path}
	return nil
}

func (a *address) takeHosts(list string) error {
	port := defaultPort
	if a.sentinel {
		port = defaultSentinelPort
	}
	for i, text := range strings.Split(list, ",") {
		host, err := parseHost(text, port)
		if err != nil {
			return fmt.Errorf("host %d of the list: %w", i+1, err)
		}
		if !slices.Contains(a.hosts, host) {
			a.hosts = append(a.hosts, host)
		}
	}
	return nil
}

// parseHost gives host:port. It quotes nothing: a forgotten @ makes a password
// look like a host.
func parseHost(text, port string) (string, error) {
	host := text
	if strings.HasPrefix(text, "[") {
		inside, after, closed := strings.Cut(text[1:], "]")
		if !closed || after != "" && after[0] != ':' {
			return "", errors.New("want [IPv6 address]:port")
		}
		host = inside
		if after != "" {
			port = after[1:]
		}
		if net.ParseIP(host) == nil {
			return "", errors.New("what stands between [ and ] is no IP address")
		}
	} else if name, digits, found := strings.Cut(text, ":"); found {
		if strings.Contains(digits, ":") {
			return "", errors.New("it has several colons: write host:port, and an IPv6 address in brackets")
		}
		host, port = name, digits
	}
	if host == "" {
		return "", errors.New("it is empty: want host:port")
	}
	if strings.ContainsAny(host, " \t\r\n%[]\"'\\<>^`{|}") {
		return "", errors.New("the host has a sign that host names do not have")
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return "", errors.New("its port is not a number from 1 to 65535")
	}
	return net.JoinHostPort(host, port), nil
}

// takePath reads db, or master-name and db.
func (a *address) takePath(path string) error {
	if !a.sentinel {
		return a.takeDB(path, "write redis://host:port/db")
	}
	name, db, _ := strings.Cut(path, "/")
	name, err := url.PathUnescape(name)
	if err != nil {
		return errors.New("the master's name holds a % that starts no escape: write %25")
	}
	if name == "" {
		return errors.New("it lacks the master's name: write redis+sentinel://host:port/master-name")
	}
	a.master = name
	return a.takeDB(db, "write redis+sentinel://host:port/master-name/db")
}

func (a *address) takeDB(text, remedy string) error {
	if text == "" {
		return nil
	}
	n, err := strconv.ParseUint(text, 10, 31)
	if err != nil {
		return fmt.Errorf("its database is not a number: %s", remedy)
	}
	a.db = int(n)
	return nil
}

func (a *address) takeQuery(text string) error {
	query, err := url.ParseQuery(text)
	if err != nil {
		return errors.New("what follows the ? cannot be read: want name=value")
	}
	for name, values := range query {
		switch {
		case len(values) > 1:
			return fmt.Errorf("the parameter %s stands there twice", name)
		case name == "cluster" && a.network == "tcp" && !a.sentinel:
			mode := slices.Index([]string{"auto", "on", "off"}, values[0])
			if mode < 0 {
				return fmt.Errorf("cluster=%s: want auto, on or off", values[0])
			}
			a.cluster = clusterMode(mode)
		case name == "cluster":
			return fmt.Errorf("%s:// takes no cluster parameter", a.scheme)
		case name == "db" && a.network == "unix":
			if err := a.takeDB(values[0], "write ?db=N"); err != nil {
				return err
			}
		case name == "db":
			return errors.New("the database stands in the path: write /N instead of ?db=N")
		default:
			return fmt.Errorf("the parameter %q is unknown: cluster (redis://, rediss://) and db (unix://) are known", name)
		}
	}
	return nil
}

// check looks at what does not go together.
func (a *address) check() error {
	switch {
	case a.cluster == clusterOn && a.db != 0:
		return errClusterDB
	case a.cluster == clusterOff && len(a.hosts) > 1:
		return errors.New("cluster=off with several hosts: name one, or use redis+sentinel://")
	}
	return nil
}

// String is the URL without the password.
func (a *address) String() string {
	var b strings.Builder
	b.WriteString(a.scheme + "://")
	if a.user != "" {
		b.WriteString(url.User(a.user).String() + "@")
	}
	b.WriteString(strings.Join(a.hosts, ","))
	if a.sentinel {
		b.WriteString("/" + url.PathEscape(a.master))
	}
	if a.db != 0 && a.network == "unix" {
		fmt.Fprintf(&b, "?db=%d", a.db)
	} else if a.db != 0 {
		fmt.Fprintf(&b, "/%d", a.db)
	}
	return b.String()
}
