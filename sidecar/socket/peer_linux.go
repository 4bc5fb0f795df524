package socket

import (
	"errors"
	"net"
	"syscall"
)

// canSeePeers says whether the system tells who is at the other end.
const canSeePeers = true

// peerOf asks the kernel who is at the other end.
func peerOf(conn net.Conn) (peer, error) {
	sc, ok := conn.(syscall.Conn)
	if !ok {
		return peer{}, errors.New("socket: the connection has no descriptor")
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return peer{}, err
	}
	var cred *syscall.Ucred
	var failed error
	err = raw.Control(func(fd uintptr) {
		cred, failed = syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED)
	})
	if err = errors.Join(err, failed); err != nil {
		return peer{}, err
	}
	return peer{uid: cred.Uid, pid: cred.Pid}, nil
}
