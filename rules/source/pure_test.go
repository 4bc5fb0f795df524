package source

import (
	"testing"

	"github.com/spillgate/spillgate/rules"
)

func TestJudge(t *testing.T) {
	head := func(n int64, text string) rules.Head { return rules.Head{Number: n, Sum: rules.SumOf([]byte(text))} }
	five, six := head(5, "a"), head(6, "b")
	for _, tt := range []struct {
		name string
		s    standing
		h    rules.Head
		want verdict
	}{
		{"nothing anywhere", standing{}, rules.Head{}, none},
		{"the first", standing{}, five, newer},
		{"in force", standing{in: five}, five, same},
		{"the next", standing{in: five}, six, newer},
		{"far ahead", standing{in: five}, head(1<<40, "a"), newer},
		{"late", standing{in: five}, head(4, "z"), lost},
		{"late, with the text in force", standing{in: five}, head(4, "a"), lost},
		{"gone", standing{in: five}, rules.Head{}, lost},
		{"another of that number", standing{in: five}, head(5, "z"), lost},
		{"refused", standing{in: five, refused: six}, six, bad},
		{"refused, nothing in force", standing{refused: six}, six, bad},
		{"another of the refused number", standing{in: five, refused: six}, head(6, "z"), newer},
		{"after the refused one", standing{in: five, refused: six}, head(7, "a"), newer},
		{"gone after a refusal", standing{in: five, refused: six}, five, same},
	} {
		if got := tt.s.judge(tt.h); got != tt.want {
			t.Errorf("%s: %d, want %d", tt.name, got, tt.want)
		}
	}
}

func TestWatch(t *testing.T) {
	a, b, c, gone := sight{sum: rules.Sum{1}}, sight{sum: rules.Sum{2}}, sight{sum: rules.Sum{3}}, sight{err: "gone"}
	type step struct {
		see        sight
		act, again bool
	}
	for name, steps := range map[string][]step{
		"nothing new":        {{a, false, false}, {a, false, false}},
		"new and stays":      {{b, false, true}, {b, true, false}, {b, false, false}},
		"written in pieces":  {{b, false, true}, {c, false, true}, {c, true, false}, {c, false, false}},
		"there and back":     {{b, false, true}, {a, false, false}, {b, false, true}, {b, true, false}},
		"gone for a moment":  {{gone, false, true}, {b, false, true}, {b, true, false}},
		"gone and back":      {{gone, false, true}, {gone, true, false}, {gone, false, false}, {a, false, true}, {a, true, false}},
		"another each time":  {{b, false, true}, {c, false, true}, {b, false, true}, {c, false, true}},
		"two, one by one":    {{b, false, true}, {b, true, false}, {c, false, true}, {c, true, false}},
		"cannot be read now": {{gone, false, true}, {sight{err: "else"}, false, true}, {sight{err: "else"}, true, false}},
	} {
		w := watch{known: a}
		for i, s := range steps {
			if act, again := w.look(s.see); act != s.act || again != s.again {
				t.Errorf("%s, step %d: %v, %v, want %v, %v", name, i, act, again, s.act, s.again)
			}
		}
	}
	w := watch{known: a}
	w.look(b)
	if !w.settle(c) || w.settle(c) || w.unsettled {
		t.Errorf("settled at once: %+v", w)
	}
	if act, again := w.look(c); act || again {
		t.Error("what was acted upon is acted upon again")
	}
}
