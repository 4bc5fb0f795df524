package redistest

import (
	"io"
	"net"
	"strconv"
)

// newClaim claims a port among all processes in this network namespace by
// listening on an abstract Unix socket that bears its number. The kernel drops
// the claim when the process dies, and there is no file to clean up.
func newClaim(port int) (io.Closer, error) {
	return net.Listen("unix", "@spillgate-redistest-"+strconv.Itoa(port))
}
