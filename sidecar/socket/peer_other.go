//go:build !linux

package socket

import (
	"errors"
	"net"
)

// canSeePeers says whether the system tells who is at the other end.
const canSeePeers = false

// peerOf is not for this system.
func peerOf(net.Conn) (peer, error) {
	return peer{}, errors.New("socket: no peer credentials on this system")
}
