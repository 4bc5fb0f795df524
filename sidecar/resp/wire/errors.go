package wire

import "fmt"

// ProtocolError reports bytes that are not a command. It is final for its
// connection: the frame boundary is lost, so the door answers Reply and closes.
type ProtocolError struct {
	// Reason is the text Redis gives after "Protocol error: ", printable.
	Reason string
}

func (e *ProtocolError) Error() string { return "wire: protocol error: " + e.Reason }

// Reply is the error reply for the peer, word for word that of Redis.
func (e *ProtocolError) Reply() string { return "ERR Protocol error: " + e.Reason }

var (
	errArgCount    = &ProtocolError{"invalid multibulk length"}
	errBulkLen     = &ProtocolError{"invalid bulk length"}
	errCountLine   = &ProtocolError{"too big mbulk count string"}
	errBulkLine    = &ProtocolError{"too big bulk count string"}
	errInlineSize  = &ProtocolError{"too big inline request"}
	errInlineQuote = &ProtocolError{"unbalanced quotes in request"}

	// Redis skips the two bytes after a bulk unseen; a frame that ends in
	// anything but CRLF has a wrong length in it, and here it is refused.
	errBulkEnd = &ProtocolError{"expected CRLF after bulk"}
)

// errNotBulk is the error for an argument that starts with c instead of '$'.
// A byte that is not printable ASCII is escaped, so that the reply stays a line.
func errNotBulk(c byte) error {
	if c >= 0x80 {
		return &ProtocolError{fmt.Sprintf(`expected '$', got '\x%02x'`, c)}
	}
	return &ProtocolError{fmt.Sprintf("expected '$', got %q", rune(c))}
}
