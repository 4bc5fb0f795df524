package agent

import (
	"errors"
	"fmt"

	"github.com/spillgate/spillgate/limit"
	"github.com/spillgate/spillgate/rules"
)

// ErrOverrides says that a request has overrides, but not one for each of its descriptors.
var ErrOverrides = errors.New("agent: a request has an override for each descriptor, or none at all")

// Override is what a request says of one of its descriptors in place of the rule, or of Request.Hits. The zero
// value changes nothing.
type Override struct {
	// Hits counts instead of Request.Hits if HasHits is true; 0 peeks.
	HasHits bool
	Hits    limit.Tokens
	// Rate counts instead of the rule's; without a rule too, in a bucket named by the descriptor itself. The zero value is none;
	// Requests 0 with a Period denies everything. Debt must be 0, and Algorithm TokenBucket. The rule's mode, policy and deadline stay; its shadow, its replaces and
	// its allowance do not count.
	Rate limit.Rate
}

// limits reports whether there is a rate.
func (o *Override) limits() bool { return o.Rate != (limit.Rate{}) }

// OverrideError says which override of a request is not valid, and why.
type OverrideError struct {
	Descriptor int    // from 0
	Field      string // hits, requests, period, burst, debt or algorithm
	Problem    string
}

func (e *OverrideError) Error() string {
	return fmt.Sprintf("agent: override of descriptor %d: %s: %s", e.Descriptor+1, e.Field, e.Problem)
}

// override takes up the overrides of the request being added, or says what is wrong with them. Terms are compiled anew for each request: a
// cache that hits would cost more (docs/adr/0013).
func (b *Batch) override(ds []rules.Descriptor, all []Override) error {
	if len(all) != len(ds) {
		return ErrOverrides
	}
	b.terms = b.terms[:0]
	for i := range all {
		o := &all[i]
		if o.HasHits && (o.Hits < 0 || o.Hits > limit.MaxTokens) {
			return &OverrideError{i, "hits", fmt.Sprintf("%d is not between 0 and %d", o.Hits, limit.MaxTokens)}
		}
		var terms *limit.Terms
		if o.limits() {
			var err error
			var field *limit.FieldError
			if terms, err = o.Rate.Terms(); errors.As(err, &field) {
				return &OverrideError{i, field.Field, field.Problem}
			}
			switch {
			case o.Rate.Debt != 0:
				return &OverrideError{i, "debt", "an override has none"}
			case o.Rate.Algorithm != limit.TokenBucket:
				return &OverrideError{i, "algorithm", "an override is a token bucket, a " + o.Rate.Algorithm.String() + " takes a rule"}
			}
		}
		b.terms = append(b.terms, terms)
	}
	return nil
}

// overridden adds an item with a rate of its own, in the rule's bucket if b.id names one.
func (b *Batch) overridden(rule *rules.Rule, domain string, d rules.Descriptor, o *Override, terms *limit.Terms, n limit.Tokens, op limit.Op) {
	switch {
	case terms == nil:
		it := b.item(rule, nil, n, op)
		it.overridden = true
		it.decision = limit.Decision{Reason: limit.Never, RetryAfter: limit.NoRetry}
		it.nameRule()
		return
	case rule == nil:
		b.id = limit.AppendPart(limit.AppendPart(b.id[:0], domain), "") // rules always have a name
		for _, e := range d {
			b.id = limit.AppendPart(limit.AppendPart(b.id, e.Key), e.Value)
		}
	case rule.Terms != nil && rule.Rate.Debt > 0:
		rate := o.Rate
		rate.Debt = rule.Rate.Debt // of one time class with the rule's cell, if that is possible
		if same, err := rate.Terms(); err == nil {
			terms = same
		}
	}
	if rule != nil && rule.Terms != nil && *rule.Terms == *terms {
		terms = rule.Terms
	}
	it := b.item(rule, terms, n, op)
	it.overridden = true
	b.add(it)
}
