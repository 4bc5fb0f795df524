package hotkeys

import (
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/spillgate/spillgate/limit"
)

var (
	compare = flag.Bool("compare", false, "print the table of docs/adr/0007-hot-keys.md; takes minutes")
	traces  = flag.String("traces", "", "directory of unpacked *.trace files, little-endian int32 ids, for -compare")
)

// A score is how near an algorithm came to the exact map, on average over some moments.
type score struct {
	recall    float64 // share of the exact top 100 that is in its top 100
	precision float64 // share of its top k that is in the exact top k
	off       float64 // mean relative error of the rates of the exact top 100
}

// judge feeds a stream to c and to the exact map, and compares them at moments evenly spread
// over the second half of the stream.
func judge(s stream, c counter, halfLife float64, moments int) score {
	truth := &exact{halfLife, map[limit.Sum]decayed{}}
	var total score
	for i, id := range s.ids {
		now, key := int64(i)*s.every, sumOf(id)
		c.touch(now, key, 1)
		truth.touch(now, key, 1)
		every := len(s.ids) / 2 / moments
		if left := len(s.ids) - 1 - i; left%every == 0 && left/every < moments {
			total = total.plus(scoreAt(c.top(now, 1<<20), truth.top(now, s.k), s.k), float64(moments))
		}
	}
	return total
}

func (s score) plus(o score, parts float64) score {
	return score{s.recall + o.recall/parts, s.precision + o.precision/parts, s.off + o.off/parts}
}

func scoreAt(got, want []Heavy, k int) score {
	rates, at := map[limit.Sum]float64{}, map[limit.Sum]int{}
	for i, h := range got {
		rates[h.Key], at[h.Key] = h.Rate, i
	}
	var s score
	hundred := min(100, len(want))
	for i, h := range want {
		place, ok := at[h.Key]
		if ok && place < k {
			s.precision += 1 / float64(len(want))
		}
		if i < hundred {
			if ok && place < hundred {
				s.recall += 1 / float64(hundred)
			}
			s.off += math.Abs(rates[h.Key]-h.Rate) / h.Rate / float64(hundred)
		}
	}
	return s
}

// TestCompare prints the measurements behind the choice of the algorithm.
func TestCompare(t *testing.T) {
	if !*compare {
		t.Skip("only with -args -compare")
	}
	const keys, n, busy, usual = 1 << 20, 4_000_000, 1000, 33_000 // ns between touches: 1 M/s, 30 k/s
	streams := []stream{
		zipfStream("zipf0.8", 0.8, keys, n, busy),
		zipfStream("zipf1.0", 1.0, keys, n, busy),
		zipfStream("zipf1.2", 1.2, keys, n, busy),
		zipfStream("zipf1.0, 30 k/s", 1.0, keys, n, usual),
		flashCrowd(keys, n, busy), flood(n, busy), drift(keys, n, busy),
	}
	for _, name := range []string{"web12", "orm-busy"} {
		if *traces != "" {
			s, err := readTrace(name, filepath.Join(*traces, name+".trace"), usual)
			if err != nil {
				t.Fatal(err)
			}
			streams = append(streams, s)
		}
	}
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	defer w.Flush()
	for _, s := range streams {
		for _, r := range rivals {
			start := time.Now()
			for c, i := r.make(1e9), 0; i < len(s.ids); i++ {
				c.touch(int64(i)*s.every, sumOf(s.ids[i]), 1)
			}
			cost := float64(time.Since(start)) / float64(len(s.ids))
			got := judge(s, r.make(1e9), 1e9, 4)
			fmt.Fprintf(w, "%s\t%s\trecall@100 %.3f\tprecision@%d %.3f\trates off %.2f %%\t%.0f ns\n",
				s.name, r.name, got.recall, s.k, got.precision, 100*got.off, cost)
		}
	}
}
