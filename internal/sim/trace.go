package sim

import (
	"fmt"
	"io"
	"time"
)

// trace is what happened, as one number, and as text if somebody reads it.
type trace struct {
	hash  uint64
	out   io.Writer
	keep  bool
	lines []string
}

const prime = 1099511628211 // of FNV-1a

func (t *trace) mix(x uint64) { t.hash = (t.hash ^ x) * prime }

// note takes down an event: what happened at which agent and bucket (nil: none in particular) with how many
// tokens, and the level of the cell or another number that belongs to it.
func (w *World) note(a *agent, b *bucket, what string, n, x int64) {
	t := &w.trace
	agent, bucket := -1, -1
	if a != nil {
		agent = a.id
	}
	if b != nil {
		bucket = b.index
	}
	t.mix(uint64(w.now))
	t.mix(uint64(agent)<<32 ^ uint64(uint32(bucket)))
	t.mix(uint64(n))
	t.mix(uint64(x))
	for i := range len(what) {
		t.mix(uint64(what[i]))
	}
	if t.out == nil && !t.keep {
		return
	}
	line := fmt.Sprintf("%14v  agent %2d  bucket %2d  %-14s %5d  %d", time.Duration(w.now), agent, bucket, what, n, x)
	if t.out != nil {
		fmt.Fprintln(t.out, line)
	}
	if t.keep {
		t.lines = append(t.lines, line)
	}
}
