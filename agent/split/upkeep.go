package split

import (
	"github.com/spillgate/spillgate/batcher"
	"github.com/spillgate/spillgate/limit"
)

// merge is what an agent does that has seen the load go: it closes the parts, and once all are, it brings home
// what they had.
type merge struct {
	at      int64 // not before; 0 while home has not said that it is closing
	running bool
	start   int64 // of the split that is being closed
	open    int   // parts that have not answered
	failed  bool
	free    limit.Ticks
	out     limit.Tokens
}

// due is a Touch that home should get now; nil if none. threshold is that of limit.Part, divisible that of Config.
func (s *Spread) due(now, threshold int64, divisible func() bool) *limit.Part {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now-s.mu.touched < touchPause || len(s.mu.parts) == 0 && !s.wholeDueLocked(threshold, divisible) || len(s.mu.parts) > 0 && !s.dividedDueLocked(now, threshold) {
		return nil
	}
	p := &limit.Part{Home: true, Ops: s.mu.ops, Threshold: threshold}
	if len(s.mu.parts) > 0 {
		p.Split, p.End = s.mu.split, s.endLocked(now, threshold)
	}
	if s.mu.cost > 0 && now-s.mu.costAt <= costFor {
		p.Ways = int(min(limit.MaxWays, max(1, s.mu.terms.Burst/s.mu.cost)))
	}
	s.mu.touched, s.mu.ops = now, 0
	s.mu.totals.Touches++
	return p
}

// wholeDueLocked is due for a bucket that is whole: home hears of it after so many entries.
func (s *Spread) wholeDueLocked(threshold int64, divisible func() bool) bool {
	return s.mu.ops >= touchOps && !s.mu.off && threshold > 0 && (divisible == nil || divisible())
}

// dividedDueLocked is due for a bucket that is divided: home hears of it twice a second, and at once if there is something to find out.
func (s *Spread) dividedDueLocked(now, threshold int64) bool {
	if s.mu.stale || now >= s.mu.ends || s.endLocked(now, threshold) && !s.mu.split.Closing {
		return true
	}
	return now-s.mu.touched >= touchEvery && now-s.mu.used <= idleAfter
}

// endLocked reports whether this agent wants the bucket to be whole.
func (s *Spread) endLocked(now, threshold int64) bool {
	return s.mu.off || threshold <= 0 || s.tooLargeLocked(now)
}

// beginMerge returns the parts to close, if it is time for that.
func (s *Spread) beginMerge(now int64) (parts []*limit.Part) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := &s.mu.merge
	if !s.mu.split.Closing || !s.dividedLocked(now) || m.running || now < m.at {
		return nil
	}
	for i := range s.mu.parts {
		parts = append(parts, s.partLocked(i))
	}
	*m = merge{at: now + mergeAgain, running: true, start: s.mu.split.Start, open: len(parts)}
	return parts
}

// closed takes the answer to a Close. Once all have come it returns what to tell home, and for how many tokens.
func (s *Spread) closed(c *batcher.Claim, now, threshold int64) (p *limit.Part, out limit.Tokens) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := &s.mu.merge
	if !m.running || c.Part.Split.Start != m.start {
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

// over reports whether the Spread can be forgotten.
func (s *Spread) over(now int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return now-s.mu.used > idleAfter && (len(s.mu.parts) == 0 || now >= s.mu.ends+int64(limit.SplitMargin))
}

// end notes the end of a split that nobody asks about any more.
func (s *Spread) end(now int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.mu.parts) > 0 {
		s.noteLocked(now, EventEnded)
		s.mu.parts, s.mu.split = nil, limit.Split{}
	}
}
