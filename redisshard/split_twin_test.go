package redisshard

import (
	"errors"
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/spillgate/spillgate/batcher"
	"github.com/spillgate/spillgate/limit"
)

// Histories of divided buckets for twin_test.go. Agents know the split that home told last, an older one, or
// one that nobody has told.

// twinWays is the most ways in these histories.
const twinWays = 8

// record keeps what later entries of the history may refer to.
func (w *twins) record(e *batcher.Entry) {
	at, known := e.Part.At(), w.splits[e.Bucket]
	if s := e.Split; s != nil {
		switch last := len(known) - 1; {
		case s.Ways == 0:
			w.seen["whole again"]++
		case last < 0 || known[last].Start != s.Start:
			if known = append(known, s.Split); e.Part.Split.Start == s.Start {
				w.seen["adopted"]++
			} else {
				w.seen["split"]++
			}
		case s.Until > known[last].Until:
			w.seen["extended"]++
			known[last] = s.Split
		default:
			known[last] = s.Split
		}
		w.splits[e.Bucket] = known
	}
	switch {
	case errors.Is(e.Err, batcher.ErrStale) && at == 0:
		w.seen["home is divided"]++
	case errors.Is(e.Err, batcher.ErrStale):
		w.seen["stale"]++
	case e.Op == limit.Close && e.Err == nil:
		w.seen["closed"]++
	case e.Op == limit.Merge && e.Out.Granted == 1:
		w.seen["merged"]++
	case at > 0 && e.Out.Granted > 0:
		w.seen[fmt.Sprint("op ", e.Op, " on a part")]++
	}
	if e.Op == limit.Lease && e.Out.Granted > 0 {
		g := grant{epoch: e.Out.Epoch, n: e.Out.Granted}
		if at > 0 {
			g.origin = e.Part.Split.Start
		} else if e.Split != nil {
			g.origin = e.Split.Start
		}
		w.leases = append(w.leases, g)
	}
}

// checkSeen: a comparison of what never happens would prove nothing.
func (w *twins) checkSeen(t *testing.T) {
	want := []string{"split", "adopted", "extended", "whole again", "home is divided", "stale", "closed", "merged"}
	for _, op := range []limit.Op{limit.Take, limit.TakePartial, limit.Charge, limit.Refund, limit.Lease} {
		want = append(want, fmt.Sprint("op ", op, " on a part"))
	}
	for _, what := range want {
		if w.seen[what] == 0 {
			t.Errorf("never: %s", what)
		}
	}
	t.Log(w.seen)
}

// drawVariants draws terms of one class: what rules may have said of one bucket in the course of time. Mostly they leave
// a split time to last.
func drawVariants(t *rapid.T, class limit.Class) []*limit.Terms {
	span := class.Span()
	drawn := rapid.Custom(func(t *rapid.T) *limit.Terms {
		terms := &limit.Terms{Class: class, Burst: limit.Tokens(rapid.Int64Range(1, 100).Draw(t, "burst"))}
		fill := rapid.Int64Range(int64(span/50), int64(span/3)).Draw(t, "fill")
		terms.Emission = limit.Ticks(fill) / limit.Ticks(terms.Burst)
		terms.Depth = limit.Ticks(terms.Burst) * terms.Emission
		terms.Ceiling = terms.Depth + limit.Ticks(rapid.Int64Range(0, 2).Draw(t, "debt"))*terms.Emission
		return terms
	})
	variants := []*limit.Terms{drawn.Draw(t, "terms"), drawn.Draw(t, "terms")}
	fewer := *variants[0]
	fewer.Burst = (fewer.Burst + 7) / 8
	fewer.Depth = limit.Ticks(fewer.Burst) * fewer.Emission
	fewer.Ceiling = fewer.Depth
	return append(variants, &fewer, drawTerms(t, class))
}

// drawSplit draws what an agent knows of a bucket's division. All splits of a history have one stride: agents that say
// otherwise would look for a part elsewhere.
func (w *twins) drawSplit(t *rapid.T, b limit.Bucket, terms *limit.Terms, stride int) (s limit.Split) {
	dice, known := rapid.IntRange(0, 19).Draw(t, "knows"), w.splits[b]
	switch {
	case dice == 0 || len(known) == 0 && dice < 17:
		return s
	case dice < 17:
		return known[len(known)-1]
	case len(known) > 0 && dice < 19:
		s = known[rapid.IntRange(0, len(known)-1).Draw(t, "which")]
	default:
		s = limit.Split{Start: w.now, Until: w.now + limit.SplitTTL.Microseconds(), Ways: 2, Stride: stride}
	}
	switch rapid.IntRange(0, 5).Draw(t, "wrong") {
	case 0:
		s.Start = max(1, s.Start+rapid.Int64Range(-4e6, 4e6).Draw(t, "start"))
	case 1:
		s.Until = max(0, s.Until+rapid.Int64Range(-8e6, 8e6).Draw(t, "until"))
	case 2:
		s.Ways = rapid.IntRange(0, twinWays).Draw(t, "ways")
	case 3:
		s.Held = drawTokens(t, terms, "held")
	case 4:
		s.Level = limit.Ticks(rapid.Int64Range(0, int64(terms.Class.Span()/2)).Draw(t, "level"))
	case 5:
		s.Closing = !s.Closing
	}
	return s
}

// drawDivided draws an entry that concerns a division.
func (w *twins) drawDivided(t *rapid.T, b limit.Bucket, terms *limit.Terms, stride int) *batcher.Entry {
	e := &batcher.Entry{Bucket: b, Terms: terms, Part: &limit.Part{Split: w.drawSplit(t, b, terms, stride)}}
	kind := rapid.IntRange(0, 11).Draw(t, "kind")
	if len(w.splits[b]) == 0 && kind < 8 {
		kind = 0
	}
	switch p := e.Part; {
	case kind <= 2:
		e.Op, p.Home = limit.Touch, true
		p.Ops = rapid.OneOf(rapid.Int64Range(0, 30), rapid.Int64Range(0, 1<<31)).Draw(t, "ops")
		p.Threshold = rapid.OneOf(rapid.Int64Range(0, 20), rapid.Int64Range(0, 1<<32)).Draw(t, "threshold")
		p.Ways, p.Stride = rapid.IntRange(1, twinWays).Draw(t, "ways"), stride
		p.End = rapid.IntRange(0, 5).Draw(t, "end") == 0
	case kind == 3:
		e.Op, e.N, p.Home, p.End = limit.Merge, drawTokens(t, terms, "leased"), true, rapid.IntRange(0, 4).Draw(t, "end") == 0
		p.Free = limit.Ticks(rapid.Int64Range(-int64(terms.Depth/2), int64(terms.Depth)).Draw(t, "free"))
	case kind <= 8:
		p.Index = rapid.IntRange(0, min(twinWays-1, p.Split.Ways)).Draw(t, "index") // or one too many
		if kind == 4 {
			e.Op = limit.Close
			break
		}
		fallthrough
	default:
		p.Home = p.Home || kind > 8
		e.Op, e.N = limit.Op(rapid.IntRange(1, 6).Draw(t, "op")), drawTokens(t, terms, "n")
		if e.Op == limit.Lease {
			e.Ask = w.drawAsk(t, terms)
		}
	}
	return e
}

// drawDividedCall draws a call on a few buckets, each with variants of its terms.
func (w *twins) drawDividedCall(t *rapid.T, buckets []limit.Bucket, terms [][]*limit.Terms, stride int) (entries []*batcher.Entry) {
	type cell struct {
		bucket, at int
		start      int64
	}
	rounds := map[cell]int{}
	for range rapid.IntRange(1, 8).Draw(t, "entries") {
		i := rapid.IntRange(0, len(buckets)-1).Draw(t, "bucket")
		variant := max(0, rapid.IntRange(-4, len(terms[i])-1).Draw(t, "variant"))
		e := w.drawDivided(t, buckets[i], terms[i][variant], stride)
		at := cell{bucket: i, at: e.Part.At()}
		if at.at > 0 {
			at.start = e.Part.Split.Start
		}
		e.Round = rounds[at]
		rounds[at]++
		entries = append(entries, e)
	}
	return entries
}

// drawMove draws how far time goes: by little, or to a moment at which a split changes, or by much.
func (w *twins) drawMove(t *rapid.T, buckets []limit.Bucket, class limit.Class) int64 {
	edges := []int64{0}
	for _, b := range buckets {
		if known := w.splits[b]; len(known) > 0 {
			s := known[len(known)-1]
			for _, d := range []int64{1e6, 2e6, 3e6, 4e6} {
				edges = append(edges, s.Start+d-w.now)
			}
			edges = append(edges, s.Until-5e5-w.now, s.Until+5e5-w.now)
		}
	}
	length, epoch := class.Length.Microseconds(), limit.LeaseTTL.Microseconds()
	edges = append(edges, 1e6-w.now%1e6, epoch-w.now%epoch, length-w.now%length)
	return rapid.OneOf(
		rapid.Int64Range(0, 3),
		rapid.Int64Range(0, 1e4),
		rapid.Int64Range(0, 1e5),
		rapid.Int64Range(0, 1e6),
		rapid.Int64Range(0, max(4e6, length/2)),
		rapid.SampledFrom([]int64{0, length, 2 * length}),
		rapid.Custom(func(t *rapid.T) int64 {
			return rapid.SampledFrom(edges).Draw(t, "edge") + rapid.Int64Range(-1, 1).Draw(t, "beside")
		}),
	).Draw(t, "move")
}

// dividedClass is mostly a short one: there generations end in mid-split.
func dividedClass(t *rapid.T) limit.Class {
	if rapid.IntRange(0, 2).Draw(t, "short") > 0 {
		class, _ := limit.BucketClass(rapid.SampledFrom([]limit.Class{{Length: 4e9}, {Length: 16e9}}).Draw(t, "of").Length)
		return class
	}
	return drawClass(t)
}

// dividedOnlyForth: parts on other tags and under other locks than their homes.
func (w *twins) dividedOnlyForth(t *rapid.T) {
	mem, buckets := w.fresh(t), w.far[:3]
	var terms [][]*limit.Terms
	for range buckets {
		terms = append(terms, drawVariants(t, dividedClass(t)))
	}
	w.now = rapid.Int64Range(1e7, 1<<51).Draw(t, "start")
	for range rapid.IntRange(1, 60).Draw(t, "calls") {
		w.now = min(w.now+max(0, w.drawMove(t, buckets, terms[0][0].Class)), 1<<51+1<<50)
		w.compare(t, mem, w.drawDividedCall(t, buckets, terms, 1))
	}
}

// dividedBackAndForth: the clock goes back. Parts share a hash with their home, and a lock.
func (w *twins) dividedBackAndForth(t *rapid.T) {
	mem, class, buckets := w.fresh(t), dividedClass(t), w.near[:2]
	variants := drawVariants(t, class)
	terms := [][]*limit.Terms{variants, variants}
	length := class.Length.Microseconds()
	w.now = length + rapid.Int64Range(1e7, 1<<51).Draw(t, "start")
	newest := w.now
	for range rapid.IntRange(1, 60).Draw(t, "calls") {
		move := w.drawMove(t, buckets, class)
		if rapid.IntRange(0, 3).Draw(t, "back") == 0 {
			move = -move
		}
		w.now = max(w.now+move, newest-length+1)
		newest = max(newest, w.now)
		w.compare(t, mem, append([]*batcher.Entry{{Bucket: w.near[2], Terms: variants[0], Op: limit.Reset}},
			w.drawDividedCall(t, buckets, terms, len(w.store.state.Load().layout.tags))...))
	}
}
