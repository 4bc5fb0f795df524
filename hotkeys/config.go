package hotkeys

import (
	"errors"
	"fmt"
	"math"
	"time"
)

// ErrConfig is wrapped by every error of New and NewDistinct.
var ErrConfig = errors.New("hotkeys: bad configuration")

// The greatest values that a Config may have.
const (
	MaxTop      = 1 << 20
	MaxHalfLife = time.Hour
)

// Config says what a Tracker calls hot. Its zero value is the default.
type Config struct {
	// Top is K, the most keys that are hot at one time, 1 to MaxTop. Default 1000. Each
	// costs about 512 bytes here; more than 2000 no longer fit a processor's own cache
	// of 1 MB, and each touch takes longer.
	Top int

	// MinRate is the decayed rate, in tokens per second, at which a key becomes hot, 1e-6
	// to 2^32-1; below half of it the key is cold again. Default 5. Lower makes
	// more keys hot, whose leases may cost more calls than they save.
	MinRate float64

	// HalfLife is the time in which a touch loses half its weight, 1 ms to MaxHalfLife.
	// Default 1 s: a key of 50/s is hot after 0.14 s, and one that comes at random around
	// MinRate changes class some four times a minute. Longer makes such changes
	// rarer, and finds a new hot key, and forgets an old one, later.
	HalfLife time.Duration

	// Seed chooses the coin flips of admission. With one seed, the same touches
	// in the same order have the same outcome. Any value is good, 0 too.
	Seed uint64
}

func (c *Config) ensureDefaults() {
	if c.Top == 0 {
		c.Top = 1000
	}
	if c.MinRate == 0 {
		c.MinRate = 5
	}
	if c.HalfLife == 0 {
		c.HalfLife = time.Second
	}
}

func (c *Config) validate() error {
	switch {
	case c.Top < 1 || c.Top > MaxTop:
		return fmt.Errorf("%w: Top is %d, want 1 to %d", ErrConfig, c.Top, MaxTop)
	case !(c.MinRate >= 1e-6 && c.MinRate <= math.MaxUint32):
		return fmt.Errorf("%w: MinRate is %v tokens/s, want 1e-6 to %d", ErrConfig, c.MinRate, uint32(math.MaxUint32))
	case c.HalfLife < time.Millisecond || c.HalfLife > MaxHalfLife:
		return fmt.Errorf("%w: HalfLife is %v, want 1ms to %v", ErrConfig, c.HalfLife, MaxHalfLife)
	}
	return nil
}

// Class says whether a key is worth a lease of its own. The zero value is Cold.
type Class uint8

// The classes of a key.
const (
	// Cold: not known to be hot.
	Cold Class = iota
	// Hot: among the top K, and at MinRate when it became so.
	Hot
)

// String returns "cold" or "hot".
func (c Class) String() string {
	if c == Hot {
		return "hot"
	}
	return "cold"
}
