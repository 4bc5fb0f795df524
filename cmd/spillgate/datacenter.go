package main

import (
	"github.com/spillgate/spillgate/cmd/spillgate/config"
	"github.com/spillgate/spillgate/rules"
)

// inDatacenter is what an agent of a data center enforces of a rule set. Every set passes through here on its way to the
// agent, wherever it comes from; an error refuses the whole set, as an error in the file would.
func inDatacenter(dc *config.Datacenter, set *rules.Set) (*rules.Set, error) {
	return set.ForDatacenter(dc.Share, dc.Headroom)
}
