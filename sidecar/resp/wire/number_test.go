package wire

import (
	"math"
	"strconv"
	"testing"
)

func TestParseInt(t *testing.T) {
	tests := []struct {
		in   string
		want int64
		ok   bool
	}{
		{"0", 0, true},
		{"1", 1, true},
		{"-1", -1, true},
		{"10", 10, true},
		{"9223372036854775807", math.MaxInt64, true},
		{"-9223372036854775808", math.MinInt64, true},
		{"-9223372036854775807", -math.MaxInt64, true},
		{"999999999999999999", 999999999999999999, true},
		{"9223372036854775808", 0, false},
		{"-9223372036854775809", 0, false},
		{"9999999999999999999", 0, false},
		{"18446744073709551615", 0, false},
		{"18446744073709551617", 0, false},
		{"100000000000000000000000000", 0, false},
		{"", 0, false},
		{"-", 0, false},
		{"+1", 0, false},
		{"-0", 0, false},
		{"00", 0, false},
		{"01", 0, false},
		{"-01", 0, false},
		{"--1", 0, false},
		{" 1", 0, false},
		{"1 ", 0, false},
		{"1\x00", 0, false},
		{"1.0", 0, false},
		{"1e3", 0, false},
		{"0x1", 0, false},
		{"1_000", 0, false},
		{"/", 0, false},
		{":", 0, false},
		{"１", 0, false},
	}
	for _, tt := range tests {
		got, ok := ParseInt([]byte(tt.in))
		if ok != tt.ok || ok && got != tt.want {
			t.Errorf("ParseInt(%q) = %d, %v; want %d, %v", tt.in, got, ok, tt.want, tt.ok)
		}
	}
}

// FuzzParseInt holds that ParseInt reads exactly what strconv writes.
func FuzzParseInt(f *testing.F) {
	for _, s := range []string{"0", "-1", "-0", "+1", "007", "9223372036854775807", "-9223372036854775808", "9223372036854775808", ""} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		want, err := strconv.ParseInt(string(in), 10, 64)
		wantOK := err == nil && strconv.FormatInt(want, 10) == string(in)
		got, ok := ParseInt(in)
		if ok != wantOK || ok && got != want {
			t.Errorf("ParseInt(%q) = %d, %v; want %d, %v", in, got, ok, want, wantOK)
		}
	})
}
