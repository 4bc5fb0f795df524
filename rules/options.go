package rules

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spillgate/spillgate/internal/strictyaml"
	"github.com/spillgate/spillgate/limit"
)

const (
	// MinPeriod and MaxPeriod bound the period of a limit.
	MinPeriod = time.Millisecond
	MaxPeriod = 366 * day

	// MinDeadline and MaxDeadline bound a rule's deadline.
	MinDeadline = 100 * time.Microsecond
	MaxDeadline = time.Minute

	day = 24 * time.Hour
)

// option reads a field of a rule that has a default.
func (p *parser) option(r *Rule, f *field) {
	switch f.Key {
	case "algorithm":
		r.Rate.Algorithm = p.algorithm(f)
	case "deadline":
		r.Deadline = p.deadline(f)
	case "split":
		r.NoSplit = p.choose(f, "", "", "auto", "off") == "off"
	case "shadow":
		r.Shadow = p.flag(f)
	case "label":
		r.Label = p.label(f, MaxName)
	case "replaces":
		p.readReplaces(r, f)
	}
}

// policy reads what answers when the store does not.
func (p *parser) policy(r *Rule, f *field) {
	r.HasPolicy = true
	switch p.choose(f, "", "", "open", "closed", "local") {
	case "closed":
		r.OnStoreError = limit.Closed
	case "local":
		r.OnStoreError = limit.Local
	}
}

// mode reads how a rule is enforced, and its allowance. at is where the latter stands, or
// the mode that implies one.
func (p *parser) mode(r *Rule, mode, allowance *field) (at pos) {
	if r.Rate.Algorithm != limit.TokenBucket {
		p.windowMode(r, mode, allowance)
		return at
	}
	if mode != nil {
		at = mode.Pos()
		switch p.choose(mode, "", "", "leased", "exact", "optimistic") {
		case "exact":
			r.Mode = limit.Exact
		case "optimistic":
			r.Mode = limit.Optimistic
		case "":
			return at // reported; what an allowance belongs to is not known
		}
	}
	if allowance == nil {
		return at
	}
	if r.Mode != limit.Optimistic {
		p.Failf(allowance.KeyPos, "allowance belongs to mode optimistic; remove it, or write mode: optimistic")
		return at
	}
	known := p.Count()
	r.Allowance = p.tokens(allowance)
	if p.Count() == known && (r.Allowance < 1 || r.Allowance > limit.MaxTokens) {
		p.Failf(allowance.Pos(), "allowance: %d is not between 1 and %d", r.Allowance, limit.MaxTokens)
		r.Allowance = 0
	}
	return allowance.Pos()
}

// debt gives an optimistic rule its allowance, and its terms room for that of a whole fleet.
func (p *parser) debt(r *Rule, at pos) {
	switch {
	case r.Terms == nil && r.Allowance > 0:
		p.Failf(at, "allowance: none goes with a limit of 0; remove it")
		return
	case r.Terms == nil:
		return
	case r.Allowance > r.Terms.Burst:
		p.Failf(at, "allowance: %d is above the burst of %d; write that at most", r.Allowance, r.Terms.Burst)
		return
	case r.Allowance == 0:
		r.Allowance = max(1, r.Terms.Burst/100)
	}
	r.Rate.Debt = r.Allowance * limit.MaxAgents
	terms, err := r.Rate.Terms()
	switch {
	case r.Rate.Debt > limit.MaxTokens:
		p.Failf(at, "allowance: with %d, a fleet of %d agents may owe more than %d tokens; write a smaller one",
			r.Allowance, limit.MaxAgents, limit.MaxTokens)
	case err != nil:
		p.Failf(at, "allowance: with %d, a fleet of %d agents may owe more than refills in %v at %d per %v; write a smaller one, or another mode",
			r.Allowance, limit.MaxAgents, limit.MaxFill, r.Rate.Requests, r.Rate.Period)
	}
	r.Terms = terms
}

// choose reads one of the words. Of the later ones, divided by "|", it says
// that this version does not have them, and what to do instead.
func (p *parser) choose(f *field, instead, later string, words ...string) string {
	text := f.Value.Text
	if f.Value.Scalar() {
		for _, w := range words {
			if text == w {
				return w
			}
		}
		for w := range strings.SplitSeq(later, "|") {
			if text == w && w != "" {
				p.Unsupported(f.Value.Pos, f.Key+" "+w, instead)
				return ""
			}
		}
	}
	what := f.Key
	if text != "" {
		what += " " + strictyaml.Show(text)
	}
	p.Failf(f.Pos(), "%s is not %s%s", what, strings.Join(words, " or "), strictyaml.DidYouMean(text, words))
	return ""
}

// flag reads true or false.
func (p *parser) flag(f *field) bool {
	if f.Value.Kind != strictyaml.Plain || f.Value.Text != "true" && f.Value.Text != "false" {
		p.Failf(f.Pos(), "%s is not true or false, without quotes", f.Key)
	}
	return f.Value.Text == "true"
}

// deadline reads how long a check may take.
func (p *parser) deadline(f *field) time.Duration {
	d, problem := duration(f.Value.Text)
	if problem == "" && (d < MinDeadline || d > MaxDeadline) {
		problem = fmt.Sprintf("is not between %v and %v", MinDeadline, MaxDeadline)
	}
	if problem != "" {
		p.Failf(f.Pos(), "deadline %s %s; write a duration such as 10ms", strictyaml.Show(f.Value.Text), problem)
		return 0
	}
	return d
}

// rateAt is where the numbers of a rate stand in the text.
type rateAt struct{ requests, period, burst pos }

// of is the place of the field that a limit.FieldError names.
func (at rateAt) of(field string) pos {
	switch field {
	case "period":
		return at.period
	case "burst":
		return at.burst
	}
	return at.requests
}

// limit reads the limit of a rule, in the long or the short form, and compiles it. It reports
// whether that went well.
func (p *parser) limit(r *Rule, f *field) bool {
	known := p.Count()
	at := rateAt{f.Pos(), f.Pos(), f.Pos()}
	switch f.Value.Kind {
	case strictyaml.Map:
		at = p.longLimit(&r.Rate, f)
	case strictyaml.Plain, strictyaml.Quoted:
		p.shortLimit(&r.Rate, f)
	default:
		p.Failf(f.Pos(), `limit is not a rate; write "100/s" or {requests: 100, per: 1s}`)
	}
	if p.Count() > known {
		return false
	}
	var err error
	var field *limit.FieldError
	if r.Terms, err = r.Rate.Terms(); errors.As(err, &field) {
		p.Failf(at.of(field.Field), "%s: %s", field.Field, field.Problem)
	}
	return err == nil
}

// longLimit reads {requests: 100, per: 1s, burst: 200}.
func (p *parser) longLimit(rate *limit.Rate, f *field) (at rateAt) {
	known := p.Count()
	var requests, per, burst *field
	for g := range p.Fields(&f.Value, "a limit", limitFields) {
		switch g.Key {
		case "requests":
			requests, at.requests = g, g.Pos()
			rate.Requests = p.tokens(g)
		case "per":
			per, at.period = g, g.Pos()
			rate.Period = p.period(g.Pos(), "per", g.Value.Text)
		case "burst":
			burst, at.burst = g, g.Pos()
			rate.Burst = p.tokens(g)
		}
	}
	if requests == nil {
		p.Failf(f.Value.Pos, `a limit without requests; add "requests: 100"`)
	}
	if per == nil {
		p.Failf(f.Value.Pos, `a limit without a period; add "per: 1s"`)
	}
	if p.Count() == known && burst != nil && (rate.Requests == 0 || rate.Burst == 0) {
		p.Failf(at.burst, "burst: no burst goes with a limit of 0, and a burst of 0 admits nothing; remove it (requests: 0 alone denies everything)")
	}
	return at
}

// shortLimit reads 100/s or 100/30s.
func (p *parser) shortLimit(rate *limit.Rate, f *field) {
	number, unit, ok := strings.Cut(f.Value.Text, "/")
	if !ok {
		p.Failf(f.Value.Pos, `limit %s has no "/"; write "100/s" or {requests: 100, per: 1s}`, strictyaml.Show(f.Value.Text))
		return
	}
	n, problem := count(number)
	if problem != "" {
		p.Failf(f.Value.Pos, "requests: %s", problem)
	}
	rate.Requests = n
	rate.Period = p.period(f.Value.Pos, "period", unit)
}

// tokens reads a field that counts tokens. The range is the business of limit.Rate.
func (p *parser) tokens(f *field) limit.Tokens {
	if f.Value.Kind == strictyaml.Quoted {
		p.Failf(f.Value.Pos, "%s is in quotes; write the number without them", f.Key)
		return 0
	}
	n, problem := count(f.Value.Text)
	if problem != "" {
		p.Failf(f.Pos(), "%s: %s", f.Key, problem)
	}
	return n
}

// count reads a whole number, exactly, or says what is wrong with it.
func count(text string) (limit.Tokens, string) {
	digits := strings.TrimPrefix(text, "-")
	switch {
	case digits == "" || strings.Trim(digits, "0123456789") != "":
		return 0, strictyaml.Show(text) + " is not a whole number; write digits alone, and for a slow rate a longer period, such as 1/10s"
	case len(digits) > 1 && digits[0] == '0':
		return 0, strictyaml.Show(text) + " has a leading zero; remove it"
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, fmt.Sprintf("%s is not between 0 and %d", strictyaml.Show(text), limit.MaxTokens)
	}
	return limit.Tokens(n), ""
}

// units are the periods with a name.
var units = map[string]time.Duration{"ms": time.Millisecond, "s": time.Second, "m": time.Minute, "h": time.Hour, "d": day}

// period reads a unit, a number of days or a Go duration.
func (p *parser) period(at pos, field, text string) time.Duration {
	d, problem := units[text], ""
	if d == 0 {
		d, problem = duration(text)
	}
	if problem == "" && (d < MinPeriod || d > MaxPeriod) {
		problem = fmt.Sprintf("is not between 1ms and %dd", MaxPeriod/day)
	}
	if problem != "" {
		p.Failf(at, "%s %s %s; write ms, s, m, h, d or a duration such as 30s", field, strictyaml.Show(text), problem)
	}
	return d
}

// duration reads a Go duration or a number of days, exactly, or says what is wrong with it.
func duration(text string) (d time.Duration, problem string) {
	if days, ok := strings.CutSuffix(text, "d"); ok {
		n, problem := count(days)
		if problem != "" || n < 1 || n > limit.Tokens(MaxPeriod/day) {
			return 0, fmt.Sprintf("is not a whole number of days from 1d to %dd", MaxPeriod/day)
		}
		return time.Duration(n) * day, ""
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		return 0, "is no duration with a unit, or far too long"
	}
	// ParseDuration cuts what is finer than a nanosecond.
	for _, fraction, ok := strings.Cut(text, "."); ok; _, fraction, ok = strings.Cut(fraction, ".") {
		unit := strings.TrimLeft(fraction, "0123456789")
		if len(fraction)-len(unit) > 3 || strings.HasPrefix(unit, "ns") {
			return 0, "has more than three decimals, or parts of a nanosecond"
		}
	}
	return d, ""
}
