package rules

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/spillgate/spillgate/limit"
)

// Native is the set as a file of rules, whatever file it was read from: Parse makes an equal set of it. An empty Set is "".
func (s *Set) Native() string {
	if s == nil || len(s.domains) == 0 {
		return ""
	}
	var b strings.Builder
	name := slices.Sorted(maps.Keys(s.domains))[0] // a file has one
	fmt.Fprintf(&b, "domain: %s\n", quote(name))
	if s.domains[name].envoy {
		b.WriteString("matching: envoy\n")
	}
	if len(s.rules) == 0 {
		b.WriteString("rules: []\n")
		return b.String()
	}
	b.WriteString("rules:\n")
	for _, r := range s.rules {
		writeRule(&b, r)
	}
	return b.String()
}

// writeRule writes what differs from the defaults.
func writeRule(b *strings.Builder, r *Rule) {
	field := func(name, value string) { fmt.Fprintf(b, "    %s: %s\n", name, value) }
	fmt.Fprintf(b, "  - name: %s\n", quote(r.Name))
	field("match", matchText(r.Match))
	if r.Unlimited {
		field("unlimited", "true")
	} else {
		field("limit", rateText(&r.Rate))
	}
	if r.Rate.Algorithm != limit.TokenBucket {
		field("algorithm", r.Rate.Algorithm.String())
	}
	if r.Mode != limit.Leased {
		field("mode", r.Mode.String())
	}
	if r.Allowance > 0 {
		field("allowance", strconv.FormatInt(int64(r.Allowance), 10))
	}
	if r.HasPolicy {
		field("on_store_error", r.OnStoreError.String())
	}
	if r.Deadline > 0 {
		field("deadline", durationText(r.Deadline))
	}
	if r.NoSplit {
		field("split", "off")
	}
	if r.Shadow {
		field("shadow", "true")
	}
	if r.Label != "" {
		field("label", quote(r.Label))
	}
	if len(r.Replaces) > 0 {
		var names []string
		for _, name := range r.Replaces {
			names = append(names, quote(name))
		}
		field("replaces", "["+strings.Join(names, ", ")+"]")
	}
}

// matchText is a match as a file has it.
func matchText(match []Pattern) string {
	var entries []string
	for _, p := range match {
		switch p.Fit {
		case Any:
			entries = append(entries, "{key: "+quote(p.Key)+"}")
		case Prefix:
			entries = append(entries, "{key: "+quote(p.Key)+", value: "+quote(p.Value+"*")+"}")
		case Exactly:
			entries = append(entries, "{key: "+quote(p.Key)+", value: "+quote(p.Value)+"}")
		}
	}
	return "[" + strings.Join(entries, ", ") + "]"
}

// rateText is a limit as a file has it: in the short form if that says it all.
func rateText(r *limit.Rate) string {
	per := durationText(r.Period)
	if r.Burst > 0 {
		return fmt.Sprintf("{requests: %d, per: %s, burst: %d}", r.Requests, per, r.Burst)
	}
	if unit := strings.TrimPrefix(per, "1"); units[unit] > 0 {
		per = unit
	}
	return fmt.Sprintf("%d/%s", r.Requests, per)
}

// durationText is a duration as a whole number of the largest unit: what a file can say exactly.
func durationText(d time.Duration) string {
	for _, unit := range []struct {
		name string
		of   time.Duration
	}{{"d", day}, {"h", time.Hour}, {"m", time.Minute}, {"s", time.Second}, {"ms", time.Millisecond}, {"us", time.Microsecond}} {
		if d%unit.of == 0 {
			return fmt.Sprintf("%d%s", d/unit.of, unit.name)
		}
	}
	return fmt.Sprintf("%dns", d)
}

// bare are texts that mean themselves without quotes, everywhere in a file.
var bare = regexp.MustCompile(`^[A-Za-z/][A-Za-z0-9._/-]*$`)

// quote is a text as a file has it.
func quote(text string) string {
	if bare.MatchString(text) && !strings.EqualFold(text, "null") {
		return text
	}
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range text {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case !unicode.IsPrint(r):
			fmt.Fprintf(&b, `\U%08x`, r)
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}
