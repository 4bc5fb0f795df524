package dashboard

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strconv"
	"unicode/utf8"

	"github.com/spillgate/spillgate/limit"
)

// Bucket names a bucket to people.
type Bucket struct {
	// Domain and Rule are empty in a bucket that a caller named itself, as CL.THROTTLE does.
	Domain string `json:"domain"`
	Rule   string `json:"rule"`
	// Values are those that the rule tells buckets apart by, or the caller's one name.
	Values []string `json:"values"`
	// Hashed: Values are hashes, for keys are not to be shown, or since the agent knows no more than the hash.
	Hashed bool `json:"hashed"`
}

const (
	digestMark = 0xff // begins an id that is a digest, see limit.Secret.Name
	digestLen  = 17
)

// bucket decodes an id as limit.AppendPart builds it, or the digest that limit.Secret.Name makes of a long one.
func (c *Config) bucket(id []byte) Bucket {
	parts, ok := partsOf(id)
	switch {
	case !ok && len(id) == digestLen && id[0] == digestMark: // SipHash-2-4-128 of the whole id, keyed
		return Bucket{Values: []string{"siphash:" + hex.EncodeToString(id[1:])}, Hashed: true}
	case !ok:
		return Bucket{Values: []string{"id:" + hex.EncodeToString(id)}}
	}
	b := Bucket{Domain: text(parts[0]), Values: []string{}}
	rest := parts[1:]
	if b.Domain != "" {
		b.Rule, rest = text(rest[0]), rest[1:]
	}
	for _, part := range rest {
		if c.Redact != nil {
			b.Hashed = true
			b.Values = append(b.Values, c.hash(part))
		} else {
			b.Values = append(b.Values, text(part))
		}
	}
	return b
}

// partsOf undoes limit.AppendPart. There are two parts at least.
func partsOf(id []byte) (parts []string, ok bool) {
	for len(id) > 0 {
		n, used := binary.Uvarint(id)
		if used <= 0 || n > uint64(len(id)-used) {
			return nil, false
		}
		id = id[used:]
		parts = append(parts, string(id[:n]))
		id = id[n:]
	}
	return parts, len(parts) >= 2
}

// text is a part as JSON can carry it: bytes that are no UTF-8 are written as in Go, so that two keys never look the
// same for it.
func text(part string) string {
	if utf8.ValidString(part) {
		return part
	}
	quoted := strconv.Quote(part)
	return quoted[1 : len(quoted)-1]
}

// hash is what stands for a value that is not to be shown: half of its keyed SipHash-2-4-128.
func (c *Config) hash(value string) string {
	secret, ok := c.Redact()
	if !ok {
		return "hidden"
	}
	var b limit.Bucket
	secret.Name(&b, []byte(value))
	return fmt.Sprintf("hash:%016x", b.Sum().Hi)
}
