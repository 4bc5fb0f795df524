package resp

import (
	"sync"
	"testing"

	"github.com/spillgate/spillgate/limit"
)

// TestTermsAreShared: connections that send the same numbers get the same terms, and a client that sends
// ever others fills no memory.
func TestTermsAreShared(t *testing.T) {
	var table termsTable
	var one, two termsCache
	for count := range int64(3 * maxTerms) {
		p := throttleParams{9, count + 1, 60}
		a, err := one.get(&table, p)
		if err != nil {
			t.Fatal(err)
		}
		if b, err := two.get(&table, p); err != nil || b != a || a.Burst != 10 {
			t.Fatalf("%+v: %p and %p, %v", p, a, b, err)
		}
		if again, err := one.get(&table, p); err != nil || again != a {
			t.Fatalf("%+v: %p and later %p, %v", p, a, again, err)
		}
	}
	if n := len(table.terms); n != maxTerms {
		t.Errorf("%d terms are kept, want %d", n, maxTerms)
	}
	for range 2 {
		if terms, err := one.get(&table, throttleParams{9, 0, 60}); err == nil || terms != nil {
			t.Errorf("bad numbers: %v, %v", terms, err)
		}
	}
}

// TestTermsCacheCollision: numbers that share a slot of the cache are told apart.
func TestTermsCacheCollision(t *testing.T) {
	var table termsTable
	var cache termsCache
	for range 2 {
		for _, p := range []throttleParams{{9, 8, 8}, {17, 8, 8}, {9, 16, 8}, {9, 8, 16}} {
			terms, err := cache.get(&table, p)
			if err != nil {
				t.Fatal(err)
			}
			want, _ := p.compile()
			if *terms != *want {
				t.Errorf("%+v: %+v, want %+v", p, terms, want)
			}
		}
	}
}

// TestTermsConcurrently is for the race detector.
func TestTermsConcurrently(t *testing.T) {
	var table termsTable
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			var cache termsCache
			for i := range int64(2000) {
				p := throttleParams{i % 100, 10, 60}
				if terms, err := cache.get(&table, p); err != nil || terms.Burst != limit.Tokens(p.maxBurst+1) {
					t.Errorf("%+v: %+v, %v", p, terms, err)
					return
				}
			}
		})
	}
	wg.Wait()
}
