package sim

import "testing"

// TestDivided runs buckets that are divided and made whole again while dividers do their worst. No window may hold more than
// the whole bucket has.
func TestDivided(t *testing.T) {
	testSeeds(t, 5000, DrawDivided, func(c *Counts) []*int { return c.Divided.fields() })
}
