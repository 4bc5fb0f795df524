package redisshard

import (
	"sync"

	"github.com/spillgate/spillgate/limit"
)

// nameCache keeps the key names of recent calls, already in the form in which the
// client takes arguments: naming a hash costs more than finding it. It holds one
// set of names per tag, bin and class, so it is bounded by the layout.
type nameCache struct {
	mu   sync.Mutex
	sets map[nameKey]*nameSet
}

type nameKey struct {
	layout   *layout
	tag, bin int
	class    limit.Class
}

type nameSet struct {
	base int64
	keys [generations]any
}

// appendKeys appends the names of generations base to base+3 of a group.
func (c *nameCache) appendKeys(args []any, l *layout, g group, base int64) []any {
	key := nameKey{l, g.tag, g.bin, g.class}
	c.mu.Lock()
	defer c.mu.Unlock()
	set := c.sets[key]
	if set == nil || set.base != base {
		if c.sets == nil {
			c.sets = make(map[nameKey]*nameSet)
		}
		set = &nameSet{base: base}
		for i := range set.keys {
			set.keys[i] = hashKey(l.tags[g.tag], g.class, g.bin, base+int64(i))
		}
		c.sets[key] = set
	}
	return append(args, set.keys[:]...)
}

// reset forgets the names of a layout that is no longer in force.
func (c *nameCache) reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sets = nil
}
