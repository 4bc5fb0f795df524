package rules

import "github.com/spillgate/spillgate/limit"

// algorithms are the words for how a bucket counts.
var algorithms = []limit.Algorithm{limit.TokenBucket, limit.SlidingWindow, limit.FixedWindow, limit.SlidingLog}

// algorithm reads how the buckets of a rule count.
func (p *parser) algorithm(f *field) limit.Algorithm {
	words := make([]string, len(algorithms))
	for i, a := range algorithms {
		words[i] = a.String()
	}
	word := p.choose(f, "", "", words...)
	for _, a := range algorithms {
		if a.String() == word {
			return a
		}
	}
	return limit.TokenBucket
}

// windowMode reads the mode of a rule whose buckets count in windows: leased or exact, and exact for a sliding log. They are never
// divided.
func (p *parser) windowMode(r *Rule, mode, allowance *field) {
	a := r.Rate.Algorithm
	r.NoSplit = true
	if a == limit.SlidingLog {
		r.Mode = limit.Exact
	}
	if mode != nil {
		switch word := p.choose(mode, "", "", "leased", "exact", "optimistic"); {
		case word == "exact":
			r.Mode = limit.Exact
		case word == "optimistic":
			p.Failf(mode.Pos(), "mode optimistic is for token buckets, which can pay back; write another mode for a %v, or leave it out", a)
		case word == "leased" && a == limit.SlidingLog:
			p.Failf(mode.Pos(), "mode leased: a %v is exact, the store decides each of its checks; write mode: exact, or leave it out", a)
		}
	}
	if allowance != nil {
		p.Failf(allowance.KeyPos, "allowance belongs to mode optimistic, which a %v does not have; remove it", a)
	}
}
