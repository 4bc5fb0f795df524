package wire

import (
	"io"
	"strconv"
	"strings"
)

const (
	// replySize is the reply buffer of a connection at rest: the answers to a
	// pipeline of 64 CL.THROTTLE commands take half of it.
	replySize = 4 << 10
	// maxReplies is the most bytes of replies that wait for a Flush.
	maxReplies = MaxFrame

	maxLine = 1 + maxDigits + 1 + 2 // a type byte, an int64, CRLF
)

// Writer collects replies and writes them to the connection at Flush. Replies
// above 64 KB are written early. Methods that add a reply do not fail: after an
// error of the connection they do nothing, and Flush tells it. A Writer is not
// safe for concurrent use.
type Writer struct {
	dst io.Writer
	err error

	buf   []byte // its array is rest or big
	rest  []byte
	big   *[maxReplies]byte // nil while buf is in rest
	resp3 bool
}

// NewWriter returns a Writer of RESP2 replies to dst.
func NewWriter(dst io.Writer) *Writer {
	w := &Writer{dst: dst, rest: touched(replySize)[:0]}
	w.buf = w.rest
	return w
}

// SetRESP3 switches to RESP3 and back; it changes Null and Map from here on.
func (w *Writer) SetRESP3(on bool) { w.resp3 = on }

// RESP3 says whether the replies are in RESP3.
func (w *Writer) RESP3() bool { return w.resp3 }

// Status adds a simple string such as OK or PONG. A line end in s becomes a blank.
func (w *Writer) Status(s string) { w.line('+', s) }

// Error adds an error reply. msg starts with its code in capitals, as in
// "ERR unknown command"; a line end in it becomes a blank.
func (w *Writer) Error(msg string) { w.line('-', msg) }

// Int adds an integer.
//
// Hot path: 0 allocations.
func (w *Writer) Int(n int64) {
	w.room(maxLine)
	if uint64(n) < 10 {
		w.buf = append(w.buf, ':', '0'+byte(n), '\r', '\n')
		return
	}
	w.buf = append(strconv.AppendInt(append(w.buf, ':'), n, 10), '\r', '\n')
}

// Bulk adds a string of any bytes.
func (w *Writer) Bulk(b []byte) {
	w.header('$', len(b))
	if len(b)+2 > maxReplies {
		w.Flush()
		w.write(b)
		b = nil
	}
	w.room(len(b) + 2)
	w.buf = append(append(w.buf, b...), '\r', '\n')
}

// BulkString is Bulk for a string.
func (w *Writer) BulkString(s string) {
	if len(s)+2 > maxReplies {
		w.Bulk([]byte(s))
		return
	}
	w.header('$', len(s))
	w.room(len(s) + 2)
	w.buf = append(append(w.buf, s...), '\r', '\n')
}

// Null adds the absence of a value.
func (w *Writer) Null() {
	w.room(maxLine)
	if w.resp3 {
		w.buf = append(w.buf, "_\r\n"...)
		return
	}
	w.buf = append(w.buf, "$-1\r\n"...)
}

// Array starts an array; its n elements are the next n replies.
//
// Hot path: 0 allocations.
func (w *Writer) Array(n int) { w.header('*', n) }

// Map starts a map of n pairs; its keys and values are the next 2n replies. In
// RESP2 it is the flat array of them.
func (w *Writer) Map(n int) {
	if w.resp3 {
		w.header('%', n)
		return
	}
	w.header('*', 2*n)
}

// Buffered is the number of bytes that wait for a Flush.
func (w *Writer) Buffered() int { return len(w.buf) }

// Flush writes what was added, in one write, and returns the first error that
// this connection gave. Without replies it does nothing.
//
// Hot path: one write, 0 allocations.
func (w *Writer) Flush() error {
	w.write(w.buf)
	if w.big != nil {
		bigBuffers.Put(w.big)
		w.big = nil
	}
	w.buf = w.rest
	return w.err
}

// write passes b to the connection unless that has failed.
func (w *Writer) write(b []byte) {
	if w.err != nil || len(b) == 0 {
		return
	}
	n, err := w.dst.Write(b)
	if err == nil && n < len(b) {
		err = io.ErrShortWrite
	}
	w.err = err
}

// room makes room for n <= maxReplies bytes.
func (w *Writer) room(n int) {
	if cap(w.buf)-len(w.buf) < n {
		w.makeRoom(n)
	}
}

// makeRoom takes a bigger buffer, or flushes when that is full too.
func (w *Writer) makeRoom(n int) {
	if w.big != nil || len(w.buf)+n > maxReplies {
		w.Flush()
	}
	if cap(w.buf)-len(w.buf) >= n {
		return
	}
	w.big = bigBuffers.Get().(*[maxReplies]byte)
	w.buf = append(w.big[:0], w.buf...)
}

// header adds a type byte and a length.
func (w *Writer) header(kind byte, n int) {
	w.room(maxLine)
	if uint(n) < 10 {
		w.buf = append(w.buf, kind, '0'+byte(n), '\r', '\n')
		return
	}
	w.buf = append(strconv.AppendInt(append(w.buf, kind), int64(n), 10), '\r', '\n')
}

// line adds a type byte and a text of one line. A text longer than the buffer
// allows is cut: lines are for messages, bulks are for data.
func (w *Writer) line(kind byte, s string) {
	s = s[:min(len(s), maxReplies-3)]
	if strings.ContainsAny(s, "\r\n") {
		s = lineEnds.Replace(s)
	}
	w.room(len(s) + 3)
	w.buf = append(append(append(w.buf, kind), s...), '\r', '\n')
}

var lineEnds = strings.NewReplacer("\r", " ", "\n", " ")
