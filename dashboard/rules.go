package dashboard

import (
	"math"
	"time"

	"github.com/spillgate/spillgate/limit"
	"github.com/spillgate/spillgate/rules"
)

// Rules are the rules in force, and what the numbers in them depend on.
type Rules struct {
	Datacenter Datacenter `json:"datacenter"`
	// Agents of the data center, of which Known says whether anybody counts them; otherwise they are 1, this one.
	Agents int  `json:"agents"`
	Known  bool `json:"agents_known"`
	// Rules in the order of their file.
	Rules []Rule `json:"rules"`
}

// Datacenter is the part of the limits that is enforced here.
type Datacenter struct {
	Name     string  `json:"name"`
	Share    float64 `json:"share"`
	Headroom float64 `json:"headroom"`
	// Portion of each limit: share * (1 + headroom), at most 1.
	Portion float64 `json:"portion"`
}

// Rule is a rule in force.
type Rule struct {
	Domain string    `json:"domain"`
	Name   string    `json:"name"`
	Match  []Pattern `json:"match"`
	// Hashed: the values that the rule matches are hashes, for keys are not to be shown.
	Hashed    bool   `json:"hashed"`
	Unlimited bool   `json:"unlimited"`
	Shadow    bool   `json:"shadow"` // it counts, and denies nothing
	Algorithm string `json:"algorithm"`
	Mode      string `json:"mode"`
	// Written is the limit in the file, Enforced what this data center takes of it. Both are nil if the rule is unlimited.
	Written  *Limit `json:"written"`
	Enforced *Limit `json:"enforced"`
	// OnStoreError and Deadline are the rule's, or else the agent's.
	OnStoreError string  `json:"on_store_error"`
	Deadline     float64 `json:"deadline_seconds"`
	Split        string  `json:"split"`
	// Bound of each of the rule's buckets in this data center; nil if the rule is unlimited or a shadow.
	Bound *Bound `json:"bound"`
}

// Pattern is what a rule asks of an entry of a descriptor.
type Pattern struct {
	Key string `json:"key"`
	Fit string `json:"fit"` // any, prefix or exactly
	// Value to compare with; empty with any.
	Value string `json:"value"`
}

// Limit is a limit in words and numbers.
type Limit struct {
	Text       string       `json:"text"`
	Requests   limit.Tokens `json:"requests"`
	PerSeconds float64      `json:"per_seconds"`
	Burst      limit.Tokens `json:"burst"`
	Allowance  limit.Tokens `json:"allowance"` // 0 but in mode optimistic
}

// Bound is a limit.Bound in words and numbers: at most Burst + Ahead + PerSecond*w in every window of w seconds.
type Bound struct {
	Text      string       `json:"text"`
	Burst     limit.Tokens `json:"burst"`
	Ahead     limit.Tokens `json:"ahead"`
	PerSecond float64      `json:"per_second"` // rounded up where it has to be rounded
}

// rules shows the rules in force. [7]
func (a *API) rules() Rules {
	c := &a.cfg
	all := Rules{Datacenter: c.Datacenter, Agents: 1, Rules: []Rule{}}
	if portion, err := limit.Portion(c.Datacenter.Share, c.Datacenter.Headroom); err == nil {
		all.Datacenter.Portion = portion.Float()
	}
	if f, ok := a.agent.(fleet); ok {
		if agents, known := f.Fleet(); known {
			all.Agents, all.Known = agents, true
		}
	}
	for _, r := range a.agent.Rules().Rules() {
		all.Rules = append(all.Rules, c.rule(r, all.Agents))
	}
	return all
}

// fleet is an Agent that knows how many share its store.
type fleet interface {
	Fleet() (agents int, known bool)
}

// rule shows a rule that so many agents enforce.
func (c *Config) rule(r *rules.Rule, agents int) Rule {
	shown := Rule{
		Domain: r.Domain, Name: r.Name, Match: []Pattern{}, Hashed: c.Redact != nil, Unlimited: r.Unlimited, Shadow: r.Shadow,
		Algorithm: r.Rate.Algorithm.String(),
		Mode:      r.Mode.String(), Written: LimitOf(r.Written()), Enforced: LimitOf(r),
		OnStoreError: r.Policy(c.OnStoreError).String(), Deadline: c.Deadline.Seconds(), Split: "auto",
		Bound: BoundOf(r, agents),
	}
	for _, p := range r.Match {
		shown.Match = append(shown.Match, c.pattern(p))
	}
	if r.Deadline > 0 {
		shown.Deadline = r.Deadline.Seconds()
	}
	if r.NoSplit {
		shown.Split = "off"
	}
	return shown
}

// pattern shows a pattern. Its value is the text of a key.
func (c *Config) pattern(p rules.Pattern) Pattern {
	shown := Pattern{Key: p.Key, Fit: "any", Value: p.Value}
	switch p.Fit {
	case rules.Prefix:
		shown.Fit = "prefix"
	case rules.Exactly:
		shown.Fit = "exactly"
	}
	if c.Redact != nil && p.Value != "" {
		shown.Value = c.hash(p.Value)
	}
	return shown
}

// LimitOf shows the limit of a rule, counted in the period of its file; nil if it is unlimited.
func LimitOf(r *rules.Rule) *Limit {
	if r.Unlimited {
		return nil
	}
	rate := r.Rate
	l := Limit{Text: rate.Text(r.Written().Rate.Period), Requests: rate.Requests, PerSeconds: rate.Period.Seconds(), Allowance: r.Allowance}
	if r.Terms != nil {
		l.Burst = r.Terms.Burst
	}
	return &l
}

// BoundOf shows the bound of a rule that so many agents enforce; nil if it has none.
func BoundOf(r *rules.Rule, agents int) *Bound {
	b, limited := r.Bound(agents)
	if !limited {
		return nil
	}
	return ShowBound(b, r.Written().Rate.Period)
}

// ShowBound shows a bound, counted in a period.
func ShowBound(b limit.Bound, per time.Duration) *Bound {
	shown := &Bound{Text: b.Text(per), Burst: b.Burst, Ahead: b.Ahead}
	if b.Rate != nil {
		var exact bool
		if shown.PerSecond, exact = b.Rate.Float64(); !exact {
			shown.PerSecond = math.Nextafter(shown.PerSecond, math.Inf(1))
		}
	}
	return shown
}
