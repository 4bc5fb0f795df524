package main

import (
	"bytes"
	"fmt"
	"io"
	"net"

	"github.com/spillgate/spillgate/sidecar/resp/wire"
	"github.com/tidwall/redcon"
)

// The answer of all servers to CL.THROTTLE: admitted, limit, remaining, retry,
// seconds to full.
var reply = [5]int64{0, 101, 100, -1, 1}

// servers are the ways to serve a Unix socket at path that are compared.
var servers = map[string]func(path string) error{
	"redcon":   serveRedcon,
	"wire":     func(path string) error { return serveEach(path, wireLoop(wire.Socket)) },
	"wire-net": func(path string) error { return serveEach(path, wireLoop(asIs)) },
	"ceiling":  func(path string) error { return serveEach(path, ceilingLoop) },
}

func asIs(c net.Conn) io.ReadWriter { return c }

func serveRedcon(path string) error {
	return redcon.ListenAndServeNetwork("unix", path, func(conn redcon.Conn, cmd redcon.Command) {
		if string(cmd.Args[0]) != "CL.THROTTLE" {
			conn.WriteError("ERR unknown command")
			return
		}
		conn.WriteArray(len(reply))
		for _, n := range reply {
			conn.WriteInt64(n)
		}
	}, nil, nil)
}

// serveEach gives each connection its goroutine.
func serveEach(path string, serve func(net.Conn) error) error {
	ln, err := net.Listen("unix", path)
	if err != nil {
		return err
	}
	for {
		conn, err := ln.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer conn.Close()
			serve(conn)
		}()
	}
}

// wireLoop is the loop of a door on our reader and writer.
func wireLoop(transport func(net.Conn) io.ReadWriter) func(net.Conn) error {
	return func(conn net.Conn) error {
		rw := transport(conn)
		r, w := wire.NewReader(rw), wire.NewWriter(rw)
		for {
			if err := r.Fill(); err != nil {
				return err
			}
			for {
				args, err := r.Next()
				if err != nil {
					return err
				}
				if args == nil {
					break
				}
				if string(args[0]) != "CL.THROTTLE" {
					w.Error("ERR unknown command")
					continue
				}
				w.Array(len(reply))
				for _, n := range reply {
					w.Int(n)
				}
			}
			if err := w.Flush(); err != nil {
				return err
			}
		}
	}
}

// ceilingLoop neither parses nor formats: it counts bytes, since all frames of
// the benchmark have one size, and sends copies of one answer. No server of this
// shape can be faster, so where it stands the client or the kernel is the limit.
func ceilingLoop(conn net.Conn) error {
	var answer bytes.Buffer
	w := wire.NewWriter(&answer)
	w.Array(len(reply))
	for _, n := range reply {
		w.Int(n)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	size := answer.Len()

	rw := wire.Socket(conn)
	buf := make([]byte, 8<<10)
	answers := bytes.Repeat(answer.Bytes(), len(buf)/throttleFrame+2)
	for rest := 0; ; {
		n, err := rw.Read(buf)
		if err != nil {
			return err
		}
		if bytes.HasPrefix(buf[:n], []byte("*3\r\n$6\r\nCONFIG")) {
			// What redis-benchmark asks first; it goes on without an answer.
			if _, err := fmt.Fprint(rw, "-ERR unknown command\r\n"); err != nil {
				return err
			}
			continue
		}
		rest += n
		if _, err := rw.Write(answers[:rest/throttleFrame*size]); err != nil {
			return err
		}
		rest %= throttleFrame
	}
}

// throttleFrame is the size of the frames that redis-benchmark makes of
// throttleCommand: __rand_int__ becomes twelve digits, as long as it is.
var throttleFrame = func() int {
	n := len(fmt.Sprintf("*%d\r\n", len(throttleCommand)))
	for _, arg := range throttleCommand {
		n += len(fmt.Sprintf("$%d\r\n%s\r\n", len(arg), arg))
	}
	return n
}()
