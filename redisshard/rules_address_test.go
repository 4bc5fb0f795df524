package redisshard

import (
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/spillgate/spillgate/internal/redistest"
)

// TestRulesOverTLS: pushes and subscriptions use the settings of the store.
func TestRulesOverTLS(t *testing.T) {
	dir := t.TempDir()
	ca := newAuthority(t, dir, "ca")
	ca.issue(t, dir, "server", net.ParseIP("127.0.0.1"))
	ca.issue(t, dir, "client", nil)
	file := func(name string) string { return filepath.Join(dir, name) }
	l, err := net.Listen("tcp", "127.0.0.1:0")
	redistest.Must(t, err)
	port := l.Addr().(*net.TCPAddr).Port
	l.Close()
	redistest.Start(t, redistest.WithPassword("secret"), redistest.WithConfig(fmt.Sprint("tls-port ", port), "tls-auth-clients yes",
		"tls-cert-file "+file("server.crt"), "tls-key-file "+file("server.key"), "tls-ca-cert-file "+file("ca.crt")))
	r, err := OpenRules(t.Context(), Config{URL: fmt.Sprint("rediss://:secret@127.0.0.1:", port),
		TLS: TLSConfig{CA: file("ca.crt"), Cert: file("client.crt"), Key: file("client.key")}}, "default")
	redistest.Must(t, err)
	t.Cleanup(func() { redistest.Must(t, r.Close()) })
	heard := r.followAll(t)
	wantHeard(t, heard, 0)
	mustPush(t, r, Draft{Text: ruleText(1)})
	wantHeard(t, heard, 1)
}

// TestRulesBySentinel: who listens follows the master that sentinels name, even while the old one still answers.
func TestRulesBySentinel(t *testing.T) {
	srv, next := redistest.Start(t), redistest.Start(t)
	var mu sync.Mutex
	master, epoch := srv, "1"
	sentinel := startFake(t, func(args []string) string {
		mu.Lock()
		defer mu.Unlock()
		switch strings.ToLower(strings.Join(args, " ")) {
		case "sentinel get-master-addr-by-name main":
			return list(strings.Split(master.Addr(), ":")...)
		case "sentinel master main":
			return list("name", "main", "config-epoch", epoch)
		}
		return obey(args)
	})
	r := openRules(t, "redis+sentinel://"+sentinel.addr+"/main/1")
	heard := r.followAll(t)
	wantHeard(t, heard, 0)
	mustPush(t, r, Draft{Text: ruleText(1)})
	wantHeard(t, heard, 1)

	mu.Lock()
	master, epoch = next, "2"
	mu.Unlock()
	until(t, func() bool {
		r.own.reload(t.Context())
		return clientOf(t, r.own, "k").Options().Addr == next.Addr()
	})
	wantHeard(t, heard, 0) // on the new master
	if h, err := r.Head(t.Context()); err != nil || h.Number != 0 {
		t.Errorf("the new master is empty: %+v, %v", h, err)
	}
	mustPush(t, r, Draft{Text: ruleText(2)})
	wantHeard(t, heard, 1)
}
