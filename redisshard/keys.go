package redisshard

import (
	"encoding/binary"
	"strconv"

	"github.com/spillgate/spillgate/batcher"
	"github.com/spillgate/spillgate/limit"
)

// layoutKey holds the layout of the whole store, as JSON.
const layoutKey = "sg:{layout}:v1"

// probeKey is where the rights of the user are tried; it never stays.
const probeKey = "sg:{layout}:probe"

// fleetKey holds the members of a fleet.
func fleetKey(fleet string) string { return "sg:{fleet}:" + fleet }

// slots is the number of hash slots of a Redis Cluster.
const slots = 16384

// generations is how many hashes a group names in its call: the one that the
// agent expects to be in force, two before it and one after it.
const generations = 4

// hashKey names the hash of one generation: sg:{tag}:class:bin:generation.
func hashKey(tag string, class limit.Class, bin int, generation int64) string {
	return "sg:{" + tag + "}:" + class.String() + ":" + strconv.Itoa(bin) + ":" + strconv.FormatInt(generation, 10)
}

// The fields of a hash are "~", its clock; the ids of buckets; and, with one of these bytes before the id, what there is
// besides of a divided bucket. No id begins with them: its first byte is a length of at most limit.MaxID, or 0xff.
const (
	// partMark, then the index in one byte and the split's start in eight: the cell of a part.
	partMark = 0xfe
	// loadMark: the count of the entries that home was told of. The script makes this name itself.
	loadMark = 0xfd
)

// field is the name of the cell that an entry is for.
func field(e *batcher.Entry) []byte {
	id := e.Bucket.ID()
	if e.Part.At() == 0 {
		return id
	}
	name := append(make([]byte, 0, 10+len(id)), partMark, byte(e.Part.Index))
	name = binary.BigEndian.AppendUint64(name, uint64(e.Part.Split.Start))
	return append(name, id...)
}

// tagNames gives v tags, the i-th being the smallest string (by length, then by order)
// of digits and small letters whose slot lies in the i-th of v equal ranges of
// slots. v is 1 to slots. Cost: a few milliseconds for v = 1,024.
func tagNames(v int) []string {
	const letters = "0123456789abcdefghijklmnopqrstuvwxyz"
	tags, missing := make([]string, v), v
	for name := []byte{letters[0]}; missing > 0; {
		if i := slot(name) * v / slots; tags[i] == "" {
			tags[i] = string(name)
			missing--
		}
		// Count up like an odometer, least significant letter last.
		at := len(name) - 1
		for ; at >= 0 && name[at] == letters[len(letters)-1]; at-- {
			name[at] = letters[0]
		}
		if at < 0 {
			name = append(name, letters[0])
		} else if c := name[at]; c == '9' {
			name[at] = 'a'
		} else {
			name[at] = c + 1
		}
	}
	return tags
}

// slot is the hash slot of a tag, which has no braces: CRC16 (XMODEM) as in
// the Redis Cluster specification.
func slot(tag []byte) int {
	var crc uint16
	for _, b := range tag {
		crc ^= uint16(b) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
	}
	return int(crc) % slots
}

// ruleKeys name what a fleet's rules are kept in: all in one slot, so that a push is one script. They are the
// only keys of ours without a time to live: rules that nobody pushed for a year are still the rules. What bounds them is the
// number of versions and their size (rules.go). A server that evicts only keys with a time to live never evicts them.
type ruleKeys struct {
	head     string // hash: number and sum of the version in force
	versions string // hash: number -> story
	texts    string // hash: number -> text
	channel  string // numbers of versions, as they are pushed; a channel, not a key
}

func ruleKeysOf(fleet string) ruleKeys {
	prefix := "sg:{rules}:" + fleet + ":"
	return ruleKeys{prefix + "head", prefix + "versions", prefix + "texts", prefix + "pushed"}
}
