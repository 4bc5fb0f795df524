package redisshard

import (
	"context"
	"slices"
	"time"

	"github.com/spillgate/spillgate/limit"
)

// The parts of a divided bucket end by the clocks of their masters, so those must agree to within limit.MaxSkew. How
// far they are apart shows in the replies: each tells the server's time, which lies between the moments at which the
// agent sent the call and had the reply. A master that no call went to lately is asked for its time.
//
// What is measured is a lower bound: the true skew may be more by the errors, but for a master to be called wrong
// it must be. Nothing is measured where the agents' clock decides (ClockAgent): masters then have no say.

const (
	// maxRoundTrip is the longest of a call that tells anything.
	maxRoundTrip = 100 * time.Millisecond
	// readingLife is how long a master's clock is held to go on as it was read, and readingBest how long a
	// precise reading is kept rather than a later but coarser one.
	readingLife = time.Minute
	readingBest = 10 * time.Second
	// drift is the part of a reading's age by which two clocks may have come apart since: 1/drift.
	drift = 2000

	// skewAlarm is where the operator is told, and skewCalm where that is over. Between the two nothing is
	// said, since what is measured wavers.
	skewAlarm = limit.MaxSkew / 2
	skewCalm  = skewAlarm * 4 / 5
)

// reading is a master's clock as one reply told it, in nanoseconds.
type reading struct {
	addr   string
	offset int64 // the master's time less the agent's
	within int64 // that the offset may be wrong by, either way
	at     int64 // agent's time of the reply
}

// newReading takes the agent's times in nanoseconds and the master's in microseconds. ok is false if they tell too little.
func newReading(addr string, sent, received, micros int64) (r reading, ok bool) {
	trip := received - sent
	if trip < 0 || trip > int64(maxRoundTrip) {
		return r, false
	}
	// The master's time was rounded down to a microsecond.
	return reading{addr, micros*1000 - sent - trip/2, trip/2 + 1000, received}, true
}

// bounds are the least and the greatest that the offset can be at a time after the reading.
func (r *reading) bounds(now int64) (low, high int64) {
	within := r.within + max(0, now-r.at)/drift
	return r.offset - within, r.offset + within
}

// replaces reports whether a later reading is to be used in place of an earlier one of the same master: it is more precise, or the
// earlier one is old, or they contradict each other, as when the master's clock was set.
func (r *reading) replaces(old *reading) bool {
	low, high := old.bounds(r.at)
	return 2*r.within <= high-low || r.at-old.at > int64(readingBest) || r.offset-r.within > high || r.offset+r.within < low
}

// heard takes what a reply of a master tells of its clock.
//
// Hot path: an atomic load, and now and then an allocation and a store.
func (st *state) heard(shard int, addr string, sent, received, micros int64) {
	r, ok := newReading(addr, sent, received, micros)
	if old := st.readings[shard].Load(); ok && (old == nil || old.addr != addr || r.replaces(old)) {
		kept := r
		st.readings[shard].Store(&kept)
	}
}

// clocks are the best readings of these masters; nil where there is none that is fresh.
func clocks(readings []*reading, masters []string, now int64) []*reading {
	best := make([]*reading, len(masters))
	for _, r := range readings {
		i := slices.Index(masters, r.addr)
		if i < 0 || now-r.at > int64(readingLife) {
			continue
		}
		earlier, later := best[i], r
		if earlier != nil && earlier.at > later.at {
			earlier, later = later, earlier
		}
		if best[i] = earlier; earlier == nil || later.replaces(earlier) {
			best[i] = later
		}
	}
	return best
}

// gap is how far the clocks of two masters are apart at least.
type gap struct {
	skew          time.Duration
	ahead, behind string // addresses
}

// widest finds the masters that are furthest apart. ok is false if fewer than two were heard.
func widest(clocks []*reading, now int64) (g gap, ok bool) {
	heard, lead, lag := 0, int64(0), int64(0)
	for _, r := range clocks {
		if r == nil {
			continue
		}
		low, high := r.bounds(now)
		if heard++; heard == 1 || low > lead {
			lead, g.ahead = low, r.addr
		}
		if heard == 1 || high < lag {
			lag, g.behind = high, r.addr
		}
	}
	g.skew = time.Duration(max(0, lead-lag))
	return g, heard > 1
}

// clocks are those of the masters that have any tag.
func (st *state) clocks(now int64) []*reading {
	readings := make([]*reading, 0, len(st.readings))
	for i := range st.readings {
		if r := st.readings[i].Load(); r != nil {
			readings = append(readings, r)
		}
	}
	return clocks(readings, st.divisionsNow().spread.masters, now)
}

// Skew is how far the clocks of two masters are apart at least, as their replies show. It is unknown, ok false, until two
// have been heard within a minute, and where masters' clocks do not matter.
func (s *Store) Skew() (skew time.Duration, ok bool) {
	st := s.state.Load()
	if st == nil || !s.measuresSkew(st) {
		return 0, false
	}
	now := s.now()
	g, ok := widest(st.clocks(now), now)
	return g.skew, ok
}

func (s *Store) measuresSkew(st *state) bool {
	return st.nodes.clustered() && s.cfg.Clock != ClockAgent
}

// tooSkewed reports whether the masters' clocks are further apart than a division of buckets can bear.
func (st *state) tooSkewed() bool { return st.skewed.Load() }

// watchSkew looks whether buckets can be divided, and tells the operator when clocks come apart, and when they agree
// again. It is called by tend.
func (s *Store) watchSkew(ctx context.Context, st *state) {
	if !s.measuresSkew(st) {
		return
	}
	s.askQuiet(ctx, st)
	now := s.now()
	g, ok := widest(st.clocks(now), now)
	if !ok {
		return // what was known last holds until more is known
	}
	st.skewed.Store(g.skew > limit.MaxSkew)
	switch {
	case !s.skewTold && g.skew > skewAlarm:
		s.skewTold = true
		s.cfg.Logger.Warn("the clocks of the store's masters are apart: synchronise them (NTP, chrony); beyond the limit hot buckets are not divided",
			"skew", g.skew, "ahead", g.ahead, "behind", g.behind, "limit", limit.MaxSkew)
	case s.skewTold && g.skew < skewCalm:
		s.skewTold = false
		s.cfg.Logger.Info("the clocks of the store's masters agree again", "skew", g.skew)
	}
}

// askQuiet asks the masters for their time that no call went to lately. The right to ask is there, since the
// script needs it.
func (s *Store) askQuiet(ctx context.Context, st *state) {
	sp, now, shards := st.divisionsNow().spread, s.now(), make(map[string]int)
	if len(sp.masters) < 2 {
		return
	}
	for i, r := range st.clocks(now) {
		if r == nil || now-r.at > int64(readingBest) {
			shards[sp.masters[i]] = slices.Index(sp.owners, int16(i))
		}
	}
	quiet := make([]string, 0, len(shards))
	for addr := range shards {
		quiet = append(quiet, addr)
	}
	_, _ = gather(ctx, quiet, maxRoundTrip, maxRoundTrip, func(ctx context.Context, addr string) (struct{}, error) {
		sent := s.now()
		t, err := st.nodes.at(addr).Time(ctx).Result()
		if err == nil {
			st.heard(shards[addr], addr, sent, s.now(), t.UnixMicro())
		}
		return struct{}{}, err // who is silent is not heard; its calls say why
	})
}
