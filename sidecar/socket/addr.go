package socket

import (
	"fmt"
	"net"
	"strconv"
	"strings"
	"syscall"
)

const unixPrefix = "unix://"

// maxPath is the longest path that the system takes, without the final zero.
const maxPath = len(syscall.RawSockaddrUnix{}.Path) - 1

// Parse splits an address as users write it into what package net wants:
//
//	unix:///run/spillgate.sock   "unix", "/run/spillgate.sock"
//	unix://./spillgate.sock      "unix", "./spillgate.sock", from the working directory
//	127.0.0.1:7100               "tcp", "127.0.0.1:7100"
//	:7100                        "tcp", ":7100", all interfaces
func Parse(addr string) (network, address string, err error) {
	if path, ok := strings.CutPrefix(addr, unixPrefix); ok {
		return "unix", path, checkPath(addr, path)
	}
	host, port, err := net.SplitHostPort(addr)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	switch {
	case strings.HasPrefix(addr, "/") || strings.HasPrefix(addr, "."):
		return "", "", fmt.Errorf("socket: address %q: write %s%s for a Unix socket", addr, unixPrefix, addr)
	case err != nil || strings.Contains(host, "/"):
		return "", "", fmt.Errorf("socket: address %q: write host:port, :port, unix:///path or unix://./path", addr)
	}
	return "tcp", addr, nil
}

// checkPath refuses paths that would not name a file, or not the one that was meant.
func checkPath(addr, path string) error {
	switch {
	case !strings.HasPrefix(path, "/") && !strings.HasPrefix(path, "./") && !strings.HasPrefix(path, "../"):
		return fmt.Errorf("socket: address %q: write %s/absolute/path, or %s./path from the working directory",
			addr, unixPrefix, unixPrefix)
	case strings.HasSuffix(path, "/"):
		return fmt.Errorf("socket: address %q names a directory: add the socket's name", addr)
	case strings.ContainsRune(path, 0):
		return fmt.Errorf("socket: address %q: a path cannot hold a zero byte", addr)
	case len(path) > maxPath:
		return fmt.Errorf("socket: the path %s has %d bytes, the system takes at most %d: choose a shorter one",
			path, len(path), maxPath)
	}
	return nil
}
