package lease

import (
	"sync"
	"sync/atomic"
	"testing"

	"pgregory.net/rapid"

	"github.com/spillgate/spillgate/limit"
)

// TestCreditsAgainstLists: a list of what is open and one of what is blocked, per bucket, say the same. Blocked tokens end
// together, when the last of them does.
func TestCreditsAgainstLists(t *testing.T) {
	const allowance = 10
	rapid.Check(t, func(t *rapid.T) {
		type blocked struct {
			n     limit.Tokens
			until int64
		}
		var c credits
		open, lost := map[limit.Sum][]limit.Tokens{}, map[limit.Sum][]blocked{}
		now := int64(0)
		sums := []limit.Sum{{Hi: 3}, {Hi: 19}, {Hi: 4}}
		sumOf := func(all []limit.Tokens) (n limit.Tokens) {
			for _, x := range all {
				n += x
			}
			return n
		}
		stillLost := func(sum limit.Sum) (n limit.Tokens) {
			last := int64(0)
			for _, b := range lost[sum] {
				n, last = n+b.n, max(last, b.until)
			}
			if now >= last {
				delete(lost, sum)
				return 0
			}
			return n
		}
		for range rapid.IntRange(1, 200).Draw(t, "events") {
			sum := rapid.SampledFrom(sums).Draw(t, "sum")
			switch rapid.IntRange(0, 4).Draw(t, "event") {
			case 0, 1:
				n := limit.Tokens(rapid.IntRange(1, allowance+1).Draw(t, "n"))
				want := sumOf(open[sum])+stillLost(sum)+n <= allowance
				if got := c.reserve(sum, n, allowance, now); got != want {
					t.Fatalf("reserve %d: %v; open %v, lost %v", n, got, open[sum], lost[sum])
				} else if got {
					open[sum] = append(open[sum], n)
				}
			case 2, 3:
				if len(open[sum]) == 0 {
					continue
				}
				n := open[sum][0]
				open[sum] = open[sum][1:]
				stillLost(sum)
				if rapid.Bool().Draw(t, "lost") {
					until := now + rapid.Int64Range(0, 50).Draw(t, "until")
					lost[sum] = append(lost[sum], blocked{n, until})
					c.block(sum, n, now, until)
				} else {
					c.heard(sum, n, now)
				}
			case 4:
				now += rapid.Int64Range(0, 40).Draw(t, "pass")
				if rapid.Bool().Draw(t, "sweep") {
					c.sweep(now)
					left := 0
					for _, sum := range sums {
						if len(open[sum]) > 0 || stillLost(sum) > 0 {
							left++
						}
					}
					if got := c.entries(); got != left {
						t.Fatalf("%d entries after a sweep, want %d", got, left)
					}
				}
			}
		}
		for _, sum := range sums {
			for _, n := range open[sum] {
				c.heard(sum, n, now)
			}
		}
		now += 1000
		if c.sweep(now); c.entries() != 0 {
			t.Fatalf("%d entries are left", c.entries())
		}
	})
}

// TestCreditsOfMany: never more than the allowance is open, whoever asks.
func TestCreditsOfMany(t *testing.T) {
	const allowance = 7
	var c credits
	var open atomic.Int64
	var wg sync.WaitGroup
	sum := limit.Sum{Hi: 5}
	for g := range 4 {
		wg.Go(func() {
			for i := range 5000 {
				n := limit.Tokens(1 + (i+g)%3)
				if !c.reserve(sum, n, allowance, int64(i)) {
					continue
				}
				if got := open.Add(int64(n)); got > allowance {
					t.Errorf("%d are open", got)
				}
				open.Add(-int64(n))
				if i%4 == 0 {
					c.block(sum, n, int64(i), int64(i)) // free at once
				} else {
					c.heard(sum, n, int64(i))
				}
				c.sweep(int64(i))
			}
		})
	}
	wg.Wait()
	if c.sweep(10_000); c.entries() != 0 {
		t.Errorf("%d entries are left", c.entries())
	}
}
