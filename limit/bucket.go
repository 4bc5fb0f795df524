package limit

import (
	"encoding/binary"

	"github.com/dchest/siphash"
)

// MaxID is the longest bucket id that a store sees, in bytes. Longer ones are
// replaced by their digest.
const MaxID = 64

// digestMark begins the id of a bucket whose text is over MaxID. No verbatim id
// begins with it: its first part alone would be over MaxID bytes.
const digestMark = 0xff

// Secret keys the hash of bucket ids. It comes from the layout, is the same in every agent of a
// fleet, and keeps callers from aiming a flood at one shard.
type Secret [16]byte

// Sum is the keyed 128-bit hash of a bucket's id. Within a process it stands for the
// bucket: two buckets with one sum do not occur (SipHash-2-4-128, https://cr.yp.to/siphash/).
type Sum struct{ Hi, Lo uint64 }

// Bucket names one counted thing: a rule and the values that it tells apart. The zero value
// names nothing.
type Bucket struct {
	sum Sum
	n   uint8
	id  [MaxID]byte
}

// AppendPart appends one part of a bucket's id, with its length before it, so
// that ("a","b_c") and ("a_b","c") never meet. The parts of a rule's bucket are domain,
// rule name and values; a bucket that a caller names itself has an empty domain.
func AppendPart[T ~string | ~[]byte](id []byte, part T) []byte {
	id = binary.AppendUvarint(id, uint64(len(part)))
	return append(id, part...)
}

// Name makes b the bucket with that id, as built by AppendPart. The cost is one SipHash, about 20 ns.
func (s *Secret) Name(b *Bucket, id []byte) {
	b.sum.Hi, b.sum.Lo = siphash.Hash128(binary.LittleEndian.Uint64(s[:8]), binary.LittleEndian.Uint64(s[8:]), id)
	if len(id) <= MaxID {
		b.n = uint8(copy(b.id[:], id))
		return
	}
	b.id[0] = digestMark
	binary.BigEndian.PutUint64(b.id[1:], b.sum.Hi)
	binary.BigEndian.PutUint64(b.id[9:], b.sum.Lo)
	b.n = 17
}

// Sum is the bucket's keyed hash.
func (b *Bucket) Sum() Sum { return b.sum }

// PartSum stands for a cell of the bucket within a process as Sum does for the bucket; that of home is Sum.
func (b *Bucket) PartSum(part *Part) Sum {
	if part.At() == 0 {
		return b.sum
	}
	i, start := uint64(part.At()), uint64(part.Split.Start)
	// Odd factors: distinct for distinct numbers.
	return Sum{b.sum.Hi ^ i*0x9e3779b97f4a7c15, b.sum.Lo ^ start*0xbf58476d1ce4e5b9 ^ i}
}

// ID is the bucket's name in a store, at most MaxID bytes. It aliases b.
func (b *Bucket) ID() []byte { return b.id[:b.n] }
