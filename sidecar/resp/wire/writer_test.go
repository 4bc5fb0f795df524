package wire

import (
	"bytes"
	"errors"
	"io"
	"math"
	"strings"
	"testing"
)

func TestWriterReplies(t *testing.T) {
	tests := []struct {
		name         string
		add          func(w *Writer)
		resp2, resp3 string // resp3 is empty where it is the same
	}{
		{"nothing", func(w *Writer) {}, "", ""},
		{"status", func(w *Writer) { w.Status("PONG") }, "+PONG\r\n", ""},
		{"status with line ends", func(w *Writer) { w.Status("a\r\nb") }, "+a  b\r\n", ""},
		{"error", func(w *Writer) { w.Error("ERR no") }, "-ERR no\r\n", ""},
		{"error with line ends", func(w *Writer) { w.Error("ERR 'x\r\n+OK\r\n'") }, "-ERR 'x  +OK  '\r\n", ""},
		{"integers", func(w *Writer) {
			for _, n := range []int64{0, 9, 10, 99, 100, 12345, -1, math.MaxInt64, math.MinInt64} {
				w.Int(n)
			}
		}, ":0\r\n:9\r\n:10\r\n:99\r\n:100\r\n:12345\r\n:-1\r\n:9223372036854775807\r\n:-9223372036854775808\r\n", ""},
		{"bulk", func(w *Writer) { w.Bulk([]byte("a\r\n\x00\xff")) }, "$5\r\na\r\n\x00\xff\r\n", ""},
		{"empty bulk", func(w *Writer) { w.Bulk(nil); w.BulkString("") }, "$0\r\n\r\n$0\r\n\r\n", ""},
		{"bulk string", func(w *Writer) { w.BulkString("0123456789") }, "$10\r\n0123456789\r\n", ""},
		{"null", func(w *Writer) { w.Null() }, "$-1\r\n", "_\r\n"},
		{"array", func(w *Writer) { w.Array(2); w.Int(1); w.Array(0) }, "*2\r\n:1\r\n*0\r\n", ""},
		{"long array", func(w *Writer) { w.Array(1000) }, "*1000\r\n", ""},
		{"map", func(w *Writer) { w.Map(1); w.BulkString("k"); w.Int(7) }, "*2\r\n$1\r\nk\r\n:7\r\n", "%1\r\n$1\r\nk\r\n:7\r\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for _, resp3 := range []bool{false, true} {
				want := tt.resp2
				if resp3 && tt.resp3 != "" {
					want = tt.resp3
				}
				var out bytes.Buffer
				w := NewWriter(&out)
				w.SetRESP3(resp3)
				tt.add(w)
				if w.Buffered() != len(want) {
					t.Errorf("Buffered() = %d, want %d", w.Buffered(), len(want))
				}
				if err := w.Flush(); err != nil || out.String() != want || w.Buffered() != 0 {
					t.Errorf("RESP3 %v: got %q, %v; want %q", resp3, out.String(), err, want)
				}
			}
		})
	}
}

// writes records the sizes of the writes it gets and hands on.
type writes struct {
	sizes []int
	data  bytes.Buffer
}

func (w *writes) Write(p []byte) (int, error) {
	w.sizes = append(w.sizes, len(p))
	return w.data.Write(p)
}

// A batch of replies is one write; more than maxReplies is several of at most
// that size; and after the Flush the buffer is the small one again.
func TestWriterBuffer(t *testing.T) {
	const reply = ":1000000000000000\r\n" // 19 bytes
	for _, n := range []int{1, 200, 300, 3000, 100_000} {
		var dst writes
		w := NewWriter(&dst)
		for range n {
			w.Int(1e15)
			if w.Buffered() > maxReplies {
				t.Fatalf("%d bytes wait", w.Buffered())
			}
		}
		if err := w.Flush(); err != nil {
			t.Fatal(err)
		}
		if got := dst.data.String(); got != strings.Repeat(reply, n) {
			t.Errorf("%d replies: the bytes are wrong", n)
		}
		if most := n*len(reply)/(maxReplies-maxLine) + 1; len(dst.sizes) > most {
			t.Errorf("%d replies in %d writes, want at most %d", n, len(dst.sizes), most)
		}
		if w.big != nil || cap(w.buf) != replySize {
			t.Errorf("%d replies: the buffer has %d bytes after the Flush", n, cap(w.buf))
		}
	}
}

func TestWriterLargeValues(t *testing.T) {
	for _, n := range []int{replySize, maxReplies - 3, maxReplies - 2, maxReplies - 1, maxReplies, 3 * maxReplies} {
		value := strings.Repeat("v", n)
		var got, want bytes.Buffer
		w := NewWriter(&got)
		w.Int(1)
		w.Bulk([]byte(value))
		w.BulkString(value)
		w.Int(2)
		if w.Buffered() > maxReplies {
			t.Errorf("%d bytes wait", w.Buffered())
		}
		if err := w.Flush(); err != nil {
			t.Fatal(err)
		}
		bulk := frame(value)[len("*1\r\n"):]
		want.WriteString(":1\r\n" + bulk + bulk + ":2\r\n")
		if !bytes.Equal(got.Bytes(), want.Bytes()) {
			t.Errorf("a bulk of %d bytes: the output is wrong", n)
		}
	}
	var out bytes.Buffer
	w := NewWriter(&out)
	w.Error(strings.Repeat("e", 2*maxReplies))
	if err := w.Flush(); err != nil || out.Len() != maxReplies {
		t.Errorf("a long error: %d bytes, %v", out.Len(), err)
	}
}

type failingWriter struct {
	err   error
	short bool
	calls int
}

func (f *failingWriter) Write(p []byte) (int, error) {
	f.calls++
	if f.short {
		return len(p) - 1, nil
	}
	return 0, f.err
}

// The first error of the connection stays, and nothing is written after it.
func TestWriterErrors(t *testing.T) {
	boom := errors.New("boom")
	for _, tt := range []struct {
		dst  failingWriter
		want error
	}{
		{failingWriter{err: boom}, boom},
		{failingWriter{short: true}, io.ErrShortWrite},
	} {
		w := NewWriter(&tt.dst)
		for range 3 {
			w.Int(1)
			w.Bulk(make([]byte, 2*maxReplies))
			if err := w.Flush(); err != tt.want {
				t.Errorf("Flush: %v, want %v", err, tt.want)
			}
		}
		if tt.dst.calls != 1 || w.Buffered() != 0 {
			t.Errorf("%d writes, %d bytes wait", tt.dst.calls, w.Buffered())
		}
	}
}

// writeReply adds the answer to a CL.THROTTLE.
func writeReply(w *Writer) {
	w.Array(5)
	w.Int(0)
	w.Int(101)
	w.Int(100)
	w.Int(-1)
	w.Int(1)
}

func TestWriterAllocs(t *testing.T) {
	for _, depth := range []int{1, 64, 1000} {
		w := NewWriter(io.Discard)
		allocs := testing.AllocsPerRun(1000, func() {
			for range depth {
				writeReply(w)
			}
			if err := w.Flush(); err != nil {
				t.Fatal(err)
			}
		})
		if allocs != 0 {
			t.Errorf("%d replies: %v allocations", depth, allocs)
		}
	}
}
