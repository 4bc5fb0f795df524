package rules

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// best is Match as the documentation tells it: every rule that fits, and of
// those the one whose scores are the highest in the leftmost difference.
func best(rules []*Rule, d Descriptor) *Rule {
	var won *Rule
	var wonScores []int
	for _, r := range rules {
		scores, ok := score(r, d)
		if ok && (won == nil || slices.Compare(scores, wonScores) > 0) {
			won, wonScores = r, scores
		}
	}
	return won
}

// score has a number for each entry: 0 for any value, 1 + its length for a
// prefix, a lot for an exact value.
func score(r *Rule, d Descriptor) (scores []int, ok bool) {
	if len(r.Match) != len(d) {
		return nil, false
	}
	for i, p := range r.Match {
		v := d[i].Value
		switch {
		case p.Key != d[i].Key:
			return nil, false
		case p.Fit == Exactly && v == p.Value:
			scores = append(scores, 1<<20)
		case p.Fit == Prefix && strings.HasPrefix(v, p.Value):
			scores = append(scores, 1+len(p.Value))
		case p.Fit == Any && v != "":
			scores = append(scores, 0)
		default:
			return nil, false
		}
	}
	return scores, true
}

// The tree finds what the oracle finds, for sets whose patterns overlap a lot,
// and so does a set that was written to a file and parsed.
func TestMatchIsTheOracle(t *testing.T) {
	key := rapid.SampledFrom([]string{"k", "l"})
	text := rapid.StringMatching(`[ab*]{0,4}`)
	pattern := rapid.Custom(func(t *rapid.T) Pattern {
		p := Pattern{Key: key.Draw(t, "key"), Fit: Fit(rapid.IntRange(0, 2).Draw(t, "fit"))}
		switch p.Fit {
		case Prefix:
			p.Value = rapid.StringMatching(`[ab*]{1,3}`).Draw(t, "prefix")
		case Exactly:
			p.Value = strings.TrimRight(text.Draw(t, "value"), "*")
		}
		return p
	})
	entry := rapid.Custom(func(t *rapid.T) Entry { return Entry{key.Draw(t, "key"), text.Draw(t, "value")} })
	rapid.Check(t, func(t *rapid.T) {
		var b strings.Builder
		b.WriteString("domain: api\nrules:\n")
		seen := make(map[string]bool)
		for i, match := range rapid.SliceOfN(rapid.SliceOfN(pattern, 1, 4), 1, 60).Draw(t, "rules") {
			written := ""
			for _, p := range match {
				written += fmt.Sprintf("    - {key: %s%s}\n", p.Key, map[Fit]string{Any: "", Prefix: fmt.Sprintf(", value: %q", p.Value+"*"),
					Exactly: fmt.Sprintf(", value: %q", p.Value)}[p.Fit])
			}
			if !seen[written] {
				seen[written] = true
				fmt.Fprintf(&b, "  - name: r%d\n    limit: 1/s\n    match:\n%s", i, written)
			}
		}
		s, err := Parse("", []byte(b.String()))
		if err != nil {
			t.Fatalf("%v in\n%s", err, b.String())
		}
		for _, d := range rapid.SliceOfN(rapid.SliceOfN(entry, 0, 5), 1, 50).Draw(t, "descriptors") {
			got, want := s.Match("api", d), best(s.Rules(), d)
			if got != want {
				t.Fatalf("%q: %v, want %v, in\n%s", d, got, want, b.String())
			}
			for i := range d {
				if got != nil && !got.Match[i].Fits(d[i].Value) {
					t.Fatalf("%q: %v does not fit entry %d", d, got.Match, i)
				}
			}
		}
	})
}
