package wire_test

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spillgate/spillgate/sidecar/resp/wire"
)

// The loop of one connection: read a batch, answer it, flush, until the peer
// goes away or sends something that is not a command.
func Example() {
	peer := struct {
		io.Reader
		io.Writer
	}{
		strings.NewReader("*2\r\n$4\r\nECHO\r\n$2\r\nhi\r\nPING\r\n*1\r\nPING\r\n"),
		visible{},
	}

	r, w := wire.NewReader(peer), wire.NewWriter(peer)
	serve := func() error {
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
				switch string(args[0]) { // does not allocate
				case "PING":
					w.Status("PONG")
				case "ECHO":
					w.Bulk(args[1])
				}
			}
			if err := w.Flush(); err != nil {
				return err
			}
		}
	}

	err := serve()
	var protocol *wire.ProtocolError
	if errors.As(err, &protocol) {
		w.Error(protocol.Reply()) // after the replies to what came before
		if err := w.Flush(); err != nil {
			fmt.Println(err)
		}
	}
	// Output: $2|hi|+PONG|-ERR Protocol error: expected '$', got 'P'|
}

// visible prints replies on one line.
type visible struct{}

func (visible) Write(p []byte) (int, error) {
	fmt.Print(strings.ReplaceAll(string(p), "\r\n", "|"))
	return len(p), nil
}
