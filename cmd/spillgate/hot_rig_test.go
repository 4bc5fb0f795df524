package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillgate/spillgate/internal/window"
)

// The tests in hot_*_test.go hold the promises about hot buckets from outside: agent processes, real Redis
// servers, and what clients saw on their own clock. They know nothing of leases but the times in
// docs/guarantees.md, and hold for an agent that asks the store about every check as well.
//
//	agentProc   an agent process, its door on a Unix socket; killed, stopped, restarted
//	caller      a client connection that pipelines CL.THROTTLE or SG.CHECK on one bucket
//	stream      a caller at a steady pace that finds its way back after the agent died
//	ledger      every admission, between which two moments; judged by internal/window

// agentProc is an agent in a process of its own. For one goroutine.
type agentProc struct {
	socket string // of the RESP door
	log    string // path
	args   []string

	cmd   *exec.Cmd
	ended chan struct{} // closed when cmd is reaped
}

// startProc starts an agent that denies what it cannot decide, so that every admission is by a token. It ends
// with the test.
func startProc(t *testing.T, dir, name, storeURL string, args ...string) *agentProc {
	t.Helper()
	p := newProc(t, dir, name, storeURL, args...)
	must(t, p.start())
	return p
}

// startProcs starts several at once.
func startProcs(t *testing.T, dir string, n int, storeURL string) []*agentProc {
	t.Helper()
	procs, errs := make([]*agentProc, n), make([]error, n)
	var wg sync.WaitGroup
	for i := range procs {
		procs[i] = newProc(t, dir, fmt.Sprint("agent", i), storeURL)
		wg.Go(func() { errs[i] = procs[i].start() })
	}
	wg.Wait()
	must(t, errors.Join(errs...))
	return procs
}

func newProc(t *testing.T, dir, name, storeURL string, args ...string) *agentProc {
	p := &agentProc{socket: filepath.Join(dir, name), log: filepath.Join(dir, name+".log")}
	p.args = append([]string{"agent", "--store", storeURL, "--resp", "unix://" + p.socket, "--admin", "off",
		"--agent-on-store-error", "closed", "--agent-deadline", "2s", "--store-timeout", "2s"}, args...)
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			t.Logf("log of agent %s:\n%s", name, (&program{log: p.log}).tail())
		}
	})
	return p
}

// shortDir is a directory whose name leaves room for the name of a socket.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "sg")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// start starts the process and waits until it answers. The thread that starts it waits for its end, as
// dieWithTest wants.
func (p *agentProc) start() error {
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	path, err := exec.LookPath("spillgate")
	if err != nil {
		return err
	}
	cmd := exec.Command(path, p.args...)
	cmd.Stderr, cmd.SysProcAttr = log, dieWithTest()
	started, ended := make(chan error), make(chan struct{})
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			cmd.Wait()
			close(ended)
		}
	}()
	if err := <-started; err != nil {
		return err
	}
	p.cmd, p.ended = cmd, ended
	for end := time.Now().Add(scriptPatience); ; time.Sleep(5 * time.Millisecond) {
		c, err := p.dial()
		if err == nil {
			_, err = io.WriteString(c.conn, "PING\r\n")
			if err == nil {
				_, err = c.r.ReadString('\n')
			}
			c.conn.Close()
		}
		if err == nil {
			return nil
		}
		if time.Now().After(end) {
			p.kill()
			return fmt.Errorf("the agent on %s does not answer: %w", p.socket, err)
		}
	}
}

func (p *agentProc) signal(s syscall.Signal) error { return p.cmd.Process.Signal(s) }

// kill ends the process the hard way, if it runs, and reaps it.
func (p *agentProc) kill() {
	if p.cmd != nil {
		p.signal(syscall.SIGKILL) // gone already is as good
		<-p.ended
	}
}

// terminate ends the process the orderly way.
func (p *agentProc) terminate() error {
	if err := p.signal(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case <-p.ended:
		return nil
	case <-time.After(scriptPatience):
		return fmt.Errorf("the agent on %s does not end", p.socket)
	}
}

// client asks one command at a time.
func (p *agentProc) client(t *testing.T) *redis.Client {
	c := redis.NewClient(&redis.Options{Network: "unix", Addr: p.socket, Protocol: 2, PoolSize: 1, MaxRetries: -1, DisableIdentity: true,
		ReadTimeout: scriptPatience})
	t.Cleanup(func() { c.Close() })
	return c
}

// hotBucket is what CL.THROTTLE names: a bucket and how many tokens a command takes. With check set it is that of a rule
// in domain api, whose one descriptor has that key: SG.CHECK asks for it.
type hotBucket struct {
	key                  string
	burst, count, period int64
	quantity             int64
	check                string
}

func (b hotBucket) frame() string {
	var s strings.Builder
	args := []string{"CL.THROTTLE", b.key}
	for _, n := range []int64{b.burst - 1, b.count, b.period, b.quantity} {
		args = append(args, strconv.FormatInt(n, 10))
	}
	if b.check != "" {
		args = []string{"SG.CHECK", "api", strconv.FormatInt(b.quantity, 10), b.check, b.key}
	}
	fmt.Fprintf(&s, "*%d\r\n", len(args))
	for _, a := range args {
		fmt.Fprintf(&s, "$%d\r\n%s\r\n", len(a), a)
	}
	return s.String()
}

// refill is how many tokens come in a time.
func (b hotBucket) refill(d time.Duration) float64 {
	return float64(b.count) * d.Seconds() / float64(b.period)
}

// limit is G1 for the bucket, with room for two clocks: Redis' may run a thousandth faster than ours, and is read to the microsecond.
func (b hotBucket) limit() window.Limit {
	return window.Limit{Burst: b.burst, Tokens: b.count * 1001, Per: time.Duration(b.period*1000) * time.Second, Slack: 10 * time.Microsecond}
}

// await waits until something is so.
func await(t *testing.T, what string, so func() bool) {
	t.Helper()
	for end := time.Now().Add(scriptPatience); !so(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", scriptPatience, what)
		}
	}
}

// ledger is what the clients of one bucket saw.
type ledger struct {
	bucket hotBucket
	start  time.Time

	mu       sync.Mutex
	admitted []window.Admission
	denied   int64
	lost     int64 // commands whose answer never came
	late     int64 // commands not sent because too many were unanswered
	// Those of SG.CHECK whose reason is another: answers by policy, when their commands were sent; and admitted for want of a rule.
	policy   []time.Duration
	ruleless int64
}

func newLedger(b hotBucket) *ledger { return &ledger{bucket: b, start: time.Now()} }

func (l *ledger) now() time.Duration { return time.Since(l.start) }

// add takes what a caller saw.
func (l *ledger) add(admitted []window.Admission, denied, lost, late int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.admitted = append(l.admitted, admitted...)
	l.denied += int64(denied)
	l.lost += int64(lost)
	l.late += int64(late)
}

// tokens is how many were admitted, of those sent from a time on.
func (l *ledger) tokens(from time.Duration) (n int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, a := range l.admitted {
		if a.Sent >= from {
			n += a.Tokens
		}
	}
	return n
}

// judge fails the test if any window is over the bound (G1), and tells the worst ones.
func (l *ledger) judge(t *testing.T) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	limit := l.bucket.limit()
	worst := window.Worst(l.admitted, limit)
	if worst.Breach() {
		t.Errorf("bucket %s is over its bound: %v", l.bucket.key, worst)
	}
	t.Logf("bucket %s (burst %d, %d per %d s): %d admissions, %d denied, %d unanswered, %d not sent; worst of all windows: %v",
		l.bucket.key, l.bucket.burst, l.bucket.count, l.bucket.period, len(l.admitted), l.denied, l.lost, l.late, worst)
	for _, w := range []time.Duration{time.Millisecond, 10 * time.Millisecond, 100 * time.Millisecond, time.Second, 10 * time.Second} {
		if most := window.Most(l.admitted, limit, w); most.To <= l.now() {
			t.Logf("  worst of %5v: %v", w, most)
		}
	}
}

// caller is a connection that asks for one bucket, many commands in one write. For one goroutine at
// each end.
type caller struct {
	conn  net.Conn
	r     *bufio.Reader
	frame string
	l     *ledger
}

func (p *agentProc) dial() (*caller, error) {
	conn, err := net.DialTimeout("unix", p.socket, scriptPatience)
	if err != nil {
		return nil, err
	}
	return &caller{conn: conn, r: bufio.NewReader(conn)}, nil
}

// caller connects a client that writes what it sees into a ledger.
func (p *agentProc) caller(l *ledger) (*caller, error) {
	c, err := p.dial()
	if err == nil {
		c.frame, c.l = l.bucket.frame(), l
	}
	return c, err
}

// mustCall is caller for a test that cannot go on without.
func (p *agentProc) mustCall(t *testing.T, l *ledger) *caller {
	t.Helper()
	c, err := p.caller(l)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.conn.Close() })
	return c
}

// send writes n commands at once and returns the moment before.
func (c *caller) send(n int) (at time.Duration, err error) {
	at = c.l.now()
	_, err = io.WriteString(c.conn, strings.Repeat(c.frame, n))
	return at, err
}

// receive reads the answers to n commands that were sent at a moment.
func (c *caller) receive(at time.Duration, n int) (admitted int, err error) {
	var seen []window.Admission
	denied, others := 0, 0
	for range n {
		var reply throttleReply
		if reply, err = c.reply(); err != nil {
			break
		}
		switch {
		case c.l.other(at, reply.reason):
			others++
		case reply.denied:
			denied++
		default:
			seen = append(seen, window.Admission{Sent: at, Received: c.l.now(), Tokens: c.l.bucket.quantity})
		}
	}
	c.l.add(seen, denied, n-len(seen)-denied-others, 0)
	return len(seen), err
}

// ask sends n commands at once and reads the answers.
func (c *caller) ask(n int) (admitted int, err error) {
	at, err := c.send(n)
	if err != nil {
		return 0, err
	}
	return c.receive(at, n)
}

// throttleReply is the answer to a CL.THROTTLE, or to an SG.CHECK, whose times are in milliseconds.
type throttleReply struct {
	denied                         bool
	limit, remaining, retry, reset int64
	reason                         string // of SG.CHECK
}

func (c *caller) reply() (throttleReply, error) {
	if c.l.bucket.check != "" {
		return c.checkReply()
	}
	var v [6]int64 // the header counts as the first number
	for i := range v {
		line, err := c.r.ReadString('\n')
		if err != nil {
			return throttleReply{}, err
		}
		if v[i], err = strconv.ParseInt(strings.TrimSuffix(line[1:], "\r\n"), 10, 64); err != nil || line[0] != "*::::::"[i] {
			return throttleReply{}, fmt.Errorf("CL.THROTTLE is answered %q", line)
		}
	}
	return throttleReply{v[1] != 0, v[2], v[3], v[4], v[5], ""}, nil
}

// stream is a client that sends batches at a steady pace, whether or not the answers come.
type stream struct {
	agent *agentProc
	l     *ledger
	batch int
	every time.Duration
}

// ahead bounds the batches without an answer.
const ahead = 64

// run asks until ctx ends, over a new connection whenever one breaks, and then waits for the answers that are due. An error
// is one of the test, not of a connection.
func (s *stream) run(ctx context.Context) error {
	for ctx.Err() == nil {
		c, err := s.agent.caller(s.l)
		if err != nil { // it is not back yet
			time.Sleep(5 * time.Millisecond)
			continue
		}
		if err := s.over(ctx, c); err != nil && !broken(err) {
			return err
		}
	}
	return nil
}

// broken reports whether a connection ended as it does when the peer dies.
func broken(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) || errors.Is(err, net.ErrClosed)
}

// over is run on one connection.
func (s *stream) over(ctx context.Context, c *caller) error {
	defer c.conn.Close()
	sent := make(chan time.Duration, ahead)
	read := make(chan error, 1)
	go func() {
		var err error
		for at := range sent {
			if err != nil {
				s.l.add(nil, 0, s.batch, 0)
			} else if _, err = c.receive(at, s.batch); err != nil {
				c.conn.Close() // ends the writer
			}
		}
		read <- err
	}()
	var err error
	for next := time.Now(); ctx.Err() == nil && err == nil; next = later(next, s.every) {
		time.Sleep(time.Until(next))
		if len(sent) == cap(sent) {
			s.l.add(nil, 0, 0, s.batch)
			continue
		}
		var at time.Duration
		if at, err = c.send(s.batch); err == nil {
			sent <- at
		}
	}
	close(sent)
	c.conn.SetReadDeadline(time.Now().Add(scriptPatience))
	if readErr := <-read; readErr != nil {
		return readErr // the writer's follows from it
	}
	return err
}

// later is the next turn. Turns that were missed by much are not made up for: a burst would follow every pause.
func later(turn time.Time, every time.Duration) time.Time {
	turn = turn.Add(every)
	if missed := time.Since(turn); missed > 10*every {
		turn = turn.Add(missed)
	}
	return turn
}
