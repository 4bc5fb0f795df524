package main

import (
	"fmt"
	"math/big"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/spillgate/spillgate/batcher"
	"github.com/spillgate/spillgate/dashboard"
	"github.com/spillgate/spillgate/internal/window"
	"github.com/spillgate/spillgate/limit"
	"github.com/spillgate/spillgate/memstore"
	"github.com/spillgate/spillgate/rules"
)

// windowDC is a data center that enforces a rule of a window kind on a store in memory.
type windowDC struct {
	rule    *rules.Rule
	portion limit.Tokens // of the limit, at least 1
	store   *memstore.Store
	name    limit.Bucket
	own     []window.Admission
}

// drawWindowDCs are the data centers of a rule, and the rule as it is written. Half of the limits are so low that a portion may be below 1.
func drawWindowDCs(t *rapid.T) (whole *rules.Rule, dcs []*windowDC) {
	algorithm := rapid.SampledFrom([]limit.Algorithm{limit.FixedWindow, limit.SlidingWindow, limit.SlidingLog}).Draw(t, "algorithm")
	requests := rapid.OneOf(rapid.IntRange(1, 4), rapid.IntRange(1, 60)).Draw(t, "requests")
	length := time.Millisecond * time.Duration(rapid.OneOf(rapid.SampledFrom([]int64{1e3, 60e3, 3600e3}), rapid.Int64Range(1, 1e7)).Draw(t, "length"))
	set, err := rules.Parse("drawn", fmt.Appendf(nil, `
domain: api
rules:
  - {name: r, match: [{key: k}], limit: {requests: %d, per: %v}, algorithm: %v}
`, requests, length, algorithm))
	if err != nil {
		t.Fatal(err)
	}
	headroom := float64(rapid.IntRange(0, 200).Draw(t, "headroom")) / 100
	weights := rapid.SliceOfN(rapid.IntRange(1, 10), 1, 6).Draw(t, "weights")
	all := 0
	for _, w := range weights {
		all += w
	}
	whole = set.Rule("api", "r")
	for _, w := range weights {
		share := float64(w) / float64(all)
		here, err := set.ForDatacenter(share, headroom)
		if err != nil {
			t.Fatal(err)
		}
		portion, err := limit.Portion(share, headroom)
		if err != nil {
			t.Fatal(err)
		}
		store, err := memstore.New(memstore.Config{})
		if err != nil {
			t.Fatal(err)
		}
		dc := &windowDC{rule: here.Rule("api", "r"), portion: portion.AtLeastOne(whole.Rate.Requests), store: store}
		secret, _ := store.Secret()
		secret.Name(&dc.name, []byte("bucket"))
		dcs = append(dcs, dc)
	}
	return whole, dcs
}

// ask asks for up to n tokens at a time since start, which is in microseconds since 1970.
func (dc *windowDC) ask(t *rapid.T, op limit.Op, n limit.Tokens, start int64, at time.Duration) {
	e := batcher.Entry{Bucket: dc.name, Terms: dc.rule.Terms, Op: op, N: n}
	dc.store.ApplyAt(start*1000+int64(at), &e)
	if e.Err != nil {
		t.Fatal(e.Err)
	}
	if e.Out.Granted > 0 {
		dc.own = append(dc.own, window.Admission{Sent: at, Received: at, Tokens: int64(e.Out.Granted)})
	}
}

// mostIn is the most that any window of that length has of the admissions.
func mostIn(all []window.Admission, length time.Duration) int64 {
	return window.Most(all, window.Limit{Per: 1}, length).Admitted
}

// within reports whether so many admissions are within the sum of the bounds that are printed, exactly, for a window of that length.
func within(admitted int64, bounds []*dashboard.Bound, length time.Duration) bool {
	sum := new(big.Rat)
	for _, b := range bounds {
		one := new(big.Rat).SetFloat64(b.PerSecond)
		one.Mul(one, big.NewRat(int64(length), int64(time.Second)))
		sum.Add(sum, one).Add(sum, big.NewRat(int64(b.Burst+b.Ahead), 1))
	}
	return big.NewRat(admitted, 1).Cmp(sum) <= 0
}

// TestDatacentersInWindows: of a random limit of a window kind, divided among data centers by random shares, each admits in a window of the written
// length its portion or 1, and all together are within what is printed of them, in windows of that length and of others. They are
// asked at the same moments, many of which lie around the edges of their windows.
func TestDatacentersInWindows(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		whole, dcs := drawWindowDCs(t)
		length := whole.Rate.Period
		lengths := []time.Duration{0, 1000, length - 1000, length, 2 * length, 3*length + 1000}
		edges := []time.Duration{length}
		var bounds []*dashboard.Bound
		for _, dc := range dcs {
			bounds = append(bounds, dashboard.BoundOf(dc.rule, 1))
			edges, lengths = append(edges, dc.rule.Rate.Period), append(lengths, dc.rule.Rate.Period)
		}
		start := rapid.Int64Range(0, 2e15).Draw(t, "start")
		now := time.Duration(0)
		for range rapid.IntRange(1, 60).Draw(t, "moments") {
			edge := rapid.SampledFrom(edges).Draw(t, "edge").Microseconds()
			move := rapid.OneOf(
				rapid.Int64Range(0, 3),
				rapid.Int64Range(0, edge/3),
				rapid.Int64Range(0, 3*edge),
				rapid.SampledFrom([]int64{edge, edge - 1, edge - (start+now.Microseconds())%edge, edge - (start+now.Microseconds())%edge - 1}),
			).Draw(t, "move")
			now += time.Duration(move) * time.Microsecond
			op := rapid.SampledFrom([]limit.Op{limit.TakePartial, limit.TakePartial, limit.Take}).Draw(t, "op")
			n := limit.Tokens(rapid.IntRange(1, int(whole.Rate.Requests)).Draw(t, "n"))
			for _, dc := range dcs {
				dc.ask(t, op, n, start, now)
			}
		}
		var all []window.Admission
		for i, dc := range dcs {
			all = append(all, dc.own...)
			if got := dc.inOne(length, start); got > int64(dc.portion) {
				t.Errorf("data center %d admits %d in one window of %v, its portion is %d", i, got, length, dc.portion)
			}
			for _, w := range lengths {
				if got := mostIn(dc.own, w); !within(got, bounds[i:i+1], w) {
					t.Errorf("data center %d admits %d in %v, at most %s", i, got, w, bounds[i].Text)
				}
			}
		}
		for _, w := range append(lengths, now) {
			if got := mostIn(all, w); !within(got, bounds, w) {
				t.Errorf("all admit %d in %v", got, w)
			}
		}
	})
}

// inOne is the most that was admitted in a window of the written length: an aligned one, or of a log any.
func (dc *windowDC) inOne(length time.Duration, start int64) (most int64) {
	if dc.rule.Rate.Algorithm == limit.SlidingLog {
		return mostIn(dc.own, length-1) // the one from t on ends before t + length
	}
	sums := make(map[int64]int64)
	for _, a := range dc.own {
		index := (start + a.Sent.Microseconds()) / length.Microseconds()
		sums[index] += a.Tokens
		most = max(most, sums[index])
	}
	return most
}
