package lease

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/spillgate/spillgate/limit"
)

// TestPurse: whatever the stripes, a purse is a number of tokens. A claim of one finds the last of them; a larger one
// may miss what lies in several stripes, and only that.
func TestPurse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var p purse
		stripes := 1 << rapid.IntRange(0, 4).Draw(t, "stripes")
		left := limit.Tokens(rapid.OneOf(rapid.Int64Range(0, 200), rapid.Int64Range(0, 5000), rapid.Just(int64(limit.MaxTokens))).Draw(t, "tokens"))
		p.fill(left, stripes)
		if n := 1 + len(p.more); n > stripes || n > 1 && left < limit.Tokens(n)*leastPerStripe {
			t.Fatalf("%d stripes for %d tokens, at most %d are allowed", n, left, stripes)
		}
		for range rapid.IntRange(1, 50).Draw(t, "events") {
			at := uint(rapid.Uint64().Draw(t, "at"))
			n := limit.Tokens(rapid.OneOf(rapid.Just(int64(1)), rapid.Int64Range(1, 300), rapid.Just(int64(left))).Draw(t, "n"))
			switch rapid.IntRange(0, 3).Draw(t, "event") {
			case 0, 1:
				finds := p.has(n)
				told, ok := p.spend(n, at)
				if ok != finds {
					t.Fatalf("%d of %d: found %v, taken %v", n, left, finds, ok)
				}
				if ok {
					left -= n
					if len(p.more) == 0 && told != int64(left) {
						t.Fatalf("told that %d are left, want %d", told, left)
					}
					p.stripe(at).left.Add(int64(n % 2)) // some come back
					left += n % 2
				} else if left >= n && (n == 1 || len(p.more) == 0) {
					t.Fatalf("%d of %d were refused", n, left)
				}
			case 2:
				want := min(left, n)
				if got := p.drain(n); got != want {
					t.Fatalf("drained %d, want %d", got, want)
				}
				left -= want
			}
			if p.held() != left || p.isClosed() {
				t.Fatalf("%d are held, want %d; closed: %v", p.held(), left, p.isClosed())
			}
		}
		if got := p.close(); got != left || !p.isClosed() || p.held() != 0 || p.close() != 0 {
			t.Fatalf("closed with %d, want %d", got, left)
		}
		if _, ok := p.spend(1, 0); ok || p.drain(1) != 0 {
			t.Fatal("something came out of a closed purse")
		}
	})
}
