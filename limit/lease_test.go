package limit

import (
	"testing"
	"time"
)

// The tables of this file are of a bucket of 10 that refills 10 a second: times are in emissions, of
// which an epoch lasts 20 and a generation 40.
const (
	epochEmissions      = 20
	generationEmissions = 40
)

// tenASecond checks what the tables assume.
func tenASecond(t *testing.T) (terms *Terms, e Ticks) {
	t.Helper()
	terms = mustTerms(t, 10, time.Second, 0)
	e = terms.Emission
	if terms.Class.EpochTicks() != epochEmissions*e || terms.Class.Span() != generationEmissions*e || terms.Class.Epochs() != 2 {
		t.Fatalf("an epoch is %d ticks, a generation %d, %d epochs", terms.Class.EpochTicks(), terms.Class.Span(), terms.Class.Epochs())
	}
	return terms, e
}

func TestEveryClassIsWholeEpochs(t *testing.T) {
	for _, c := range classes {
		if Ticks(c.Epochs())*c.EpochTicks() != c.Span() || c.Epochs() < 2 {
			t.Errorf("%s: %d epochs of %d ticks are no generation of %d", c, c.Epochs(), c.EpochTicks(), c.Span())
		}
		if c.Duration(c.EpochTicks()) != LeaseTTL {
			t.Errorf("%s: an epoch lasts %v, want %v", c, c.Duration(c.EpochTicks()), LeaseTTL)
		}
	}
}

func TestRoll(t *testing.T) {
	terms, e := tenASecond(t)
	for _, tt := range []struct {
		name   string
		tat    Ticks
		leases Leases
		now    Ticks
		want   Ticks
		after  Leases
	}{
		{"nothing is recorded", -7, Leases{Epoch: -2}, 25, -7, Leases{Epoch: 1}},
		{"nothing is recorded, and time ran back", 3, Leases{Epoch: 1}, 19, 3, Leases{Epoch: 0}},
		{"no end", 0, Leases{Epoch: 1, Out: 4, Before: 2, Seen: 9, SeenBefore: 8}, 39, 0, Leases{Epoch: 1, Out: 4, Before: 2, Seen: 9, SeenBefore: 8}},
		{"no end, and time ran back", 0, Leases{Epoch: 1, Out: 4}, 19, 0, Leases{Epoch: 1, Out: 4}},
		{"one end, as of its moment", 0, Leases{Epoch: 0, Out: 4, Before: 2, Seen: 9, SeenBefore: 8}, 25, 20 + 6, Leases{Epoch: 1, Before: 4, SeenBefore: 9}},
		{"on the end", 0, Leases{Epoch: 0, Out: 4}, 20, 20 + 4, Leases{Epoch: 1, Before: 4}},
		{"an end that clamps nothing", 27, Leases{Epoch: 0, Out: 4}, 25, 27, Leases{Epoch: 1, Before: 4}},
		{"two ends, of which the second is now", -30, Leases{Epoch: -1, Out: 1, Before: 8}, 20, 20 + 1, Leases{Epoch: 1}},
		{"two ends, the second clamps more", -30, Leases{Epoch: -1, Out: 4, Before: 3}, 25, 20 + 4, Leases{Epoch: 1}},
		{"an older record ended twice, long ago", -70, Leases{Epoch: -2, Out: 4, Before: 3}, 39, 4, Leases{Epoch: 1}},
		{"who was seen is forgotten as well", -70, Leases{Epoch: -1, Seen: 9}, 39, 20, Leases{Epoch: 1}},
		{"more is out than the burst has become", 0, Leases{Epoch: 0, Out: 15}, 25, 20 + 10, Leases{Epoch: 1, Before: 15}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := Cell{TAT: tt.tat * e, Leases: tt.leases}
			terms.roll(&c, tt.now*e, 0, 0)
			if want := (Cell{TAT: tt.want * e, Leases: tt.after}); c != want {
				t.Errorf("got %+v, TAT %v emissions; want %+v, TAT %v", c, float64(c.TAT)/float64(e), want, tt.want)
			}
		})
	}
}

// TestOtherOpsSeeLeases: what is out is not there for anyone, at now. Nor is what larger terms consumed.
func TestOtherOpsSeeLeases(t *testing.T) {
	terms, e := tenASecond(t)
	now := 30 * e
	for _, tt := range []struct {
		name    string
		op      Op
		n       Tokens
		level   Ticks // TAT - now before
		out     Tokens
		after   Ticks
		granted Tokens
		write   bool
	}{
		{"peek", TakePartial, 0, 0, 4, 4, 0, false},
		{"peek long after", TakePartial, 0, -25, 4, 4, 0, false},
		{"take of what is not out", Take, 6, 0, 4, 10, 6, true},
		{"take of one more", Take, 7, 0, 4, 4, 0, false},
		{"partial take", TakePartial, 100, 0, 4, 10, 6, true},
		{"partial take below the clamp", TakePartial, 100, 7, 4, 10, 3, true},
		{"partial take with all but one out", TakePartial, 100, 0, 9, 10, 1, true},
		{"partial take with all out", TakePartial, 100, 0, 10, 10, 0, false},
		{"more is out than the burst has become", TakePartial, 1, 0, 25, 10, 0, false},
		{"charge", Charge, 100, 0, 4, 10, 6, true},
		{"refund", Refund, 2, 9, 4, 7, 2, true},
		{"refund no further than what is out", Refund, 9, 9, 4, 4, 9, true},
		{"reset but for what is out", Reset, 0, 9, 4, 4, 0, true},
		{"reset with all out", Reset, 0, 10, 10, 10, 0, true},
		{"a TAT far ahead is kept", TakePartial, 0, 90, 4, 90, 0, false},
		{"a TAT far ahead denies", Take, 1, 90, 4, 90, 0, false},
		{"a TAT far ahead is refunded", Refund, 8, 90, 4, 82, 8, true},
		{"a TAT far ahead is reset but for what is out", Reset, 0, 90, 4, 4, 0, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cell := Cell{TAT: now + tt.level*e, Leases: Leases{Epoch: 1, Out: tt.out - tt.out/2, Before: tt.out / 2}}
			next, out, write := terms.ApplyLeased(tt.op, tt.n, nil, 0, cell, now)
			if next.TAT != now+tt.after*e || out.Level != tt.after*e || out.Granted != tt.granted || write != tt.write {
				t.Errorf("got level %v (%v), granted %d, write %v; want %d, %d, %v", float64(next.TAT-now)/float64(e), float64(out.Level)/float64(e),
					out.Granted, write, tt.after, tt.granted, tt.write)
			}
			if next.Leases != cell.Leases {
				t.Errorf("the record went from %+v to %+v", cell.Leases, next.Leases)
			}
		})
	}
}

func TestSettle(t *testing.T) {
	terms, e := tenASecond(t)
	const gen = 1000
	now := 30 * e // epoch 1 of generation 1000: the 2001st since 1970
	for _, tt := range []struct {
		name        string
		level       Ticks
		out, before Tokens
		ask         Ask
		after       Ticks
		nowOut      Tokens
		nowBefore   Tokens
	}{
		{"nothing", 10, 4, 3, Ask{Epoch: 2001}, 10, 4, 3},
		{"spent, of this epoch", 10, 4, 3, Ask{Epoch: 2001, Settled: 3}, 10, 1, 3},
		{"spent, of the epoch before", 10, 4, 3, Ask{Epoch: 2000, Settled: 2}, 10, 4, 1},
		{"returned", 10, 4, 3, Ask{Epoch: 2001, Settled: 3, Returned: 3}, 7, 1, 3},
		{"spent and returned", 10, 4, 3, Ask{Epoch: 2000, Settled: 3, Returned: 1}, 9, 4, 0},
		{"expired: void", 10, 4, 3, Ask{Epoch: 1999, Settled: 3, Returned: 3}, 10, 4, 3},
		{"of the future: void", 10, 4, 3, Ask{Epoch: 2002, Settled: 3, Returned: 3}, 10, 4, 3},
		{"of no epoch: void", 10, 4, 3, Ask{Settled: 3, Returned: 3}, 10, 4, 3},
		{"more than is out", 10, 4, 3, Ask{Epoch: 2001, Settled: 9}, 10, 0, 3},
		{"more returned than is out", 10, 4, 3, Ask{Epoch: 2001, Settled: 9, Returned: 9}, 6, 0, 3},
		{"more returned than settled", 10, 4, 3, Ask{Epoch: 2001, Settled: 1, Returned: 9}, 9, 3, 3},
		// The clamp comes first: what is spent made no room while it was out.
		{"spent, at the clamp", 0, 4, 3, Ask{Epoch: 2001, Settled: 4}, 7, 0, 3},
		{"returned, at the clamp", 0, 4, 3, Ask{Epoch: 2001, Settled: 4, Returned: 4}, 3, 0, 3},
		{"returned, of a TAT far ahead", 90, 4, 3, Ask{Epoch: 2001, Settled: 3, Returned: 3}, 87, 1, 3},
		{"returned, no further than full", 2, 4, 0, Ask{Epoch: 2001, Settled: 4, Returned: 4}, 0, 0, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cell := Cell{TAT: now + tt.level*e, Leases: Leases{Epoch: 1, Out: tt.out, Before: tt.before}}
			next, out, write := terms.ApplyLeased(Lease, 0, &tt.ask, gen, cell, now)
			want := Cell{TAT: now + tt.after*e, Leases: Leases{Epoch: 1, Out: tt.nowOut, Before: tt.nowBefore}}
			if next != want {
				t.Errorf("got %+v, level %v; want %+v, level %d", next.Leases, float64(next.TAT-now)/float64(e), want.Leases, tt.after)
			}
			if !write || out.Granted != 0 || out.Taken != 0 || out.Level != tt.after*e {
				t.Errorf("write %v, %+v", write, out)
			}
		})
	}
}

func TestGrant(t *testing.T) {
	terms, e := tenASecond(t)
	const gen = 1000
	now := 30 * e
	for _, tt := range []struct {
		name  string
		level Ticks
		out   Tokens
		seen  int64 // in the epoch so far, of which half is over
		n     Tokens
		ask   Ask

		taken, granted Tokens
		contenders     int64
	}{
		{"half of a full bucket, when alone", 0, 0, 0, 10, Ask{}, 0, 5, 1},
		{"no more than asked for", 0, 0, 0, 2, Ask{}, 0, 2, 1},
		{"nothing is asked for", 0, 0, 0, 0, Ask{}, 0, 0, 1},
		{"the largest count", 0, 0, 0, MaxTokens, Ask{}, 0, 5, 1},
		{"half of what is there", 6, 0, 0, 10, Ask{}, 0, 2, 1},
		{"half of what is not out", 0, 4, 0, 10, Ask{}, 0, 3, 1},
		{"of an odd number the smaller half", 3, 0, 0, 10, Ask{}, 0, 3, 1},
		{"of one nothing", 9, 0, 0, 10, Ask{}, 0, 0, 1},
		{"of nothing nothing", 10, 0, 0, 10, Ask{Take: 1}, 0, 0, 1},
		{"of a TAT far ahead nothing", 90, 4, 0, 10, Ask{Take: 1}, 0, 0, 1},
		{"of a part of a token nothing", 10, 0, 0, 10, Ask{Take: 1}, 0, 0, 1},

		{"callers first, all of it", 0, 0, 0, 10, Ask{Take: 10}, 10, 0, 1},
		{"callers get what is there", 4, 0, 0, 10, Ask{Take: 10}, 6, 0, 1},
		{"callers get what is not out", 0, 4, 0, 10, Ask{Take: 10}, 6, 0, 1},
		{"callers first, half of the rest on lease", 0, 0, 0, 10, Ask{Take: 4}, 4, 3, 1},
		{"one on lease, for who has callers", 0, 0, 0, 10, Ask{Take: 9}, 9, 1, 1},
		{"one on lease, of few among many", 7, 0, 128 * 20, 10, Ask{Take: 1}, 1, 1, 10},
		{"callers get theirs whole", 4, 0, 0, 10, Ask{Take: 9, Piece: 3}, 6, 0, 1},
		{"callers get theirs whole or not at all", 4, 0, 0, 10, Ask{Take: 7, Piece: 7}, 0, 0, 1},
		{"the largest take", 0, 0, 0, 0, Ask{Take: MaxTokens}, 10, 0, 1},

		{"a third, with two", 0, 0, 128 * 4, 10, Ask{}, 0, 3, 2},
		{"an eleventh, with ten", 0, 0, 128 * 20, 10, Ask{}, 0, 0, 10},
		{"the presence of this ask counts", 0, 0, 256, 10, Ask{Presence: 256}, 0, 3, 2},
		{"presence is bounded", 0, 0, maxSeen, 10, Ask{Presence: Presence}, 0, 0, maxSeen / Presence},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cell := Cell{TAT: now + tt.level*e, Leases: Leases{Epoch: 1, Out: tt.out, Seen: tt.seen}}
			next, out, write := terms.ApplyLeased(Lease, tt.n, &tt.ask, gen, cell, now)
			if out.Taken != tt.taken || out.Granted != tt.granted || out.Contenders != tt.contenders || out.Epoch != 2001 || !write {
				t.Errorf("got %+v, write %v; want taken %d, granted %d, contenders %d", out, write, tt.taken, tt.granted, tt.contenders)
			}
			level := max(tt.level, Ticks(tt.out)) + Ticks(tt.taken+tt.granted)
			want := Cell{TAT: now + level*e, Leases: Leases{Epoch: 1, Out: tt.out + tt.granted, Seen: min(tt.seen+tt.ask.Presence, maxSeen)}}
			if next != want || out.Level != level*e {
				t.Errorf("got %+v, level %d; want %+v", next, out.Level, want)
			}
		})
	}
}

// TestGrantKeepsTheRecordInRange: where more than MaxTokens would be out, less is granted.
func TestGrantKeepsTheRecordInRange(t *testing.T) {
	terms := mustTerms(t, MaxTokens, time.Second, 0)
	cell := Cell{Leases: Leases{Out: maxOut - 3}}
	next, out, _ := terms.ApplyLeased(Lease, MaxTokens, &Ask{}, 0, cell, 0)
	if out.Granted != 1 || next.Out != maxOut-2 || !next.Valid() {
		t.Errorf("granted %d, %+v; want half of 3", out.Granted, next)
	}
	small := mustTerms(t, 10, time.Second, 0)
	if next, out, _ := small.ApplyLeased(Lease, 10, &Ask{Take: 1}, 0, cell, 0); out.Granted+out.Taken != 0 || !next.Valid() {
		t.Errorf("the burst shrank below what is out: %+v, %+v", out, next)
	}
}

func TestContenders(t *testing.T) {
	terms, e := tenASecond(t)
	for _, tt := range []struct {
		name         string
		seen, before int64
		now          Ticks // since the epoch began
		want         int64
	}{
		{"nobody", 0, 0, 0, 1},
		{"nobody for long", 0, 0, 20, 1},
		{"one, at the start", 0, 256, 0, 1},
		{"one, in the middle", 128, 256, 10, 1},
		{"one, at the end", 256, 256, 20, 1},
		{"ten, at the start", 0, 2560, 0, 10},
		{"ten, in the middle", 1280, 2560, 10, 10},
		{"ten, at the end", 2560, 2560, 20, 10},
		{"ten that left", 0, 2560, 10, 5},
		{"ten that came", 1280, 0, 10, 5},
		{"not quite two", 511, 0, 20, 1},
		{"two", 512, 0, 20, 2},
		{"time ran back", 2560, 2560, -1, 20},
		{"time is beyond", 2560, 2560, 25, 10},
		{"the most", maxSeen, maxSeen, 0, 2 * maxSeen / Presence},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := Cell{Leases: Leases{Epoch: 1, Seen: tt.seen, SeenBefore: tt.before}}
			if got := contenders(&c, (epochEmissions+tt.now)*e, terms.Class.EpochTicks()); got != tt.want {
				t.Errorf("got %d, want %d", got, tt.want)
			}
		})
	}
}

func TestLeasesValid(t *testing.T) {
	for _, ok := range []Leases{{}, {Out: maxOut, Before: maxOut, Seen: maxSeen, SeenBefore: maxSeen}, {Epoch: 1<<40 - 1}, {Epoch: 1 - 1<<40}} {
		if !ok.Valid() {
			t.Errorf("%+v is not valid", ok)
		}
	}
	for _, bad := range []Leases{{Out: -1}, {Before: -1}, {Seen: -1}, {SeenBefore: -1}, {Out: maxOut + 1}, {Before: maxOut + 1},
		{Seen: maxSeen + 1}, {SeenBefore: maxSeen + 1}, {Epoch: 1 << 40}, {Epoch: -1 << 40}} {
		if bad.Valid() {
			t.Errorf("%+v is valid", bad)
		}
	}
}

// TestTakeAllOfAFullBucket: who asks alone can have every token, in a bucket of any size.
func TestTakeAllOfAFullBucket(t *testing.T) {
	for _, burst := range []Tokens{1, 2, 3, 7, 1000, MaxTokens} {
		terms := mustTerms(t, burst, time.Second, 0)
		next, out, _ := terms.ApplyLeased(Lease, burst, &Ask{Take: burst, Presence: Presence}, 5, Cell{TAT: 77}, 77)
		if out.Taken != burst || out.Granted != 0 || next.Out != 0 || terms.Remaining(out.Level) != 0 {
			t.Errorf("burst %d: %+v, %+v", burst, out, next)
		}
	}
}

// TestACrashedAgentsTokens are free again when the second epoch has ended, and not before.
func TestACrashedAgentsTokens(t *testing.T) {
	terms, e := tenASecond(t)
	cell, out, _ := terms.ApplyLeased(Lease, 10, &Ask{}, 7, Cell{TAT: 19 * e}, 19*e)
	if out.Granted != 5 || out.Epoch != 14 {
		t.Fatalf("granted %+v, want 5 of the 14th epoch", out)
	}
	for _, tt := range []struct {
		now  Ticks
		free Tokens
	}{{19, 5}, {20, 5}, {39, 5}, {40, 5}, {41, 6}, {45, 10}, {60, 10}} {
		// From 40 on the cell is one of the generation before.
		c, gen, now := cell, int64(7), tt.now
		if now >= generationEmissions {
			c.TAT, c.Epoch, gen, now = c.TAT-terms.Class.Span(), c.Epoch-terms.Class.Epochs(), gen+1, now-generationEmissions
		}
		if _, out, _ := terms.ApplyLeased(TakePartial, 100, nil, gen, c, now*e); out.Granted != tt.free {
			t.Errorf("at %d emissions %d are free, want %d", tt.now, out.Granted, tt.free)
		}
	}
}
