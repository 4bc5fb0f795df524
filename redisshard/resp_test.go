package redisshard

import (
	"bufio"
	"context"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"
)

// go-redis writes a line to standard error for every dial that fails, which is
// what many of these tests are about.
func init() { redis.SetLogger(silence{}) }

type silence struct{}

func (silence) Printf(context.Context, string, ...any) {}

// fakeServer speaks just enough RESP to misbehave in ways a real server
// cannot be made to. It counts the commands it has received.
type fakeServer struct {
	addr   string
	answer func(args []string) string // raw reply; "" keeps silent, "close" hangs up

	mu struct {
		sync.Mutex
		seen map[string]int // by command, lower case
	}
}

func startFake(t *testing.T, answer func(args []string) string) *fakeServer {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &fakeServer{addr: l.Addr().String(), answer: answer}
	f.mu.seen = make(map[string]int)
	var conns sync.WaitGroup
	t.Cleanup(func() { l.Close(); conns.Wait() })
	conns.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			stop := make(chan struct{})
			conns.Go(func() { f.serve(conn); close(stop) })
			conns.Go(func() {
				select {
				case <-stop:
				case <-t.Context().Done(): // just before the cleanups
				}
				conn.Close()
			})
		}
	})
	return f
}

func (f *fakeServer) serve(conn net.Conn) {
	in := bufio.NewReader(conn)
	for {
		args, err := readCommand(in)
		if err != nil {
			return
		}
		f.mu.Lock()
		f.mu.seen[strings.ToLower(args[0])]++
		f.mu.Unlock()
		reply := f.answer(args)
		if reply == "close" {
			return
		}
		if _, err := io.WriteString(conn, reply); err != nil {
			return
		}
	}
}

func (f *fakeServer) seen(command string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.mu.seen[command]
}

func readCommand(in *bufio.Reader) ([]string, error) {
	n, err := readLength(in, "*")
	if err != nil {
		return nil, err
	}
	args := make([]string, n)
	for i := range args {
		size, err := readLength(in, "$")
		if err != nil {
			return nil, err
		}
		text := make([]byte, size+2)
		if _, err := io.ReadFull(in, text); err != nil {
			return nil, err
		}
		args[i] = string(text[:size])
	}
	return args, nil
}

func readLength(in *bufio.Reader, sign string) (int, error) {
	line, err := in.ReadString('\n')
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(strings.TrimPrefix(line, sign)))
}

// bulk is a bulk string, list an array of bulk strings.
func bulk(text string) string { return "$" + strconv.Itoa(len(text)) + "\r\n" + text + "\r\n" }

func list(texts ...string) string {
	out := "*" + strconv.Itoa(len(texts)) + "\r\n"
	for _, text := range texts {
		out += bulk(text)
	}
	return out
}

// hello is the reply to HELLO of a server of this version and mode.
func hello(version, mode string) string {
	return list("server", "redis", "version", version, "mode", mode, "role", "master")
}
