package socket

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os/user"
	"runtime"
	"strconv"
	"syscall"
)

// ErrInUse reports that somebody serves on the address already.
var ErrInUse = errors.New("already in use")

// Options of a socket. The zero value is right for one user and one group. All but
// AllowUIDs and Logger are for Unix sockets; TCP has nothing of the kind.
type Options struct {
	// Mode of the socket file, exactly, whatever the umask. To connect takes the right to
	// write. Default 0660.
	Mode fs.FileMode
	// Group that the file gets, a name or a number; empty leaves it to the system. The process
	// must be in the group, or root.
	Group string
	// AllowUIDs are the users who may connect, as numbers; everyone else is closed at
	// once and logged. The list is complete: root and the agent's own user need to be
	// in it too. Empty leaves it to the mode. Linux only, Unix sockets only.
	AllowUIDs []uint32
	// Logger is told of peers that are turned away. Default slog.Default().
	Logger *slog.Logger
}

func (o *Options) ensureDefaults() {
	if o.Mode == 0 {
		o.Mode = 0o660
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
}

// validate names the field that cannot be.
func (o *Options) validate(network string) error {
	switch {
	case o.Mode&^fs.ModePerm != 0:
		return fmt.Errorf("socket: Options.Mode is %#o: want 0001 to 0777", uint32(o.Mode))
	case len(o.AllowUIDs) > 0 && !canSeePeers:
		return fmt.Errorf("socket: Options.AllowUIDs does not work on %s: leave it empty and use Mode and Group", runtime.GOOS)
	case len(o.AllowUIDs) > 0 && network != "unix":
		return errors.New("socket: Options.AllowUIDs is set, but a TCP peer has no user: use a Unix socket or leave it empty")
	}
	return nil
}

// gid is the number of Group, or -1, which changes nothing.
func (o *Options) gid() (int, error) {
	if o.Group == "" {
		return -1, nil
	}
	number := o.Group
	if _, err := strconv.ParseUint(number, 10, 31); err != nil {
		g, err := user.LookupGroup(o.Group)
		if err != nil {
			return 0, fmt.Errorf("socket: Options.Group is %q: %w", o.Group, err)
		}
		number = g.Gid
	}
	return strconv.Atoi(number)
}

// Listen opens the address, in one of the forms of Parse. The connections of the
// listener are those of package net, unwrapped. Close removes the socket file.
func Listen(addr string, o Options) (net.Listener, error) {
	o.ensureDefaults()
	network, address, err := Parse(addr)
	if err != nil {
		return nil, err
	}
	if err := o.validate(network); err != nil {
		return nil, err
	}
	if network == "tcp" {
		return listenTCP(address)
	}
	ln, err := listenUnix(address, &o)
	if err != nil {
		return nil, err
	}
	if len(o.AllowUIDs) == 0 {
		return ln, nil
	}
	return &peerListener{Listener: ln, allowed: o.AllowUIDs, log: o.Logger}, nil
}

func listenTCP(address string) (net.Listener, error) {
	ln, err := net.Listen("tcp", address)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("socket: %s is %w: stop the other process or choose another port", address, ErrInUse)
	case err != nil:
		return nil, fmt.Errorf("socket: %w", err)
	}
	return ln, nil
}
