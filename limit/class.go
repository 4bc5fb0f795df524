package limit

import (
	"math"
	"strconv"
	"time"
)

// Kind is the algorithm family of a time class, and its letter in key names.
type Kind byte

// KindBucket holds token buckets.
const KindBucket Kind = 'b'

// Class is a time class: the length of one generation of cells and the unit
// in which their times are counted. Cells of different rules share a class and so
// share hashes. Classes are comparable; the zero value is not a valid class.
type Class struct {
	// Kind separates the algorithms: their cells never share a hash.
	Kind Kind
	// Length of one generation, a whole number of microseconds.
	Length time.Duration
	// PerMicro is the number of ticks in a microsecond: 1000 * 2^k or, in long
	// classes, 2^k with k possibly negative. Finer ticks lose less of a rate
	// whose emission interval is no whole number of nanoseconds (docs/adr/0003).
	PerMicro float64
	// Window is the length of the windows in it; 0 for token buckets. Cells of different windows never share a hash.
	Window time.Duration
}

const (
	minLength = 4 * time.Second
	// MaxFill is the longest time that a bucket may take to fill from empty:
	// the length of the longest class, about 8.5 years.
	MaxFill = minLength << (2 * (bucketClasses - 1))

	bucketClasses = 14
	// stepsPerSpan is how many steps the recorded clock of a hash makes in one
	// generation; see Class.Step.
	stepsPerSpan = 4096
)

// classes of token buckets: 4 s, 16 s, 64 s ... MaxFill.
var classes = func() (all [bucketClasses]Class) {
	for i := range all {
		length := minLength << (2 * i)
		all[i] = Class{Kind: KindBucket, Length: length, PerMicro: ticksPerMicro(length)}
	}
	return all
}()

// ticksPerMicro is the finest unit with which two generations stay below MaxTicks.
func ticksPerMicro(length time.Duration) float64 {
	most := float64(MaxTicks) / (2 * float64(length.Microseconds()))
	if unit := math.Exp2(math.Floor(math.Log2(most / 1000))); unit >= 1 {
		return 1000 * unit
	}
	return math.Exp2(math.Floor(math.Log2(most)))
}

// BucketClass is the shortest class of token buckets whose generations last at least fill.
// ok is false when fill is beyond MaxFill.
func BucketClass(fill time.Duration) (c Class, ok bool) {
	for _, c := range classes {
		if fill <= c.Length {
			return c, true
		}
	}
	return Class{}, false
}

// String names the class as it stands in key names: kind and length, or window, such as
// "b4s" or "f1500ms".
func (c Class) String() string {
	length := c.Length
	if c.Window > 0 {
		length = c.Window
	}
	switch {
	case length%time.Second == 0:
		return string(c.Kind) + strconv.FormatInt(int64(length/time.Second), 10) + "s"
	case length%time.Millisecond == 0:
		return string(c.Kind) + strconv.FormatInt(length.Milliseconds(), 10) + "ms"
	}
	return string(c.Kind) + strconv.FormatInt(length.Microseconds(), 10) + "us"
}

// Span is the length of one generation in ticks.
func (c Class) Span() Ticks { return Ticks(float64(c.Length.Microseconds()) * c.PerMicro) }

// Step is how far a store's clock must have moved before a write records it
// again: a 4,096th of a generation, 1 ms in the shortest class. The recorded clock lags by
// less than a step; a TAT, being absolute, yields no token twice for that.
func (c Class) Step() Ticks { return (c.Span() + stepsPerSpan - 1) / stepsPerSpan }

// At places a server time, in nanoseconds since the Unix epoch, into the
// class: the number of its generation and the ticks since that began.
func (c Class) At(nanos int64) (generation int64, now Ticks) {
	length := int64(c.Length)
	generation = nanos / length
	if nanos%length < 0 {
		generation--
	}
	since := nanos - generation*length
	return generation, c.Ticks(since)
}

// Ticks converts up to a generation of nanoseconds, rounding down.
func (c Class) Ticks(nanos int64) Ticks {
	num, den := c.perMicro()
	return Ticks(nanos * num / (1000 * den)) // the product is below 1000 * MaxTicks
}

// perMicro is PerMicro as a fraction of integers, so that conversions round once.
func (c Class) perMicro() (num, den int64) {
	if c.PerMicro >= 1 {
		return int64(c.PerMicro), 1
	}
	return 1, int64(1 / c.PerMicro)
}

// Duration converts ticks to nanoseconds, rounding up, so that a caller who
// waits for the result is never early. Negative ticks give 0.
func (c Class) Duration(t Ticks) time.Duration {
	if t <= 0 {
		return 0
	}
	num, den := c.perMicro()
	return time.Duration((int64(t)*1000*den + num - 1) / num)
}
