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

// due is a Touch that home should get now; nil if none. threshold is that of limit.Part.
func (s *Spread) due(now, threshold int64) *limit.Part {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := &limit.Part{Home: true, Ops: s.mu.ops, Threshold: threshold, Split: s.mu.split}
	if s.mu.cost > 0 && now-s.mu.costAt <= costFor {
		p.Ways = int(min(limit.MaxWays, max(1, s.mu.terms.Burst/s.mu.cost)))
	}
	waited := now - s.mu.touched
	if len(s.mu.parts) == 0 {
		if s.mu.off || threshold <= 0 || s.mu.ops < touchOps || waited < touchPause {
			return nil
		}
		p.Split = limit.Split{}
	} else {
		p.End = s.mu.off || threshold <= 0 || s.tooLargeLocked(now)
		soon := s.mu.stale || p.End && !s.mu.split.Closing || now >= s.mu.ends
		if now-s.mu.used > idleAfter && !soon || waited < touchPause || waited < touchEvery && !soon {
			return nil
		}
	}
	s.mu.touched, s.mu.ops = now, 0
	s.mu.totals.Touches++
	return p
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
	return &limit.Part{Home: true, Split: s.mu.split, Free: m.free, End: s.mu.off || threshold <= 0 || s.tooLargeLocked(now)}, m.out
}

// over reports whether the Spread can be forgotten.
func (s *Spread) over(now int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return now-s.mu.used > idleAfter && (len(s.mu.parts) == 0 || now >= s.mu.ends+int64(limit.SplitMargin))
}
