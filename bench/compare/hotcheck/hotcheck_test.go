package main

import (
	"bytes"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// BenchmarkHotCheck runs the rivals side by side; use -cpu 1,2.
func BenchmarkHotCheck(b *testing.B) {
	for _, keys := range []int{1000, 10_000, 100_000} {
		traffic := newTraffic(keys)
		for at, r := range rivals {
			b.Run(fmt.Sprintf("keys=%d/check=%s", keys, strings.ReplaceAll(r.name, "/", "-")), func(b *testing.B) {
				bench(b, traffic, at)
			})
		}
	}
}

func bench(b *testing.B, traffic *traffic, at int) {
	r, err := rivals[at].open()
	if err != nil {
		b.Fatal(err)
	}
	defer r.close()
	if _, err := loop(1, r, traffic, 300*time.Millisecond); err != nil { // the hot keys are found
		b.Fatal(err)
	}
	var callers, denied atomic.Int64
	b.ReportAllocs()
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		check, i := r.caller(), int(callers.Add(1)-1)*(streamLen/2)
		refused := int64(0)
		for pb.Next() {
			if !check(traffic.at(i)) {
				refused++
			}
			i++
		}
		denied.Add(refused)
	})
	if n := denied.Load(); n > 0 {
		b.Errorf("%d checks were denied under a limit that nobody reaches", n)
	}
}

// TestCompare runs the program for a moment.
func TestCompare(t *testing.T) {
	var out bytes.Buffer
	if err := compare(&out, "100", 1, 10*time.Millisecond, 10*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	for _, r := range rivals {
		if !strings.Contains(out.String(), "| "+r.name) {
			t.Errorf("no row of %s in\n%s", r.name, &out)
		}
	}
	for _, keys := range []string{"", "1", "x"} {
		if err := compare(&out, keys, 1, time.Millisecond, time.Millisecond); err == nil {
			t.Errorf("-keys %q: no error", keys)
		}
	}
}
