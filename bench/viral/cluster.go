package viral

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/spillgate/spillgate/bench/rig"
	"github.com/spillgate/spillgate/internal/redistest"
	"github.com/spillgate/spillgate/redisshard"
)

// masters of a cluster of our own.
const ownMasters = 3

// cluster is the masters under load.
type cluster struct {
	url     string
	own     bool // started here
	addrs   []string
	masters []*redis.Client // by address; for INFO alone
	stop    func() error    // of an own cluster
}

// openCluster connects to the cluster at url, or starts one if that is empty.
func openCluster(ctx context.Context, url string, progress io.Writer) (_ *cluster, err error) {
	c := &cluster{url: url, own: url == "", stop: func() error { return nil }}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.close())
		}
	}()
	if c.own {
		servers, err := redistest.LaunchCluster(ctx, "", redistest.Config{Masters: ownMasters, Replicas: -1})
		if err != nil {
			return nil, explainLaunch(err)
		}
		c.url, c.stop = servers.URL(), servers.Close
	}
	seeds, err := seedsOf(c.url)
	if err != nil {
		return nil, err
	}
	if err := c.find(ctx, seeds); err != nil {
		return nil, err
	}
	if !c.own {
		fmt.Fprintln(progress, "warning: this loads the cluster of --store as far as it goes: use none that others rely on")
	}
	return c, nil
}

// explainLaunch says what to do without a server.
func explainLaunch(err error) error {
	if errors.Is(err, redistest.ErrNoServer) {
		return fmt.Errorf("there is no redis-server in PATH: install it (Debian: apt-get install redis-server), "+
			"name it in %s, or name a cluster: --store redis://HOST:PORT", redistest.BinaryEnv)
	}
	return fmt.Errorf("start a cluster: %w", err)
}

func (c *cluster) close() error {
	var errs []error
	for _, m := range c.masters {
		errs = append(errs, m.Close())
	}
	c.masters = nil
	return errors.Join(append(errs, c.stop())...)
}

// seedsOf makes options for each host of a URL. No error quotes the URL, which may hold a password.
func seedsOf(url string) ([]*redis.Options, error) {
	if err := (redisshard.Config{URL: url}).Validate(); err != nil {
		var all redisshard.ConfigErrors
		if errors.As(err, &all) {
			return nil, fmt.Errorf("--store: %w", all[0].Err)
		}
		return nil, fmt.Errorf("--store: %w", err)
	}
	scheme, rest, _ := strings.Cut(url, "://")
	if scheme != "redis" && scheme != "rediss" {
		return nil, fmt.Errorf("--store: a cluster's URL begins with redis:// or rediss://, not with %s://", scheme)
	}
	user := ""
	if at := strings.LastIndexByte(rest, '@'); at >= 0 {
		user, rest = rest[:at+1], rest[at+1:]
	}
	rest, _, _ = strings.Cut(rest, "?")
	hosts, _, _ := strings.Cut(rest, "/")
	var seeds []*redis.Options
	for host := range strings.SplitSeq(hosts, ",") {
		o, err := redis.ParseURL(scheme + "://" + user + host)
		if err != nil {
			return nil, errors.New("--store: a host or the password holds a sign that must be escaped with %")
		}
		seeds = append(seeds, o)
	}
	return seeds, nil
}

// at is options for another node, with the credentials of this one.
func at(o *redis.Options, addr string) *redis.Options {
	n := &redis.Options{
		Addr: addr, Username: o.Username, Password: o.Password, TLSConfig: o.TLSConfig,
		PoolSize: 1, DialTimeout: rig.Patience, ReadTimeout: rig.Patience, WriteTimeout: rig.Patience, DialerRetries: 1,
		ContextTimeoutEnabled: true, DisableIdentity: true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
	if host, _, err := net.SplitHostPort(addr); err == nil && o.TLSConfig != nil && net.ParseIP(host) == nil {
		n.TLSConfig = o.TLSConfig.Clone()
		n.TLSConfig.ServerName = host
	}
	return n
}

// find asks the first node that answers for the masters.
func (c *cluster) find(ctx context.Context, seeds []*redis.Options) error {
	var errs []error
	for _, seed := range seeds {
		addrs, err := mastersBy(ctx, seed)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if len(addrs) < 2 {
			return errors.New("the cluster has one master, so there is none to spread a key to: " +
				"name a cluster with two masters or more, or leave --store out to start one")
		}
		for _, addr := range addrs {
			c.addrs = append(c.addrs, addr)
			c.masters = append(c.masters, redis.NewClient(at(seed, addr)))
		}
		return nil
	}
	return errors.Join(errs...)
}

// mastersBy lists the masters that own slots, in the order of these, as one node knows them.
func mastersBy(ctx context.Context, seed *redis.Options) (addrs []string, err error) {
	client := redis.NewClient(at(seed, seed.Addr))
	defer client.Close()
	ranges, err := client.Do(ctx, "cluster", "slots").Slice()
	switch {
	case err != nil && strings.Contains(err.Error(), "cluster support disabled"):
		return nil, fmt.Errorf("%s is not a node of a Redis Cluster, and one server has no other to spread a key to: "+
			"name a cluster, or leave --store out to start one", seed.Addr)
	case err != nil:
		return nil, fmt.Errorf("ask %s for the masters of its cluster: %w", seed.Addr, err)
	}
	slices.SortFunc(ranges, func(a, b any) int { return cmp.Compare(firstSlot(a), firstSlot(b)) })
	for _, r := range ranges {
		addr, ok := masterOf(r)
		if !ok {
			return nil, fmt.Errorf("%s: the answer to CLUSTER SLOTS has an unknown form", seed.Addr)
		}
		if addr = nodeAddr(addr, seed.Addr); !slices.Contains(addrs, addr) {
			addrs = append(addrs, addr)
		}
	}
	return addrs, nil
}

// firstSlot is that of one range of CLUSTER SLOTS.
func firstSlot(r any) int64 {
	if fields, _ := r.([]any); len(fields) > 0 {
		n, _ := fields[0].(int64)
		return n
	}
	return 0
}

// masterOf is the address of the master of one range: first slot, last slot, then nodes, the master first, each host, port and more.
func masterOf(r any) (addr string, ok bool) {
	fields, _ := r.([]any)
	if len(fields) < 3 {
		return "", false
	}
	node, _ := fields[2].([]any)
	if len(node) < 2 {
		return "", false
	}
	host, _ := node[0].(string) // nothing if the node does not know its own
	port, ok := node[1].(int64)
	return net.JoinHostPort(host, strconv.FormatInt(port, 10)), ok
}

// nodeAddr completes the address of a node that does not know its own host.
func nodeAddr(addr, asked string) string {
	host, port, err := net.SplitHostPort(addr)
	if err != nil || host != "" && host != "?" {
		return addr
	}
	askedHost, _, _ := net.SplitHostPort(asked)
	return net.JoinHostPort(askedHost, port)
}
