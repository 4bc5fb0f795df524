package main

import (
	"github.com/spillgate/spillgate/cmd/spillgate/config"
	"github.com/spillgate/spillgate/rules"
)

// inDatacenter makes of a rule set what an agent of a data center enforces. Every set passes through here on its way to the
// agent, wherever it comes from; an error refuses the whole set, as an error in the file would.
func inDatacenter(dc *config.Datacenter) func(*rules.Set) (*rules.Set, error) {
	return func(set *rules.Set) (*rules.Set, error) { return set.ForDatacenter(dc.Share, dc.Headroom) }
}
