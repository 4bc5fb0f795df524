package redisshard

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillgate/spillgate/limit"
)

// errLayout says that what stands in place of the layout is none.
var errLayout = permanentError{errors.New("redisshard: " + layoutKey +
	" is damaged; delete it to have a new layout made (all buckets start full)")}

// layoutTTL outlives every cell that the layout places. Agents renew it.
const layoutTTL = 2*limit.MaxFill + 24*time.Hour

// maxTags and maxBins bound a layout.
const (
	maxTags = 4096
	maxBins = 4096
)

// layout says where buckets live. It is chosen once, stored in Redis, and
// read by every agent. Immutable.
type layout struct {
	tags   []string
	bins   int
	secret limit.Secret
}

// storedLayout is the layout's form in Redis.
type storedLayout struct {
	Version int    `json:"version"`
	Tags    int    `json:"tags"`
	Bins    int    `json:"bins"`
	Secret  string `json:"secret"` // hex, keys the hash of bucket ids
}

func newLayout(tags, bins int) *layout {
	l := &layout{tags: tagNames(tags), bins: bins}
	rand.Read(l.secret[:]) // never fails
	return l
}

// place is the tag and bin of a bucket. Two separate parts of the keyed hash
// choose them.
func (l *layout) place(b *limit.Bucket) (tag, bin int) {
	hi := b.Sum().Hi
	tag = int(hi >> 32 * uint64(len(l.tags)) >> 32)
	bin = int(hi & 0xffffffff * uint64(l.bins) >> 32)
	return tag, bin
}

// placePart is the tag and bin of a part: the first is on home's tag, and Split.Stride tags lie between one and the next.
func (l *layout) placePart(b *limit.Bucket, part *limit.Part) (tag, bin int) {
	tag, bin = l.place(b)
	if part.At() > 0 {
		tag = (tag + part.Index*part.Split.Stride) % len(l.tags)
	}
	return tag, bin
}

func (l *layout) encode() string {
	text, err := json.Marshal(storedLayout{1, len(l.tags), l.bins, hex.EncodeToString(l.secret[:])})
	if err != nil {
		panic("redisshard: layout does not encode: " + err.Error())
	}
	return string(text)
}

// decodeLayout reads a stored layout. Its errors are permanent.
func decodeLayout(text string) (*layout, error) {
	var s storedLayout
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		return nil, fmt.Errorf("%w: %w", errLayout, err)
	}
	secret, err := hex.DecodeString(s.Secret)
	switch {
	case s.Version > 1:
		return nil, permanentError{fmt.Errorf("redisshard: %s has version %d, this program knows version 1: update it", layoutKey, s.Version)}
	case s.Version < 1 || s.Tags < 1 || s.Tags > maxTags || s.Bins < 1 || s.Bins > maxBins ||
		err != nil || len(secret) != len(limit.Secret{}):
		return nil, errLayout
	}
	l := &layout{tags: tagNames(s.Tags), bins: s.Bins, secret: limit.Secret(secret)}
	return l, nil
}

// settleLayout reads the stored layout, or stores the proposed one if there
// is none, and renews its time to live. Of several agents at once one wins and the others read its layout.
func settleLayout(ctx context.Context, n *nodes, propose func() *layout) (*layout, error) {
	client, err := n.master(ctx, layoutKey)
	if err != nil {
		return nil, err
	}
	// Two rounds: the key may vanish between a failed SET and the GET.
	for range 2 {
		text, err := client.GetEx(ctx, layoutKey, layoutTTL).Result()
		switch {
		case err == nil:
			return decodeLayout(text)
		case redis.HasErrorPrefix(err, "WRONGTYPE"):
			return nil, errLayout
		case !errors.Is(err, redis.Nil):
			return nil, explain(client.Options().Addr, err)
		}
		mine := propose()
		err = client.SetArgs(ctx, layoutKey, mine.encode(), redis.SetArgs{Mode: "NX", TTL: layoutTTL}).Err()
		if err == nil {
			return mine, nil
		}
		if !errors.Is(err, redis.Nil) {
			return nil, explain(client.Options().Addr, err)
		}
	}
	return nil, fmt.Errorf("redisshard: %s comes and goes; is another program deleting it?", layoutKey)
}
