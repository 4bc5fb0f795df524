package wire

import "math"

// maxDigits is the length of the longest decimal without sign in an int64.
const maxDigits = 19

// ParseInt reads an argument as a decimal integer, as strictly as Redis does
// (string2ll): "-"? then digits without a leading zero, or "0" alone. No plus,
// no space, no "-0"; the range is all of int64, and ok is false outside it.
//
// Hot path: 0 allocations.
func ParseInt(b []byte) (n int64, ok bool) {
	digits := b
	negative := len(b) > 0 && b[0] == '-'
	if negative {
		digits = b[1:]
	}
	if len(digits) == 0 || len(digits) > maxDigits {
		return 0, false
	}
	if digits[0] == '0' {
		return 0, len(b) == 1 // neither "-0" nor "007"
	}

	// Nineteen nines fit in a uint64, so the sum cannot wrap.
	var u uint64
	for _, c := range digits {
		if c -= '0'; c > 9 {
			return 0, false
		}
		u = u*10 + uint64(c)
	}
	if negative {
		if u > -math.MinInt64 {
			return 0, false
		}
		return -int64(u), true // -int64(1<<63) is -1<<63
	}
	if u > math.MaxInt64 {
		return 0, false
	}
	return int64(u), true
}
