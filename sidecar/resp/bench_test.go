package resp_test

import (
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/spillgate/spillgate/sidecar/resp"
)

// loop is a connection in memory on which the same bytes arrive, as often as they are asked for.
type loop struct {
	net.Conn
	text string
	turn chan struct{} // a token for each time
	done chan int      // bytes of the reply
	left string
}

func newLoop(text string) *loop {
	return &loop{text: text, turn: make(chan struct{}), done: make(chan int)}
}

func (l *loop) Read(p []byte) (int, error) {
	if l.left == "" {
		if _, ok := <-l.turn; !ok {
			return 0, net.ErrClosed
		}
		l.left = l.text
	}
	n := copy(p, l.left)
	l.left = l.left[n:]
	return n, nil
}

// Write tells of the reply when all commands were read.
func (l *loop) Write(p []byte) (int, error) {
	if l.left == "" {
		l.done <- len(p)
	}
	return len(p), nil
}

func (l *loop) SetReadDeadline(time.Time) error  { return nil }
func (l *loop) SetWriteDeadline(time.Time) error { return nil }
func (l *loop) Close() error                     { return nil }

// onLoop runs a door with one connection. run lets the bytes arrive once and returns the size of the reply.
func onLoop(tb testing.TB, batched bool, text string) (run func() int) {
	d := onPipes(tb, batched, resp.Config{})
	l := newLoop(text)
	tb.Cleanup(func() { close(l.turn) })
	accept := newPipes()
	go d.Serve(accept)
	accept.conns <- l
	return func() int {
		l.turn <- struct{}{}
		return <-l.done
	}
}

// commands are what the loops send: few keys, so that all buckets are there after the first time.
func commands(depth int, command func(i int) []string) string {
	var b strings.Builder
	for i := range depth {
		b.WriteString(frame(command(i)...))
	}
	return b.String()
}

func throttle(i int) []string {
	return []string{"CL.THROTTLE", fmt.Sprintf("user:%012d", i), "100", "1000", "1"}
}

func sgCheck(i int) []string {
	return []string{"SG.CHECK", "api", "1", "route", "/v1/things", "user", fmt.Sprint(i)}
}

// TestAllocations: a connection allocates nothing for a check, from the read to the write.
func TestAllocations(t *testing.T) {
	for _, tt := range []struct {
		what string
		text string
	}{
		{"CL.THROTTLE, one", commands(1, throttle)},
		{"CL.THROTTLE, 64", commands(64, throttle)},
		{"CL.THROTTLE, denied", commands(64, func(int) []string { return []string{"CL.THROTTLE", "over", "0", "1", "3600"} })},
		{"SG.CHECK, one", commands(1, sgCheck)},
		{"SG.CHECK, 64", commands(64, sgCheck)},
		{"PING", commands(64, func(int) []string { return []string{"PING"} })},
	} {
		t.Run(tt.what, func(t *testing.T) {
			run := onLoop(t, false, tt.text)
			if got := testing.AllocsPerRun(100, func() { run() }); got > perBatch*float64(1+len(tt.text)/8192) {
				t.Errorf("%v allocations", got)
			}
		})
	}
}

// BenchmarkLoop is the way of a command through a connection, without the socket; the time is that of one command.
func BenchmarkLoop(b *testing.B) {
	for _, store := range []string{"memory", "instant"} {
		for _, command := range []struct {
			name string
			make func(int) []string
		}{{"CL.THROTTLE", throttle}, {"SG.CHECK", sgCheck}, {"PING", func(int) []string { return []string{"PING"} }}} {
			for _, depth := range []int{1, 64} {
				b.Run(fmt.Sprintf("store=%s/command=%s/depth=%d", store, command.name, depth), func(b *testing.B) {
					run := onLoop(b, store == "instant", commands(depth, command.make))
					run()
					b.ReportAllocs()
					b.ResetTimer()
					for i := 0; i < b.N; i += depth {
						run()
					}
				})
			}
		}
	}
}

// BenchmarkSocket is the same over a Unix socket, with the client's own work.
func BenchmarkSocket(b *testing.B) {
	for _, depth := range []int{1, 64} {
		b.Run(fmt.Sprintf("store=memory/command=CL.THROTTLE/depth=%d", depth), func(b *testing.B) {
			d, _ := onSocket(b, resp.Config{})
			c := d.client()
			defer c.Close()
			text := []byte(commands(depth, throttle))
			for i := 0; i < b.N; i += depth {
				if _, err := c.Write(text); err != nil {
					b.Fatal(err)
				}
				for range depth * 6 { // *5 and five integers
					if _, err := c.r.ReadSlice('\n'); err != nil {
						b.Fatal(err)
					}
				}
			}
		})
	}
}
