package split

import (
	"testing"

	"github.com/spillgate/spillgate/limit"
)

// TestPromisesEnd: what was to go to a part and of which nothing has come back counts as taken no longer than a part is believed to be empty. Else a
// part is passed over for good of which nobody hears any more.
func TestPromisesEnd(t *testing.T) {
	k := spread(t, 8)
	k.reply(limit.Take, nil, k.divided(4), 0)
	for i := range 4 {
		k.has(i, 0)
	}
	k.has(2, 2)
	k.sends(2, tried(), 2)
	k.sends(2, tried(), 2) // nobody has more
	k.now += knownFor + 1
	for _, i := range []int{0, 1, 3} {
		k.has(i, 0)
	}
	k.chooses(1, tried(0), 2)
}
