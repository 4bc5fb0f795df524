package split

import (
	"errors"
	"slices"

	"github.com/spillgate/spillgate/batcher"
	"github.com/spillgate/spillgate/limit"
)

// merge is what an agent does that has seen the load go: it closes the parts, and once all are, it brings home
// what they had.
type merge struct {
	at      int64 // not before; 0 while home has not said that it is closing
	running bool
	looking bool  // whether all parts can be reached: a part that is closed while another cannot be is closed in vain
	start   int64 // of the split that is being closed
	open    int   // parts that have not answered
	failed  bool
	free    limit.Ticks
	out     limit.Tokens
}

// leftover is a split whose parts are still in the store.
type leftover struct {
	split limit.Split
	at    int64 // when they can be removed
}

// due is a Touch that home should get now; nil if none. threshold is that of limit.Part, divisible that of Config.
func (s *Spread) due(now, threshold int64, divisible func() bool) *limit.Part {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.touching || now-s.mu.touched < touchPause {
		return nil
	}
	p := &limit.Part{Home: true, Ops: s.mu.ops, Threshold: threshold}
	switch divided := len(s.mu.parts) > 0; {
	case !divided && !s.wholeDueLocked(threshold, divisible), divided && !s.dividedDueLocked(now, threshold):
		return nil
	case divided:
		p.Split, p.End = s.mu.split, s.endLocked(now, threshold)
	}
	if s.mu.cost > 0 && now-s.mu.costAt <= costFor {
		p.Ways = int(min(limit.MaxWays, max(1, s.mu.terms.Burst/s.mu.cost)))
	}
	s.mu.touched, s.mu.touching, s.mu.ops = now, true, 0
	s.mu.totals.Touches++
	return p
}

// wholeDueLocked is due for a bucket that is whole: home hears of it after so many entries.
func (s *Spread) wholeDueLocked(threshold int64, divisible func() bool) bool {
	if s.mu.ops < touchOps {
		return false
	}
	if s.mu.off || threshold <= 0 || divisible != nil && !divisible() {
		s.mu.ops = 0 // they are not kept for the day when it can
		return false
	}
	return true
}

// dividedDueLocked is due for a bucket that is divided: home hears of it twice a second, and at once if there is something to find out.
func (s *Spread) dividedDueLocked(now, threshold int64) bool {
	if s.mu.stale || now >= s.mu.ends || s.endLocked(now, threshold) && !s.mu.split.Closing {
		return true
	}
	return now-s.mu.touched >= s.mu.every && now-s.mu.used <= idleAfter
}

// endLocked reports whether this agent wants the bucket to be whole, and could bring it about.
func (s *Spread) endLocked(now, threshold int64) bool {
	return (s.mu.off || threshold <= 0 || s.tooLargeLocked(now)) && !s.failingLocked()
}

// failingLocked reports whether the master of some part did not answer last.
func (s *Spread) failingLocked() bool {
	for i := range s.mu.parts {
		if s.mu.parts[i].failTo > 0 {
			return true
		}
	}
	return false
}

// beginMerge returns the parts to look at before they are closed, if it is time for that.
func (s *Spread) beginMerge(now int64) []*limit.Part {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := &s.mu.merge
	if !s.mu.split.Closing || len(s.mu.parts) == 0 || now >= s.mu.ends || m.running || now < m.at {
		return nil
	}
	*m = merge{at: now + mergeAgain, running: true, looking: true, start: s.mu.split.Start, open: len(s.mu.parts)}
	return s.partsLocked()
}

// parts names all parts; none while the bucket is whole.
func (s *Spread) parts() []*limit.Part {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.partsLocked()
}

// partsLocked is parts.
func (s *Spread) partsLocked() (parts []*limit.Part) {
	for i := range s.mu.parts {
		parts = append(parts, s.partLocked(i))
	}
	return parts
}

// looked takes the answer to a look. Once all parts have answered it returns those to close: all of them. One that refuses is closed already.
func (s *Spread) looked(c *batcher.Claim) []*limit.Part {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := &s.mu.merge
	if !m.looking || c.Part.Split.Start != m.start {
		return nil
	}
	m.open--
	m.failed = m.failed || c.Err != nil && !errors.Is(c.Err, batcher.ErrStale)
	if m.open > 0 {
		return nil
	}
	m.looking = false
	if m.failed {
		m.running = false
		return nil
	}
	m.open = len(s.mu.parts)
	return s.partsLocked()
}

// closed takes the answer to a Close. Once all have come it returns what to tell home, and for how many tokens.
func (s *Spread) closed(c *batcher.Claim, now, threshold int64) (p *limit.Part, out limit.Tokens) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := &s.mu.merge
	if !m.running || m.looking || c.Part.Split.Start != m.start {
		return nil, 0
	}
	m.open--
	m.failed = m.failed || c.Err != nil
	if c.Err == nil {
		p := c.Terms.Part(c.Part.Split.Ways, c.Part.Index)
		m.free += c.Terms.FromPart(&p, c.Out.Level)
		m.out += c.Out.Granted
	}
	if m.open > 0 {
		return nil, 0
	}
	m.running = false
	if m.failed {
		return nil, 0
	}
	return &limit.Part{Home: true, Split: s.mu.split, Free: m.free, End: s.endLocked(now, threshold)}, m.out
}

// leaveLocked notes a split that is over, and whose parts are to be removed some time after its end. When that is home knows, since
// others may have prolonged the split; a home that does not know it any more may have done so until now.
func (s *Spread) leaveLocked(now int64, split limit.Split, news *batcher.Split) {
	left := limit.SplitTTL
	if news != nil && news.Start == split.Start {
		split.Until, left = news.Until, max(0, news.Left)
	}
	s.mu.left = append(s.mu.left, leftover{split, now + int64(left) + sweepAfter})
}

// leftovers are the parts of splits that are over, if it is time to remove them.
func (s *Spread) leftovers(now int64) (parts []*limit.Part) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.left = slices.DeleteFunc(s.mu.left, func(l leftover) bool {
		if now < l.at {
			return false
		}
		for i := range l.split.Ways {
			parts = append(parts, &limit.Part{Index: i, Split: l.split})
		}
		return true
	})
	return parts
}

// unused ends what is known of a split whose time is over and that nobody asks about any more. It reports whether the Spread can be
// forgotten.
func (s *Spread) unused(now int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now-s.mu.used <= idleAfter {
		return false
	}
	if len(s.mu.parts) > 0 && now >= s.mu.ends+int64(limit.SplitMargin) {
		s.endLastLocked(now)
	}
	return len(s.mu.parts) == 0 && len(s.mu.left) == 0
}

// endLastLocked ends a split of which nothing more was heard. Others may have kept it, so its parts are left alone.
func (s *Spread) endLastLocked(now int64) {
	s.noteLocked(now, EventEnded)
	s.mu.parts, s.mu.split, s.mu.merge = nil, limit.Split{}, merge{}
}

// forget ends the Spread, for good.
func (s *Spread) forget(now int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.gone = true; len(s.mu.parts) > 0 {
		s.endLastLocked(now)
	}
}
