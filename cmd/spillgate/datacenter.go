package main

import (
	"github.com/spillgate/spillgate/cmd/spillgate/config"
	"github.com/spillgate/spillgate/rules"
)

// parserFor makes of a text what an agent of a data center enforces. Every set passes through here on its way to the
// agent, wherever it comes from; an error refuses the whole set. Checks go on meanwhile.
func parserFor(dc *config.Datacenter) func(name string, text []byte) (*rules.Set, error) {
	return func(name string, text []byte) (set *rules.Set, err error) {
		aside(func() {
			if set, err = rules.Parse(name, text); err == nil {
				set, err = set.ForDatacenter(dc.Share, dc.Headroom)
			}
		})
		return set, err
	}
}
