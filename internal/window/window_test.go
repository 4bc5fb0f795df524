package window

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// worstOfAll is Worst, looking at every window.
func worstOfAll(all []Admission, l Limit) Window {
	worst := l.window(all, 0, 0)
	first := true
	for _, a := range all {
		for _, b := range all {
			if a.Sent > b.Received {
				continue
			}
			if w := l.window(all, a.Sent, b.Received); w.Admitted > 0 && (first || l.over(w) > l.over(worst)) {
				worst, first = w, false
			}
		}
	}
	return worst
}

// mostOfAll is Most, looking at every window that begins with an admission.
func mostOfAll(all []Admission, l Limit, length time.Duration) (most int64) {
	for _, a := range all {
		most = max(most, l.window(all, a.Sent, a.Sent+length).Admitted)
	}
	return most
}

func drawLimit(t *rapid.T) Limit {
	return Limit{
		Burst:  rapid.Int64Range(0, 5).Draw(t, "burst"),
		Tokens: rapid.Int64Range(0, 5).Draw(t, "tokens"),
		Per:    time.Duration(rapid.IntRange(1, 20).Draw(t, "per")),
		Slack:  time.Duration(rapid.IntRange(0, 3).Draw(t, "slack")),
	}
}

// drawAdmissions has many ties.
func drawAdmissions(t *rapid.T) []Admission {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Admission {
		sent := time.Duration(rapid.IntRange(0, 40).Draw(t, "sent"))
		return Admission{sent, sent + time.Duration(rapid.IntRange(0, 15).Draw(t, "took")), rapid.Int64Range(1, 4).Draw(t, "n")}
	}), 0, 40).Draw(t, "admissions")
}

// TestAgainstAllWindows: the fast ways find what looking at every window finds.
func TestAgainstAllWindows(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all, l := drawAdmissions(t), drawLimit(t)
		before := slices.Clone(all)
		got, want := Worst(all, l), worstOfAll(all, l)
		if l.over(got) != l.over(want) {
			t.Errorf("worst is %v, want %v", got, want)
		}
		length := time.Duration(rapid.IntRange(0, 60).Draw(t, "length"))
		most := Most(all, l, length)
		if want := mostOfAll(all, l, length); most.Admitted != want || most.To-most.From != length {
			t.Errorf("most in %v is %v, want %d", length, most, want)
		}
		if most.Over > got.Over && most.Admitted > 0 {
			t.Errorf("a window is worse than the worst: %v, %v", most, got)
		}
		if !slices.Equal(all, before) {
			t.Error("the ledger was changed")
		}
	})
}

// bucket is a token bucket in exact arithmetic: tokens * Per.
type bucket struct {
	limit Limit
	level int64
	last  time.Duration
}

func (b *bucket) advance(now time.Duration) {
	b.level = min(b.limit.Burst*int64(b.limit.Per), b.level+b.limit.Tokens*int64(now-b.last))
	b.last = now
}

// TestAgainstABucket: with exact times there is a breach exactly if a bucket that takes all the admissions goes
// below zero. With intervals around those times there is none that the exact times have not.
func TestAgainstABucket(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := drawLimit(t)
		l.Slack = 0
		all := drawAdmissions(t)
		slices.SortFunc(all, func(x, y Admission) int { return int(x.Sent - y.Sent) })
		b := bucket{limit: l, level: l.Burst * int64(l.Per)}
		exact, below := slices.Clone(all), false
		for i, a := range all {
			exact[i].Received = a.Sent
			b.advance(a.Sent)
			b.level -= a.Tokens * int64(l.Per)
			below = below || b.level < 0
		}
		if w := Worst(exact, l); w.Breach() != below {
			t.Errorf("breach %v (%v), bucket below zero %v", w.Breach(), w, below)
		}
		if w := Worst(all, l); w.Breach() && !below {
			t.Errorf("a false alarm: %v", w)
		}
	})
}

// TestLarge: in a ledger too long to look at window by window, what a bucket lets pass is no breach, with
// times exact or not, and one token more is.
func TestLarge(t *testing.T) {
	const n, jitter = 50_000, 20 * time.Millisecond
	l := Limit{Burst: 100, Tokens: 1000, Per: time.Second}
	r := rand.New(rand.NewPCG(1, 2))
	exact, vague := make([]Admission, n), make([]Admission, n)
	for i := range n {
		at := max(0, time.Duration(i+1)-time.Duration(l.Burst)) * time.Millisecond // as soon as there is a token
		exact[i] = Admission{at, at, 1}
		vague[i] = Admission{max(0, at-time.Duration(r.Int64N(int64(jitter)))), at + time.Duration(r.Int64N(int64(jitter))), 1}
	}
	if w := Worst(exact, l); w.Over != 0 {
		t.Errorf("a bucket that is always empty: %v", w)
	}
	if w := Worst(vague, l); w.Breach() || w.Over < -2*float64(l.Tokens)*jitter.Seconds() {
		t.Errorf("times not exact: %v", w)
	}
	at := exact[n/2].Sent
	w := Worst(append(exact, Admission{at, at, 1}), l)
	if w.Over != 1 || w.From > at || w.To < at {
		t.Errorf("one token too many at %v was not found: %v", at, w)
	}
	if !strings.Contains(w.String(), "+1.00 on what is allowed") {
		t.Error(w)
	}
}

func TestRefuses(t *testing.T) {
	good := Limit{Burst: 1, Tokens: 1, Per: time.Second}
	for _, tt := range []struct {
		name string
		all  []Admission
		l    Limit
	}{
		{"backwards", []Admission{{2, 1, 1}}, good},
		{"before the start", []Admission{{-1, 1, 1}}, good},
		{"negative", []Admission{{1, 2, -1}}, good},
		{"no period", nil, Limit{Burst: 1, Tokens: 1}},
		{"too many tokens", []Admission{{1, 2, 1 << 40}}, good},
		{"too long", []Admission{{1, 1 << 60, 1}}, Limit{Tokens: 100, Per: 1}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("it was taken")
				}
			}()
			Worst(tt.all, tt.l)
		})
	}
	if w := Worst(nil, good); w.Breach() || w.Over != -1 {
		t.Errorf("of nothing: %v", w)
	}
}
