package batcher

import (
	"errors"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/spillgate/spillgate/limit"
)

func mustTerms(t testing.TB, requests limit.Tokens, period time.Duration, burst limit.Tokens) *limit.Terms {
	t.Helper()
	terms, err := limit.Rate{Requests: requests, Period: period, Burst: burst}.Terms()
	if err != nil {
		t.Fatal(err)
	}
	return terms
}

// gather puts takes of these sizes into one pending entry.
func gather(terms *limit.Terms, sizes ...limit.Tokens) (*pending, []*Claim) {
	p := &pending{entry: Entry{Terms: terms, Op: limit.Take}}
	claims := make([]*Claim, len(sizes))
	for i, n := range sizes {
		claims[i] = &Claim{Terms: terms, Op: limit.Take, N: n}
		p.push(claims[i])
	}
	return p, claims
}

// order reads the list both ways and fails if they differ.
func order(t *testing.T, p *pending) []*Claim {
	t.Helper()
	var forth, back []*Claim
	for c := p.first; c != nil; c = c.next {
		if c.in != p {
			t.Errorf("a claim in the list does not know its entry")
		}
		forth = append(forth, c)
	}
	for c := p.last; c != nil; c = c.prev {
		back = append(back, c)
	}
	slices.Reverse(back)
	if !slices.Equal(forth, back) {
		t.Errorf("forth %v, back %v", forth, back)
	}
	return forth
}

func TestPendingList(t *testing.T) {
	for _, tt := range []struct {
		name  string
		leave []int
	}{
		{"first", []int{0}}, {"middle", []int{1}}, {"last", []int{2}},
		{"first two", []int{0, 1}}, {"last two", []int{2, 1}}, {"all", []int{1, 0, 2}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p, claims := gather(nil, 1, 2, 3)
			want := slices.Clone(claims)
			for _, i := range tt.leave {
				p.remove(claims[i])
				if c := claims[i]; c.in != nil || c.prev != nil || c.next != nil {
					t.Errorf("a removed claim still points into the list")
				}
				want = slices.DeleteFunc(want, func(c *Claim) bool { return c == claims[i] })
			}
			if got := order(t, p); !slices.Equal(got, want) {
				t.Errorf("%d claims are left, want %d in order", len(got), len(want))
			}
			p.push(claims[tt.leave[0]])
			if got := order(t, p); !slices.Equal(got, append(want, claims[tt.leave[0]])) {
				t.Errorf("a claim that comes back is not the last")
			}
		})
	}
}

func TestPendingReplace(t *testing.T) {
	for i := range 3 {
		p, claims := gather(nil, 1, 2, 3)
		old, standIn := claims[i], new(Claim)
		p.replace(old, standIn)
		claims[i] = standIn
		if got := order(t, p); !slices.Equal(got, claims) {
			t.Errorf("claim %d: the stand-in is not in its place", i)
		}
		if old.in != nil || old.prev != nil || old.next != nil {
			t.Errorf("claim %d: a replaced claim still points into the list", i)
		}
	}
	p, claims := gather(nil, 1)
	p.replace(claims[0], new(Claim))
	if got := order(t, p); len(got) != 1 {
		t.Errorf("%d claims", len(got))
	}
}

func TestAccepts(t *testing.T) {
	hourly := mustTerms(t, 10, time.Hour, 0)
	same, other := *hourly, mustTerms(t, 11, time.Hour, 0)
	for _, tt := range []struct {
		name  string
		entry limit.Op
		claim limit.Op
		terms *limit.Terms
		want  bool
	}{
		{"takes", limit.Take, limit.Take, hourly, true},
		{"a take and a sealed one", limit.TakePartial, limit.Take, hourly, true},
		{"refunds", limit.Refund, limit.Refund, hourly, true},
		{"resets", limit.Reset, limit.Reset, hourly, true},
		{"equal terms, compiled again", limit.Take, limit.Take, &same, true},
		{"other terms", limit.Take, limit.Take, other, false},
		{"a refund on a take", limit.Take, limit.Refund, hourly, false},
		{"a take on a refund", limit.Refund, limit.Take, hourly, false},
		{"a reset on a take", limit.Take, limit.Reset, hourly, false},
	} {
		p := &pending{entry: Entry{Terms: hourly, Op: tt.entry}}
		if got := p.accepts(&Claim{Terms: tt.terms, Op: tt.claim}); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}

func TestSeal(t *testing.T) {
	ten := mustTerms(t, 10, time.Hour, 0)
	for _, tt := range []struct {
		name  string
		op    limit.Op
		sizes []limit.Tokens
		want  limit.Op
		n     limit.Tokens
	}{
		{"one is all or nothing", limit.Take, []limit.Tokens{3}, limit.Take, 3},
		{"several share", limit.Take, []limit.Tokens{3, 4}, limit.TakePartial, 7},
		{"no more than the burst", limit.Take, []limit.Tokens{8, 8}, limit.TakePartial, 10},
		{"a peek", limit.Take, []limit.Tokens{0}, limit.TakePartial, 0},
		{"a peek among takes", limit.Take, []limit.Tokens{0, 2}, limit.TakePartial, 2},
		{"above the burst asks for nothing", limit.Take, []limit.Tokens{11}, limit.TakePartial, 0},
		{"above the burst, among others", limit.Take, []limit.Tokens{11, 2, limit.MaxTokens}, limit.TakePartial, 2},
		{"refunds add up", limit.Refund, []limit.Tokens{3, 4}, limit.Refund, 7},
		{"refunds to full", limit.Refund, []limit.Tokens{8, 12}, limit.Refund, 10},
		{"resets", limit.Reset, []limit.Tokens{0, 0}, limit.Reset, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p, claims := gather(ten, tt.sizes...)
			p.entry.Op = tt.op
			p.seal()
			if p.entry.Op != tt.want || p.entry.N != tt.n {
				t.Errorf("op %d of %d, want %d of %d", p.entry.Op, p.entry.N, tt.want, tt.n)
			}
			for i, c := range claims {
				if !c.sent {
					t.Errorf("claim %d is not marked as sent", i)
				}
			}
		})
	}
}

func TestShare(t *testing.T) {
	ten := mustTerms(t, 10, time.Hour, 0)
	e := ten.Emission
	type out struct {
		granted limit.Tokens
		level   limit.Ticks
	}
	type outs = []out
	for _, tt := range []struct {
		name    string
		sizes   []limit.Tokens
		orphans []int
		before  limit.Ticks // the level
		want    outs
		unused  limit.Tokens
	}{
		{"one", []limit.Tokens{3}, nil, 0, outs{{3, 3 * e}}, 0},
		{"one denied", []limit.Tokens{3}, nil, 8 * e, outs{{0, 8 * e}}, 0},
		{"in order", []limit.Tokens{1, 2, 3}, nil, 0, outs{{1, e}, {2, 3 * e}, {3, 6 * e}}, 0},
		{"the last goes without", []limit.Tokens{4, 4, 4}, nil, 0, outs{{4, 4 * e}, {4, 8 * e}, {0, 8 * e}}, 2},
		{"a small one behind a large one", []limit.Tokens{4, 8, 5}, nil, 0, outs{{4, 4 * e}, {0, 4 * e}, {5, 9 * e}}, 1},
		{"above the burst", []limit.Tokens{11}, nil, 0, outs{{0, 0}}, 0},
		{"above the burst, first", []limit.Tokens{11, 2}, nil, 0, outs{{0, 0}, {2, 2 * e}}, 0},
		{"a peek sees its place", []limit.Tokens{2, 0, 2}, nil, e, outs{{2, 3 * e}, {0, 3 * e}, {2, 5 * e}}, 0},
		{"fractions stay", []limit.Tokens{1, 1}, nil, 8*e + e/2, outs{{1, 9*e + e/2}, {0, 9*e + e/2}}, 0},
		{"an orphan leaves its tokens", []limit.Tokens{4}, []int{0}, 0, outs{{0, 0}}, 4},
		{"an orphan leaves them to others", []limit.Tokens{4, 3, 3}, []int{0}, 3 * e, outs{{0, 3 * e}, {3, 6 * e}, {3, 9 * e}}, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p, claims := gather(ten, tt.sizes...)
			p.seal()
			for _, i := range tt.orphans {
				claims[i].orphan = true
			}
			p.entry.Out = apply(&p.entry, tt.before)
			unused := p.share()
			if unused != tt.unused {
				t.Errorf("unused %d, want %d", unused, tt.unused)
			}
			for i, c := range claims {
				if got := (out{c.Out.Granted, c.Out.Level}); got != tt.want[i] || c.Err != nil {
					t.Errorf("claim %d: %+v, %v; want %+v", i, got, c.Err, tt.want[i])
				}
			}
		})
	}
}

// apply runs an entry on a cell of that level.
func apply(e *Entry, level limit.Ticks) limit.Outcome {
	const now = 1_000_000
	next, granted, _ := e.Terms.Apply(e.Op, e.N, now+level, now)
	return limit.Outcome{Granted: granted, Level: next - now}
}

func TestShareOfOthers(t *testing.T) {
	ten := mustTerms(t, 10, time.Hour, 0)
	lost := errors.New("lost")
	for _, tt := range []struct {
		name string
		op   limit.Op
		out  limit.Outcome
		err  error
	}{
		{"a failed take", limit.TakePartial, limit.Outcome{}, lost},
		{"a refund", limit.Refund, limit.Outcome{Granted: 5, Level: 7}, nil},
		{"a failed refund", limit.Refund, limit.Outcome{}, lost},
		{"a reset", limit.Reset, limit.Outcome{}, nil},
	} {
		p, claims := gather(ten, 2, 3)
		p.entry.Op, p.entry.Out, p.entry.Err = tt.op, tt.out, tt.err
		if unused := p.share(); unused != 0 {
			t.Errorf("%s: unused %d", tt.name, unused)
		}
		for _, c := range claims {
			if c.Out != tt.out || c.Err != tt.err {
				t.Errorf("%s: %+v, %v", tt.name, c.Out, c.Err)
			}
		}
	}
}

// TestLikeOneByOne: sharing out one entry and refunding the rest is the same as asking for each claim, in
// order, on its own: for every claim and for the cell.
func TestLikeOneByOne(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		burst := limit.Tokens(rapid.Int64Range(1, 50).Draw(t, "burst"))
		terms, err := limit.Rate{Requests: 7, Period: 3 * time.Second, Burst: burst}.Terms()
		if err != nil {
			t.Fatal(err)
		}
		var sizes []limit.Tokens
		for range rapid.IntRange(1, 12).Draw(t, "claims") {
			sizes = append(sizes, limit.Tokens(rapid.Int64Range(0, int64(burst)+2).Draw(t, "n")))
		}
		const now = limit.Ticks(1_000_000)
		level := limit.Ticks(rapid.Int64Range(-10, int64(terms.Depth)).Draw(t, "level"))
		lag := rapid.Int64Range(0, 10).Draw(t, "lag")

		p, claims := gather(terms, sizes...)
		p.seal()
		for i := range claims {
			if rapid.IntRange(0, 5).Draw(t, "given up") == 0 {
				standIn := &Claim{Op: limit.Take, N: sizes[i], sent: true, orphan: true}
				p.replace(claims[i], standIn)
				claims[i] = standIn
			}
		}
		tat, granted, _ := terms.Apply(p.entry.Op, p.entry.N, now+level, now)
		p.entry.Out = limit.Outcome{Granted: granted, Level: tat - now, Lag: lag}
		if unused := p.share(); unused > 0 {
			tat, _, _ = terms.Apply(limit.Refund, unused, tat, now)
		}

		single := now + level
		for i, c := range claims {
			n := c.N
			if c.orphan {
				n = 0 // as if it had not asked
			}
			next, granted, _ := terms.Apply(limit.Take, n, single, now)
			single = next
			if want := (limit.Outcome{Granted: granted, Level: next - now, Lag: lag}); c.Out != want {
				t.Fatalf("claim %d of %d: %+v, alone %+v", i, c.N, c.Out, want)
			}
		}
		if tat != max(single, now) {
			t.Fatalf("the cell is at %d, one by one at %d", tat-now, single-now)
		}
	})
}
