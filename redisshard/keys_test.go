package redisshard

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spillgate/spillgate/batcher"
	"github.com/spillgate/spillgate/internal/redistest"
	"github.com/spillgate/spillgate/limit"
)

// TestKeyNames: agents of all versions meet in these names, so they are held to the byte.
func TestKeyNames(t *testing.T) {
	if layoutKey != "sg:{layout}:v1" {
		t.Errorf("the layout is kept in %s", layoutKey)
	}
	want := ruleKeys{"sg:{rules}:default:head", "sg:{rules}:default:versions", "sg:{rules}:default:texts", "sg:{rules}:default:pushed"}
	if got := ruleKeysOf("default"); got != want {
		t.Errorf("the rules are kept in %+v", got)
	}
	if key := fleetKey("a.b-c"); key != "sg:{fleet}:a.b-c" {
		t.Errorf("a fleet is kept in %s", key)
	}
	for fill, want := range map[time.Duration]string{
		time.Second:           "sg:{c}:b4s:0:439804651",
		5 * time.Second:       "sg:{c}:b16s:0:439804651",
		time.Hour:             "sg:{c}:b4096s:0:439804651",
		24 * time.Hour:        "sg:{c}:b262144s:0:439804651",
		8 * 365 * 24 * 3600e9: "sg:{c}:b268435456s:0:439804651",
	} {
		class, ok := limit.BucketClass(fill)
		if got := hashKey("c", class, 0, 439804651); !ok || got != want {
			t.Errorf("fill %v: %s, want %s", fill, got, want)
		}
	}
	class, _ := limit.BucketClass(0)
	if got := hashKey("zz", class, 4095, -1); got != "sg:{zz}:b4s:4095:-1" {
		t.Error(got)
	}
}

// TestFieldNames: so are the fields of a hash. No bucket's id begins like the field of a part or of a load, or is the clock's.
func TestFieldNames(t *testing.T) {
	var secret limit.Secret
	named := func(parts ...string) (b limit.Bucket) {
		var id []byte
		for _, p := range parts {
			id = limit.AppendPart(id, p)
		}
		secret.Name(&b, id)
		return b
	}
	for _, tt := range []struct {
		part *limit.Part
		want string
	}{
		{nil, "\x00\x03{a}"}, {&limit.Part{Home: true, Index: 1}, "\x00\x03{a}"},
		{&limit.Part{Split: limit.Split{Start: 0x0102030405060708}}, "\xfe\x00\x01\x02\x03\x04\x05\x06\x07\x08\x00\x03{a}"},
		{&limit.Part{Index: limit.MaxWays - 1}, "\xfe\x3f\x00\x00\x00\x00\x00\x00\x00\x00\x00\x03{a}"},
	} {
		if got := field(&batcher.Entry{Bucket: named("", "{a}"), Part: tt.part}); string(got) != tt.want {
			t.Errorf("part %d: %q, want %q", tt.part.At(), got, tt.want)
		}
	}
	for n := range 2 * limit.MaxID {
		b := named(strings.Repeat("\xfe", n))
		if first := b.ID()[0]; first == partMark || first == loadMark || string(b.ID()) == "~" {
			t.Errorf("a name of %d bytes has the id %q", n, b.ID())
		}
	}
}

func TestTagNames(t *testing.T) {
	for v, want := range map[int]string{
		1: goldenTags1, 8: goldenTags8, 12: goldenTags12, 64: goldenTags64,
	} {
		if got := strings.Join(tagNames(v), " "); got != want {
			t.Errorf("%d tags: %s\nwant %s", v, got, want)
		}
	}
	for _, v := range []int{1, 2, 3, 7, 8, 12, 100, 1000, maxTags} {
		tags := tagNames(v)
		for i, tag := range tags {
			// The i-th of v equal ranges: from i*slots/v, rounded up.
			if s := redistest.Slot("sg:{" + tag + "}:x"); s*v/slots != i {
				t.Errorf("tag %d of %d, %q, has slot %d", i, v, tag, s)
			}
		}
		if sorted := slices.Compact(slices.Sorted(slices.Values(tags))); len(sorted) != v {
			t.Errorf("of %d tags %d are distinct", v, len(sorted))
		}
	}
}

// TestTagsSpread: buckets fall on tags and bins evenly, and agents with one secret agree.
func TestTagsSpread(t *testing.T) {
	const tags, bins, buckets = 12, 4, 48_000
	l := newLayout(tags, bins)
	same, err := decodeLayout(l.encode())
	redistest.Must(t, err)
	var count [tags][bins]int
	for i := range buckets {
		var b limit.Bucket
		l.secret.Name(&b, limit.AppendPart(nil, fmt.Sprintf("{t}u%d", i)))
		tag, bin := l.place(&b)
		count[tag][bin]++
		if t2, b2 := same.place(&b); t2 != tag || b2 != bin {
			t.Fatal("the stored layout places buckets elsewhere")
		}
	}
	for tag, bins := range count {
		for bin, n := range bins {
			if n < 800 || n > 1200 { // 1,000 expected, 6 standard deviations
				t.Errorf("tag %d, bin %d: %d buckets", tag, bin, n)
			}
		}
	}
}

const (
	goldenTags1  = "0"
	goldenTags8  = "3 b 2 c 1 d 0 a"
	goldenTags12 = "03 3 b 02 2 c 01 1 d 00 0 a"
	goldenTags64 = "10 18 6h 03 29 21 3 4s 0j 0b 1a 0s b j s 2d 11 19 6i 02 28 20 2 4r 0k 0c 0z 0r c k r z 12 6s 09" +
		" 01 4h 23 1 9 0h 0d 0y 0q d h q y 13 6r 08 00 4i 22 0 8 0i 0a 0x 0p a i p x"
)
