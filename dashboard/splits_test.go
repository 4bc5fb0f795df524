package dashboard

import (
	"testing"
	"time"

	"github.com/spillgate/spillgate/agent/split"
	"github.com/spillgate/spillgate/limit"
)

// info is a divided bucket with so many entries on each part.
func info(id []byte, since time.Time, ops ...uint64) split.Info {
	i := split.Info{ID: id, Bucket: bucketOf(id), Ways: len(ops), Since: since}
	for k, n := range ops {
		i.Parts = append(i.Parts, split.PartInfo{Part: limit.Part{Index: k, Split: limit.Split{Start: since.UnixMicro(), Ways: len(ops)}},
			Ops: n, Remaining: limit.Tokens(10 * (k + 1))})
	}
	return i
}

func TestSpread(t *testing.T) {
	for _, tt := range []struct {
		ops  []uint64
		want float64
	}{
		{nil, 0}, {[]uint64{0, 0}, 0}, {[]uint64{7}, 1}, {[]uint64{5, 5}, 1}, {[]uint64{9, 3, 0}, 2.25}, {[]uint64{0, 8}, 2},
	} {
		var masters []Master
		for _, n := range tt.ops {
			masters = append(masters, Master{Ops: n})
		}
		if got := spread(masters); got != tt.want {
			t.Errorf("%v: %v, want %v", tt.ops, got, tt.want)
		}
	}
}

func TestRates(t *testing.T) {
	start := time.Unix(1_700_000_000, 0)
	id := idOf("", "k")
	r := rates{sample{at: start}, sample{at: start}}
	at := func(seconds float64) time.Time { return start.Add(time.Duration(seconds * float64(time.Second))) }
	for _, step := range []struct {
		story   string
		at      float64
		look    bool // and then take a sample
		since   float64
		ops     uint64
		seconds float64
		want    float64
	}{
		{"nothing was counted before", 0.5, true, 0, 100, 0.5, 200},
		{"the first look is not used yet", 1.5, true, 0, 400, 1.5, 400 / 1.5},
		{"now it is", 2.5, false, 0, 1100, 2, 500},
		{"more looks", 2.5, true, 0, 1100, 2, 500},
		{"a quiet second", 3.5, true, 0, 1100, 2, 350},
		{"and another", 4.5, true, 0, 1100, 2, 0},
		{"a new split of that bucket counts from 0", 5.5, true, 5, 60, 2, 30},
		{"fewer than before is no rate below 0", 7.5, true, 5, 50, 3, 50.0 / 3},
	} {
		i := info(id, at(step.since), step.ops/2, step.ops-step.ops/2)
		if got := r.perSecond(at(step.at), &i); round(got, 6) != round(step.want, 6) {
			t.Errorf("%s: %v, want %v", step.story, got, step.want)
		}
		if step.look {
			r.take(at(step.at), []split.Info{i})
		}
	}
	i := info(id, start, 1)
	if got := r.perSecond(at(0), &i); got != 0 {
		t.Errorf("before the looks: %v", got)
	}
}
