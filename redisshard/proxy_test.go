package redisshard

import (
	"bytes"
	"net"
	"sync"
	"testing"

	"github.com/spillgate/spillgate/internal/redistest"
)

// loss is what a proxy does to the next call of a script.
type loss int

const (
	lossNone    loss = iota
	lossHangUp       // the server gets the request; the connection ends instead of the reply
	lossSilence      // the server gets the request; the reply never comes
	lossRequest      // the server never gets the request
)

// proxy stands between a store and its server and loses what it is told to.
type proxy struct {
	addr, target string

	mu struct {
		sync.Mutex
		next loss
	}
}

func startProxy(t *testing.T, target string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	redistest.Must(t, err)
	p := &proxy{addr: l.Addr().String(), target: target}
	var conns sync.WaitGroup
	t.Cleanup(func() { l.Close(); conns.Wait() })
	conns.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			conns.Go(func() { p.serve(client, &conns) })
		}
	})
	return p
}

// lose arms the proxy, once.
func (p *proxy) lose(what loss) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.next = what
}

// take gives what is to be lost of a request, once.
func (p *proxy) take(request []byte) loss {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !bytes.Contains(request, []byte("evalsha")) && !bytes.Contains(request, []byte(pushScript)) {
		return lossNone
	}
	what := p.mu.next
	p.mu.next = lossNone
	return what
}

// serve relies on one request at a time on a connection, each small enough for one read.
func (p *proxy) serve(client net.Conn, conns *sync.WaitGroup) {
	defer client.Close()
	server, err := net.Dial("tcp", p.target)
	if err != nil {
		return
	}
	defer server.Close()
	var mu sync.Mutex
	pending := lossNone
	conns.Go(func() { // replies
		defer client.Close()
		buf := make([]byte, 64<<10)
		for {
			n, err := server.Read(buf)
			if err != nil {
				return
			}
			mu.Lock()
			lost := pending
			mu.Unlock()
			switch lost {
			case lossHangUp:
				return
			case lossNone:
				if _, err := client.Write(buf[:n]); err != nil {
					return
				}
			}
		}
	})
	buf := make([]byte, 64<<10)
	for {
		n, err := client.Read(buf)
		if err != nil {
			return
		}
		lost := p.take(buf[:n])
		mu.Lock()
		pending = lost
		mu.Unlock()
		if lost == lossRequest {
			return
		}
		if _, err := server.Write(buf[:n]); err != nil {
			return
		}
	}
}
