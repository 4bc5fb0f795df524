package redisshard

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillgate/spillgate/internal/redistest"
)

func TestConnect(t *testing.T) {
	srv := redistest.Start(t, redistest.WithPassword("s3cret"), redistest.WithUser("agent", "s3cret2", "~sg:*", "+ping", "+set", "+get"))
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		redistest.Must(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	good, bad := write("good", "s3cret\n"), write("bad", "s3cretbad\n")
	tests := []struct {
		name string
		cfg  Config
		want string // part of a permanent error; empty: connects
	}{
		{"password", Config{URL: "redis://:s3cret@" + srv.Addr()}, ""},
		{"database", Config{URL: "redis://:s3cret@" + srv.Addr() + "/3?cluster=off"}, ""},
		{"socket", Config{URL: "unix://:s3cret@" + srv.Socket() + "?db=2"}, ""},
		{"user", Config{URL: "redis://agent:s3cret2@" + srv.Addr()}, ""},
		{"password file", Config{URL: "redis://:s3cretbad@" + srv.Addr(), PasswordFile: good}, ""},
		{"no password", Config{URL: "redis://" + srv.Addr()}, "wants a password"},
		{"wrong password", Config{URL: "redis://:s3cretbad@" + srv.Addr()}, "password is wrong"},
		{"wrong password on a socket", Config{URL: "unix://:s3cretbad@" + srv.Socket()}, "password is wrong"},
		{"wrong user", Config{URL: "redis://agent:s3cret@" + srv.Addr()}, "password is wrong"},
		{"wrong password file", Config{URL: "redis://:s3cret@" + srv.Addr(), PasswordFile: bad}, "password is wrong"},
		{"no password file", Config{URL: "redis://:s3cret@" + srv.Addr(), PasswordFile: filepath.Join(dir, "none")}, "no such file"},
		{"empty password file", Config{URL: "redis://" + srv.Addr(), PasswordFile: write("empty", "\n")}, "is empty"},
		{"database out of range", Config{URL: "redis://:s3cret@" + srv.Addr() + "/99"}, "fewer databases"},
		{"cluster=on", Config{URL: "redis://:s3cret@" + srv.Addr() + "?cluster=on"}, "not a node of a cluster"},
		{"several hosts", Config{URL: "redis://:s3cret@" + srv.Addr() + ",127.0.0.1:1"}, "several hosts"},
		{"bad URL", Config{URL: "redis://:s3cret@"}, "Config.URL"},
		{"bad CA", Config{URL: "rediss://:s3cret@" + srv.Addr(), TLS: TLSConfig{CA: good}}, "no certificate"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var log bytes.Buffer
			test.cfg.Logger, test.cfg.Timeout = slog.New(slog.NewTextHandler(&log, nil)), patience
			n, err := connect(t.Context(), test.cfg)
			switch {
			case err == nil:
				defer n.close()
				if test.want != "" {
					t.Fatalf("connected; want an error with %q", test.want)
				}
				if masters, err := n.masters(t.Context()); n.clustered() || masters != 1 || err != nil {
					t.Errorf("clustered %v, masters %d, %v", n.clustered(), masters, err)
				}
				client := clientOf(t, n, "{tag}")
				redistest.Must(t, client.Set(t.Context(), "sg:k", test.name, time.Minute).Err())
				if got := client.Get(t.Context(), "sg:k").Val(); got != test.name {
					t.Errorf("read %q", got)
				}
				n.reload(t.Context()) // does nothing, twice
				n.reload(t.Context())
			case test.want == "" || !strings.Contains(err.Error(), test.want) || !isPermanent(err):
				t.Errorf("permanent is %v: %v; want %q", isPermanent(err), err, test.want)
			}
			if strings.Contains(fmt.Sprint(err, log.String()), "s3cret") {
				t.Errorf("the password is shown: %v %s", err, log.String())
			}
		})
	}
}

func TestConnectWhenNobodyAnswers(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	redistest.Must(t, err)
	closed := l.Addr().String()
	l.Close()
	silent := startFake(t, func([]string) string { return "" })
	loading := startFake(t, func(args []string) string {
		if strings.EqualFold(args[0], "ping") {
			return "-LOADING Redis is loading the dataset in memory\r\n"
		}
		return obey(args)
	})
	for name, url := range map[string]string{
		"refused": "redis://" + closed, "silent": "redis://" + silent.addr, "loading": "redis://" + loading.addr,
		"no socket": "unix://" + filepath.Join(t.TempDir(), "none.sock"), "sentinels": "redis+sentinel://" + closed + "," + silent.addr + "/main",
		"no host": "redis://no-such-host.invalid", "both": "redis://" + closed + "," + silent.addr,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			start := time.Now()
			n, err := connect(ctx, Config{URL: url})
			if err == nil {
				n.close()
				t.Fatal("connected")
			}
			if isPermanent(err) || ctx.Err() != nil {
				t.Errorf("after %v, permanent is %v: %v", time.Since(start), isPermanent(err), err)
			}
		})
	}
}

func TestConnectChecksTheServer(t *testing.T) {
	unknown := "-ERR unknown command 'HELLO', with args beginning with: '2'\r\n"
	tests := []struct {
		name, hello, info string
		want              string
	}{
		{"6.0", hello("6.0.16", "standalone"), "", "want 6.2 or later"},
		{"5.0, without HELLO", unknown, "# Server\r\nredis_version:5.0.7\r\nredis_mode:standalone\r\n", "Redis 5.0.7"},
		{"proxy without HELLO", unknown, "# Server\r\nredis_version:7.2.1\r\nredis_mode:standalone\r\n", ""},
		{"fork", hello("next-2", "standalone"), "", ""},
		{"sentinel", hello("7.0.15", "sentinel"), "", "redis+sentinel://"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			f := startFake(t, func(args []string) string {
				switch strings.ToLower(args[0]) {
				case "hello":
					return test.hello
				case "info":
					return bulk(test.info)
				}
				return obey(args)
			})
			n, err := connect(t.Context(), Config{URL: "redis://" + f.addr, Timeout: patience})
			if err == nil {
				n.close()
			}
			if test.want == "" && err != nil || test.want != "" && (!isPermanent(err) || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("error is %v, want %q", err, test.want)
			}
		})
	}
}

// TestSentinel uses fake sentinels in front of a real server.
func TestSentinel(t *testing.T) {
	srv, next := redistest.Start(t), redistest.Start(t)
	var mu sync.Mutex
	master, epoch := srv, "1"
	sentinel := func(stale bool) *fakeServer {
		return startFake(t, func(args []string) string {
			mu.Lock()
			defer mu.Unlock()
			at, since := master, epoch
			if stale {
				at, since = srv, "1"
			}
			switch strings.ToLower(strings.Join(args, " ")) {
			case "sentinel get-master-addr-by-name main":
				return list(strings.Split(at.Addr(), ":")...)
			case "sentinel master main":
				return list("name", "main", "config-epoch", since)
			case "sentinel get-master-addr-by-name other":
				return "*-1\r\n"
			}
			return obey(args)
		})
	}
	hosts := sentinel(false).addr + "," + sentinel(true).addr
	n := mustConnect(t, Config{URL: "redis+sentinel://" + hosts + "/main/1"})
	if masters, _ := n.masters(t.Context()); n.clustered() || masters != 1 {
		t.Errorf("clustered %v, masters %d", n.clustered(), masters)
	}
	if got := clientOf(t, n, "k").Options().Addr; got != srv.Addr() {
		t.Errorf("the master is %s, want %s", got, srv.Addr())
	}
	mu.Lock()
	master, epoch = next, "2"
	mu.Unlock()
	start := time.Now()
	until(t, func() bool {
		n.reload(t.Context())
		return clientOf(t, n, "k").Options().Addr == next.Addr()
	})
	t.Logf("the new master is known after %v", time.Since(start))
	redistest.Must(t, clientOf(t, n, "k").Set(t.Context(), "k", "v", 0).Err())

	_, err := connect(t.Context(), Config{URL: "redis+sentinel://" + hosts + "/other", Timeout: 3 * time.Second}) // all of which it takes
	if !isPermanent(err) || !strings.Contains(err.Error(), `no master "other"`) {
		t.Errorf("unknown name: %v", err)
	}
}

func TestTLS(t *testing.T) {
	dir := t.TempDir()
	ca := newAuthority(t, dir, "ca")
	newAuthority(t, dir, "other")
	ca.issue(t, dir, "server", net.ParseIP("127.0.0.1"))
	ca.issue(t, dir, "client", nil)
	file := func(name string) string { return filepath.Join(dir, name) }
	srv := redistest.Start(t, redistest.WithConfig("tls-auth-clients optional",
		"tls-cert-file "+file("server.crt"), "tls-key-file "+file("server.key"), "tls-ca-cert-file "+file("ca.crt")))
	port := srv.Port() + 10_000 // the server's as well: it would be that of a cluster's bus
	redistest.Must(t, srv.Client().ConfigSet(t.Context(), "tls-port", fmt.Sprint(port)).Err())
	addr := fmt.Sprint("127.0.0.1:", port)

	tests := []struct {
		name string
		url  string
		tls  TLSConfig
		want string
	}{
		{"own CA", "rediss://" + addr, TLSConfig{CA: file("ca.crt")}, ""},
		{"own certificate", "rediss://" + addr, TLSConfig{CA: file("ca.crt"), Cert: file("client.crt"), Key: file("client.key")}, ""},
		{"CA of others", "rediss://" + addr, TLSConfig{CA: file("other.crt")}, "certificate"},
		{"CAs of the system", "rediss://" + addr, TLSConfig{}, "certificate"},
		{"name that the certificate lacks", "rediss://localhost:" + fmt.Sprint(port), TLSConfig{CA: file("ca.crt")}, "certificate"},
		{"key of another", "rediss://" + addr, TLSConfig{CA: file("ca.crt"), Cert: file("client.crt"), Key: file("ca.key")}, "Config.TLS.Cert"},
	}
	for _, test := range tests {
		n, err := connect(t.Context(), Config{URL: test.url, TLS: test.tls, Timeout: patience})
		if err == nil {
			redistest.Must(t, clientOf(t, n, "").Set(t.Context(), "k", "v", 0).Err())
			redistest.Must(t, n.close())
		}
		if test.want == "" && err != nil || test.want != "" && (!isPermanent(err) || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%s: permanent is %v: %v; want %q", test.name, isPermanent(err), err, test.want)
		}
	}
	redistest.Must(t, srv.Client().ConfigSet(t.Context(), "tls-auth-clients", "yes").Err())
	if _, err := connect(t.Context(), Config{URL: "rediss://" + addr, TLS: TLSConfig{CA: file("ca.crt")}, Timeout: patience}); err == nil {
		t.Error("connected without the certificate that the server wants") // its alert may be lost in the reset
	}
	// A server that waits for more of what it does not understand is just slow.
	if _, err := connect(t.Context(), Config{URL: "rediss://" + srv.Addr()}); err == nil || isPermanent(err) {
		t.Errorf("TLS on a plain port: %v", err)
	}
	if _, err := connect(t.Context(), Config{URL: "redis://" + addr}); err == nil {
		t.Error("connected to a TLS port without TLS")
	}
}

// authority signs certificates for a test.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T, dir, name string) *authority {
	t.Helper()
	a := new(authority)
	a.make(t, dir, name, &x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}, a)
	return a
}

func (a *authority) issue(t *testing.T, dir, name string, ip net.IP) {
	t.Helper()
	cert := &x509.Certificate{ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
	if ip != nil {
		cert.IPAddresses = []net.IP{ip}
	}
	new(authority).make(t, dir, name, cert, a)
}

func (a *authority) make(t *testing.T, dir, name string, cert *x509.Certificate, by *authority) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	redistest.Must(t, err)
	cert.SerialNumber = big.NewInt(time.Now().UnixNano())
	cert.Subject = pkix.Name{CommonName: name}
	cert.NotBefore, cert.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	a.cert, a.key = cert, key
	der, err := x509.CreateCertificate(rand.Reader, cert, by.cert, &key.PublicKey, by.key)
	redistest.Must(t, err)
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	redistest.Must(t, err)
	for ext, block := range map[string]*pem.Block{".crt": {Type: "CERTIFICATE", Bytes: der}, ".key": {Type: "PRIVATE KEY", Bytes: pkcs8}} {
		redistest.Must(t, os.WriteFile(filepath.Join(dir, name+ext), pem.EncodeToMemory(block), 0o600))
	}
}

// until waits for what must come to be.
func until(t testing.TB, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %v", patience)
		}
	}
}

// TestCluster goes through one cluster's life: what connects, moved slots, a stopped node, a dead one.
func TestCluster(t *testing.T) {
	c := sharedCluster(t)
	ctx := t.Context()
	first := c.Masters()[0]
	for _, test := range []struct{ query, want string }{
		{"?cluster=off", "leave cluster=off out"}, {"/1", "only database 0"}, {"/1?cluster=on", "only database 0"},
	} {
		_, err := connect(ctx, Config{URL: "redis://" + first.Addr() + test.query, Timeout: patience})
		if !isPermanent(err) || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: error is %v, want %q", test.query, err, test.want)
		}
	}
	// The URL names one master, which will die, and a host that never was.
	n := mustConnect(t, Config{URL: "redis://127.0.0.1:1," + first.Addr() + "/0?cluster=on", Timeout: 2 * time.Second})
	if masters, err := n.masters(ctx); !n.clustered() || masters != 3 || err != nil {
		t.Errorf("clustered %v, masters %d, %v", n.clustered(), masters, err)
	}
	agree := func() bool {
		for _, tag := range tagNames(64) {
			key := "sg:{" + tag + "}:x"
			if clientOf(t, n, key).Options().Addr != c.MasterOf(key).Addr() {
				return false
			}
		}
		return true
	}
	if !agree() {
		t.Error("keys are sent to the wrong masters")
	}
	t.Run("moved", func(t *testing.T) { testMoved(t, c, n) })
	t.Run("stopped", func(t *testing.T) { testStopped(t, c, n) })

	redistest.Must(t, first.Kill())
	defer revive(t, c, first)
	done := make(chan error, 1)
	go func() { _, err := c.WaitFailover(ctx, first); done <- err }()
	for waiting := true; waiting; {
		select {
		case err := <-done:
			redistest.Must(t, err)
			waiting = false
		case <-time.After(20 * time.Millisecond):
			n.reload(ctx) // as every failed call does
		}
	}
	start := time.Now()
	until(t, func() bool { n.reload(ctx); return agree() })
	t.Logf("after the failover: right after %v", time.Since(start))
	for _, m := range c.Masters() {
		redistest.Must(t, clientOf(t, n, keyOn(c, m)).Set(ctx, keyOn(c, m), "v", 0).Err())
	}
}

// keyOn is a key that a master serves.
func keyOn(c *redistest.Cluster, s *redistest.Server) string {
	for _, tag := range tagNames(64) {
		if key := "{" + tag + "}"; c.MasterOf(key) == s {
			return key
		}
	}
	panic("no tag on " + s.String())
}

func testMoved(t *testing.T, c *redistest.Cluster, n *nodes) {
	ctx := t.Context()
	from, to := c.Masters()[1], c.Masters()[2]
	key, home := keyOn(c, from), clientOf(t, n, keyOn(c, to))
	m, err := c.BeginMigration(ctx, slotOf(key), to)
	redistest.Must(t, err)
	old := clientOf(t, n, key)
	f := classify(old.Set(ctx, key, "v", 0).Err())
	if f.kind != kindAsk || f.verdict != verdictResend || f.slot != slotOf(key) || redirectAddr(f.addr, from.Addr()) != to.Addr() {
		t.Errorf("while the slot moves: %+v", f)
	}
	redistest.Must(t, m.Finish(ctx))
	defer func() {
		moveBack(t, c, m.Slot, from)
		until(t, func() bool { n.reload(ctx); return clientOf(t, n, key) == old })
	}()
	f = classify(old.Set(ctx, key, "v", 0).Err())
	if f.kind != kindMoved || f.verdict != verdictResend || f.slot != slotOf(key) {
		t.Errorf("after the slot has moved: %+v", f)
	}
	target := n.at(redirectAddr(f.addr, from.Addr()))
	if target != home {
		t.Error("the redirection leads to a second client of the same node")
	}
	redistest.Must(t, target.Set(ctx, key, "v", 0).Err())
	start := time.Now()
	until(t, func() bool { n.reload(ctx); return clientOf(t, n, key) == target })
	t.Logf("the new place of the slot is known after %v", time.Since(start))
}

// testStopped: calls to a stopped node end while it stands, and do not hold up others. No replica takes over meanwhile.
func testStopped(t *testing.T, c *redistest.Cluster, n *nodes) {
	ctx := t.Context()
	dead, alive := c.Masters()[1], c.Masters()[2]
	deadKey, aliveKey := keyOn(c, dead), keyOn(c, alive)
	deadClient, aliveClient := clientOf(t, n, deadKey), clientOf(t, n, aliveKey)
	takeOver := func(refuse string) {
		for _, r := range c.Replicas(dead) {
			redistest.Must(t, r.Client().ConfigSet(ctx, "cluster-replica-no-failover", refuse).Err())
		}
	}
	takeOver("yes")
	defer takeOver("no")
	redistest.Must(t, dead.Stop())
	var calls sync.WaitGroup
	for range 3 * poolSize {
		calls.Go(func() {
			if err := deadClient.Set(ctx, deadKey, "v", 0).Err(); err == nil {
				t.Error("a call to the stopped node was answered")
			}
			n.reload(ctx)
		})
	}
	for range 20 {
		if err := aliveClient.Set(ctx, aliveKey, "v", 0).Err(); err != nil {
			t.Errorf("a call to a live node: %v", err)
		}
	}
	calls.Wait()
	redistest.Must(t, dead.Continue())
	redistest.Must(t, c.WaitStable(ctx))
	until(t, func() bool { return deadClient.Set(ctx, deadKey, "v", 0).Err() == nil })
}

func TestStrangersAreBounded(t *testing.T) {
	n := &nodes{cfg: Config{Timeout: time.Millisecond, Logger: slog.New(slog.DiscardHandler)}, addr: &address{network: "unix", hosts: []string{"/none/1"}}, stop: func() {}}
	n.mu.peers = make(map[string]*peer)
	n.adopt(everything("/none/1", 0))
	home := clientOf(t, n, "")
	for i := range 3 * maxStrangers {
		addr := fmt.Sprint("/none/", 2+i)
		if client := n.at(addr); client != n.at(addr) {
			t.Fatal("two clients of one address")
		}
	}
	if got := len(n.mu.peers); got > 1+maxStrangers {
		t.Errorf("%d clients are kept", got)
	}
	n.sweep()
	n.sweep()
	if got := len(n.mu.peers); got != 1 || n.at("/none/1") != home {
		t.Errorf("%d clients are kept after two sweeps", got)
	}
	// A master that leaves outlives one sweep: calls may be about to use it.
	n.adopt(everything("/none/2", 0))
	n.sweep()
	if err := home.Ping(t.Context()).Err(); classify(err).kind == kindClosed {
		t.Error("the client of the old master is closed at once")
	}
	n.sweep()
	if err := home.Ping(t.Context()).Err(); classify(err).kind != kindClosed {
		t.Errorf("the client of the old master is kept: %v", err)
	}
	redistest.Must(t, n.close())
	redistest.Must(t, n.close())
	if f := classify(n.at("/none/9").Ping(t.Context()).Err()); f.kind != kindClosed {
		t.Errorf("after close: %+v", f)
	}
}

func TestGather(t *testing.T) { synctest.Test(t, testGather) }

func testGather(t *testing.T) {
	broken := errors.New("broken")
	ask := func(ctx context.Context, addr string) (string, error) {
		switch addr {
		case "good", "also good":
			return addr, nil
		case "slow":
			<-ctx.Done()
			return "", ctx.Err()
		}
		return "", broken
	}
	for _, test := range []struct {
		addrs  []string
		window time.Duration
		want   int
	}{
		{[]string{"good"}, 0, 1}, {[]string{"bad", "good"}, 0, 1}, {[]string{"good", "also good"}, 10 * time.Second, 2},
		{[]string{"slow", "good"}, 0, 1}, {[]string{"slow", "good", "also good"}, 300 * time.Millisecond, 2}, {[]string{"bad", "bad"}, 0, 0},
		{[]string{"slow", "bad"}, time.Millisecond, 0},
	} {
		got, err := gather(t.Context(), test.addrs, 500*time.Millisecond, test.window, ask)
		if len(got) != test.want || (err == nil) != (test.want > 0) {
			t.Errorf("%v: %v, %v", test.addrs, got, err)
		}
		if test.want == 0 && !errors.Is(err, broken) {
			t.Errorf("%v: the reason is lost: %v", test.addrs, err)
		}
	}
}
