package limit

import (
	"bytes"
	"encoding/hex"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

var testSecret = Secret{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}

// named returns the bucket of the parts.
func named(s *Secret, parts ...string) *Bucket {
	var id []byte
	for _, p := range parts {
		id = AppendPart(id, p)
	}
	b := new(Bucket)
	s.Name(b, id)
	return b
}

// TestKeysNeverMeet is fault 1: parts that read alike when joined are different buckets.
func TestKeysNeverMeet(t *testing.T) {
	long := strings.Repeat("x", MaxID)
	groups := [][][]string{
		{{"a", "b_c"}, {"a_b", "c"}, {"a_b_c"}},
		{{"a:b", "c"}, {"a", "b:c"}, {"a:b:c"}},
		{{"a|b", "c"}, {"a", "b|c"}, {"a|b|c"}},
		{{"a b", "c"}, {"a", "b c"}, {"a b c"}},
		{{"", "x"}, {"x", ""}, {"x"}, {"", "", "x"}, {"", "x", ""}},
		{{}, {""}, {"", ""}},
		{{"a\x00", "b"}, {"a", "\x00b"}, {"a\x00b"}, {"a", "\x00", "b"}},
		{{"ä", "ö"}, {"äö"}, {"ä", "o\u0308"}, {"a\u0308", "ö"}},
		{{"\x01a"}, {"a"}, {"\x01", "a"}},
		{{"{t}u1"}, {"{t}u2"}, {"}{"}, {"{}"}, {"{}a"}, {"{{x}}"}},
		{{long, "b"}, {long + "b"}, {long, "", "b"}, {long[1:], "xb"}},
	}
	for _, group := range groups {
		for i, x := range group {
			for _, y := range group[:i] {
				a, b := named(&testSecret, x...), named(&testSecret, y...)
				if a.Sum() == b.Sum() || bytes.Equal(a.ID(), b.ID()) {
					t.Errorf("%q and %q share a bucket", x, y)
				}
			}
		}
	}
}

func TestAppendPartIsInjective(t *testing.T) {
	parts := rapid.SliceOfN(rapid.StringN(0, 200, -1), 0, 4)
	encode := func(parts []string) (id []byte) {
		for _, p := range parts {
			id = AppendPart(id, p)
		}
		return id
	}
	rapid.Check(t, func(t *rapid.T) {
		x, y := parts.Draw(t, "x"), parts.Draw(t, "y")
		same := len(x) == len(y)
		for i := 0; same && i < len(x); i++ {
			same = x[i] == y[i]
		}
		if equal := bytes.Equal(encode(x), encode(y)); equal != same {
			t.Fatalf("%q and %q: equal ids: %v", x, y, equal)
		}
	})
}

func TestAppendPartTakesBytesToo(t *testing.T) {
	if a, b := AppendPart(nil, "key"), AppendPart(nil, []byte("key")); !bytes.Equal(a, b) {
		t.Errorf("%x and %x", a, b)
	}
}

// TestIDBytes is golden: ids are field names in Redis, and the sum picks the shard.
func TestIDBytes(t *testing.T) {
	for _, tt := range []struct {
		parts []string
		id    string
	}{
		{nil, ""},
		{[]string{""}, "00"},
		{[]string{"", "x"}, "000178"},
		{[]string{"api", "per_user", "42"}, "03617069" + "087065725f75736572" + "023432"},
		{[]string{"a\x00|", "ü"}, "0361007c" + "02c3bc"},
		{[]string{strings.Repeat("y", 63)}, "3f" + strings.Repeat("79", 63)},
		{[]string{strings.Repeat("y", 64)}, "ffa44aaf296512f2526032bec94ad4c273"},
		{[]string{strings.Repeat("y", 200)}, "ff6604ca91b7209edc7f266417b5015441"},
	} {
		b := named(&testSecret, tt.parts...)
		if got := hex.EncodeToString(b.ID()); got != tt.id {
			t.Errorf("%q: id %s, want %s", tt.parts, got, tt.id)
		}
	}
	// The first vector of SipHash-2-4-128's authors: a3817f04ba25a8e6 6df67214c7550293, little-endian.
	if got, want := named(&testSecret).Sum(), (Sum{0xe6a825ba047f81a3, 0x930255c71472f66d}); got != want {
		t.Errorf("sum %#x, want %#x", got, want)
	}
}

func TestLongIDs(t *testing.T) {
	at := named(&testSecret, strings.Repeat("k", MaxID-1))
	over := named(&testSecret, strings.Repeat("k", MaxID))
	if len(at.ID()) != MaxID || at.ID()[0] == digestMark {
		t.Errorf("an id of MaxID bytes is verbatim, got %x", at.ID())
	}
	if len(over.ID()) != 17 || over.ID()[0] != digestMark {
		t.Errorf("a longer id is mark and digest, got %x", over.ID())
	}
	// A name of the digest's own bytes is another bucket: its length comes first.
	twin := named(&testSecret, string(over.ID()))
	if bytes.Equal(twin.ID(), over.ID()) || twin.Sum() == over.Sum() {
		t.Errorf("a caller can name a digest")
	}
}

// TestVerbatimNeverLooksLikeADigest: an id that begins with the mark has a first part of 127
// bytes or more, so it is no verbatim one.
func TestVerbatimNeverLooksLikeADigest(t *testing.T) {
	for n := range 300 {
		id := AppendPart(nil, strings.Repeat("z", n))
		if b := named(&testSecret, strings.Repeat("z", n)); len(id) <= MaxID && b.ID()[0] == digestMark {
			t.Errorf("a part of %d bytes gives the id %x", n, b.ID())
		}
	}
}

func TestSumIsKeyed(t *testing.T) {
	for i := range len(testSecret) {
		other := testSecret
		other[i] ^= 1
		a, b := named(&testSecret, "api", "user"), named(&other, "api", "user")
		if a.Sum() == b.Sum() {
			t.Errorf("byte %d of the secret does not count", i)
		}
		if !bytes.Equal(a.ID(), b.ID()) {
			t.Errorf("a short id depends on the secret: %x, %x", a.ID(), b.ID())
		}
	}
	var zero Bucket
	if len(zero.ID()) != 0 || zero.Sum() != (Sum{}) {
		t.Errorf("the zero bucket names %x, %v", zero.ID(), zero.Sum())
	}
}

// TestNameAgain: a Bucket that is used again has nothing left of its former name.
func TestNameAgain(t *testing.T) {
	b := named(&testSecret, strings.Repeat("long", 10))
	testSecret.Name(b, AppendPart(nil, "s"))
	if want := named(&testSecret, "s"); !bytes.Equal(b.ID(), want.ID()) || b.Sum() != want.Sum() {
		t.Errorf("got %x %v, want %x %v", b.ID(), b.Sum(), want.ID(), want.Sum())
	}
}
