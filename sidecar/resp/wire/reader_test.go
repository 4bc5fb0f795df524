package wire

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"
)

// frame encodes a command as clients do.
func frame(args ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(args))
	for _, a := range args {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(a), a)
	}
	return b.String()
}

// throttle is the command this package is made for.
var throttle = frame("CL.THROTTLE", "user:000000000042", "100", "1000", "1")

// readAll reads src to its end. It copies the commands only when their batch is
// over, and so sees whether they stayed valid together.
func readAll(src io.Reader) (commands [][]string, err error) {
	r := NewReader(src)
	for {
		if err := r.Fill(); err != nil {
			if err == io.EOF || err == io.ErrUnexpectedEOF {
				err = nil
			}
			return commands, err
		}
		var batch [][][]byte
		for err == nil {
			var args [][]byte
			if args, err = r.Next(); args == nil {
				break
			}
			batch = append(batch, args)
		}
		for _, args := range batch {
			commands = append(commands, toStrings(args))
		}
		if err != nil {
			return commands, err
		}
	}
}

func toStrings(args [][]byte) []string {
	var s []string
	for _, a := range args {
		s = append(s, string(a))
	}
	return s
}

// reasonOf is the reason of a protocol error, and empty for none.
func reasonOf(t *testing.T, err error) string {
	t.Helper()
	if err == nil {
		return ""
	}
	var p *ProtocolError
	if !errors.As(err, &p) {
		t.Fatalf("error %v is not a *ProtocolError", err)
	}
	return p.Reason
}

// validInputs are sequences of complete frames.
var validInputs = []struct {
	name, in string
	want     [][]string
}{
	{"ping", frame("PING"), [][]string{{"PING"}}},
	{"throttle", throttle, [][]string{{"CL.THROTTLE", "user:000000000042", "100", "1000", "1"}}},
	{"pipeline", frame("a") + frame("b", "c") + frame("d"), [][]string{{"a"}, {"b", "c"}, {"d"}}},
	{"empty argument", frame("ECHO", ""), [][]string{{"ECHO", ""}}},
	{"any bytes", frame("ECHO", "\x00\xff\r\n*1\r\n$"), [][]string{{"ECHO", "\x00\xff\r\n*1\r\n$"}}},
	{"empty array", "*0\r\n" + frame("PING"), [][]string{{"PING"}}},
	{"null array", "*-1\r\n" + frame("PING"), [][]string{{"PING"}}},
	{"negative array", "*-9223372036854775808\r\n" + frame("PING"), [][]string{{"PING"}}},
	{"inline", "PING\r\n", [][]string{{"PING"}}},
	{"inline, bare LF", "PING\n", [][]string{{"PING"}}},
	{"inline, blank lines", "\r\n\n \t\r\nPING\r\n", [][]string{{"PING"}}},
	{"inline, blanks", "  ECHO \t x\v y\f\r\n", [][]string{{"ECHO", "x", "y"}}},
	{"inline, CR is a blank", "ECHO a\rb\r\r\n", [][]string{{"ECHO", "a", "b"}}},
	{"inline, quotes", `ECHO "a b" 'c d' "" ''` + "\r\n", [][]string{{"ECHO", "a b", "c d", "", ""}}},
	{"inline, escapes", `E "\n\r\t\b\a\\\"\x41\xfF\xg1\q" '\'\n'` + "\n", [][]string{{"E", "\n\r\t\b\a\\\"A\xffxg1q", `'\n`}}},
	{"inline, quote within", `ab"c d"` + "\n", [][]string{{"abc d"}}},
	{"inline, NUL", "a\x00b c\n", [][]string{{"a\x00b", "c"}}},
	{"mixed", "PING\r\n" + frame("PING") + "ECHO *1\r\n" + throttle, [][]string{{"PING"}, {"PING"}, {"ECHO", "*1"}, {"CL.THROTTLE", "user:000000000042", "100", "1000", "1"}}},
	{"most arguments", frame(strings.Split(strings.Repeat("k", MaxArgs), "")...), [][]string{strings.Split(strings.Repeat("k", MaxArgs), "")}},
}

func TestReaderCommands(t *testing.T) {
	for _, tt := range validInputs {
		t.Run(tt.name, func(t *testing.T) {
			got, err := readAll(strings.NewReader(tt.in))
			if err != nil || !reflect.DeepEqual(got, tt.want) {
				t.Errorf("got %q, %v; want %q", got, err, tt.want)
			}
		})
	}
}

// A frame of exactly MaxFrame passes.
func TestReaderLargestFrame(t *testing.T) {
	head := "*2\r\n$4\r\nECHO\r\n$65512\r\n"
	in := head + strings.Repeat("x", 65512) + "\r\n"
	if len(in) != MaxFrame {
		t.Fatalf("the frame has %d bytes, the test wants %d", len(in), MaxFrame)
	}
	got, err := readAll(strings.NewReader(throttle + in + "PING" + strings.Repeat(" ", MaxFrame-5) + "\n" + throttle))
	if err != nil || len(got) != 4 || len(got[1][1]) != 65512 || got[2][0] != "PING" {
		t.Errorf("got %d commands, %v", len(got), err)
	}
}

func TestReaderErrors(t *testing.T) {
	tests := []struct{ name, in, want string }{
		{"count not a number", "*x\r\n", "invalid multibulk length"},
		{"count empty", "*\r\n", "invalid multibulk length"},
		{"count plus", "*+1\r\n", "invalid multibulk length"},
		{"count blank", "* 1\r\n", "invalid multibulk length"},
		{"count leading zero", "*01\r\n", "invalid multibulk length"},
		{"count minus zero", "*-0\r\n", "invalid multibulk length"},
		{"count minus", "*-\r\n", "invalid multibulk length"},
		{"count with junk", "*1a\r\n", "invalid multibulk length"},
		{"count with NUL", "*1\x00\r\n", "invalid multibulk length"},
		{"count above the cap", "*1025\r\n", "invalid multibulk length"},
		{"count 100k", "*100000\r\n", "invalid multibulk length"},
		{"count 2^31", "*2147483648\r\n", "invalid multibulk length"},
		{"count 2^63", "*9223372036854775808\r\n", "invalid multibulk length"},
		{"count -2^63-1", "*-9223372036854775809\r\n", "invalid multibulk length"},
		{"count 2^64+1", "*18446744073709551617\r\n", "invalid multibulk length"},
		{"count without CR", "*1\n$4\r\nPING\r\n", "invalid multibulk length"},
		{"count, CR inside", "*1\r$4\r\n", "invalid multibulk length"},
		{"count without end", "*" + strings.Repeat("1", MaxFrame), "too big mbulk count string"},
		{"not a bulk", "*1\r\nx", "expected '$', got 'x'"},
		{"nested array", "*1\r\n*1\r\n", "expected '$', got '*'"},
		{"integer argument", "*2\r\n$1\r\nx\r\n:1\r\n", "expected '$', got ':'"},
		{"line end for a bulk", "*1\r\n\r\n", `expected '$', got '\r'`},
		{"NUL for a bulk", "*1\r\n\x00", `expected '$', got '\x00'`},
		{"high byte for a bulk", "*1\r\n\xff", `expected '$', got '\xff'`},
		{"bulk negative", "*1\r\n$-1\r\n", "invalid bulk length"},
		{"bulk -2^63", "*1\r\n$-9223372036854775808\r\n", "invalid bulk length"},
		{"bulk not a number", "*1\r\n$x\r\n", "invalid bulk length"},
		{"bulk empty length", "*1\r\n$\r\n", "invalid bulk length"},
		{"bulk plus", "*1\r\n$+4\r\nPING\r\n", "invalid bulk length"},
		{"bulk leading zero", "*1\r\n$04\r\nPING\r\n", "invalid bulk length"},
		{"bulk minus zero", "*1\r\n$-0\r\n\r\n", "invalid bulk length"},
		{"bulk 2^63", "*1\r\n$9223372036854775808\r\n", "invalid bulk length"},
		{"bulk 2^63-1", "*1\r\n$9223372036854775807\r\n", "invalid bulk length"},
		{"bulk 1 MB, no byte of it sent", "*2\r\n$4\r\nECHO\r\n$1048576\r\n", "invalid bulk length"},
		{"bulk one over the frame cap", "*2\r\n$4\r\nECHO\r\n$65513\r\n", "invalid bulk length"},
		{"bulk, no room for the rest", "*2\r\n$65517\r\n", "invalid bulk length"},
		{"bulk without end", "*1\r\n$" + strings.Repeat("1", MaxFrame), "too big bulk count string"},
		{"bulk longer than said", "*1\r\n$3\r\nPING\r\n", "expected CRLF after bulk"},
		{"bulk, LF only", "*1\r\n$4\r\nPING\n\n", "expected CRLF after bulk"},
		{"inline without end", strings.Repeat("x", MaxFrame), "too big inline request"},
		{"inline one over the cap", strings.Repeat(" ", MaxFrame) + "\n", "too big inline request"},
		{"inline, too many arguments", strings.Repeat("x ", MaxArgs+1) + "\n", "too big inline request"},
		{"inline, open quote", "ECHO \"a\r\n", "unbalanced quotes in request"},
		{"inline, open single quote", "ECHO 'a\\'\r\n", "unbalanced quotes in request"},
		{"inline, backslash at the end", "ECHO \"a\\\r\n", "unbalanced quotes in request"},
		{"inline, text after a quote", "ECHO \"a\"b\r\n", "unbalanced quotes in request"},
		{"inline, text after a single quote", "ECHO 'a'b\r\n", "unbalanced quotes in request"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for _, in := range []string{tt.in, tt.in + throttle} {
				commands, err := readAll(strings.NewReader(throttle + in))
				if got := reasonOf(t, err); got != tt.want || len(commands) != 1 {
					t.Errorf("%d commands, then %q; want 1, then %q", len(commands), got, tt.want)
				}
			}
			if len(tt.in) < 1000 {
				_, err := readAll(iotest.OneByteReader(strings.NewReader(tt.in)))
				if got := reasonOf(t, err); got != tt.want {
					t.Errorf("byte by byte: %q; want %q", got, tt.want)
				}
			}
		})
	}
}

func TestProtocolErrorIsFinal(t *testing.T) {
	r := NewReader(strings.NewReader("*x\r\n" + throttle))
	if err := r.Fill(); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		args, err := r.Next()
		var p *ProtocolError
		if args != nil || !errors.As(err, &p) || p.Reply() != "ERR Protocol error: invalid multibulk length" {
			t.Fatalf("got %q, %v", args, err)
		}
	}
}

// Every proper prefix of a frame asks for more: no command, no error.
func TestTruncatedPrefixes(t *testing.T) {
	frames := []string{
		frame("PING"), throttle, frame("ECHO", ""), frame("ECHO", "\r\n$1\r\n"), "*0\r\n", "*-1\r\n",
		"*-9223372036854775808\r\n", "PING\r\n", `ECHO "a b" 'c'` + "\r\n",
		frame("SG.CHECK", "api", "1", "route", "/pay", "user", strings.Repeat("u", 300)),
		frame("ECHO", strings.Repeat("x", 20<<10)),
	}
	for _, f := range frames {
		for i := range len(f) {
			r := NewReader(strings.NewReader(f[:i]))
			for {
				if err := r.Fill(); err == io.EOF && i == 0 || err == io.ErrUnexpectedEOF {
					break
				} else if err != nil {
					t.Fatalf("%.40q cut at %d: %v", f, i, err)
				}
				if args, err := r.Next(); args != nil || err != nil {
					t.Fatalf("%.40q cut at %d: %q, %v", f, i, args, err)
				}
			}
			if r.Buffered() != i {
				t.Fatalf("%.40q cut at %d: Buffered() = %d", f, i, r.Buffered())
			}
		}
	}
}

// chunks delivers in as pieces of n bytes.
type chunks struct {
	in string
	n  int
}

func (c *chunks) Read(p []byte) (int, error) {
	if c.in == "" {
		return 0, io.EOF
	}
	n := copy(p, c.in[:min(c.n, len(c.in))])
	c.in = c.in[n:]
	return n, nil
}

// The borders of the reads change nothing.
func TestReaderChunks(t *testing.T) {
	var in string
	var want [][]string
	for _, tt := range validInputs {
		in += tt.in
		want = append(want, tt.want...)
	}
	for _, n := range []int{1, 2, 3, 5, 7, 64, 1000, 4096, readSize - 1, readSize, 1 << 20} {
		got, err := readAll(&chunks{in, n})
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("in chunks of %d: %d commands, %v; want %d", n, len(got), err, len(want))
		}
	}
}

// A batch ends when its arguments do not fit; the next Fill goes on with what is
// left and does not read.
func TestFullBatch(t *testing.T) {
	const commands = 600 // of three arguments: more than one batch, less than one read
	src := &countingReader{src: strings.NewReader(strings.Repeat("a b c\n", commands))}
	r := NewReader(src)
	got, batches := 0, 0
	for src.reads < 2 {
		if err := r.Fill(); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		batches++
		args := 0
		for {
			a, err := r.Next()
			if err != nil {
				t.Fatal(err)
			}
			if a == nil {
				break
			}
			got++
			args += len(a)
		}
		if args > MaxArgs+restArgs {
			t.Errorf("a batch of %d arguments", args)
		}
	}
	if got != commands || batches != 2 || src.reads != 2 {
		t.Errorf("%d commands in %d batches of %d reads; want %d, 2, 2 (the second is EOF)", got, batches, src.reads, commands)
	}
}

type countingReader struct {
	src   io.Reader
	reads int
}

func (c *countingReader) Read(p []byte) (int, error) { c.reads++; return c.src.Read(p) }

// Appending to an argument must not reach into its neighbour.
func TestArgumentsAreCapped(t *testing.T) {
	r := NewReader(strings.NewReader(frame("a", "b") + "c d\n"))
	if err := r.Fill(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		args, err := r.Next()
		if err != nil || len(args) != 2 {
			t.Fatal(args, err)
		}
		if cap(args) != len(args) || cap(args[0]) != 1 {
			t.Errorf("caps: args %d, argument %d", cap(args), cap(args[0]))
		}
	}
}

// The memory of a connection follows what it holds: small at rest, one pooled
// buffer while a frame is larger than that, small again after.
func TestBufferGrowsAndShrinks(t *testing.T) {
	large := frame("ECHO", strings.Repeat("x", 40<<10))
	r := NewReader(&chunks{throttle + large + throttle + throttle[:10], len(throttle)})
	commands, grew := 0, false
	for {
		wasBig := r.big != nil
		err := r.Fill()
		if wasBig && r.big == nil && r.restArgs[0] != nil {
			t.Error("an argument keeps the big buffer alive")
		}
		if err != nil {
			break
		}
		for {
			args, err := r.Next()
			if err != nil {
				t.Fatal(err)
			}
			if args == nil {
				break
			}
			commands++
		}
		grew = grew || r.big != nil
		if want := commands == 0 || r.Buffered() < readSize && commands > 2; want && r.big != nil {
			t.Fatalf("after %d commands, with %d bytes in the buffer, the big buffer is in use", commands, r.Buffered())
		}
	}
	if commands != 3 || !grew || r.big != nil || r.bigArgs != nil || len(r.buf) != readSize {
		t.Errorf("%d commands, grew %v, buffer %d, big %v, bigArgs %v", commands, grew, len(r.buf), r.big != nil, r.bigArgs != nil)
	}
}

// Half a frame and silence: what a peer can make us hold is the buffer, however
// large the frame that it announces, and nothing of the batch.
func TestHalfFrameAndSilence(t *testing.T) {
	tests := []struct {
		name, in string
		buffer   int
	}{
		{"announced only", "*1024\r\n$50000\r\n", readSize},
		{"small part sent", "*1024\r\n" + strings.Repeat("$1\r\nx\r\n", 1000), readSize},
		{"large part sent", "*2\r\n$4\r\nECHO\r\n$60000\r\n" + strings.Repeat("x", 50000), MaxFrame},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := NewReader(strings.NewReader(tt.in))
			for r.Fill() == nil {
				if args, err := r.Next(); args != nil || err != nil {
					t.Fatal(args, err)
				}
			}
			if len(r.buf) != tt.buffer || r.bigArgs != nil || r.Buffered() != len(tt.in) {
				t.Errorf("buffer %d, want %d; bigArgs %v; %d of %d bytes", len(r.buf), tt.buffer, r.bigArgs != nil, r.Buffered(), len(tt.in))
			}
		})
	}
}

// A frame that comes in drops is not parsed anew at every drop.
func TestDripIsNotParsedPerByte(t *testing.T) {
	r := NewReader(iotest.OneByteReader(strings.NewReader(frame("ECHO", strings.Repeat("x", 5000)))))
	parses := 0
	for r.Fill() == nil {
		if r.Buffered() >= r.need {
			parses++
		}
		if _, err := r.Next(); err != nil {
			t.Fatal(err)
		}
	}
	if parses > 40 {
		t.Errorf("%d parses of one frame", parses)
	}
}

func TestFillErrors(t *testing.T) {
	boom := errors.New("boom")
	tests := []struct {
		name string
		src  io.Reader
		want error
	}{
		{"end", strings.NewReader(""), io.EOF},
		{"end after a command", strings.NewReader(throttle), io.EOF},
		{"end with the last bytes", iotest.DataErrReader(strings.NewReader(throttle)), io.EOF},
		{"end within a frame", strings.NewReader(throttle + "*1\r\n"), io.ErrUnexpectedEOF},
		{"end within a frame, with its bytes", iotest.DataErrReader(strings.NewReader("*1\r\n")), io.ErrUnexpectedEOF},
		{"error of the connection", io.MultiReader(strings.NewReader(throttle), iotest.ErrReader(boom)), boom},
		{"reads nothing", iotest.ErrReader(nil), io.ErrNoProgress},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := NewReader(tt.src)
			for {
				if err := r.Fill(); err != nil {
					if err != tt.want {
						t.Errorf("got %v, want %v", err, tt.want)
					}
					return
				}
				for {
					if args, err := r.Next(); err != nil {
						t.Fatal(err)
					} else if args == nil {
						break
					}
				}
			}
		})
	}
}

// A timeout in the middle of a frame loses nothing.
func TestFillAfterTimeout(t *testing.T) {
	cut := 20
	r := NewReader(io.MultiReader(
		strings.NewReader(throttle[:cut]), &onceError{err: os.ErrDeadlineExceeded}, strings.NewReader(throttle[cut:])))
	for _, want := range []error{nil, os.ErrDeadlineExceeded, nil} {
		if err := r.Fill(); err != want {
			t.Fatalf("Fill: %v, want %v", err, want)
		}
	}
	if args, err := r.Next(); err != nil || len(args) != 5 {
		t.Errorf("got %q, %v", args, err)
	}
}

// onceError fails once and is at its end then.
type onceError struct{ err error }

func (o *onceError) Read([]byte) (int, error) {
	err := o.err
	o.err = io.EOF
	return 0, err
}

// endless repeats in for ever, in reads of its length.
type endless struct{ in []byte }

func (e *endless) Read(p []byte) (int, error) {
	if len(p) < len(e.in) {
		panic(fmt.Sprintf("a read of %d bytes, want %d", len(p), len(e.in)))
	}
	return copy(p, e.in), nil
}

func pipelineOf(depth int) *endless { return &endless{bytes.Repeat([]byte(throttle), depth)} }

// readBatch reads one batch and returns the number of its commands.
func readBatch(r *Reader) int {
	if err := r.Fill(); err != nil {
		panic(err)
	}
	for n := 0; ; n++ {
		args, err := r.Next()
		if err != nil {
			panic(err)
		}
		if args == nil {
			return n
		}
	}
}

func TestReaderAllocs(t *testing.T) {
	for _, depth := range []int{1, 6, 64} {
		r := NewReader(pipelineOf(depth))
		allocs := testing.AllocsPerRun(1000, func() {
			if n := readBatch(r); n != depth {
				t.Fatalf("a batch of %d, want %d", n, depth)
			}
		})
		if allocs != 0 {
			t.Errorf("a pipeline of %d: %v allocations", depth, allocs)
		}
	}
}

// FuzzReader compares the Reader, fed in chunks, with the oracle on the whole.
func FuzzReader(f *testing.F) {
	for _, tt := range validInputs {
		if len(tt.in) < 4096 {
			f.Add([]byte(tt.in), uint16(3))
		}
	}
	f.Fuzz(func(t *testing.T, in []byte, chunk uint16) {
		want, wantReason := oracle(string(in))
		got, err := readAll(&chunks{string(in), int(chunk) + 1})
		if reason := reasonOf(t, err); reason != wantReason || !reflect.DeepEqual(got, want) {
			t.Errorf("in chunks of %d:\n got %q, %q\nwant %q, %q", int(chunk)+1, got, reason, want, wantReason)
		}
	})
}
