package split

import (
	"errors"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/spillgate/spillgate/batcher"
	"github.com/spillgate/spillgate/limit"
)

// Times in nanoseconds.
const (
	// touchEvery is how often home hears of a divided bucket, or more often if the split is short, up to leastTouch.
	touchEvery = int64(500 * time.Millisecond)
	leastTouch = int64(100 * time.Millisecond)
	// touchOps is after how many entries home hears of a bucket that is whole, and touchPause how soon again.
	touchOps   = 32
	touchPause = int64(20 * time.Millisecond)
	// knownFor is how long a part is believed to be empty: tokens may come back in ways that this agent does not see.
	knownFor = int64(250 * time.Millisecond)
	// failFor is how long a part is passed over whose master did not answer.
	failFor = int64(time.Second)
	// idleAfter: who has not used a bucket for so long touches it only to hear of an end that it awaits, and then forgets it.
	idleAfter = int64(5 * time.Second)
	// costFor is how long a cost is remembered that needs more than a part.
	costFor = int64(time.Minute)
	// mergeSpread is the time over which agents begin to merge that all see the load go.
	mergeSpread = int64(100 * time.Millisecond)
	// mergeAgain is the pause after a merge that did not come about.
	mergeAgain = int64(300 * time.Millisecond)
	// sweepAfter is how long after the end of a split its parts are removed: no master's clock is in its time then.
	sweepAfter = int64(limit.MaxSkew + 2*limit.SplitMargin)
	// WholeSoon is what a caller is told to wait whose cost no part can hold, or who found no part open, while the bucket is being made
	// whole.
	WholeSoon = 250 * time.Millisecond
)

// Pace is how long an agent begins at the same part of a bucket.
type Pace time.Duration

const (
	// Moving is for entries that leave nothing behind.
	Moving = Pace(250 * time.Millisecond)
	// Staying is for leases, whose accounts go back to where they are from.
	Staying = Pace(2 * time.Second)
)

// Spread is what an agent knows of one bucket that is, or may become, divided. Safe for concurrent use; all
// times are nanoseconds of one monotonic clock.
type Spread struct {
	Bucket limit.Bucket

	id   []byte
	seed uint64

	telling sync.Mutex // so that events are told in order
	mu      struct {
		sync.Mutex
		terms *limit.Terms
		off   bool        // the rule forbids to split
		split limit.Split // as home said last; Ways 0: whole
		ends  int64       // from then on parts refuse
		parts []part      // by index, while divided
		heard uint64      // the call that brought the last news of home

		ops      int64 // entries since the last touch
		touched  int64
		touching bool // a touch has not come back
		stale    bool // a part refused: home is to be asked
		used     int64
		cost     limit.Tokens // the largest of late
		costAt   int64

		merge  merge
		left   []leftover
		gone   bool    // forgotten: what comes now is told to nobody
		every  int64   // how often home hears of it
		untold []Event // what became of the bucket, in order, and was not told yet
		random uint64
		totals Totals
	}
}

// part is what is known of one part.
type part struct {
	terms  limit.Terms
	level  limit.Ticks
	lag    int64
	asOf   int64
	call   uint64 // that brought it
	heard  bool   // it has answered; else level is what it had at most
	failTo int64  // its master did not answer: not before then
	ops    uint64
	// promised are the tokens that claims are after which have not come back: others need not line up for them. Some never
	// come back, so it counts no longer than other knowledge.
	promised   limit.Tokens
	promisedAt int64
}

// New returns a Spread that knows nothing. id is the bucket's as the caller builds it.
func New(id []byte, b *limit.Bucket, t *limit.Terms, now int64, seed uint64) *Spread {
	s := &Spread{Bucket: *b, id: append([]byte(nil), id...), seed: seed}
	s.mu.terms, s.mu.touched, s.mu.used = t, now, now
	s.mu.random = seed ^ b.Sum().Lo | 1
	return s
}

// KeepWhole says whether the bucket's rule forbids to split it.
func (s *Spread) KeepWhole(off bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.off = off
}

// setLocked takes the terms of the entry at hand.
func (s *Spread) setLocked(t *limit.Terms) {
	old := s.mu.terms
	if t == old {
		return
	}
	s.mu.terms = t
	if *t == *old {
		return
	}
	for i := range s.mu.parts {
		s.mu.parts[i].terms = t.Part(len(s.mu.parts), i)
	}
}

// dividedLocked reports whether parts can be asked.
func (s *Spread) dividedLocked(now int64) bool {
	return len(s.mu.parts) > 0 && now < s.mu.ends && !s.mu.stale
}

// Choose says where an entry for n tokens goes: nil is home. asked are the cells that the check has asked before. ok is
// false when there is nothing more to ask: no part that was not asked can have n tokens.
func (s *Spread) Choose(now int64, t *limit.Terms, n limit.Tokens, pace Pace, asked Asked) (p *limit.Part, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.setLocked(t)
	s.mu.used = now
	s.noteCostLocked(now, n)
	switch {
	case !s.dividedLocked(now):
		return nil, asked.Home < homeTries
	case n > s.mu.parts[0].terms.Burst: // the largest
		return s.partLocked(0), asked.Parts == 0 // which denies
	}
	best := s.bestLocked(now, n, pace, asked.Parts)
	if best < 0 {
		return nil, false
	}
	at := &s.mu.parts[best]
	if now-at.promisedAt > knownFor {
		at.promised = 0
	}
	at.promised, at.promisedAt = at.promised+n, now
	if at.failTo > 0 {
		at.failTo = now + failFor // one is enough to find out
	}
	return s.partLocked(best), true
}

// bestLocked is the part to ask: the own one if it may have the tokens, else the fullest. Of a check that has not
// asked any yet, one is asked in any case. -1 if there is none.
func (s *Spread) bestLocked(now int64, n limit.Tokens, pace Pace, tried uint64) int {
	own := s.ownLocked(now, pace)
	best, most, soonest, wait := -1, limit.Tokens(-1), -1, int64(math.MaxInt64)
	for i := range s.mu.parts {
		p := &s.mu.parts[i]
		if tried&(1<<i) != 0 || n > p.terms.Burst || now < p.failTo {
			continue
		}
		has := p.tokens(now)
		if now-p.promisedAt <= knownFor {
			has -= p.promised
		}
		if n == 0 && p.heard && tried != 0 {
			continue // a look asks those of which nothing is known
		}
		if has >= n || now-p.asOf > knownFor {
			if i == own {
				return i
			}
			if has > most {
				best, most = i, has
			}
		}
		if w := p.wait(now, n); w < wait {
			soonest, wait = i, w
		}
	}
	if best >= 0 || tried != 0 {
		return best
	}
	if soonest < 0 { // all fail: the own one shall say so
		return own
	}
	return soonest
}

// ownLocked is the part where this agent begins. It moves on from time to time, each agent at moments of its own: few
// agents, each at a random part, would load some masters twice as much as others.
func (s *Spread) ownLocked(now int64, pace Pace) int {
	moves := (now + int64(s.seed>>32)%int64(pace)) / int64(pace)
	return int((s.seed%limit.MaxWays + uint64(moves)) % uint64(len(s.mu.parts)))
}

// partLocked names a part to the store.
func (s *Spread) partLocked(index int) *limit.Part {
	return &limit.Part{Index: index, Split: s.mu.split}
}

// Untried is a part that a check has not asked yet, whatever it may have; ok is false if there is none.
func (s *Spread) Untried(now int64, asked Asked) (p *limit.Part, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.dividedLocked(now) {
		return nil, asked.Home < homeTries
	}
	for i := range s.mu.parts {
		if asked.Parts&(1<<i) == 0 {
			return s.partLocked(i), true
		}
	}
	return nil, false
}

// Named is the part of an index, while the split of that start lasts; else ok is false.
func (s *Spread) Named(now int64, index int, start int64) (p *limit.Part, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.dividedLocked(now) || s.mu.split.Start != start || index >= len(s.mu.parts) {
		return nil, false
	}
	return s.partLocked(index), true
}

// tokens are what a part has now, as far as is known.
func (p *part) tokens(now int64) limit.Tokens { return p.terms.Remaining(p.levelAt(now)) }

// within are those of them that can be reached.
func (p *part) within(now int64) limit.Tokens {
	if p.failTo > 0 {
		return 0
	}
	return p.tokens(now)
}

func (p *part) levelAt(now int64) limit.Ticks {
	class := &p.terms.Class
	passed := min(max(0, now-p.asOf-p.lag), int64(class.Length))
	return max(0, p.level-class.Ticks(passed))
}

// wait is how long until a part may have n tokens.
func (p *part) wait(now int64, n limit.Tokens) int64 {
	missing := p.level + limit.Ticks(n)*p.terms.Emission - p.terms.Depth
	return max(0, p.asOf+p.lag+int64(p.terms.Class.Duration(missing))-now)
}

// noteCostLocked remembers large costs: a bucket is not divided so far that they would not fit.
func (s *Spread) noteCostLocked(now int64, n limit.Tokens) {
	if n <= s.mu.terms.Burst && (n >= s.mu.cost || now-s.mu.costAt > costFor) {
		s.mu.cost, s.mu.costAt = n, now
	}
}

// tooLargeLocked reports whether somebody wants more at a time than a part holds.
func (s *Spread) tooLargeLocked(now int64) bool {
	return len(s.mu.parts) > 0 && s.mu.cost > s.mu.parts[0].terms.Burst && now-s.mu.costAt <= costFor
}

// Learn takes the outcome of an entry, and returns what the bucket is now that it was not: split, merged or ended; "" if
// nothing changed. The events are in Untold.
func (s *Spread) Learn(now int64, c *batcher.Claim) (e EventKind) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.mu.gone:
		return ""
	case c.Part.At() == 0:
		return s.learnHomeLocked(now, c)
	}
	if errors.Is(c.Err, batcher.ErrStale) {
		s.mu.totals.Refused++
		s.mu.stale = s.mu.stale || c.Part.Split.Start >= s.mu.split.Start
		return ""
	}
	if c.Part.Split.Start != s.mu.split.Start || c.Part.Index >= len(s.mu.parts) {
		if isLoad(c.Op) {
			s.mu.ops++
		}
		return ""
	}
	p := &s.mu.parts[c.Part.Index]
	p.promised = 0
	if isLoad(c.Op) && (c.Call == 0 || p.call != c.Call) { // an entry, not each of the claims that shared it
		p.ops++
		s.mu.ops++
	}
	switch {
	case c.Err == nil && c.Op != limit.Close:
		p.hear(now, c)
	case c.Err != nil && failed(c.Err):
		p.failTo = now + failFor
	}
	return ""
}

// isLoad reports whether an entry is there for a check. What a Table sends of its own is not: the touches of many agents would keep a
// bucket divided that few checks ask for.
func isLoad(op limit.Op) bool { return op <= limit.Lease && op != limit.TakePartial }

// failed reports whether an error says that a master does not answer.
func failed(err error) bool {
	return !errors.Is(err, batcher.ErrStale) && !errors.Is(err, batcher.ErrDamaged) && !errors.Is(err, batcher.ErrOverloaded) && !errors.Is(err, batcher.ErrClosed)
}

// learnHomeLocked is Learn for an entry on home.
func (s *Spread) learnHomeLocked(now int64, c *batcher.Claim) EventKind {
	stale := errors.Is(c.Err, batcher.ErrStale)
	if !stale && isLoad(c.Op) && (c.Call == 0 || c.Call != s.mu.heard) {
		s.mu.ops++
	}
	// Of one call the entries that know of a split came after it.
	older := c.Call < s.mu.heard || c.Call == s.mu.heard && c.Call > 0 && c.Split == nil && s.mu.split.Start > 0
	if c.Op == limit.Touch {
		s.mu.touching = false
	}
	if c.Err != nil && !stale || older {
		return ""
	}
	s.mu.heard = c.Call
	return s.newsLocked(now, c.Split)
}

// hear takes the level that a part has told. Of several claims in one call the last in order has the highest.
func (p *part) hear(now int64, c *batcher.Claim) {
	if p.heard && c.Call < p.call || p.call == c.Call && p.heard && c.Out.Level < p.level {
		return
	}
	*p = part{terms: p.terms, level: c.Out.Level, lag: c.Out.Lag, asOf: now, call: c.Call, heard: true, ops: p.ops}
}

// newsLocked takes what home said of the division.
func (s *Spread) newsLocked(now int64, news *batcher.Split) EventKind {
	old := s.mu.split
	if news == nil || news.Ways == 0 {
		kind := EventKind("")
		if old.Ways > 0 {
			kind = s.noteLocked(now, s.endedLocked(now, news))
			s.leaveLocked(now, old, news)
		}
		if news != nil {
			s.mu.split = news.Split
		} else {
			s.mu.split = limit.Split{}
		}
		s.mu.stale, s.mu.parts, s.mu.merge = false, nil, merge{}
		return kind
	}
	if news.Start == old.Start && old.Ways == 0 {
		return "" // an earlier reply: that split is over
	}
	if old.Ways > 0 && old.Start != news.Start {
		s.noteLocked(now, s.endedLocked(now, nil))
		s.leaveLocked(now, old, nil)
	}
	s.mu.ends = now + int64(news.Left-limit.SplitMargin)
	s.mu.every = max(leastTouch, min(touchEvery, (s.mu.ends-now)/4))
	s.mu.split = news.Split
	if old.Start == news.Start && old.Closing {
		s.mu.split.Closing = true // a home that forgot it hears of it again
	}
	s.mu.stale = false
	if news.Closing && !(old.Closing && old.Start == news.Start) {
		if s.mu.merge.at = now; !s.mu.off && !s.tooLargeLocked(now) { // else a caller waits for it
			s.mu.merge.at += s.randomLocked(mergeSpread)
		}
	}
	if old.Ways > 0 && old.Start == news.Start {
		return ""
	}
	age := time.Duration(news.Until-news.Start)*time.Microsecond - news.Left
	s.mu.parts = make([]part, news.Ways)
	for i := range s.mu.parts {
		s.mu.parts[i] = part{terms: s.mu.terms.Part(news.Ways, i), level: s.mu.terms.Open(&news.Split, i), asOf: now - int64(max(0, age))}
	}
	s.mu.left = slices.DeleteFunc(s.mu.left, func(l leftover) bool { return l.split.Start == news.Start }) // a home that lost it has it again
	s.mu.touched = now
	s.mu.merge = merge{at: s.mu.merge.at}
	return s.noteLocked(now, EventSplit)
}

// endedLocked is how the split ended that is no more: before its time was over, it was merged. Home remembers until when it might have
// lasted; without its word this agent's knowledge has to do.
func (s *Spread) endedLocked(now int64, news *batcher.Split) EventKind {
	inTime := s.mu.split.Closing && now < s.mu.ends+int64(2*limit.SplitMargin)
	if news != nil && news.Start == s.mu.split.Start {
		inTime = news.Left > -limit.SplitMargin
	}
	if inTime {
		return EventMerged
	}
	return EventEnded
}

// noteLocked notes an event, with what is known of the split that it is of.
func (s *Spread) noteLocked(now int64, kind EventKind) EventKind {
	switch kind {
	case EventSplit:
		s.mu.totals.Split++
	case EventMerged:
		s.mu.totals.Merged++
	case EventEnded:
		s.mu.totals.Ended++
	}
	s.mu.untold = append(s.mu.untold, Event{kind, s.infoLocked(now)})
	return kind
}

// Untold are the events since the last call, in order.
func (s *Spread) Untold() []Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.mu.untold
	s.mu.untold = nil
	return all
}

// Level is that of the whole bucket with the tokens that all parts have together, as far as is known, when an entry on part p left the
// given level there. If the entry was on home, it is that level; and in debt too. With heard false the entry has not
// come back, and the level does not count.
func (s *Spread) Level(now int64, p *limit.Part, level limit.Ticks, heard bool) limit.Ticks {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p.At() == 0 || len(s.mu.parts) == 0 {
		return level
	}
	t, n := s.mu.terms, limit.Tokens(0)
	for i := range s.mu.parts {
		if part := &s.mu.parts[i]; i == p.Index && heard {
			n += part.terms.Remaining(level)
		} else {
			n += part.within(now)
		}
	}
	if n == 0 && heard && level > t.Depth {
		return level
	}
	return t.Depth - limit.Ticks(min(n, t.Burst))*t.Emission
}

// Wait is how long until some part has n tokens, at least a nanosecond.
func (s *Spread) Wait(now int64, n limit.Tokens) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.mu.parts) > 0 && n > s.mu.parts[0].terms.Burst {
		return max(WholeSoon, s.wholeWaitLocked(now, n))
	}
	least := int64(math.MaxInt64)
	for i := range s.mu.parts {
		if p := &s.mu.parts[i]; n <= p.terms.Burst && now >= p.failTo {
			least = min(least, p.wait(now, n))
		}
	}
	if least == math.MaxInt64 {
		return WholeSoon
	}
	return time.Duration(max(1, least))
}

// wholeWaitLocked is how long until all parts together have n tokens.
func (s *Spread) wholeWaitLocked(now int64, n limit.Tokens) time.Duration {
	missing := n
	for i := range s.mu.parts {
		missing -= s.mu.parts[i].tokens(now)
	}
	return s.mu.terms.Class.Duration(limit.Ticks(max(0, missing)) * s.mu.terms.Emission)
}

// Overflowed counts an entry that went on to another part.
func (s *Spread) Overflowed() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.totals.Overflow++
}

// Ways is the number of parts now; 1 while the bucket is whole.
func (s *Spread) Ways() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return max(1, len(s.mu.parts))
}

// randomLocked is a random number below n.
func (s *Spread) randomLocked(n int64) int64 {
	x := s.mu.random // xorshift64, Marsaglia 2003
	x ^= x << 13
	x ^= x >> 7
	x ^= x << 17
	s.mu.random = x
	return int64(x % uint64(n))
}

// info is what is known, for people.
func (s *Spread) info(now int64) (i Info, divided bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.infoLocked(now), len(s.mu.parts) > 0
}

func (s *Spread) infoLocked(now int64) Info {
	i := Info{ID: s.id, Bucket: s.Bucket, Ways: s.mu.split.Ways, Since: time.UnixMicro(s.mu.split.Start), Closing: s.mu.split.Closing}
	for k := range s.mu.parts {
		p := &s.mu.parts[k]
		i.Parts = append(i.Parts, PartInfo{Part: *s.partLocked(k), Ops: p.ops, Remaining: p.within(now), Failing: p.failTo > 0})
	}
	return i
}

// Here numbers the cell where this agent begins now (limit.Part.At).
func (s *Spread) Here(now int64, pace Pace) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.dividedLocked(now) {
		return 0
	}
	return s.ownLocked(now, pace) + 1
}

// May reports whether some part may have n tokens, as far as is known.
func (s *Spread) May(now int64, n limit.Tokens) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.mu.parts {
		if p := &s.mu.parts[i]; n <= p.terms.Burst && now >= p.failTo && (p.tokens(now) >= n || now-p.asOf > knownFor) {
			return true
		}
	}
	return false
}
