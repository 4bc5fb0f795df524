package resp_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/spillgate/spillgate/agent"
	"github.com/spillgate/spillgate/batcher"
	"github.com/spillgate/spillgate/limit"
	"github.com/spillgate/spillgate/memstore"
	"github.com/spillgate/spillgate/rules"
	"github.com/spillgate/spillgate/sidecar/resp"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fake is a batched store that answers at once, or, told so, not at all. Its cells live in a memory store.
type fake struct {
	cells *memstore.Store
	state atomic.Value // "up", "down" or "hung"
}

func (f *fake) Secret() (*limit.Secret, bool) { return f.cells.Secret() }

func (f *fake) Shard(*limit.Bucket, *limit.Part) int { return 0 }

func (f *fake) Apply(ctx context.Context, _ int, entries []*batcher.Entry) {
	state := f.state.Load()
	if state == "hung" {
		<-ctx.Done()
	}
	now := f.cells.Now()
	for _, e := range entries {
		if state == "up" {
			f.cells.ApplyAt(now, e)
			continue
		}
		e.Err = fmt.Errorf("%w: connection refused", batcher.ErrNotRun)
	}
}

const testRules = `
domain: api
rules:
  - {name: per-user, match: [{key: user}], limit: {requests: 10, per: 10s}}
  - {name: per-route, match: [{key: route, value: "/v1/*"}, {key: user}], limit: 100/s}
  - {name: closed, match: [{key: closed}], limit: 10/s, on_store_error: closed}
  - {name: banned, match: [{key: banned}], limit: 0/s}
  - {name: vip, match: [{key: vip}], unlimited: true}
  - {name: quiet, match: [{key: quiet}], limit: 1/s, shadow: true}
`

// door is a server that serves one listener.
type door struct {
	testing.TB
	*resp.Server
	agent  *agent.Agent
	fake   *fake // nil on a direct store
	served chan error
	dial   func() (net.Conn, error)
}

// open serves l with an agent on a memory store, or on the fake.
func open(t testing.TB, batched bool, cfg resp.Config, l net.Listener, dial func() (net.Conn, error)) *door {
	t.Helper()
	set, err := rules.Parse("", []byte(testRules))
	if err != nil {
		t.Fatal(err)
	}
	cells, err := memstore.New(memstore.Config{})
	if err != nil {
		t.Fatal(err)
	}
	d := &door{TB: t, served: make(chan error, 1), dial: dial}
	of := agent.Config{Store: cells, Rules: set}
	if batched {
		d.fake = &fake{cells: cells}
		d.fake.state.Store("up")
		of.Store = d.fake
	}
	if d.agent, err = agent.New(of); err != nil {
		t.Fatal(err)
	}
	cfg.Agent = d.agent
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if d.Server, err = resp.New(cfg); err != nil {
		t.Fatal(err)
	}
	go func() { d.served <- d.Serve(l) }()
	t.Cleanup(func() {
		gone, cancel := context.WithCancel(context.Background())
		cancel()
		d.Shutdown(gone)
		d.agent.Close(context.Background())
	})
	return d
}

// onSocket serves a Unix socket.
func onSocket(t testing.TB, cfg resp.Config) (d *door, path string) {
	t.Helper()
	path = t.TempDir() + "/s"
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	return open(t, false, cfg, l, func() (net.Conn, error) { return net.Dial("unix", path) }), path
}

// onPipes serves net.Pipes, which work in virtual time.
func onPipes(t testing.TB, batched bool, cfg resp.Config) *door {
	t.Helper()
	l := newPipes()
	return open(t, batched, cfg, l, l.dial)
}

// pipes is a listener in memory.
type pipes struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func newPipes() *pipes { return &pipes{conns: make(chan net.Conn), done: make(chan struct{})} }

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.done) })
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "unix"} }

func (p *pipes) dial() (net.Conn, error) {
	ours, theirs := net.Pipe()
	select {
	case p.conns <- theirs:
		return ours, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

// client is a connection to a door.
type client struct {
	testing.TB
	net.Conn
	r *bufio.Reader
}

func (d *door) client() *client {
	d.Helper()
	nc, err := d.dial()
	if err != nil {
		d.Fatal(err)
	}
	d.Cleanup(func() { nc.Close() })
	return &client{d.TB, nc, bufio.NewReader(nc)}
}

// frame encodes a command as clients do.
func frame(args ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(args))
	for _, a := range args {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(a), a)
	}
	return b.String()
}

// send writes bytes. Without anybody who reads the replies, they must fit into the socket's buffers.
func (c *client) send(text string) {
	c.Helper()
	if _, err := io.WriteString(c, text); err != nil {
		c.Fatal(err)
	}
}

// wants reads replies and compares them with their texts.
func (c *client) wants(want ...string) {
	c.Helper()
	for i, w := range want {
		if got := c.next(); got != w {
			c.Fatalf("reply %d: %s, want %s", i, got, w)
		}
	}
}

// do sends one command and wants one reply.
func (c *client) do(want string, args ...string) {
	c.Helper()
	c.send(frame(args...))
	c.wants(want)
}

// next is the text of the next reply, "closed" at the end of the connection.
func (c *client) next() string {
	text, err := readReply(c.r)
	if err != nil {
		return closedText(err)
	}
	return text
}

// closedText is how the end of a connection reads. A connection that is closed with
// unread commands is reset.
func closedText(err error) string {
	var op *net.OpError
	if errors.Is(err, io.EOF) || errors.As(err, &op) {
		return "closed"
	}
	return err.Error()
}

// readReply reads a reply and returns its text: 1, +OK, -ERR ..., "bulk", nil, [array], {map}.
func readReply(r *bufio.Reader) (string, error) {
	line, err := r.ReadString('\n')
	if err != nil {
		return "", err
	}
	if !strings.HasSuffix(line, "\r\n") || len(line) < 3 {
		return "", fmt.Errorf("line %q", line)
	}
	kind, rest := line[0], line[1:len(line)-2]
	switch kind {
	case '+', '-':
		return strings.ReplaceAll(line[:len(line)-2], "\x00", `\x00`), nil
	case ':':
		_, err := strconv.ParseInt(rest, 10, 64)
		return rest, err
	case '_':
		return "nil", nil
	}
	n, err := strconv.Atoi(rest)
	if err != nil {
		return "", err
	}
	switch {
	case n < 0:
		return "nil", nil
	case kind == '$':
		text := make([]byte, n+2)
		if _, err := io.ReadFull(r, text); err != nil {
			return "", err
		}
		if !bytes.HasSuffix(text, []byte("\r\n")) {
			return "", fmt.Errorf("bulk %q", text)
		}
		return strconv.Quote(string(text[:n])), nil
	case kind == '*':
		parts, err := readReplies(r, n)
		return "[" + strings.Join(parts, " ") + "]", err
	case kind == '%':
		parts, err := readReplies(r, 2*n)
		return "{" + strings.Join(parts, " ") + "}", err
	}
	return "", fmt.Errorf("reply %q", line)
}

func readReplies(r *bufio.Reader, n int) (all []string, err error) {
	for range n {
		text, err := readReply(r)
		if err != nil {
			return nil, err
		}
		all = append(all, text)
	}
	return all, nil
}

// shut closes a door that is expected to close at once.
func (d *door) shut() {
	d.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := d.Shutdown(ctx); err != nil {
		d.Errorf("Shutdown: %v", err)
	}
	if err := <-d.served; err != nil {
		d.Errorf("Serve: %v", err)
	}
}
