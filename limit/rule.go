package limit

import "time"

// Policy is what a rule answers when the store does not, in time. The zero
// value is Open.
type Policy uint8

const (
	// Open admits.
	Open Policy = iota
	// Closed denies.
	Closed
)

// String is the policy's word in configuration files.
func (p Policy) String() string {
	if p == Closed {
		return "closed"
	}
	return "open"
}

// Rule is one line of policy: what it is called and how it counts. Which
// requests it applies to is the business of package rules. Immutable.
type Rule struct {
	Domain string
	// Name is unique in the domain; both are part of every bucket's identity.
	Name string
	Rate Rate
	// Terms are Rate compiled; nil if Unlimited or Rate.Requests is zero.
	Terms *Terms
	// Unlimited admits everything, without a store call.
	Unlimited bool
	// OnStoreError is the fail policy; HasPolicy is false when the rule leaves it to the agent.
	OnStoreError Policy
	HasPolicy    bool
	// Deadline until the fail policy answers; 0 leaves it to the agent.
	Deadline time.Duration
}
