package redistest

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strconv"
)

// Client ports come from [firstPort, firstPort+numPorts). The cluster bus of a
// server listens busOffset higher, so the two ranges do not meet, and both lie
// below 32768, where Linux begins to hand out ports to outgoing connections.
const (
	firstPort = 10000
	numPorts  = 10000
	busOffset = 10000
)

// portTries bounds the search for a port. Only a machine with thousands of
// listeners in our range fails that often.
const portTries = 100

// claimPort finds a port of ours that is free, with its bus port, and claims
// it until the claim is closed. A claim keeps out other users of this package
// in any process (see newClaim), also while our server is down between Kill and
// Restart. A stranger may still take the port between this probe and the
// server's own bind; the caller then tries again.
func claimPort() (int, io.Closer, error) {
	var last error
	for range portTries {
		port := firstPort + rand.IntN(numPorts)
		claim, err := newClaim(port)
		if err != nil {
			last = err
			continue
		}
		if err := errors.Join(probe(port), probe(port+busOffset)); err != nil {
			last = errors.Join(err, claim.Close())
			continue
		}
		return port, claim, nil
	}
	return 0, nil, fmt.Errorf("redistest: no free port in %d-%d after %d tries: %w",
		firstPort, firstPort+numPorts-1, portTries, last)
}

// probe reports whether somebody listens on a loopback port.
func probe(port int) error {
	ln, err := net.Listen("tcp", loopback(port))
	if err != nil {
		return err
	}
	return ln.Close()
}

func loopback(port int) string {
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
}
