//go:build !linux

package redistest

import "io"

// newClaim claims nothing where there are no abstract sockets: two processes
// may then pick one port at the same moment, and the later server's failed bind
// makes Launch try another.
func newClaim(int) (io.Closer, error) { return noClaim{}, nil }

type noClaim struct{}

func (noClaim) Close() error { return nil }
