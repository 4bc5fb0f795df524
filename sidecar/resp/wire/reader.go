package wire

import (
	"io"
	"sync"
)

const (
	// MaxFrame is the size in bytes of the largest command, with its framing.
	MaxFrame = 64 << 10
	// MaxArgs is the most arguments of a command, its name included.
	MaxArgs = 1024

	// readSize is the buffer of a connection at rest. It holds about 90
	// CL.THROTTLE frames, so that a pipeline of 64 is one read and one batch;
	// half of it would make it two.
	readSize = 8 << 10
	// restArgs is the number of argument headers of a connection at rest:
	// six CL.THROTTLE commands.
	restArgs = 32

	maxEmptyReads = 100
)

// Memory for connections that just now need more than at rest. A connection
// holds one while a frame does not fit in readSize, the other while a batch has
// more than restArgs arguments, and gives both back at the next Fill.
var (
	bigBuffers = sync.Pool{New: func() any { return new([MaxFrame]byte) }}
	bigArgs    = sync.Pool{New: func() any { return new([MaxArgs][]byte) }}
)

// Reader reads commands from a connection, a batch at a time:
//
//	for {
//		if err := r.Fill(); err != nil {
//			return err
//		}
//		for {
//			args, err := r.Next()
//			if err != nil {
//				return err // a *ProtocolError: answer its Reply and close
//			}
//			if args == nil {
//				break // the batch is complete: decide it, flush the replies
//			}
//			...
//		}
//	}
//
// A batch is what one read from the connection brought, and at most MaxArgs
// arguments. A Reader is not safe for concurrent use.
type Reader struct {
	src    io.Reader
	srcErr error // from a Read that also brought bytes; for the next Fill

	// buf[head:tail] is what Next has not consumed. buf is rest or big[:].
	buf        []byte
	head, tail int
	rest       []byte
	big        *[MaxFrame]byte // nil while buf is rest

	// need is the number of bytes from head on before which parsing the frame at
	// head again would tell nothing new. Only the inside of a bulk is skipped: an
	// error shows with its first byte, however the frame is cut into reads.
	need int
	// full says that Next ended the batch for want of room in args: a command
	// may be left in buf.
	full bool

	// args collects the arguments of the batch: all commands of a batch must
	// stay valid together. Its array is restArgs or bigArgs.
	args     [][]byte
	restArgs [restArgs][]byte
	bigArgs  *[MaxArgs][]byte // nil while args is in restArgs

	err error // the protocol error that ended the stream
}

// touched makes a buffer whose pages are there already. Otherwise the first command of each
// of many new connections waits for the system to find memory, and a herd of them misses its deadlines.
func touched(size int) []byte {
	const page = 4 << 10
	b := make([]byte, size)
	for i := 0; i < size; i += page {
		b[i] = 0
	}
	return b
}

// NewReader returns a Reader of the commands that src sends.
func NewReader(src io.Reader) *Reader {
	r := &Reader{src: src, rest: touched(readSize)}
	r.buf = r.rest
	r.args = r.restArgs[:0]
	return r
}

// Fill ends the batch and starts the next one: all arguments that Next returned
// become invalid. It reads from the connection exactly once, unless commands of
// the last read are left because that batch was full; then it does not read.
//
// At the end of the stream it returns io.EOF, or io.ErrUnexpectedEOF within a
// frame; the errors of the connection are returned as they are. After an error
// that is a timeout Fill may be called again.
//
// Hot path: one read, 0 allocations.
func (r *Reader) Fill() error {
	r.resetArgs()
	if r.full {
		r.full = false
		return nil
	}
	r.makeRoom()
	if err := r.srcErr; err != nil {
		r.srcErr = nil
		return r.endError(err)
	}
	for range maxEmptyReads {
		n, err := r.src.Read(r.buf[r.tail:])
		r.tail += n
		if n > 0 {
			r.srcErr = err
			return nil
		}
		if err != nil {
			return r.endError(err)
		}
	}
	return io.ErrNoProgress
}

// Next returns the next command of the batch, never empty; or nil when no
// further complete command is in the buffer. Its arguments alias the buffer and
// stay valid, with those of the whole batch, until the next Fill; the caller
// must not write to them. An error is a *ProtocolError and final.
//
// Hot path: 0 allocations.
func (r *Reader) Next() (args [][]byte, err error) {
	for r.head < r.tail && r.tail-r.head >= r.need && r.err == nil {
		b := r.buf[r.head:r.tail]
		var size int
		if b[0] == '*' {
			args, size, r.err = r.array(b)
		} else {
			args, size, r.err = r.inline(b)
		}
		if size == 0 {
			break // incomplete, no room in args, or an error
		}
		r.head += size
		r.need = 0
		if len(args) > 0 {
			return args, nil
		}
	}
	return nil, r.err
}

// Buffered is the number of bytes read but not consumed. After Next returned
// nil in a batch that was not full they are the beginning of a frame; a door
// can give a peer less patience in the middle of a frame than between two.
func (r *Reader) Buffered() int { return r.tail - r.head }

// array parses the frame b, which starts with '*'. A size of zero without an
// error means that the batch ends before this frame.
func (r *Reader) array(b []byte) (args [][]byte, size int, err error) {
	count, pos, err := parseCount(b)
	if err != nil || pos == 0 || count == 0 {
		return nil, pos, err
	}
	if !r.reserveArgs(count) {
		return nil, 0, nil
	}
	taken := len(r.args)
	all, size, need, err := parseBulks(b, pos, count, r.args)
	r.args = all // what an incomplete frame left there has to be cleared, too
	if size == 0 {
		r.need = need
		return nil, 0, err
	}
	return all[taken:len(all):len(all)], size, nil
}

// inline parses the line b. A size of zero without an error means that the
// batch ends before this line.
func (r *Reader) inline(b []byte) (args [][]byte, size int, err error) {
	line, size, err := inlineLine(b)
	if err != nil || size == 0 {
		return nil, 0, err
	}
	// Splitting changes the line, so it cannot be tried and repeated.
	if !r.reserveArgs(maxInline(line)) {
		return nil, 0, nil
	}
	taken := len(r.args)
	all, err := splitInline(line, r.args)
	r.args = all
	if err != nil {
		return nil, 0, err
	}
	return all[taken:len(all):len(all)], size, nil
}

// reserveArgs makes room for n <= MaxArgs more arguments, or marks the batch as
// full.
func (r *Reader) reserveArgs(n int) bool {
	if cap(r.args)-len(r.args) >= n {
		return true
	}
	if r.bigArgs == nil {
		// The commands so far keep their headers in restArgs.
		r.bigArgs = bigArgs.Get().(*[MaxArgs][]byte)
		r.args = r.bigArgs[:0]
		return true
	}
	r.full = true
	return false
}

// resetArgs forgets the arguments of the batch. The array that goes back to the
// pool is cleared, or it would keep the buffers of gone connections alive.
func (r *Reader) resetArgs() {
	if r.bigArgs != nil {
		clear(r.args)
		bigArgs.Put(r.bigArgs)
		r.bigArgs = nil
	}
	r.args = r.restArgs[:0]
}

// makeRoom moves the beginning of a frame to the start of a buffer that has room
// for more of it: to the big one when the small one is full of it, and back as
// soon as it fits. An incomplete frame is shorter than MaxFrame (longer ones are
// errors), so there is always room after it.
func (r *Reader) makeRoom() {
	left := r.buf[r.head:r.tail]
	switch {
	case r.big == nil && len(left) == len(r.rest):
		r.big = bigBuffers.Get().(*[MaxFrame]byte)
		r.buf = r.big[:]
		copy(r.buf, left)
	case r.big != nil && len(left) < len(r.rest) && r.need <= len(r.rest):
		r.buf = r.rest
		copy(r.buf, left)
		clear(r.restArgs[:]) // they alias big
		bigBuffers.Put(r.big)
		r.big = nil
	case r.head > 0:
		copy(r.buf, left)
	}
	r.head, r.tail = 0, len(left)
}

// endError is what Fill returns for the error err of the connection.
func (r *Reader) endError(err error) error {
	if err == io.EOF && r.tail > r.head {
		return io.ErrUnexpectedEOF
	}
	return err
}
