package wire

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// socketPair returns the two ends of a connection on a Unix socket or on TCP.
func socketPair(t *testing.T, network string) (ours, peer net.Conn) {
	t.Helper()
	addr := "127.0.0.1:0"
	if network == "unix" {
		addr = filepath.Join(t.TempDir(), "s")
	}
	ln, err := net.Listen(network, addr)
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	if peer, err = net.Dial(network, ln.Addr().String()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { peer.Close() })
	if ours, err = ln.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ours.Close() })
	return ours, peer
}

func eachNetwork(t *testing.T, test func(t *testing.T, ours, peer net.Conn)) {
	for _, network := range []string{"unix", "tcp"} {
		t.Run(network, func(t *testing.T) {
			ours, peer := socketPair(t, network)
			test(t, ours, peer)
		})
	}
}

func TestSocketEcho(t *testing.T) {
	eachNetwork(t, func(t *testing.T, ours, peer net.Conn) {
		s := Socket(ours)
		go func() { // waits in Read, answers, sees the end
			io.Copy(s, s)
			ours.Close()
		}()
		for _, msg := range []string{"a", throttle} {
			time.Sleep(time.Millisecond) // let it wait
			if _, err := io.WriteString(peer, msg); err != nil {
				t.Fatal(err)
			}
			got := make([]byte, len(msg))
			if _, err := io.ReadFull(peer, got); err != nil || string(got) != msg {
				t.Fatalf("got %q, %v", got, err)
			}
		}
		if err := peer.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if rest, err := io.ReadAll(peer); err != nil || len(rest) != 0 {
			t.Errorf("after the end: %q, %v", rest, err)
		}
	})
}

// The bytes and the end of the stream may come together.
func TestSocketDataThenEnd(t *testing.T) {
	eachNetwork(t, func(t *testing.T, ours, peer net.Conn) {
		if _, err := io.WriteString(peer, throttle); err != nil {
			t.Fatal(err)
		}
		peer.Close()
		ours.SetReadDeadline(time.Now().Add(5 * time.Second))
		got, err := io.ReadAll(Socket(ours))
		if err != nil || string(got) != throttle {
			t.Errorf("got %q, %v", got, err)
		}
	})
}

// A peer that does not read makes Write wait; nothing is lost.
func TestSocketSlowPeer(t *testing.T) {
	eachNetwork(t, func(t *testing.T, ours, peer net.Conn) {
		want := bytes.Repeat([]byte("0123456789abcdef"), 1<<20/16*8)
		done := make(chan error, 1)
		go func() {
			n, err := Socket(ours).Write(want)
			if err == nil && n != len(want) {
				err = io.ErrShortWrite
			}
			ours.Close()
			done <- err
		}()
		time.Sleep(5 * time.Millisecond)
		got, err := io.ReadAll(peer)
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("got %d bytes, %v; want %d", len(got), err, len(want))
		}
		if err := <-done; err != nil {
			t.Errorf("Write: %v", err)
		}
	})
}

func TestSocketDeadlines(t *testing.T) {
	eachNetwork(t, func(t *testing.T, ours, peer net.Conn) {
		s := Socket(ours)
		ours.SetDeadline(time.Now().Add(10 * time.Millisecond))
		if n, err := s.Read(make([]byte, 10)); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("Read: %d, %v", n, err)
		}
		big := make([]byte, 64<<20)
		if n, err := s.Write(big); n == len(big) || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("Write: %d, %v", n, err)
		}
		ours.SetDeadline(time.Time{})
		go func() {
			time.Sleep(10 * time.Millisecond)
			ours.Close()
		}()
		if _, err := s.Read(make([]byte, 10)); !errors.Is(err, net.ErrClosed) {
			t.Errorf("Read on a closed connection: %v", err)
		}
	})
}

func TestSocketPeerGone(t *testing.T) {
	eachNetwork(t, func(t *testing.T, ours, peer net.Conn) {
		peer.Close()
		s := Socket(ours)
		for range 1000 { // TCP takes some writes before it knows
			if _, err := s.Write(make([]byte, 1000)); err != nil {
				var call *os.SyscallError
				if _, plain := s.(net.Conn); !plain && !errors.As(err, &call) {
					t.Errorf("Write: %v, want a *os.SyscallError", err)
				}
				return
			}
			time.Sleep(time.Millisecond)
		}
		t.Error("Write to a peer that is gone never fails")
	})
}

// A connection that is not a socket of the system is left alone.
func TestSocketOfOthers(t *testing.T) {
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	if Socket(a) != io.ReadWriter(a) {
		t.Error("net.Pipe got another way to read")
	}
	type wrapper struct{ *net.TCPConn }
	w := wrapper{}
	if Socket(w) != io.ReadWriter(w) {
		t.Error("a wrapper was bypassed")
	}
}

func TestSocketAllocs(t *testing.T) {
	ours, peer := socketPair(t, "unix")
	s := Socket(ours)
	r, w := NewReader(s), NewWriter(s)
	pipeline := pipelineOf(64).in
	replies := make([]byte, 64<<10)
	allocs := testing.AllocsPerRun(200, func() {
		if _, err := peer.Write(pipeline); err != nil {
			t.Fatal(err)
		}
		if n := readBatch(r); n != 64 {
			t.Fatalf("a batch of %d, want 64", n)
		}
		for range 64 {
			writeReply(w)
		}
		if err := w.Flush(); err != nil {
			t.Fatal(err)
		}
		if _, err := peer.Read(replies); err != nil {
			t.Fatal(err)
		}
	})
	if allocs != 0 {
		t.Errorf("a pipeline of 64 over a socket: %v allocations", allocs)
	}
}
