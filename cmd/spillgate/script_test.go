package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/spillgate/spillgate/internal/redistest"
	"github.com/spillgate/spillgate/sidecar/socket"
)

var updateScripts = flag.Bool("scripts.update", false, "write what is printed now into the scripts; look at the difference")

// scriptPatience bounds every wait of a script. It only decides how soon a hopeless one gives up.
const scriptPatience = 2 * time.Minute

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"spillgate": main})
}

// TestScripts runs testdata/script. Its commands, beside testscript's own:
//
//	run CODE PROGRAM ARG...         run it, compare the exit code; output in the files out and err
//	start NAME PROGRAM ARG...       run it in the background; standard error in NAME.log
//	await NAME REGEXP               wait until NAME.log matches
//	signal NAME TERM|INT|HUP|KILL   send a signal
//	exits NAME CODE                 wait for the end; -1 is an end by a signal
//	get ADDR PATH STATUS REGEXP     HTTP GET until status and body match
//	follow ADDR PATH REGEXP         HTTP GET, and stay connected once the stream has begun with that
//	throttle ADDR KEY MAX COUNT PERIOD REPLY    CL.THROTTLE
//	stall ADDR                      send commands until the door can write no more replies
//	redis NAME PASSWORD             a Redis server; its place in NAME_URL and NAME_ADDR
//	cut NAME                        kill it
//	restart NAME                    start it again on the same port, empty
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		UpdateScripts:       *updateScripts,
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"run": runAndCompare, "start": startProgram, "await": awaitLog, "signal": sendSignal, "exits": awaitExit,
			"get": getHTTP, "follow": followHTTP, "throttle": throttle, "stall": stall, "redis": startRedis,
			"cut": cutRedis, "restart": restartRedis,
		},
		Setup: func(env *testscript.Env) error {
			env.Values[programsKey{}] = programs{}
			env.Values[serversKey{}] = servers{}
			return nil
		},
	})
}

// programsKey is where a script's environment holds its programs.
type programsKey struct{}

// programs are those that a script has started, by name.
type programs map[string]*program

type program struct {
	cmd   *exec.Cmd
	log   string // path
	ended chan struct{}
}

func (p programs) get(ts *testscript.TestScript, name string) *program {
	if p[name] == nil {
		ts.Fatalf("no program %s was started", name)
	}
	return p[name]
}

func need(ts *testscript.TestScript, neg bool, args []string, least int, usage string) {
	if neg || len(args) < least {
		ts.Fatalf("usage: %s", usage)
	}
}

// command prepares a program with the script's directory and environment.
func command(ts *testscript.TestScript, args []string) *exec.Cmd {
	path, err := exec.LookPath(args[0])
	ts.Check(err)
	cmd := exec.Command(path, args[1:]...)
	cmd.Dir = ts.MkAbs(".")
	for _, name := range []string{"PATH", "HOME", "TMPDIR", "XDG_RUNTIME_DIR", "GOCOVERDIR"} {
		if v := ts.Getenv(name); v != "" {
			cmd.Env = append(cmd.Env, name+"="+v)
		}
	}
	return cmd
}

func runAndCompare(ts *testscript.TestScript, neg bool, args []string) {
	need(ts, neg, args, 2, "run CODE PROGRAM ARG...")
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	cmd := command(ts, args[1:])
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	ts.Check(cmd.Start())
	giveUp := time.AfterFunc(scriptPatience, func() { cmd.Process.Kill() })
	err = cmd.Wait()
	giveUp.Stop()
	ts.Check(os.WriteFile(ts.MkAbs("out"), stdout.Bytes(), 0o600))
	ts.Check(os.WriteFile(ts.MkAbs("err"), stderr.Bytes(), 0o600))
	if got := cmd.ProcessState.ExitCode(); got != want {
		ts.Fatalf("exit code %d, want %d (%v)\n%s%s", got, want, err, &stdout, &stderr)
	}
}

func startProgram(ts *testscript.TestScript, neg bool, args []string) {
	need(ts, neg, args, 2, "start NAME PROGRAM ARG...")
	p := &program{cmd: command(ts, args[1:]), log: ts.MkAbs(args[0] + ".log"), ended: make(chan struct{})}
	log, err := os.Create(p.log)
	ts.Check(err)
	defer log.Close()
	p.cmd.Stderr = log
	ts.Check(p.cmd.Start())
	go func() {
		p.cmd.Wait()
		close(p.ended)
	}()
	ts.Value(programsKey{}).(programs)[args[0]] = p
	ts.Defer(func() {
		p.cmd.Process.Kill()
		<-p.ended
		ts.Logf("%s", p.tail())
	})
}

// tail is the end of the log, for failures.
func (p *program) tail() string {
	text, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	const most = 4 << 10
	return string(text[max(0, len(text)-most):])
}

// eventually calls f until it returns nil.
func eventually(ts *testscript.TestScript, f func() error) {
	for end := time.Now().Add(scriptPatience); ; time.Sleep(10 * time.Millisecond) {
		err := f()
		if err == nil {
			return
		}
		if time.Now().After(end) || errors.As(err, new(hopeless)) {
			ts.Fatalf("%v", err)
		}
	}
}

// hopeless ends eventually early.
type hopeless struct{ error }

func awaitLog(ts *testscript.TestScript, neg bool, args []string) {
	need(ts, neg, args, 2, "await NAME REGEXP")
	p := ts.Value(programsKey{}).(programs).get(ts, args[0])
	want, err := regexp.Compile(args[1])
	ts.Check(err)
	eventually(ts, func() error {
		ended := false
		select {
		case <-p.ended:
			ended = true
		default:
		}
		text := p.tail()
		switch {
		case want.MatchString(text):
			return nil
		case ended:
			return hopeless{fmt.Errorf("%s ended without %q:\n%s", args[0], args[1], text)}
		}
		return fmt.Errorf("%s did not log %q:\n%s", args[0], args[1], text)
	})
}

func sendSignal(ts *testscript.TestScript, neg bool, args []string) {
	need(ts, neg, args, 2, "signal NAME TERM|INT|HUP|KILL")
	signals := map[string]syscall.Signal{"TERM": syscall.SIGTERM, "INT": syscall.SIGINT, "HUP": syscall.SIGHUP, "KILL": syscall.SIGKILL}
	sig, ok := signals[args[1]]
	if !ok {
		ts.Fatalf("no signal %s", args[1])
	}
	ts.Check(ts.Value(programsKey{}).(programs).get(ts, args[0]).cmd.Process.Signal(sig))
}

func awaitExit(ts *testscript.TestScript, neg bool, args []string) {
	need(ts, neg, args, 2, "exits NAME CODE")
	p := ts.Value(programsKey{}).(programs).get(ts, args[0])
	select {
	case <-p.ended:
	case <-time.After(scriptPatience):
		ts.Fatalf("%s did not end", args[0])
	}
	if got := strconv.Itoa(p.cmd.ProcessState.ExitCode()); got != args[1] {
		ts.Fatalf("exit code %s, want %s (%v)", got, args[1], p.cmd.ProcessState)
	}
}

// dialer connects to an address of the product, relative to the script's directory.
func dialer(ts *testscript.TestScript, addr string) func(context.Context, string, string) (net.Conn, error) {
	network, address, err := socket.Parse(addr)
	ts.Check(err)
	if network == "unix" {
		address = ts.MkAbs(address)
	}
	return func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, address)
	}
}

func getHTTP(ts *testscript.TestScript, neg bool, args []string) {
	need(ts, neg, args, 4, "get ADDR PATH STATUS REGEXP")
	want, err := regexp.Compile(args[3])
	ts.Check(err)
	transport := &http.Transport{DialContext: dialer(ts, args[0])}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, Timeout: scriptPatience}
	eventually(ts, func() error {
		r, err := client.Get("http://admin" + args[1])
		if err != nil {
			return err
		}
		defer r.Body.Close()
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return err
		}
		if strconv.Itoa(r.StatusCode) != args[2] || !want.Match(body) {
			return fmt.Errorf("GET %s: %s, want %s with %q:\n%s", args[1], r.Status, args[2], args[3], body)
		}
		return nil
	})
}

func followHTTP(ts *testscript.TestScript, neg bool, args []string) {
	need(ts, neg, args, 3, "follow ADDR PATH REGEXP")
	want, err := regexp.Compile(args[2])
	ts.Check(err)
	transport := &http.Transport{DialContext: dialer(ts, args[0])}
	r, err := (&http.Client{Transport: transport}).Get("http://admin" + args[1])
	ts.Check(err)
	ts.Defer(func() {
		r.Body.Close()
		transport.CloseIdleConnections()
	})
	begun := make([]byte, 4<<10)
	n, err := r.Body.Read(begun)
	ts.Check(err)
	if !want.Match(begun[:n]) {
		ts.Fatalf("GET %s begins with %q, want %q", args[1], begun[:n], args[2])
	}
}

func throttle(ts *testscript.TestScript, neg bool, args []string) {
	need(ts, neg, args, 6, "throttle ADDR KEY MAX COUNT PERIOD REPLY")
	client := redis.NewClient(&redis.Options{Dialer: dialer(ts, args[0]), Protocol: 2})
	defer client.Close()
	reply, err := client.Do(context.Background(), "CL.THROTTLE", args[1], args[2], args[3], args[4]).Int64Slice()
	ts.Check(err)
	if got := strings.Trim(fmt.Sprint(reply), "[]"); got != args[5] {
		ts.Fatalf("CL.THROTTLE answers %s, want %s", got, args[5])
	}
}

func stall(ts *testscript.TestScript, neg bool, args []string) {
	need(ts, neg, args, 1, "stall ADDR")
	conn, err := dialer(ts, args[0])(context.Background(), "", "")
	ts.Check(err)
	ts.Defer(func() { conn.Close() })
	const size = 32 << 10
	echo := fmt.Sprintf("*2\r\n$4\r\nECHO\r\n$%d\r\n%s\r\n", size, strings.Repeat("x", size))
	for err == nil {
		conn.SetWriteDeadline(time.Now().Add(time.Second))
		_, err = io.WriteString(conn, echo)
	}
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		ts.Fatalf("the door took it ill: %v", err)
	}
}

func startRedis(ts *testscript.TestScript, neg bool, args []string) {
	need(ts, neg, args, 2, "redis NAME PASSWORD")
	srv, err := redistest.Launch(context.Background(), "", redistest.Config{Password: args[1]})
	ts.Check(err)
	ts.Defer(func() { srv.Close() })
	ts.Setenv(args[0]+"_URL", srv.URL())
	ts.Setenv(args[0]+"_ADDR", srv.Addr())
	ts.Value(serversKey{}).(servers)[args[0]] = srv
}

// serversKey is where a script's environment holds its servers.
type serversKey struct{}

// servers are those that a script has started, by name.
type servers map[string]*redistest.Server

func serverOf(ts *testscript.TestScript, neg bool, args []string, usage string) *redistest.Server {
	need(ts, neg, args, 1, usage)
	srv := ts.Value(serversKey{}).(servers)[args[0]]
	if srv == nil {
		ts.Fatalf("no server %s was started", args[0])
	}
	return srv
}

func cutRedis(ts *testscript.TestScript, neg bool, args []string) {
	ts.Check(serverOf(ts, neg, args, "cut NAME").Kill())
}

func restartRedis(ts *testscript.TestScript, neg bool, args []string) {
	ts.Check(serverOf(ts, neg, args, "restart NAME").Restart(context.Background()))
}
