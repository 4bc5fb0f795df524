package limit

import (
	"strings"
	"testing"
	"time"
)

// The tables of this file are of buckets in the shortest class. Times are in
// microseconds since splitEra, the beginning of a generation.
const splitEra = 1_700_000_000_000_000

// divided is a bucket whose home is at hand.
type divided struct {
	t     *testing.T
	terms *Terms
	home  Cell
	load  Load
}

func newDivided(t *testing.T, perSecond, burst Tokens) *divided {
	t.Helper()
	d := &divided{t: t, terms: mustTerms(t, perSecond, time.Second, burst)}
	gen, now := d.at(0)
	if now != 0 {
		t.Fatalf("splitEra is not the beginning of generation %d", gen)
	}
	return d
}

// at is the place of a time.
func (d *divided) at(micros int64) (generation int64, now Ticks) {
	return d.terms.Class.At(1000 * (splitEra + micros))
}

// see is home's cell as of a time.
func (d *divided) see(micros int64, do func(generation int64, now Ticks)) {
	gen, now := d.at(micros)
	was, _ := d.at(0)
	d.shift(gen - was)
	do(gen, now)
	d.shift(was - gen)
}

func (d *divided) shift(generations int64) {
	d.home.TAT -= Ticks(generations) * d.terms.Class.Span()
	d.home.Epoch -= generations * d.terms.Class.Epochs()
}

func (d *divided) touch(micros int64, p Part) (out Outcome) {
	d.see(micros, func(gen int64, now Ticks) {
		d.home, d.load, out = d.terms.ApplyTouch(&p, d.load, gen, d.home, now)
	})
	return out
}

func (d *divided) op(micros int64, op Op, n Tokens, ask Ask) (out Outcome) {
	d.see(micros, func(gen int64, now Ticks) {
		next, o, write := d.terms.ApplyLeased(op, n, &ask, gen, d.home, now)
		if out = o; write {
			d.home = next
		}
	})
	return out
}

func (d *divided) merge(micros int64, leased Tokens, p Part) (out Outcome) {
	d.see(micros, func(gen int64, now Ticks) {
		next, o, write := d.terms.ApplyMerge(leased, &p, gen, d.home, now)
		if out = o; write {
			d.home = next
		}
	})
	return out
}

// split divides the bucket at a time.
func (d *divided) split(micros int64, ways int) Split {
	d.t.Helper()
	d.touch(micros, Part{Ops: 100, Threshold: 100, Ways: ways, Stride: 1})
	if s := d.home.Split; s.Ways != ways || s.Start != splitEra+micros {
		d.t.Fatalf("split at %d: %+v", micros, s)
	}
	return d.home.Split
}

// closing is the split, which has begun to end.
func (d *divided) closing(micros int64) Split {
	d.t.Helper()
	if d.touch(micros, Part{End: true}); !d.home.Closing {
		d.t.Fatalf("%+v is not closing", d.home.Split)
	}
	return d.home.Split
}

// Of buckets that fill in a second or less.
const (
	milli  = 1000
	second = 1_000_000
	ttl    = 3 * second // SplitTTL
	margin = second / 2 // SplitMargin
)

// TestTouch is what home decides.
func TestTouch(t *testing.T) {
	busy := Part{Ops: 100, Threshold: 100, Ways: 4, Stride: 1}
	idle := Part{Ops: 1, Threshold: 100, Ways: 4, Stride: 1}
	with := func(p Part, change func(*Part)) Part { change(&p); return p }
	type step struct {
		at   int64
		part Part
		want Split // Start, Until, Ways, Closing; times since splitEra
	}
	since := func(micros int64) int64 { return splitEra + micros }
	for _, tt := range []struct {
		name  string
		burst Tokens
		steps []step
	}{
		{"a load below the threshold", 10, []step{{0, with(busy, func(p *Part) { p.Ops = 99 }), Split{}}}},
		{"a load at the threshold", 10, []step{{0, busy, Split{Start: since(0), Until: since(ttl), Ways: 4}}}},
		{"a load of two agents", 10, []step{
			{0, with(busy, func(p *Part) { p.Ops = 50 }), Split{}},
			{1, with(busy, func(p *Part) { p.Ops = 50 }), Split{Start: since(1), Until: since(1 + ttl), Ways: 4}}}},
		{"the second before counts by the part that lies in the last one", 10, []step{
			{999 * milli, with(busy, func(p *Part) { p.Ops = 99 }), Split{}},
			{1500 * milli, with(busy, func(p *Part) { p.Ops = 50 }), Split{}},
			{1500 * milli, with(busy, func(p *Part) { p.Ops = 1 }), Split{Start: since(1500 * milli), Until: since(1500*milli + ttl), Ways: 4}}}},
		{"a threshold of 0 splits nothing", 10, []step{{0, with(busy, func(p *Part) { p.Threshold = 0 }), Split{}}}},
		{"one master", 10, []step{{0, with(busy, func(p *Part) { p.Ways = 1 }), Split{}}}},
		{"a burst of 1", 1, []step{{0, busy, Split{}}}},
		{"no more ways than tokens", 3, []step{{0, busy, Split{Start: since(0), Until: since(ttl), Ways: 3}}}},
		{"no more ways than MaxWays", 1000, []step{{0, with(busy, func(p *Part) { p.Ways = 1000 }), Split{Start: since(0), Until: since(ttl), Ways: MaxWays}}}},
		{"kept whole by order", 10, []step{{0, with(busy, func(p *Part) { p.End = true }), Split{}}}},
		{"extended while load lasts", 10, []step{
			{0, busy, Split{Start: since(0), Until: since(ttl), Ways: 4}},
			{second, busy, Split{Start: since(0), Until: since(second + ttl), Ways: 4}}}},
		{"extended at a quarter of the load", 10, []step{
			{0, busy, Split{Start: since(0), Until: since(ttl), Ways: 4}},
			{2500 * milli, with(idle, func(p *Part) { p.Ops = 25 }), Split{Start: since(0), Until: since(2500*milli + ttl), Ways: 4}}}},
		{"ended below a quarter of it, and not extended any more", 10, []step{
			{0, busy, Split{Start: since(0), Until: since(ttl), Ways: 4}},
			{2500 * milli, with(idle, func(p *Part) { p.Ops = 24 }), Split{Start: since(0), Until: since(ttl), Ways: 4, Closing: true}},
			{2600 * milli, busy, Split{Start: since(0), Until: since(ttl), Ways: 4, Closing: true}}}},
		{"not ended for want of load while it is young", 10, []step{
			{0, busy, Split{Start: since(0), Until: since(ttl), Ways: 4}},
			{1999 * milli, idle, Split{Start: since(0), Until: since(1999*milli + ttl), Ways: 4}}}},
		{"ended by order", 10, []step{
			{0, busy, Split{Start: since(0), Until: since(ttl), Ways: 4}},
			{1, with(busy, func(p *Part) { p.End = true }), Split{Start: since(0), Until: since(ttl), Ways: 4, Closing: true}}}},
		{"whole again after the end and a margin", 10, []step{
			{0, busy, Split{Start: since(0), Until: since(ttl), Ways: 4}},
			{ttl + margin, Part{}, Split{Start: since(0), Until: since(ttl)}}}},
		{"which is forgotten once every lease from before it has ended", 10, []step{
			{0, busy, Split{Start: since(0), Until: since(ttl), Ways: 4}},
			{4*second - 1, Part{}, Split{Start: since(0), Until: since(ttl)}},
			{4 * second, Part{}, Split{}}}},
		{"and split again at once", 10, []step{
			{0, busy, Split{Start: since(0), Until: since(ttl), Ways: 4}},
			{ttl + margin, busy, Split{Start: since(ttl + margin), Until: since(2*ttl + margin), Ways: 4}}}},
		{"not whole a moment earlier", 10, []step{
			{0, busy, Split{Start: since(0), Until: since(ttl), Ways: 4}},
			{ttl + margin - 1, Part{}, Split{Start: since(0), Until: since(2*ttl + margin - 1), Ways: 4}}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := newDivided(t, 20*tt.burst, tt.burst)
			for i, s := range tt.steps {
				d.touch(s.at, s.part)
				got := d.home.Split
				got.Stride, got.Level, got.Held = 0, 0, 0
				if got != s.want {
					t.Errorf("step %d: %+v, want %+v", i, got, s.want)
				}
			}
		})
	}
}

// TestAdopt: a home that lost its split takes up what an agent knows, if that can be true.
func TestAdopt(t *testing.T) {
	const now = 10 * second
	k := Split{Start: splitEra + now - second, Until: splitEra + now + second, Ways: 4, Stride: 3, Held: 2, Level: 7}
	for _, tt := range []struct {
		name   string
		change func(s *Split, d *divided)
		want   bool
	}{
		{"as it is", func(*Split, *divided) {}, true},
		{"until it is over", func(s *Split, _ *divided) { s.Until = splitEra + now - margin + 1 }, true},
		{"not when it is over", func(s *Split, _ *divided) { s.Until = splitEra + now - margin }, false},
		{"also one that is about to end", func(s *Split, _ *divided) { s.Closing = true }, true},
		{"not none", func(s *Split, _ *divided) { s.Ways = 0 }, false},
		{"not one of one part", func(s *Split, _ *divided) { s.Ways = 1 }, false},
		{"begun by a clock that was a second ahead", func(s *Split, _ *divided) { s.Start = splitEra + now + second }, true},
		{"not by one that was further ahead", func(s *Split, _ *divided) { s.Start = splitEra + now + second + 1 }, false},
		{"not one that lasts longer than any", func(s *Split, _ *divided) { s.Until = splitEra + now + ttl + second + 1 }, false},
		{"not an older one", func(s *Split, d *divided) { d.home.Split = Split{Start: s.Start + 1, Until: s.Until, Ways: 2} }, false},
		{"not the one that it ended", func(s *Split, d *divided) { d.home.Split = Split{Start: s.Start, Until: s.Until} }, false},
		{"rather than an older one", func(s *Split, d *divided) { d.home.Split = Split{Start: s.Start - 1, Until: s.Until, Ways: 2} }, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := newDivided(t, 10, 10)
			_, d.home.TAT = d.at(0)
			s := k
			tt.change(&s, d)
			d.touch(now, Part{Split: s})
			got := d.home.Split
			if adopted := got.Start == s.Start && got.Ways == s.Ways && s.Ways > 1; adopted != tt.want {
				t.Errorf("of %+v home has %+v, want adopted %v", s, got, tt.want)
			} else if adopted && (got.Held != s.Held || got.Level != s.Level || got.Stride != s.Stride || got.Until < s.Until || got.Closing != s.Closing) {
				t.Errorf("of %+v home has %+v", s, got)
			}
		})
	}
}

// TestApplySubRefuses: what is not certainly a part of the bucket now grants nothing and changes nothing.
func TestApplySubRefuses(t *testing.T) {
	const now = second
	terms := mustTerms(t, 10, time.Second, 10)
	gen, at := terms.Class.At(1000 * (splitEra + now))
	good := Part{Index: 1, Split: Split{Start: splitEra, Until: splitEra + ttl, Ways: 4}}
	open, closed := Cell{TAT: at}, Cell{TAT: at, Split: Split{Closing: true}}
	for _, tt := range []struct {
		name   string
		change func(p *Part)
		cell   *Cell // nil: none yet
		op     Op
		ok     bool
	}{
		{"a part", func(*Part) {}, nil, Take, true},
		{"the first one", func(p *Part) { p.Index = 0 }, nil, Take, true},
		{"the last one", func(p *Part) { p.Index = 3 }, nil, Take, true},
		{"no such part", func(p *Part) { p.Index = 4 }, nil, Take, false},
		{"of a bucket that is whole", func(p *Part) { p.Split.Ways = 0 }, nil, Take, false},
		{"of one part", func(p *Part) { p.Split.Ways, p.Index = 1, 0 }, nil, Take, false},
		{"in its last moment", func(p *Part) { p.Split.Until = splitEra + now + margin + 1 }, nil, Take, true},
		{"after it", func(p *Part) { p.Split.Until = splitEra + now + margin }, nil, Take, false},
		{"after it, lease", func(p *Part) { p.Split.Until = splitEra + now + margin }, &open, Lease, false},
		{"after it, close of none", func(p *Part) { p.Split.Until = splitEra + now + margin }, nil, Close, false},
		{"after it, close, which removes it", func(p *Part) { p.Split.Until = splitEra + now + margin }, &open, Close, false},
		{"after it, closed again, which removes it", func(p *Part) { p.Split.Until = splitEra + now + margin }, &closed, Close, false},
		{"begun by a clock a second ahead", func(p *Part) { p.Split.Start = splitEra + 2*second }, nil, Take, true},
		{"further ahead", func(p *Part) { p.Split.Start = splitEra + 2*second + 1 }, nil, Take, false},
		{"lasting longer than any", func(p *Part) { p.Split.Until = splitEra + now + ttl + second + 1 }, nil, Take, false},
		{"that is there", func(*Part) {}, &open, Take, true},
		{"closed", func(*Part) {}, &closed, Take, false},
		{"closed, lease", func(*Part) {}, &closed, Lease, false},
		{"closed, reset", func(*Part) {}, &closed, Reset, false},
		{"closed, refund", func(*Part) {}, &closed, Refund, false},
		{"closed again", func(*Part) {}, &closed, Close, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p, c := good, Cell{TAT: at}
			if tt.change(&p); tt.cell != nil {
				c = *tt.cell
			}
			next, out, write, ok := terms.ApplySub(tt.op, 1, &Ask{}, &p, gen, c, tt.cell != nil, at)
			if ok != tt.ok {
				t.Errorf("ok is %v, want %v", ok, tt.ok)
			}
			removed := strings.HasSuffix(tt.name, "removes it")
			if !ok && (next != c || out != (Outcome{}) || write != removed) {
				t.Errorf("refused, with %+v, %+v, %v", next, out, write)
			}
		})
	}
}

// TestSubBegins: a part has its share of what there was, if it is asked soon, and else nothing.
func TestSubBegins(t *testing.T) {
	terms := mustTerms(t, 10, time.Second, 10)
	for _, tt := range []struct {
		name  string
		level float64 // in tokens
		held  Tokens
		index int
		after int64
		want  Tokens
	}{
		{"full", 0, 0, 1, 0, 3},
		{"full, a smaller part", 0, 0, 2, 0, 2},
		{"asked by a clock that is behind", 0, 0, 1, -second, 3},
		{"in the last moment", 0, 0, 1, 2 * second, 3},
		{"too late", 0, 0, 1, 2*second + 1, 0},
		{"half full", 5, 0, 1, 0, 1},
		{"half full, the first", 5, 0, 0, 0, 2},
		{"half full, and it does not fill while nobody asks", 5, 0, 1, second, 1},
		{"the fraction of a token is not dealt out", 5.9, 0, 1, 0, 1},
		{"nor does it make a token", 5.9, 0, 0, 0, 1},
		{"empty", 10, 0, 1, 0, 0},
		{"in debt", 12, 0, 1, 0, 0},
		{"with leases out", 4, 4, 1, 0, 2},
		{"where they take no more than their share", 0, 4, 1, 0, 2},
		{"and have ended", 0, 4, 1, 2 * second, 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			gen, now := terms.Class.At(1000 * (splitEra + 2*second + tt.after))
			p := Part{Index: tt.index, Split: Split{Start: splitEra + 2*second, Until: splitEra + 5*second, Ways: 4, Held: tt.held,
				Level: Ticks(tt.level * float64(terms.Emission))}}
			_, out, write, ok := terms.ApplySub(TakePartial, 10, &Ask{}, &p, gen, Cell{TAT: now}, false, now)
			if out.Granted != tt.want || !ok || !write {
				t.Errorf("%d of 10 granted, want %d; ok %v, write %v", out.Granted, tt.want, ok, write)
			}
		})
	}
}

// TestHomeOfDivided: while the bucket is divided its home does nothing; what the parts had at its end is lost, and from then on it
// fills as the whole does, whenever somebody looks.
func TestHomeOfDivided(t *testing.T) {
	for _, op := range []Op{Take, TakePartial, Charge, Refund, Reset, Lease} {
		d := newDivided(t, 10, 10)
		s := d.split(0, 4)
		if out := d.op(second, op, 1, Ask{Take: 1}); out.Granted > 0 || out.Taken > 0 || d.home.Split != s {
			t.Errorf("op %d: %+v, %+v", op, out, d.home)
		}
	}
	for _, tt := range []struct {
		after int64
		want  Tokens
	}{{-1, 0}, {0, 0}, {550 * milli, 5}, {1100 * milli, 10}, {9 * second, 10}} {
		d := newDivided(t, 10, 10)
		s := d.split(0, 4)
		if out := d.op(s.Until-splitEra+margin+tt.after, TakePartial, 10, Ask{}); out.Granted != tt.want {
			t.Errorf("%d granted %d us after the end, want %d", out.Granted, tt.after, tt.want)
		}
	}
}

// TestMerge: the first merge of a split that is about to end brings home what the parts had.
func TestMerge(t *testing.T) {
	const at = second
	e := func(d *divided, tokens Ticks) Ticks { return tokens*d.terms.Emission + 10 }
	for _, tt := range []struct {
		name   string
		do     func(d *divided, s Split) Outcome
		merged Tokens
		left   Tokens // at once
	}{
		{"with what was free", func(d *divided, s Split) Outcome {
			d.closing(at)
			return d.merge(at, 0, Part{Split: s, Free: e(d, 4)})
		}, 1, 4},
		{"no more than there can be", func(d *divided, s Split) Outcome {
			d.closing(at)
			return d.merge(at, 0, Part{Split: s, Free: e(d, 40)})
		}, 1, 10},
		{"beside what is on lease there", func(d *divided, s Split) Outcome {
			d.closing(at)
			return d.merge(at, 3, Part{Split: s, Free: e(d, 9)})
		}, 1, 7},
		{"twice", func(d *divided, s Split) Outcome {
			d.closing(at)
			d.merge(at, 0, Part{Split: s, Free: e(d, 2)})
			return d.merge(at, 0, Part{Split: s, Free: e(d, 2)})
		}, 0, 2},
		{"before home says so", func(d *divided, s Split) Outcome {
			return d.merge(at, 0, Part{Split: s, Free: e(d, 4)})
		}, 0, 0},
		{"of another split", func(d *divided, s Split) Outcome {
			s.Start++
			d.closing(at)
			return d.merge(at, 0, Part{Split: s, Free: e(d, 4)})
		}, 0, 0},
		{"of parts in debt", func(d *divided, s Split) Outcome {
			d.closing(at)
			return d.merge(at, 0, Part{Split: s, Free: -100 * d.terms.Depth})
		}, 1, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := newDivided(t, 10, 10)
			out := tt.do(d, d.split(0, 4))
			if out.Granted != tt.merged || (d.home.Ways == 0) != (tt.left > 0 || tt.merged > 0) {
				t.Errorf("merged %d, want %d: %+v", out.Granted, tt.merged, d.home)
			}
			if out := d.op(at, TakePartial, 10, Ask{}); out.Granted != tt.left || out.Level > 2*d.terms.Depth {
				t.Errorf("%d are left, want %d, and the level is %d", out.Granted, tt.left, out.Level)
			}
		})
	}
	t.Run("after its end", func(t *testing.T) {
		d := newDivided(t, 10, 10)
		d.split(0, 4)
		s := d.closing(at)
		end := s.Until - splitEra + margin
		if out := d.merge(end, 0, Part{Split: s, Free: e(d, 4)}); out.Granted != 0 {
			t.Error("merged")
		}
		if out := d.op(end, TakePartial, 10, Ask{}); out.Granted != 0 {
			t.Errorf("%d are left", out.Granted)
		}
	})
}

// TestPauseAfterSplit: until all that belongs to the old one has ended, and longer if it was ended by order.
func TestPauseAfterSplit(t *testing.T) {
	for _, tt := range []struct {
		name  string
		end   bool
		until int64
	}{{"merged", false, ttl + margin}, {"merged by order", true, second + 10*second + margin}} {
		t.Run(tt.name, func(t *testing.T) {
			d := newDivided(t, 200, 10)
			d.split(0, 4)
			s := d.closing(second)
			if d.merge(second, 0, Part{Split: s, End: tt.end}).Granted != 1 {
				t.Fatal("not merged")
			}
			busy := Part{Ops: 1000, Threshold: 1, Ways: 4, Stride: 1}
			if d.touch(tt.until-1, busy); d.home.Ways > 0 {
				t.Errorf("split again a microsecond before its time")
			}
			if d.touch(tt.until, busy); d.home.Ways != 4 {
				t.Errorf("not split again: %+v", d.home.Split)
			}
		})
	}
}

// TestOldLeases: what was on lease at the split takes room in all parts until it has ended by any clock, and at home, if that is
// whole sooner.
func TestOldLeases(t *testing.T) {
	d := newDivided(t, 200, 10)
	if out := d.op(0, Lease, 10, Ask{}); out.Granted != 5 {
		t.Fatalf("%d on lease, want 5", out.Granted)
	}
	s := d.split(milli, 2)
	if s.Held != 5 || d.home.Out != 0 {
		t.Fatalf("held %d, out %d, want 5 and 0", s.Held, d.home.Out)
	}
	if held := [2]Tokens{d.terms.HeldBy(&s, 0), d.terms.HeldBy(&s, 1)}; held != [2]Tokens{2, 3} {
		t.Fatalf("they take %d, want 2 and 3", held)
	}
	part := func(micros int64) Tokens {
		gen, now := d.at(micros)
		p := Part{Index: 1, Split: s}
		p.Split.Until = splitEra + micros + second
		c := Cell{TAT: now - d.terms.Class.Span()/2} // had time to fill
		_, out, _, _ := d.terms.ApplySub(TakePartial, 10, &Ask{}, &p, gen, c, true, now)
		return out.Granted
	}
	for _, tt := range []struct {
		at   int64
		want Tokens
	}{{second, 2}, {3*second + milli - 1, 2}, {3*second + milli + 100, 2}, {3*second + milli + 200*milli, 5}} {
		if got := part(tt.at); got != tt.want {
			t.Errorf("a part has %d after %d us, want %d", got, tt.at, tt.want)
		}
	}
	s = d.closing(second)
	if out := d.merge(second, 0, Part{Split: s, Free: d.terms.Depth}); out.Granted != 1 {
		t.Fatal("not merged")
	}
	for _, tt := range []struct {
		at   int64
		want Tokens
	}{{second, 5}, {2*second + milli - 1, 5}, {2*second + milli + 200*milli, 10}} {
		if out := d.op(tt.at, TakePartial, 10, Ask{}); out.Granted != tt.want {
			t.Errorf("home has %d after %d us, want %d", out.Granted, tt.at, tt.want)
		}
	}
}

// TestOrigin: a settlement counts in the record in which the grant was made, and in no other.
func TestOrigin(t *testing.T) {
	d := newDivided(t, 200, 10)
	before := d.op(0, Lease, 4, Ask{})
	s := d.split(milli, 2)
	d.closing(2 * milli)
	d.merge(3*milli, 0, Part{Split: s, Free: d.terms.Depth})
	after := d.op(20*milli, Lease, 2, Ask{Origin: 0, Epoch: before.Epoch, Settled: before.Granted})
	if before.Granted == 0 || after.Granted == 0 || d.home.Out != after.Granted {
		t.Fatalf("%d and %d granted, %d out", before.Granted, after.Granted, d.home.Out)
	}
	for _, tt := range []struct {
		origin int64
		want   Tokens
	}{{0, after.Granted}, {s.Start - 1, after.Granted}, {s.Start, 0}} {
		d.op(30*milli, Lease, 0, Ask{Origin: tt.origin, Epoch: after.Epoch, Settled: after.Granted})
		if d.home.Out != tt.want {
			t.Errorf("origin %d: %d out, want %d", tt.origin, d.home.Out, tt.want)
		}
	}
}

// TestSubLease: a lease of a part ends when the part does.
func TestSubLease(t *testing.T) {
	terms := mustTerms(t, 200, time.Second, 10)
	for _, tt := range []struct {
		left int64 // of the split
		want time.Duration
	}{{3 * second, 2 * time.Second}, {2500 * milli, 2 * time.Second}, {1500 * milli, time.Second}, {margin + 1, time.Microsecond}} {
		gen, now := terms.Class.At(1000 * splitEra)
		p := Part{Index: 1, Split: Split{Start: splitEra - second, Until: splitEra + tt.left, Ways: 2}}
		c, out, _, ok := terms.ApplySub(Lease, 10, &Ask{}, &p, gen, Cell{TAT: now}, false, now)
		if !ok || time.Duration(out.Term) != tt.want || out.Granted != 2 || c.Out != 2 {
			t.Errorf("%d us left: %+v, %v, out %d, want a term of %v", tt.left, out, ok, c.Out, tt.want)
		}
	}
}

// TestCellsOfBucket: home and the parts are cells of their own, and those of another split as well.
func TestCellsOfBucket(t *testing.T) {
	var secret Secret
	var b Bucket
	secret.Name(&b, []byte("x"))
	seen := map[Sum]Part{}
	for _, start := range []int64{0, 1, splitEra, splitEra + 1} {
		for i := range MaxWays {
			p := Part{Index: i, Split: Split{Start: start}}
			if p.At() != i+1 {
				t.Errorf("part %d is cell %d", i, p.At())
			}
			sum := b.PartSum(&p)
			if other, there := seen[sum]; there || sum == b.Sum() {
				t.Errorf("%+v is the cell of %+v", p, other)
			}
			seen[sum] = p
		}
	}
	var none *Part
	home := Part{Index: 3, Home: true}
	if none.At() != 0 || home.At() != 0 || b.PartSum(nil) != b.Sum() || b.PartSum(&home) != b.Sum() {
		t.Error("home is another cell")
	}
}
