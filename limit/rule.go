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
	// Local lets each agent enforce its share of the limit by itself.
	Local
)

// String is the policy's word in configuration files.
func (p Policy) String() string {
	switch p {
	case Closed:
		return "closed"
	case Local:
		return "local"
	}
	return "open"
}

// Mode is who answers the checks of a rule, and so what it promises (docs/rules.md).
// The zero value is Leased.
type Mode uint8

const (
	// Leased lets agents answer checks of hot buckets from tokens that they took beforehand
	// (see Leases); the store answers the others. Never over the limit.
	Leased Mode = iota
	// Exact asks the store at every check. Never over the limit.
	Exact
	// Optimistic answers from what the agent knows, and the store hears of it later. Over the
	// limit by at most Rule.Allowance for each agent.
	Optimistic
)

// String is the mode's word in rules files.
func (m Mode) String() string {
	switch m {
	case Exact:
		return "exact"
	case Optimistic:
		return "optimistic"
	}
	return "leased"
}

// MaxAgents is the size of a fleet up to which what optimistic agents admit is charged in full: an
// optimistic rule's Rate.Debt is the allowance of so many. In larger fleets, if all were to charge their
// whole allowance at one moment, what goes beyond would not be paid back.
const MaxAgents = 1024

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
	Mode      Mode
	// Allowance is how many tokens one agent may have admitted of which the store has not heard; 1 to the burst in
	// mode Optimistic, 0 in others and where there are no Terms.
	Allowance Tokens
	// OnStoreError is the fail policy; HasPolicy is false when the rule leaves it to the agent.
	OnStoreError Policy
	HasPolicy    bool
	// Shadow: the rule counts and never denies. Its fail policy is Open, whatever OnStoreError says.
	Shadow bool
	// Deadline until the fail policy answers; 0 leaves it to the agent.
	Deadline time.Duration
}

// Policy is what answers for the rule when the store does not: its own policy, or else the agent's. Buckets that count in windows have no shares:
// where the agent's is Local, they are Closed.
func (r *Rule) Policy(agents Policy) Policy {
	p := agents
	if r.HasPolicy {
		p = r.OnStoreError
	}
	if p == Local && r.Rate.Algorithm != TokenBucket {
		return Closed
	}
	return p
}
