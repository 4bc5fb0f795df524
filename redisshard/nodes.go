package redisshard

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

const (
	// poolSize bounds the connections to one node, and with them the calls in flight and
	// the goroutines that wait for a dead one.
	poolSize = 16
	// bufferSize of a connection, each way. A call of 64 entries takes a few kilobytes.
	bufferSize = 16 << 10
	// leastDialTimeout: to connect, with TLS, takes several round trips.
	leastDialTimeout = 500 * time.Millisecond

	// askAtOnce is how many nodes are asked for the topology together: one of them
	// may be dead, another may be cut off and not know it.
	askAtOnce = 4
	// answerWindow is how long to wait for the others once one has answered.
	answerWindow = 50 * time.Millisecond
	// reloadPause stands between two looks at the topology; a failover takes longer.
	reloadPause = 100 * time.Millisecond
	// topologyEvery is the age at which the topology is looked at unasked, and
	// retryEvery replaces it while nobody answers.
	topologyEvery = 30 * time.Second
	retryEvery    = time.Second

	// maxStrangers bounds the clients of nodes that are not in the topology.
	maxStrangers = 64
)

// nodes is the set of servers behind a URL. Safe for concurrent use.
//
// go-redis has clients for clusters and sentinels; they are not used. Its ClusterClient follows
// redirections by itself and re-sends after network errors, takes the first
// answer about the slots even from a node that was cut off, asks dead nodes one after
// the other, and cannot read an unknown host. Here one loop owns the topology,
// and a call gets a plain client that sends once.
type nodes struct {
	cfg        Config
	addr       *address
	tls        *tls.Config // nil without TLS
	cluster    bool
	topology   atomic.Pointer[topology]
	wake       chan struct{} // asks the loop for a fresh topology
	stop       context.CancelFunc
	background sync.WaitGroup

	mu struct {
		sync.Mutex
		peers  map[string]*peer
		closed bool
	}
}

// peer is the client of one node.
type peer struct {
	client *redis.Client
	used   atomic.Bool // asked for by address since the last sweep
}

// connect reaches the store, finds out what it is and checks that it will do.
// A permanent error (isPermanent) says what must be changed; after any other, try again.
func connect(ctx context.Context, cfg Config) (*nodes, error) {
	cfg.ensureDefaults()
	if err := cfg.validate(); err != nil {
		return nil, permanentError{err}
	}
	addr, err := parseAddress(cfg.URL)
	if err != nil {
		return nil, permanentError{err} // not reached: validate has parsed it
	}
	conf, err := cfg.tlsConfig(addr)
	if err != nil {
		return nil, permanentError{fmt.Errorf("redisshard: %w", err)}
	}
	n := &nodes{cfg: cfg, addr: addr, tls: conf, wake: make(chan struct{}, 1), stop: func() {}}
	n.mu.peers = make(map[string]*peer)
	if err := n.open(ctx); err != nil {
		return nil, errors.Join(err, n.close())
	}
	return n, nil
}

// open finds the servers and starts the loop if they can move.
func (n *nodes) open(ctx context.Context) error {
	var err error
	if n.addr.sentinel {
		err = n.openSentinel(ctx)
	} else {
		err = n.openServers(ctx)
	}
	if err != nil || !n.cluster && !n.addr.sentinel {
		return err
	}
	ctx, n.stop = context.WithCancel(context.Background())
	n.background.Go(func() { n.tend(ctx) })
	return nil
}

func (n *nodes) openServers(ctx context.Context) error {
	greetings, err := gather(ctx, n.addr.hosts, n.patience(), 0, n.greet)
	if err != nil {
		return err
	}
	g := greetings[0]
	n.cluster = g.mode == "cluster"
	if err := n.checkMode(g); err != nil {
		return permanentError{fmt.Errorf("redisshard: %s: %w", g.addr, err)}
	}
	if !n.cluster {
		n.warnReplica(g)
		n.adopt(everything(g.addr, 0))
		return nil
	}
	t, err := n.survey(ctx)
	if err != nil {
		return err
	}
	n.adopt(t)
	return nil
}

// checkMode compares what the server is with what the URL says.
func (n *nodes) checkMode(g greeting) error {
	switch {
	case g.mode == "sentinel":
		return errors.New("this is a sentinel: write redis+sentinel://host:port/master-name")
	case n.cluster && n.addr.cluster == clusterOff:
		return errors.New("the server is a node of a cluster: leave cluster=off out")
	case n.cluster && n.addr.db != 0:
		return errClusterDB
	case !n.cluster && n.addr.cluster == clusterOn:
		return errors.New("the server is not a node of a cluster: leave cluster=on out")
	case !n.cluster && len(n.addr.hosts) > 1:
		return errors.New("several hosts, but the server is not a node of a cluster: name one, or use redis+sentinel://")
	}
	return nil
}

func (n *nodes) openSentinel(ctx context.Context) error {
	t, err := n.survey(ctx)
	if err != nil {
		return err
	}
	greetings, err := gather(ctx, t.masters, n.patience(), 0, n.greet)
	if err != nil {
		return err
	}
	g := greetings[0]
	if g.mode == "cluster" {
		return permanentError{fmt.Errorf("redisshard: %s: the master is a node of a cluster: write redis://", g.addr)}
	}
	n.warnReplica(g)
	n.adopt(t)
	return nil
}

func (n *nodes) warnReplica(g greeting) {
	if g.role != "" && g.role != "master" {
		n.cfg.Logger.Warn("the store is a replica, which refuses every debit", "server", g.addr)
	}
}

// clustered reports whether slots are spread over several masters, so that a
// call must stay in one slot.
func (n *nodes) clustered() bool { return n.cluster }

// masters is the number of masters with slots; 1 without a cluster.
func (n *nodes) masters(context.Context) (int, error) { return len(n.topology.Load().masters), nil }

// master gives the client of the node that serves the key's slot, as far as is
// known now.
func (n *nodes) master(_ context.Context, key string) (*redis.Client, error) {
	s := 0
	if n.cluster {
		s = slotOf(key)
	}
	r := n.topology.Load().find(s)
	if r == nil {
		return nil, fmt.Errorf("%w: %d", errNoMaster, s)
	}
	return r.client, nil
}

// at gives the client of a node by its address, which a redirection named.
func (n *nodes) at(addr string) *redis.Client {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.peerLocked(addr).client
}

func (n *nodes) peerLocked(addr string) *peer {
	p := n.mu.peers[addr]
	if p == nil {
		n.boundLocked()
		p = &peer{client: n.newClient(addr)}
		n.mu.peers[addr] = p
		if n.mu.closed {
			p.client.Close() // the caller will see redis.ErrClosed
		}
	}
	p.used.Store(true)
	return p
}

// boundLocked makes room for one more client if strangers have come in numbers.
func (n *nodes) boundLocked() {
	t := n.topology.Load()
	if t == nil || len(n.mu.peers) < len(t.masters)+len(t.replicas)+maxStrangers {
		return
	}
	for addr := range n.mu.peers {
		if !t.names(addr) {
			n.dropLocked(addr)
			return
		}
	}
}

func (n *nodes) dropLocked(addr string) {
	n.mu.peers[addr].client.Close() // closes the sockets; there is nothing to flush
	delete(n.mu.peers, addr)
}

// reload asks for a fresh topology soon. Cheap, never waits.
func (n *nodes) reload(context.Context) {
	select {
	case n.wake <- struct{}{}:
	default: // asked for already
	}
}

// close ends the loop and closes the connections. Calls in flight fail.
func (n *nodes) close() error {
	n.stop()
	n.background.Wait()
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.mu.closed {
		return nil
	}
	n.mu.closed = true
	var errs []error
	for _, p := range n.mu.peers {
		errs = append(errs, p.client.Close())
	}
	return errors.Join(errs...)
}

// tend is the loop that owns the topology.
func (n *nodes) tend(ctx context.Context) {
	timer := time.NewTimer(topologyEvery)
	defer timer.Stop()
	swept := time.Now()
	for failing := false; ; {
		select {
		case <-ctx.Done():
			return
		case <-n.wake:
		case <-timer.C:
		}
		t, err := n.survey(ctx)
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			n.adopt(t)
			timer.Reset(topologyEvery)
		} else {
			timer.Reset(retryEvery)
		}
		if failing != (err != nil) {
			failing = err != nil
			n.log(ctx, failing, err)
		}
		if time.Since(swept) >= topologyEvery {
			swept = time.Now()
			n.sweep()
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(reloadPause):
		}
	}
}

func (n *nodes) log(ctx context.Context, failing bool, err error) {
	if failing {
		n.cfg.Logger.WarnContext(ctx, "nobody tells where the store's masters are; the last known ones are used", "error", err)
		return
	}
	n.cfg.Logger.InfoContext(ctx, "the store's masters are known again")
}

// adopt puts a topology into force.
func (n *nodes) adopt(t *topology) {
	old := n.topology.Load()
	if old != nil && old.same(t) {
		t.ranges = old.ranges // nothing moved: with the clients they have
	}
	n.mu.Lock()
	if old != nil {
		for _, addr := range old.masters {
			n.peerLocked(addr) // those that leave outlive one sweep
		}
	}
	for i := range t.ranges {
		if r := &t.ranges[i]; r.client == nil {
			r.client = n.peerLocked(r.addr).client
		}
	}
	n.topology.Store(t)
	n.mu.Unlock()
	if old != nil && !old.same(t) {
		n.cfg.Logger.Info("slots have moved", "masters", len(t.masters), "slots", t.covered())
	}
}

// sweep closes the clients of nodes that have left the topology and were not
// asked for since the last sweep. Nobody holds one as long as that.
func (n *nodes) sweep() {
	t := n.topology.Load()
	n.mu.Lock()
	defer n.mu.Unlock()
	for addr, p := range n.mu.peers {
		if !p.used.Swap(false) && !t.names(addr) {
			n.dropLocked(addr)
		}
	}
}

// newClient makes the client of one node. It sends each command once: no
// retries, no redirections, no pipeline of its own, no second connection for notifications.
func (n *nodes) newClient(addr string) *redis.Client {
	return n.newClientAs(addr, n.addr.db, n.cfg.credentials(n.addr), 1)
}

func (n *nodes) newClientAs(addr string, db int, as credentials, idle int) *redis.Client {
	client := redis.NewClient(&redis.Options{
		Network:                    n.addr.network,
		Addr:                       addr,
		DB:                         db,
		Protocol:                   2, // no push messages to look for
		CredentialsProviderContext: as,
		Dialer:                     n.dial,

		MaxRetries:            -1,
		DialTimeout:           n.dialTimeout(),
		DialerRetries:         1,
		ReadTimeout:           n.cfg.Timeout,
		WriteTimeout:          n.cfg.Timeout,
		ContextTimeoutEnabled: true,

		PoolSize:         poolSize,
		PoolTimeout:      n.cfg.Timeout,
		MinIdleConns:     idle,
		PipelinePoolSize: -1, // pipelines use the same connections
		ReadBufferSize:   bufferSize,
		WriteBufferSize:  bufferSize,

		DisableIdentity:          true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	client.AddHook(handshakeHook{addr})
	return client
}

// patience bounds one question to one server, connection included.
func (n *nodes) patience() time.Duration { return n.dialTimeout() + 2*n.cfg.Timeout }

func (n *nodes) dialTimeout() time.Duration { return max(n.cfg.Timeout, leastDialTimeout) }

// dial replaces go-redis's dialer, which does not heed the context while it
// agrees on TLS. Its errors are dialErrors: nothing was sent.
func (n *nodes) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	dialer := net.Dialer{KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 30 * time.Second, Interval: 5 * time.Second, Count: 3}}
	conn, err := dialer.DialContext(ctx, network, addr)
	if err != nil {
		return nil, &dialError{addr, err}
	}
	if n.tls == nil {
		return conn, nil
	}
	conf := n.tls.Clone()
	conf.ServerName = n.serverName(addr)
	secure := tls.Client(conn, conf)
	if err := secure.HandshakeContext(ctx); err != nil {
		conn.Close()
		return nil, &dialError{addr, fmt.Errorf("TLS: %w", err)}
	}
	return secure, nil
}

// serverName is whom the certificate must name. Nodes of a cluster call each
// other by IP address, which few certificates hold; they then have to answer to the
// name of the first host in the URL, if it is one.
func (n *nodes) serverName(addr string) string {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		host = addr
	}
	first, _, err := net.SplitHostPort(n.addr.hosts[0])
	if err == nil && net.ParseIP(host) != nil && net.ParseIP(first) == nil {
		return first
	}
	return host
}
