package redisshard

import (
	"context"
	"crypto/sha1"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillgate/spillgate/batcher"
	"github.com/spillgate/spillgate/limit"
)

const (
	// layoutEvery is how often the stored layout is read again: it is put back
	// if Redis lost it, and adopted if another one is there. Until then an agent that
	// starts makes a layout of its own, and the two count apart.
	layoutEvery = time.Second
	// reconnectLeast and reconnectMost bound the pause between attempts to reach a
	// store that was not there at start.
	reconnectLeast = 100 * time.Millisecond
	reconnectMost  = 2 * time.Second
	// connectTimeout bounds one attempt.
	connectTimeout = 3 * time.Second
)

// Store keeps cells in Redis. It is safe for concurrent use.
type Store struct {
	cfg   Config
	sha   string
	state atomic.Pointer[state]
	fault atomic.Pointer[error] // why state is nil or the layout could not be read; nil error when all is well
	names nameCache
	calls sync.Pool
	stats counters

	// start anchors the agent's clock, so that a step of the wall clock does not move it.
	start time.Time
	// stamp, in tests, is the time in microseconds that every call carries.
	stamp func() int64

	// beatTold: the operator knows that the fleet cannot be counted.
	beatTold atomic.Bool
	// skewTold: the operator knows that the masters' clocks are apart. It belongs to tend, as does silent: the masters of which he
	// knows that calls fail there.
	skewTold bool
	silent   map[string]bool

	stop context.CancelFunc
	done chan struct{}
}

// state is what is known once the store has been reached. Immutable but for what is atomic.
type state struct {
	nodes  *nodes
	layout *layout
	// offsets hold, per shard, server time minus agent time in nanoseconds.
	offsets []atomic.Int64
	// faults hold, per shard, why its last call failed; nil if it did not.
	faults []atomic.Pointer[fault]
	// readings hold, per shard, what replies told of its master's clock (skew.go).
	readings []atomic.Pointer[reading]
	// divisions are those that suit the topology (division.go); nil before the first use.
	divisions atomic.Pointer[divisions]
	// skewed says that the masters' clocks are too far apart to divide buckets (skew.go).
	skewed atomic.Bool
}

func newState(n *nodes, l *layout) *state {
	shards := 1
	if n.clustered() {
		shards = len(l.tags)
	}
	return &state{nodes: n, layout: l, offsets: make([]atomic.Int64, shards),
		faults: make([]atomic.Pointer[fault], shards), readings: make([]atomic.Pointer[reading], shards)}
}

// Open connects to the store. A store that cannot be reached is no error: Open returns,
// keeps trying in the background, and Status tells why; until then Secret reports
// false. What trying again cannot mend is an error: a wrong
// password, a server older than 6.2, a bad URL, a damaged layout.
func Open(ctx context.Context, cfg Config) (*Store, error) {
	cfg.ensureDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	sum := sha1.Sum([]byte(debitScript))
	s := &Store{cfg: cfg, sha: hex.EncodeToString(sum[:]), start: time.Now(), silent: make(map[string]bool), done: make(chan struct{})}
	s.calls.New = func() any { return new(call) }
	err := s.attach(ctx)
	if isPermanent(err) {
		return nil, err
	}
	if err != nil {
		cfg.Logger.Warn("store not reached, trying on", "error", err)
	}
	background, stop := context.WithCancel(context.Background())
	s.stop = stop
	go s.tend(background, err)
	return s, nil
}

// attach connects and settles the layout, once.
func (s *Store) attach(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	defer func() { s.fault.Store(&err) }()
	n, err := connect(ctx, s.cfg)
	if err != nil {
		return err
	}
	l, err := s.readLayout(ctx, n)
	if err == nil {
		err = s.tryScripts(ctx, n)
	}
	if err != nil {
		return errors.Join(err, n.close())
	}
	s.use(n, l)
	return nil
}

// probeScript is run once at every first contact.
//
//go:embed lua/probe.lua
var probeScript string

// tryScripts uses all that a debit needs, so that a right that the user lacks shows now
// and not as debits of unknown outcome.
func (s *Store) tryScripts(ctx context.Context, n *nodes) error {
	client, err := n.master(ctx, layoutKey)
	if err != nil {
		return err
	}
	askTime, stamp := "1", int64(0)
	if s.cfg.Clock == ClockAgent {
		askTime, stamp = "0", time.Now().UnixMicro()
	}
	err = client.Eval(ctx, probeScript, []string{probeKey}, askTime).Err()
	if err == nil {
		err = client.EvalSha(ctx, s.sha, nil, appendNumbers(nil, float64(stamp), 0)).Err()
		if redis.HasErrorPrefix(err, "NOSCRIPT") {
			err = nil // the first debit brings it along
		}
	}
	if err != nil && strings.Contains(err.Error(), "can't run this command") {
		return permanentError{fmt.Errorf("redisshard: %s: %w (allow EVAL, EVALSHA, HMGET, HSET, HDEL, EXISTS, PEXPIRE, UNLINK and TIME on sg:* to the user; "+
			"without TIME set the store's clock to agent)", client.Options().Addr, err)}
	}
	if err != nil {
		return explain(client.Options().Addr, err)
	}
	return nil
}

func (s *Store) readLayout(ctx context.Context, n *nodes) (*layout, error) {
	masters, err := n.masters(ctx)
	if err != nil {
		return nil, err
	}
	return settleLayout(ctx, n, func() *layout { return s.propose(masters) })
}

// use puts a layout in force, and says so if it is not the configured one.
func (s *Store) use(n *nodes, l *layout) {
	if (s.cfg.Tags != 0 && s.cfg.Tags != len(l.tags)) || (s.cfg.Bins != 0 && s.cfg.Bins != l.bins) {
		s.cfg.Logger.Warn("the layout in the store differs from the configuration; the stored one is used",
			"stored_tags", len(l.tags), "stored_bins", l.bins, "configured_tags", s.cfg.Tags, "configured_bins", s.cfg.Bins)
	}
	s.state.Store(newState(n, l))
}

// propose makes the layout for a store that has none: the one in use if the store
// lost it, else one of the configured size.
func (s *Store) propose(masters int) *layout {
	if st := s.state.Load(); st != nil {
		return st.layout
	}
	tags, bins := s.cfg.Tags, s.cfg.Bins
	if tags == 0 {
		tags = min(max(8, 4*masters), maxTags)
	}
	if bins == 0 {
		bins = 1
	}
	return newLayout(tags, bins)
}

// tend connects a store that was not there at start, then reads the layout every layoutEvery, looks at the masters'
// clocks, and logs when the store goes and comes back. was is the status that the operator knows of: a store that fails before the first
// line of this has run is news.
func (s *Store) tend(ctx context.Context, was error) {
	defer close(s.done)
	pause := reconnectLeast
	timer := time.NewTimer(pause)
	defer timer.Stop()
	for {
		if s.state.Load() != nil {
			pause = layoutEvery
		}
		timer.Reset(pause)
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		st := s.state.Load()
		if st == nil {
			pause = min(2*pause, reconnectMost)
			if err := s.attach(ctx); isPermanent(err) {
				s.cfg.Logger.Error("store refuses this agent", "error", err)
			}
		}
		if was = s.report(was); st != nil {
			s.watchMasters(st)
			s.watchSkew(ctx, st)
			s.refresh(ctx, st)
		}
	}
}

// whole is the status of the store as a whole, and says whether it is a cluster: of its masters watchMasters tells.
func (s *Store) whole() (cluster bool, err error) {
	if st := s.state.Load(); st != nil && st.nodes.clustered() {
		return true, *s.fault.Load()
	}
	return false, s.Status()
}

// report logs a change of the status of the whole, and returns it.
func (s *Store) report(was error) (is error) {
	cluster, is := s.whole()
	switch {
	case was == nil && is != nil && cluster:
		s.cfg.Logger.Warn("the store's layout cannot be read, the known one stays in use", "error", is)
	case was == nil && is != nil:
		s.cfg.Logger.Warn("store does not answer, fail policies decide", "error", is)
	case was != nil && is == nil:
		s.cfg.Logger.Info("store answers")
	}
	return is
}

// refresh reads the layout again and adopts one that differs.
func (s *Store) refresh(ctx context.Context, st *state) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	l, err := s.readLayout(ctx, st.nodes)
	s.fault.Store(&err)
	if err != nil {
		return
	}
	s.expireFaults(st)
	if l.secret != st.layout.secret || len(l.tags) != len(st.layout.tags) || l.bins != st.layout.bins {
		s.cfg.Logger.Warn("the store has a new layout: every bucket starts full", "tags", len(l.tags), "bins", l.bins)
		s.use(st.nodes, l)
		s.names.reset()
	}
}

// Close stops the background work and closes the connections. Calls in flight fail.
func (s *Store) Close() error {
	s.stop()
	<-s.done
	if st := s.state.Load(); st != nil {
		return st.nodes.close()
	}
	return nil
}

// Status is nil when the store has been reached and its last calls were answered, else it says
// what is wrong. It follows a failing call at once, and a store that is back as soon as a call or a
// probe of a shard that failed is answered; one that is not asked any more counts for some seconds.
func (s *Store) Status() error {
	if err := s.fault.Load(); err != nil && *err != nil {
		return *err
	}
	if st := s.state.Load(); st != nil {
		for i := range st.faults {
			if f := st.faults[i].Load(); f != nil {
				return f
			}
		}
	}
	return nil
}

// Secret implements batcher.Store.
func (s *Store) Secret() (*limit.Secret, bool) {
	st := s.state.Load()
	if st == nil {
		return nil, false
	}
	return &st.layout.secret, true
}

// Shard implements batcher.Store: the tag on a cluster, else always 0.
func (s *Store) Shard(b *limit.Bucket, part *limit.Part) int {
	st := s.state.Load()
	if st == nil || !st.nodes.clustered() {
		return 0
	}
	tag, _ := st.layout.placePart(b, part)
	return tag
}

// Master is the address of the master that serves a bucket, or a part of it, as far as is known now; else "".
func (s *Store) Master(b *limit.Bucket, part *limit.Part) string {
	st := s.state.Load()
	if st == nil {
		return ""
	}
	tag, _ := st.layout.placePart(b, part)
	return st.nodes.topology.Load().masterOf(st.layout.tags[tag])
}

// Divisible implements batcher.Divisible: there are several masters, or parts are forced, and their own clocks decide, which are
// measured.
func (s *Store) Divisible() bool {
	st := s.state.Load()
	return st != nil && s.cfg.Clock != ClockAgent && (s.cfg.SplitWays > 1 || len(st.nodes.topology.Load().masters) > 1)
}

// Apply implements batcher.Store.
func (s *Store) Apply(ctx context.Context, shard int, entries []*batcher.Entry) {
	if len(entries) == 0 {
		return
	}
	st := s.state.Load()
	if st == nil {
		failAll(entries, fmt.Errorf("%w: not connected", batcher.ErrNotRun))
		return
	}
	if shard >= len(st.offsets) { // the layout shrank since the entries were queued
		shard = 0
	}
	c := s.calls.Get().(*call)
	if c.load(st.layout, entries); len(c.items) > 0 {
		s.run(ctx, st, shard, c)
	}
	c.release()
	s.calls.Put(c)
}

func failAll(entries []*batcher.Entry, err error) {
	for _, e := range entries {
		e.Err = err
	}
}

// now is the agent's clock in nanoseconds since the Unix epoch; it does not step.
func (s *Store) now() int64 { return s.start.UnixNano() + int64(time.Since(s.start)) }
