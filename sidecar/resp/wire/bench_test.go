package wire

import (
	"fmt"
	"io"
	"testing"
)

// One operation is one command.
func BenchmarkReader(b *testing.B) {
	for _, depth := range []int{1, 64} {
		b.Run(fmt.Sprintf("cmd=CL.THROTTLE/depth=%d", depth), func(b *testing.B) {
			r := NewReader(pipelineOf(depth))
			b.ReportAllocs()
			b.SetBytes(int64(len(throttle)))
			for n := 0; n < b.N; {
				n += readBatch(r)
			}
		})
	}
}

// One operation is one reply of five integers.
func BenchmarkWriter(b *testing.B) {
	for _, depth := range []int{1, 64} {
		b.Run(fmt.Sprintf("reply=5ints/depth=%d", depth), func(b *testing.B) {
			w := NewWriter(io.Discard)
			b.ReportAllocs()
			for n := 0; n < b.N; {
				for range depth {
					writeReply(w)
				}
				if err := w.Flush(); err != nil {
					b.Fatal(err)
				}
				n += depth
			}
		})
	}
}

func BenchmarkParseInt(b *testing.B) {
	for _, s := range []string{"1", "1000", "-9223372036854775808"} {
		b.Run("in="+s, func(b *testing.B) {
			in := []byte(s)
			b.ReportAllocs()
			for b.Loop() {
				if _, ok := ParseInt(in); !ok {
					b.Fatal("not a number")
				}
			}
		})
	}
}
