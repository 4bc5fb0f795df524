package resp_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillgate/spillgate/agent"
	"github.com/spillgate/spillgate/memstore"
	"github.com/spillgate/spillgate/rules"
	"github.com/spillgate/spillgate/sidecar/resp"
)

func TestConfig(t *testing.T) {
	for _, tt := range []struct {
		cfg  resp.Config
		want string
	}{
		{resp.Config{}, "resp: Agent is missing"},
		{resp.Config{Agent: new(agent.Agent), MaxConns: -1}, "resp: MaxConns is -1, it must be at least 1"},
	} {
		if s, err := resp.New(tt.cfg); err == nil || err.Error() != tt.want || s != nil {
			t.Errorf("%v, want %q", err, tt.want)
		}
	}
	store, _ := memstore.New(memstore.Config{})
	a, err := agent.New(agent.Config{Store: store})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := resp.New(resp.Config{Agent: a}); err != nil {
		t.Errorf("defaults: %v", err)
	}
}

// TestShutdownIdle closes connections at rest and those with half a frame, and ends Serve without an error.
func TestShutdownIdle(t *testing.T) {
	d, path := onSocket(t, resp.Config{})
	idle, half, gone := d.client(), d.client(), d.client()
	idle.do("+PONG", "PING")
	half.do("+PONG", "PING")
	half.send("*1\r\n$4\r\nPI")
	gone.do("+PONG", "PING")
	if n := d.Stats(); n.Connections != 3 || n.Accepted != 3 || n.Refused != 0 || n.ProtocolErrors != 0 {
		t.Errorf("%+v", n)
	}
	gone.Close()
	d.shut()
	idle.wants("closed")
	half.wants("closed")
	if n := d.Stats().Connections; n != 0 {
		t.Errorf("%d connections are left", n)
	}
	if _, err := net.Dial("unix", path); err == nil {
		t.Error("the listener is still there")
	}
	if err := d.Shutdown(t.Context()); err != nil {
		t.Errorf("a second Shutdown: %v", err)
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Serve(l); err != nil {
		t.Errorf("Serve after Shutdown: %v", err)
	}
	if _, err := net.Dial("unix", path); err == nil {
		t.Error("Serve after Shutdown left its listener open")
	}
}

// TestShutdownLetsAnswersFinish: commands that were read are answered, while their store takes its time.
func TestShutdownLetsAnswersFinish(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := onPipes(t, true, resp.Config{})
		d.fake.state.Store("hung")
		c := d.client()
		c.send(frame("PING") + frame("SG.CHECK", "api", "1", "closed", "42"))
		synctest.Wait()
		start := time.Now()
		var wg sync.WaitGroup
		for range 3 { // together
			wg.Go(func() {
				if err := d.Shutdown(context.Background()); err != nil {
					t.Errorf("Shutdown: %v", err)
				}
			})
		}
		c.wants("+PONG", `[0 10 0 1000 0 "closed" "store_closed"]`, "closed")
		wg.Wait()
		if took := time.Since(start); took != 25*time.Millisecond { // the deadline
			t.Errorf("took %v", took)
		}
		if err := <-d.served; err != nil {
			t.Errorf("Serve: %v", err)
		}
		time.Sleep(time.Second) // the store's call ends, in virtual time
	})
}

// TestShutdownCuts: when its context ends, what is left is cut: a check that waits, and a peer that never reads.
func TestShutdownCuts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := onPipes(t, true, resp.Config{})
		deaf := d.client()
		deaf.send(frame("PING"))
		idle := d.client()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		if err := d.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) || !strings.HasPrefix(err.Error(), "resp: connections were cut: ") {
			t.Errorf("Shutdown: %v", err)
		}
		if took := time.Since(start); took != time.Second {
			t.Errorf("took %v", took)
		}
		if err := <-d.served; err != nil {
			t.Errorf("Serve: %v", err)
		}
		deaf.wants("closed")
		idle.wants("closed")
		if n := d.Stats().Connections; n != 0 {
			t.Errorf("%d connections are left", n)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		d := onPipes(t, true, resp.Config{})
		d.fake.state.Store("hung")
		c := d.client()
		c.send(frame("SG.CHECK", "api", "1", "closed", "42"))
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		start := time.Now()
		if err := d.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Shutdown: %v", err)
		}
		if took := time.Since(start); took != time.Millisecond {
			t.Errorf("took %v", took)
		}
		<-d.served
	})
}

// TestDeafPeer: a peer on a real socket that sends for ever and never reads blocks nobody else. If the door has
// replies for it that it does not take, it is cut (TestShutdownCuts).
func TestDeafPeer(t *testing.T) {
	d, _ := onSocket(t, resp.Config{})
	deaf := d.client()
	stuck := make(chan struct{})
	go func() {
		defer close(stuck)
		for text := strings.Repeat(frame("ECHO", strings.Repeat("x", 1000)), 50); ; {
			if _, err := io.WriteString(deaf, text); err != nil {
				return
			}
		}
	}()
	other := d.client()
	for range 100 {
		other.do("+PONG", "PING")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := d.Shutdown(ctx); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Shutdown: %v", err)
	}
	<-stuck
	if err := <-d.served; err != nil {
		t.Errorf("Serve: %v", err)
	}
}

// TestPeerThatTakesNoReply: a peer that leaves its replies untaken is cut in the end, and no other feels it.
func TestPeerThatTakesNoReply(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := onPipes(t, true, resp.Config{})
		deaf := d.client()
		deaf.send(frame("PING"))
		for d.Stats().Connections == 1 { // in virtual time; without an end the test would stop as hung
			time.Sleep(time.Second)
		}
		deaf.wants("closed")
		other := d.client()
		other.do("+PONG", "PING")
	})
}

// TestMaxConns: one connection more than allowed is told so and closed; when another goes, there is room.
func TestMaxConns(t *testing.T) {
	d, _ := onSocket(t, resp.Config{MaxConns: 2})
	one, two := d.client(), d.client()
	one.do("+PONG", "PING")
	two.do("+PONG", "PING")
	for range 3 {
		d.client().wants("-ERR max number of clients reached", "closed")
	}
	one.do("+PONG", "PING")
	if n := d.Stats(); n.Connections != 2 || n.Accepted != 2 || n.Refused != 3 {
		t.Errorf("%+v", n)
	}
	two.do("+OK", "QUIT")
	two.wants("closed")
	for { // the door closes a connection a moment before it forgets it
		c := d.client()
		c.Write([]byte(frame("PING")))
		if c.next() == "+PONG" {
			break
		}
	}
	d.shut()
}

// acceptor is a listener that answers Accept with a row of errors, and then with what else it is given.
type acceptor struct {
	*pipes
	errs []error
}

func (a *acceptor) Accept() (net.Conn, error) {
	if len(a.errs) > 0 {
		err := a.errs[0]
		a.errs = a.errs[1:]
		return nil, err
	}
	return a.pipes.Accept()
}

// TestAcceptErrors: out of file descriptors, the server logs, waits a growing while, and goes on.
func TestAcceptErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &acceptor{pipes: newPipes()}
		for range 12 {
			l.errs = append(l.errs, &net.OpError{Op: "accept", Err: syscall.EMFILE})
		}
		var logged bytes.Buffer
		start := time.Now()
		d := open(t, false, resp.Config{Logger: slog.New(slog.NewTextHandler(&logged, nil))}, l, l.dial)
		c := d.client()
		c.do("+PONG", "PING")
		// 5, 10, ... 640 ms, and then 1 s each.
		if took, want := time.Since(start), 1275*time.Millisecond+4*time.Second; took != want {
			t.Errorf("took %v, want %v", took, want)
		}
		if n := strings.Count(logged.String(), `msg="connection not accepted" error="accept: too many open files"`); n != 12 {
			t.Errorf("logged %d times:\n%s", n, logged.String())
		}
		// The next time it begins with a short wait again.
		synctest.Wait() // the server waits in Accept
		l.errs = []error{syscall.EMFILE}
		start = time.Now()
		again, third := d.client(), d.client()
		if took := time.Since(start); took != 5*time.Millisecond {
			t.Errorf("the second time it took %v", took)
		}
		c.Close()
		again.Close()
		third.Close()
		d.shut()
	})
}

// TestShutdownDuringPause does not wait for the pause.
func TestShutdownDuringPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &acceptor{pipes: newPipes(), errs: make([]error, 100)}
		for i := range l.errs {
			l.errs[i] = syscall.ENFILE
		}
		d := open(t, false, resp.Config{}, l, l.dial)
		time.Sleep(10 * time.Second) // in the midst of a pause of a second, in virtual time
		start := time.Now()
		d.shut()
		if took := time.Since(start); took != 0 {
			t.Errorf("took %v", took)
		}
	})
}

// late is a listener with a connection that is accepted as it closes.
type late struct {
	*pipes
	last net.Conn
}

func (l *late) Accept() (net.Conn, error) {
	nc, err := l.pipes.Accept()
	if err != nil && l.last != nil {
		nc, l.last, err = l.last, nil, nil
	}
	return nc, err
}

// TestAcceptedWhileClosing: such a connection is closed, not served, and not counted as one too many.
func TestAcceptedWhileClosing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := net.Pipe()
		l := &late{newPipes(), theirs}
		d := open(t, false, resp.Config{}, l, l.dial)
		synctest.Wait()
		d.shut()
		c := &client{t, ours, bufio.NewReader(ours)}
		c.wants("closed")
		if n := d.Stats(); n != (resp.Stats{}) {
			t.Errorf("%+v", n)
		}
	})
}

// TestListenerFails: Serve returns its error and closes it; connections and other listeners live on.
func TestListenerFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("broken")
		l, second := &acceptor{pipes: newPipes()}, newPipes()
		d := open(t, false, resp.Config{}, l, l.dial)
		before := d.client()
		before.do("+PONG", "PING")
		go func() { d.served <- d.Serve(second) }()
		synctest.Wait()
		l.errs = []error{broken}
		last := d.client() // Accept returns this, and then the error
		last.do("+PONG", "PING")
		if err := <-d.served; !errors.Is(err, broken) || err.Error() != "resp: broken" {
			t.Errorf("Serve: %v", err)
		}
		if _, err := l.dial(); err == nil {
			t.Error("the listener was left open")
		}
		before.do("+PONG", "PING")
		d.dial = second.dial
		d.client().do("+PONG", "PING")
		d.shut()
	})
}

// TestClosedAgent: a door that outlives its agent says so.
func TestClosedAgent(t *testing.T) {
	d, _ := onSocket(t, resp.Config{})
	if err := d.agent.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	c := d.client()
	c.do("-ERR agent: closed", "CL.THROTTLE", "key", "9", "10", "60")
	c.do("-ERR agent: closed", "SG.CHECK", "api", "1", "user", "42")
	c.do("+PONG", "PING")
	c.Close()
	d.shut()
}

// TestInfoWithoutLeases: a direct store has no calls and no leases. Its INFO has the section all the same.
func TestInfoWithoutLeases(t *testing.T) {
	d, _ := onSocket(t, resp.Config{})
	c := d.client()
	c.do("[0 1 0 -1 60]", "CL.THROTTLE", "key", "0", "1", "60")
	c.do("[1 1 0 60 60]", "CL.THROTTLE", "key", "0", "1", "60")
	c.send(frame("INFO", "leases"))
	text := c.next()
	_, leases, found := strings.Cut(text, `# Leases\r\n`)
	leases, splits, _ := strings.Cut(strings.TrimSuffix(leases, `\r\n"`), `\r\n\r\n# Splits\r\n`)
	if !found || !strings.Contains(text, `admitted_ok:1\r\ndenied_over_limit:1\r\n`) {
		t.Fatalf("INFO is %s", text)
	}
	lines := strings.Split(leases, `\r\n`)
	for _, line := range append(lines, strings.Split(splits, `\r\n`)...) {
		if _, value, _ := strings.Cut(line, ":"); value != "0" && value != "0.0" {
			t.Errorf("%s on a direct store", line)
		}
	}
	if last := "store_calls_per_1000_checks:0.0"; lines[len(lines)-1] != last {
		t.Errorf("the last line is not %s: %s", last, leases)
	}
	if last := "splits_overflows:0"; !strings.HasSuffix(splits, last) {
		t.Errorf("the last line is not %s: %s", last, splits)
	}
	c.Close()
	d.shut()
}

// TestInfoSkew: how far masters' clocks are apart is told while it is known.
func TestInfoSkew(t *testing.T) {
	var known atomic.Bool
	d, _ := onSocket(t, resp.Config{Skew: func() (time.Duration, bool) { return 12345 * time.Microsecond, known.Load() }})
	c := d.client()
	for _, want := range []bool{false, true, false} {
		known.Store(want)
		c.send(frame("INFO"))
		if text := c.next(); strings.Contains(text, `\r\nstore_skew_ms:12.3\r\n`) != want || strings.Contains(text, "skew") != want {
			t.Errorf("known is %v, INFO is %s", want, text)
		}
	}
	c.Close()
	d.shut()
}

// TestInfoRules: which rules are in force is told, in a line of its own whatever the reason says.
func TestInfoRules(t *testing.T) {
	var status atomic.Pointer[rules.Status]
	d, _ := onSocket(t, resp.Config{Rules: func() rules.Status { return *status.Load() }})
	c := d.client()
	for _, tt := range []struct {
		status rules.Status
		want   string
	}{
		{rules.Status{}, `rules_source:none\r\nrules_version:0\r\nrules_since:0\r\nrules_stale:0\r\nrules_stale_reason:\r\n`},
		{rules.Status{Source: rules.FromStore, Version: 5, Since: time.Unix(1700000000, 0)},
			`rules_source:store\r\nrules_version:5\r\nrules_since:1700000000\r\nrules_stale:0\r\nrules_stale_reason:\r\n`},
		{rules.Status{Source: rules.FromSnapshot, Version: 5, Since: time.Unix(1700000000, 0), Stale: "a\r\nb"},
			`rules_source:snapshot\r\nrules_version:5\r\nrules_since:1700000000\r\nrules_stale:1\r\nrules_stale_reason:a  b\r\n`},
		{rules.Status{Missing: "none yet"}, `rules_source:none\r\nrules_version:0\r\nrules_since:0\r\nrules_stale:1\r\nrules_stale_reason:none yet\r\n`},
	} {
		status.Store(&tt.status)
		c.send(frame("INFO"))
		if text := c.next(); !strings.Contains(text, `\r\n# Rules\r\nrules:`) || !strings.Contains(text, tt.want) {
			t.Errorf("want %s, INFO is %s", tt.want, text)
		}
	}
	c.Close()
	d.shut()
}
