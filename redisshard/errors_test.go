package redisshard

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillgate/spillgate/internal/redistest"
)

// obey answers HELLO and PING like a server, and any other command by the text of its last argument.
func obey(args []string) string {
	switch strings.ToLower(args[0]) {
	case "hello":
		return hello("7.0.15", "standalone")
	case "ping":
		return "+PONG\r\n"
	}
	return args[len(args)-1]
}

func mustConnect(t *testing.T, cfg Config) *nodes {
	t.Helper()
	if cfg.Timeout == 0 {
		cfg.Timeout = patience
	}
	n, err := connect(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return n
}

func clientOf(t *testing.T, n *nodes, key string) *redis.Client {
	t.Helper()
	client, err := n.master(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

const scriptSuffix = " script: 9a3c06cb5a0a0ed5d0e3a2fb8ab8c1a8d6ee3d5a, on @user_script:12."

func TestClassifyReplies(t *testing.T) {
	f := startFake(t, obey)
	client := clientOf(t, mustConnect(t, Config{URL: "redis://" + f.addr}), "")
	old := "ERR Error running script (call to f_9a3c06cb5a0a0ed5d0e3a2fb8ab8c1a8d6ee3d5a): @user_script:12: @user_script: 12: -"
	tests := []struct {
		reply string
		want  failure
	}{
		{"NOSCRIPT No matching script. Please use EVAL.", failure{verdict: verdictResend, kind: kindNoScript}},
		{"MOVED 1234 10.0.0.1:7001", failure{verdictResend, kindMoved, 1234, "10.0.0.1:7001"}},
		{"MOVED 1234 :7001", failure{verdictResend, kindMoved, 1234, ":7001"}},
		{"ASK 16383 ::1:7001", failure{verdictResend, kindAsk, 16383, "::1:7001"}},
		{"MOVED 16384 h:1", failure{verdict: verdictNotRun}},
		{"MOVED x h:1", failure{verdict: verdictNotRun}},
		{"MOVED 5", failure{verdict: verdictNotRun}},
		{"ASK", failure{verdict: verdictNotRun}},
		{"TRYAGAIN Multiple keys request during rehashing of slot", failure{verdict: verdictResend, kind: kindTryAgain}},
		{"READONLY You can't write against a read only replica.", failure{verdict: verdictResend, kind: kindReadOnly}},
		{"READONLY You can't write against a read only replica." + scriptSuffix, failure{verdict: verdictResend, kind: kindReadOnly}},
		{old + "READONLY You can't write against a read only replica.", failure{verdict: verdictResend, kind: kindReadOnly}},
		{"CLUSTERDOWN The cluster is down", failure{verdict: verdictResend, kind: kindClusterDown}},
		{"CLUSTERDOWN The cluster is down" + scriptSuffix, failure{}},
		{"LOADING Redis is loading the dataset in memory", failure{verdict: verdictResend, kind: kindLoading}},
		{"MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.", failure{verdict: verdictResend, kind: kindMasterDown}},
		{"OOM command not allowed when used memory > 'maxmemory'.", failure{verdict: verdictNotRun, kind: kindOOM}},
		{"OOM command not allowed when used memory > 'maxmemory'." + scriptSuffix, failure{verdict: verdictNotRun, kind: kindOOM}},
		{old + "OOM command not allowed when used memory > 'maxmemory'.", failure{verdict: verdictNotRun, kind: kindOOM}},
		{"MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist on disk.", failure{verdict: verdictNotRun, kind: kindMisconf}},
		{"NOREPLICAS Not enough good replicas to write.", failure{verdict: verdictNotRun, kind: kindNoReplicas}},
		{"BUSY Redis is busy running a script.", failure{verdict: verdictNotRun, kind: kindBusy}},
		{"NOAUTH Authentication required.", failure{verdict: verdictNotRun, kind: kindAuth}},
		{"WRONGPASS invalid username-password pair or user is disabled.", failure{verdict: verdictNotRun, kind: kindAuth}},
		{"NOPERM User x has no permissions to run the 'evalsha' command", failure{verdict: verdictNotRun, kind: kindNoPerm}},
		{"NOPERM No permissions to access a key" + scriptSuffix, failure{}},
		{"CROSSSLOT Keys in request don't hash to the same slot", failure{verdict: verdictNotRun, kind: kindCrossSlot}},
		{"ERR max number of clients reached", failure{verdict: verdictNotRun, kind: kindMaxClients}},
		{"WRONGTYPE Operation against a key holding the wrong kind of value", failure{}},
		{"WRONGTYPE Operation against a key holding the wrong kind of value" + scriptSuffix, failure{}},
		{"ERR user_script:1: attempt to index a nil value" + scriptSuffix, failure{}},
		{"ERR something READONLY ", failure{}},
		{"READONLYISH no", failure{}},
		{"UNKILLABLE Sorry the script already executed write commands", failure{}},
	}
	for _, test := range tests {
		err := client.Do(t.Context(), "evalsha", "-"+test.reply+"\r\n").Err()
		if err == nil || err.Error() != test.reply {
			t.Fatalf("the error came as %v, was sent as %s", err, test.reply)
		}
		if got := classify(err); got != test.want {
			t.Errorf("%s:\n got %+v\nwant %+v", test.reply, got, test.want)
		}
		if got := classify(fmt.Errorf("wrapped: %w", err)); got != test.want {
			t.Errorf("wrapped %s:\n got %+v\nwant %+v", test.reply, got, test.want)
		}
	}
}

func TestClassifyClientErrors(t *testing.T) {
	tests := []struct {
		err  error
		want failure
	}{
		{context.Canceled, failure{verdict: verdictNotRun, kind: kindContext}},
		{context.DeadlineExceeded, failure{verdict: verdictNotRun, kind: kindContext}},
		{fmt.Errorf("reading: %w", context.Canceled), failure{}},
		{redis.ErrPoolTimeout, failure{verdict: verdictNotRun, kind: kindPool}},
		{redis.ErrPoolExhausted, failure{verdict: verdictNotRun, kind: kindPool}},
		{redis.ErrClosed, failure{verdict: verdictNotRun, kind: kindClosed}},
		{&dialError{"h:1", io.EOF}, failure{verdict: verdictNotRun, kind: kindDial}},
		{&handshakeError{"h:1", io.EOF}, failure{verdict: verdictNotRun, kind: kindHandshake}},
		{io.EOF, failure{kind: kindBroken}},
		{io.ErrUnexpectedEOF, failure{kind: kindBroken}},
		{redis.Nil, failure{}},
		{errors.New("redis: can't parse"), failure{}},
	}
	for _, test := range tests {
		if got := classify(test.err); got != test.want {
			t.Errorf("%v: got %+v, want %+v", test.err, got, test.want)
		}
	}
}

func TestKindNames(t *testing.T) {
	if numKinds > 31 {
		t.Errorf("%d kinds do not fit the bits of a call", numKinds)
	}
	seen := make(map[string]bool)
	for k := range numKinds {
		if k.String() == "" || seen[k.String()] {
			t.Errorf("kind %d is called %q", k, k)
		}
		seen[k.String()] = true
	}
}

// TestSentOnceOrNever: whatever befalls a call, the server sees the command at most once,
// and not at all if the failure is said to prove that.
func TestSentOnceOrNever(t *testing.T) {
	tests := []struct {
		name    string
		hello   string // reply to HELLO, "" for a good one
		evalsha string
		want    failure
		seen    int
	}{
		{"silent after the command", "", "", failure{kind: kindTimeout}, 1},
		{"hangs up after the command", "", "close", failure{kind: kindBroken}, 1},
		{"half a reply", "", "$100\r\nabc", failure{kind: kindTimeout}, 1},
		{"no RESP", "", "hello there\r\n", failure{}, 1},
		{"silent after HELLO", "silent", "", failure{verdict: verdictNotRun, kind: kindHandshake}, 0},
		{"hangs up after HELLO", "close", "", failure{verdict: verdictNotRun, kind: kindHandshake}, 0},
		{"too many clients", "-ERR max number of clients reached\r\n", "+OK\r\n", failure{verdict: verdictNotRun, kind: kindMaxClients}, 0},
		{"wrong password", "-WRONGPASS invalid\r\n", "+OK\r\n", failure{verdict: verdictNotRun, kind: kindAuth}, 0},
		{"refuses HELLO otherwise", "-ERR no\r\n", "+OK\r\n", failure{verdict: verdictNotRun, kind: kindHandshake}, 0},
		{"READONLY", "", "-READONLY You can't write against a read only replica.\r\n", failure{verdict: verdictResend, kind: kindReadOnly}, 1},
		{"LOADING", "", "-LOADING Redis is loading\r\n", failure{verdict: verdictResend, kind: kindLoading}, 1},
		{"CLUSTERDOWN", "", "-CLUSTERDOWN Hash slot not served\r\n", failure{verdict: verdictResend, kind: kindClusterDown}, 1},
	}
	for _, test := range tests {
		for _, piped := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/pipeline=%v", test.name, piped), func(t *testing.T) {
				t.Parallel()
				f := startFake(t, func(args []string) string {
					switch strings.ToLower(args[0]) {
					case "hello":
						switch test.hello {
						case "":
							return hello("7.0.15", "standalone")
						case "silent":
							return ""
						}
						return test.hello
					case "asking":
						return "+OK\r\n"
					}
					return test.evalsha
				})
				timeout := patience
				if test.hello == "silent" || test.want.kind == kindTimeout {
					timeout = 3 * time.Second // it passes in full, for all of these at once; what comes before must come within it
				}
				n := &nodes{cfg: Config{Timeout: timeout}, addr: &address{network: "tcp", hosts: []string{f.addr}}, stop: func() {}}
				n.mu.peers = make(map[string]*peer)
				defer n.close()
				cmd := redis.NewCmd(t.Context(), "evalsha", "sha", "0")
				if piped {
					pipe := n.at(f.addr).Pipeline()
					pipe.Do(t.Context(), "asking")
					_ = pipe.Process(t.Context(), cmd)
					_, _ = pipe.Exec(t.Context())
				} else {
					_ = n.at(f.addr).Process(t.Context(), cmd)
				}
				if got := classify(cmd.Err()); got != test.want {
					t.Errorf("%v: got %+v, want %+v", cmd.Err(), got, test.want)
				}
				if got := f.seen("evalsha"); got != test.seen {
					t.Errorf("the server has seen the command %d times, want %d", got, test.seen)
				}
			})
		}
	}
}

// TestContextErrors: the end of the context is bare only while the call waits
// for a connection.
func TestContextErrors(t *testing.T) {
	release := make(chan struct{})
	f := startFake(t, func(args []string) string {
		switch args[0] {
		case "hang":
			return ""
		case "stay":
			<-release
			return "close"
		}
		return obey(args)
	})
	client := clientOf(t, mustConnect(t, Config{URL: "redis://" + f.addr}), "")
	call := func(command string, bound time.Duration) failure {
		ctx, cancel := context.WithTimeout(t.Context(), bound)
		defer cancel()
		return classify(client.Do(ctx, command).Err())
	}
	var got failure
	until(t, func() bool { got = call("hang", 30*time.Millisecond); return got.verdict != verdictNotRun }) // that was too short to send it
	if got.kind != kindTimeout || got.verdict != verdictUnknown {
		t.Errorf("while the reply is waited for: %+v", got)
	}
	if got := call("+OK\r\n", -1); got.kind != kindContext || got.verdict != verdictNotRun {
		t.Errorf("before the start: %+v", got)
	}
	var busy sync.WaitGroup
	for range poolSize {
		busy.Go(func() { _ = client.Do(t.Context(), "stay").Err() }) // the server hangs up
	}
	until(t, func() bool { return f.seen("stay") == poolSize })
	if got := call("+OK\r\n", 30*time.Millisecond); got.kind != kindContext || got.verdict != verdictNotRun {
		t.Errorf("while a connection is waited for: %+v", got)
	}
	close(release)
	busy.Wait()
	if n := f.seen("+ok\r\n"); n != 0 {
		t.Errorf("%d commands that were not sent have arrived", n)
	}
}

// TestRealRefusals holds the classification against what a real server says.
func TestRealRefusals(t *testing.T) {
	srv := redistest.Start(t, redistest.WithUser("narrow", "pw", "~*", "+@connection", "+evalsha", "+eval", "+set"))
	ctx := t.Context()
	admin := srv.Client()
	config := func(name, value string) {
		t.Helper()
		redistest.Must(t, admin.ConfigSet(ctx, name, value).Err())
	}
	client := clientOf(t, mustConnect(t, Config{URL: srv.URL()}), "")
	narrow := clientOf(t, mustConnect(t, Config{URL: strings.Replace(srv.URL(), "://", "://narrow:pw@", 1)}), "")
	const write = "redis.call('GET', KEYS[1]) return redis.call('SET', KEYS[1], ARGV[1])"
	expect := func(what string, err error, verdict verdict, kind kind) {
		t.Helper()
		if got := classify(err); err == nil || got.verdict != verdict || got.kind != kind {
			t.Errorf("%s: %v is %v %v, want %v %v", what, err, got.verdict, got.kind, verdict, kind)
		}
	}

	expect("unknown script", client.EvalSha(ctx, strings.Repeat("0", 40), []string{"k"}).Err(), verdictResend, kindNoScript)
	config("maxmemory", "1")
	expect("out of memory", client.Eval(ctx, write, []string{"k"}, "1").Err(), verdictNotRun, kindOOM)
	config("maxmemory", "0")
	config("min-replicas-to-write", "1")
	expect("too few replicas", client.Eval(ctx, write, []string{"k"}, "1").Err(), verdictNotRun, kindNoReplicas)
	config("min-replicas-to-write", "0")

	expect("not allowed", narrow.Do(ctx, "hset", "k", "f", "v").Err(), verdictNotRun, kindNoPerm)
	half := narrow.Eval(ctx, "redis.call('SET', KEYS[1], 'half') return redis.call('HSET', KEYS[2], 'f', 'v')", []string{"k", "h"}).Err()
	expect("not allowed in the middle of a script", half, verdictUnknown, kindOther)
	if got := admin.Get(ctx, "k").Val(); got != "half" {
		t.Errorf("the script was expected to end half-way, k is %q", got)
	}
	wrong := client.Eval(ctx, "redis.call('SET', KEYS[1], 'half') return redis.call('HSET', KEYS[1], 'f', 'v')", []string{"k"}).Err()
	expect("wrong type in the middle of a script", wrong, verdictUnknown, kindOther)

	config("lua-time-limit", "1")
	slow := make(chan error, 1)
	go func() { slow <- client.Eval(ctx, "while true do end", nil).Err() }()
	for tries := 0; ; tries++ {
		err := client.Ping(ctx).Err()
		if classify(err).kind == kindBusy {
			expect("busy", client.Eval(ctx, write, []string{"k"}, "1").Err(), verdictNotRun, kindBusy)
			break
		}
		if tries == 200 {
			t.Errorf("the server never said that it is busy; the last answer is %v", err)
			break
		}
		time.Sleep(5 * time.Millisecond)
	}
	redistest.Must(t, admin.ScriptKill(ctx).Err())
	expect("killed script", <-slow, verdictUnknown, kindOther)

	redistest.Must(t, admin.ReplicaOf(ctx, "127.0.0.1", "1").Err())
	expect("replica", client.Set(ctx, "k", "v", 0).Err(), verdictResend, kindReadOnly)
	expect("script on a replica", client.Eval(ctx, write, []string{"k"}, "1").Err(), verdictResend, kindReadOnly)
	config("replica-serve-stale-data", "no")
	expect("script on a replica that is cut off", client.Eval(ctx, write, []string{"k"}, "1").Err(), verdictResend, kindMasterDown)
}
