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

// windowMode reads the mode of a rule whose buckets count in windows: the store decides all their checks, and they are never
// divided.
func (p *parser) windowMode(r *Rule, mode, allowance *field) {
	a := r.Rate.Algorithm
	r.Mode, r.NoSplit = limit.Exact, true
	if mode != nil {
		if word := p.choose(mode, "", "", "leased", "exact", "optimistic"); word != "" && word != limit.Exact.String() {
			p.Failf(mode.Pos(), "mode %s is for token buckets; checks on a %v are always decided by the store: write mode: exact, or leave it out", word, a)
		}
	}
	if allowance != nil {
		p.Failf(allowance.KeyPos, "allowance belongs to mode optimistic, which a %v does not have; remove it", a)
	}
}
