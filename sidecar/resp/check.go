package resp

import (
	"fmt"
	"time"
	"unsafe"

	"github.com/spillgate/spillgate/limit"
	"github.com/spillgate/spillgate/rules"
	"github.com/spillgate/spillgate/sidecar/resp/wire"
)

// checkHits is SG.CHECK domain hits key value [key value ...].
func checkHits(c *conn, args [][]byte) (n int, problem string) {
	hits, ok := wire.ParseInt(args[2])
	if !ok || hits < 0 || limit.Tokens(hits) > limit.MaxTokens {
		return 0, fmt.Sprintf("ERR hits: value is not an integer between 0 and %d", limit.MaxTokens)
	}
	if problem = c.describe(args[3:]); problem != "" {
		return 0, problem
	}
	return c.batch.Check(text(args[1]), c.descriptors, limit.Tokens(hits)), ""
}

// checkPeek is SG.PEEK domain key value [key value ...].
func checkPeek(c *conn, args [][]byte) (n int, problem string) {
	if problem = c.describe(args[2:]); problem != "" {
		return 0, problem
	}
	return c.batch.Check(text(args[1]), c.descriptors, 0), ""
}

// checkReset is SG.RESET domain key value [key value ...].
func checkReset(c *conn, args [][]byte) (n int, problem string) {
	if problem = c.describe(args[2:]); problem != "" {
		return 0, problem
	}
	return c.batch.Reset(text(args[1]), c.descriptors), ""
}

// describe makes the descriptor of a command's keys and values. It is valid as long as they are.
func (c *conn) describe(pairs [][]byte) (problem string) {
	if len(pairs)%2 != 0 {
		return "ERR the last key has no value"
	}
	c.descriptor = c.descriptor[:0]
	for i := 0; i < len(pairs); i += 2 {
		c.descriptor = append(c.descriptor, rules.Entry{Key: text(pairs[i]), Value: text(pairs[i+1])})
	}
	c.descriptors[0] = c.descriptor
	return ""
}

// text views bytes of the read buffer as a string, without a copy. The agent
// promises not to keep strings beyond the call that takes them.
func text(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// writeDecision is the reply of SG.CHECK and SG.PEEK.
func writeDecision(w *wire.Writer, d limit.Decision) {
	w.Array(7)
	w.Int(int64(b2i(d.Admitted)))
	w.Int(int64(d.Limit))
	w.Int(int64(d.Remaining))
	w.Int(roundUp(d.RetryAfter, time.Millisecond))
	w.Int(roundUp(d.ResetAfter, time.Millisecond))
	w.BulkString(d.Rule)
	w.BulkString(d.Reason.String())
}

// writeReset is the reply of SG.RESET: how many buckets were filled, 0 if no rule
// that counts applies.
func writeReset(w *wire.Writer, d limit.Decision) {
	w.Int(int64(b2i(d.Limit > 0)))
}
