package limit

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// together is the most that two limits on one cell admit at one moment (docs/guarantees.md): the burst of the one that fills sooner, and of
// the other's what takes longer to fill. Where the other has the higher rate it is its burst alone.
func together(a, b *Terms) float64 {
	if a.Depth > b.Depth {
		a, b = b, a
	}
	if b.Emission <= a.Emission {
		return float64(b.Burst)
	}
	return float64(a.Burst) + float64(b.Depth-a.Depth)/float64(b.Emission)
}

// TestLoweredRate is the example of docs/rules.md: a bucket that is empty for the limit that was lowered has tokens for the new one, if that
// takes longer to fill.
func TestLoweredRate(t *testing.T) {
	old, lowered := mustTerms(t, 100, time.Second, 0), mustTerms(t, 20, time.Second, 40)
	var c cell
	now := int64(1_700_000_000e9)
	got := [2]Tokens{c.at(old, TakePartial, MaxTokens, now).Granted, c.at(lowered, TakePartial, MaxTokens, now).Granted}
	if got != [2]Tokens{100, 20} || together(old, lowered) != 120 || together(lowered, old) != 120 {
		t.Errorf("%v are admitted, and the bound is %v; want 100 and 20", got, together(old, lowered))
	}
}

// TestTogether: two limits of one class that take from one cell in any order stay, in every window, within what they may have at one moment and
// what the higher rate refills. In the books it is one bucket of that size, which never falls below zero.
func TestTogether(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		draw := func(name string) *Terms {
			terms, err := Rate{Requests: Tokens(rapid.IntRange(1, 200).Draw(t, name)), Period: time.Second,
				Burst: Tokens(rapid.IntRange(1, 400).Draw(t, name+" burst"))}.Terms()
			if err != nil {
				t.Fatal(err)
			}
			return terms
		}
		both := [2]*Terms{draw("a"), draw("b")}
		if both[0].Class != both[1].Class {
			t.Skip("cells of two classes")
		}
		fastest := float64(min(both[0].Emission, both[1].Emission))
		most := together(both[0], both[1])
		left, last := most, int64(1_700_000_000e9)
		var c cell
		for now := last; now < last+int64(10*time.Second); {
			terms := both[rapid.IntRange(0, 1).Draw(t, "whose")]
			op := rapid.SampledFrom([]Op{Take, TakePartial}).Draw(t, "op")
			left -= float64(c.at(terms, op, Tokens(rapid.IntRange(0, 100).Draw(t, "n")), now).Granted)
			if left < -1e-6 {
				t.Fatalf("%g tokens beyond %g are admitted", -left, most)
			}
			pause := int64(rapid.IntRange(1, 1e9).Draw(t, "pause"))
			left = min(most, left+float64(terms.Class.Ticks(pause)+1)/fastest)
			now += pause
		}
	})
}
