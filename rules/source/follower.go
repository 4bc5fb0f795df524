package source

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/spillgate/spillgate/rules"
)

// Store has the versions of the rules. redisshard.Rules is one. Its methods return soon after ctx ends.
type Store interface {
	// Head is the version in force; zero if nobody has pushed yet.
	Head(ctx context.Context) (rules.Head, error)
	// Version is one version with its text. An error that wraps rules.ErrDamaged says that trying again is of no use.
	Version(ctx context.Context, number int64) (rules.Version, error)
	// Listen calls heard with the number of each version that is pushed, until ctx ends or the connection is lost. It calls
	// ready as soon as nothing that is pushed from then on is missed.
	Listen(ctx context.Context, ready func(), heard func(number int64)) error
}

const (
	// beginPatience bounds how long a start waits for the store, lookPatience any later look. A text may have megabytes.
	beginPatience = 3 * time.Second
	lookPatience  = 10 * time.Second
	// retryEvery is the pause after a look or a subscription that failed.
	retryEvery = time.Second
)

// FollowerConfig of a Follower. The zero value of each field but Store stands for its default.
type FollowerConfig struct {
	// Store to follow. Required.
	Store Store
	// TTL is how long rules are good without a look at the store: a version whose announcement was lost is in force
	// after that at the latest. Default 30 s. Shorter asks the store more often.
	TTL time.Duration
	// Fleet is whose rules they are, for messages that say how to push some. Default "default".
	Fleet string
	// Snapshot is the file that keeps what was in force last, for a start without the store. Default none.
	Snapshot string
	// Parse makes a set of a text; its error refuses the version. Default rules.Parse. The snapshot has the text as it was pushed.
	Parse func(name string, text []byte) (*rules.Set, error)
	// Logger takes what operators should know. Default slog.Default().
	Logger *slog.Logger
}

// Follower follows the rules in a store. Begin, then Follow, then Close.
type Follower struct {
	cfg      FollowerConfig
	use      func(*rules.Set)
	standing standing       // of Begin, then of run
	unsaved  *rules.Version // in force and not in the snapshot; the same owner
	counted  rules.Head     // the version that was counted as refused last; the same owner
	trouble  trouble        // the same owner
	wake     chan struct{}
	reload   chan struct{}
	ledger   ledger
	life
}

// trouble remembers what was told, so that it is told once.
type trouble struct {
	look     string // what the last look ended with; empty if all was well
	refused  string // why the version was refused that was refused last
	snapshot bool   // it could not be written
}

// NewFollower returns a Follower that does nothing yet.
func NewFollower(cfg FollowerConfig) (*Follower, error) {
	if cfg.TTL == 0 {
		cfg.TTL = 30 * time.Second
	}
	if cfg.Parse == nil {
		cfg.Parse = rules.Parse
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	switch {
	case cfg.Store == nil:
		return nil, errors.New("source: FollowerConfig.Store is missing: open one with redisshard.OpenRules")
	case cfg.TTL < 0:
		return nil, fmt.Errorf("source: FollowerConfig.TTL is %v, it must be positive", cfg.TTL)
	}
	return &Follower{cfg: cfg, wake: make(chan struct{}, 1), reload: make(chan struct{}, 1)}, nil
}

// Begin finds rules to begin with: those of the store, or if it does not answer in time, those of the
// snapshot. There may be none, and the set is nil then; Status tells why. What is wrong goes to the log: it is no reason not to start.
func (f *Follower) Begin(ctx context.Context) *rules.Set {
	var set *rules.Set
	f.use = func(s *rules.Set) { set = s }
	if f.cfg.Snapshot != "" {
		f.restore()
	}
	f.lookIn(ctx, beginPatience)
	return set
}

// Follow gives use every set that comes into force from now on, until Close, one after the other.
func (f *Follower) Follow(use func(*rules.Set)) {
	f.use = use
	f.begin(f.run, f.listen)
}

// Reload looks at the store now, and tries a version again that was refused. It does not wait for that.
func (f *Follower) Reload() { poke(f.reload) }

// Status says what is in force.
func (f *Follower) Status() rules.Status { return f.ledger.status() }

// run is the goroutine that looks and swaps, [1] to [6].
func (f *Follower) run(ctx context.Context) {
	timer := time.NewTimer(f.cfg.TTL)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-f.reload:
			f.standing.refused, f.trouble = rules.Head{}, trouble{}
			timer.Reset(f.lookIn(ctx, lookPatience))
			f.cfg.Logger.Info("rules reloaded", "status", f.Status().String())
			continue
		case <-f.wake:
		case <-timer.C:
		}
		timer.Reset(f.lookIn(ctx, lookPatience))
	}
}

// lookIn looks for at most so long, and returns when to look again.
func (f *Follower) lookIn(ctx context.Context, patience time.Duration) (next time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if !f.look(ctx) {
		return min(f.cfg.TTL, retryEvery)
	}
	// A little early, each agent at a moment of its own, so that a fleet does not look all at once.
	return f.cfg.TTL - rand.N(f.cfg.TTL/10+1)
}

// listen is the goroutine that hears of versions. It only ever asks run to look.
func (f *Follower) listen(ctx context.Context) {
	told := false
	for {
		began := false
		ready := func() {
			began = true
			if told {
				f.cfg.Logger.Info("pushes of rules are heard of at once again")
			}
			told = false
			poke(f.wake) // something may have been pushed before anyone listened
		}
		// Whatever the number: one that is not above what is in force may be late, or of another database. Or the store has lost its
		// versions and counts anew, and who has just pushed has to see that it is not in force here.
		err := f.cfg.Store.Listen(ctx, ready, func(int64) { poke(f.wake) })
		if ctx.Err() != nil {
			return
		}
		if !told {
			f.cfg.Logger.Warn("pushes of rules are not heard of; the store is looked at instead", "every", f.cfg.TTL.String(), "error", err)
			told = true
		}
		if began {
			poke(f.wake) // the connection has ended: is the store still there?
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(retryEvery):
		}
	}
}

// look compares the store with what is in force and takes what is newer, [2] to [6]. It is false if the store did not answer.
func (f *Follower) look(ctx context.Context) bool {
	head, err := f.cfg.Store.Head(ctx)
	if err != nil {
		return f.failed(ctx, err)
	}
	switch f.standing.judge(head) {
	case same:
		f.ledger.inForce(rules.FromStore, head, time.Now())
		f.well()
	case none:
		f.tell("none", slog.LevelWarn, "no rules were pushed to the store yet; push some with: spillgate rules push"+f.fleetFlag())
	case lost:
		f.lost(head)
	case bad:
		f.tellRefused(head)
	case newer:
		if err := f.fetch(ctx, head); err != nil {
			return f.failed(ctx, err)
		}
	}
	f.save()
	return true
}

// fetch takes the version of a head. An error is one of the store, for another try.
func (f *Follower) fetch(ctx context.Context, head rules.Head) error {
	v, err := f.cfg.Store.Version(ctx, head.Number)
	switch {
	case errors.Is(err, rules.ErrDamaged):
		f.refuse(head, err)
		return nil
	case err != nil:
		return err
	}
	if sum := rules.SumOf(v.Text); sum != head.Sum {
		f.refuse(head, fmt.Errorf("source: version %d: %w: its text has another sum than it should have", head.Number, rules.ErrDamaged))
		return nil
	}
	v.Head = head
	if err := f.take(rules.FromStore, &v); err != nil {
		f.refuse(head, err)
		return nil
	}
	f.well()
	f.unsaved = &v
	return nil
}

// take puts a version into force, if its text is any good.
func (f *Follower) take(from rules.Source, v *rules.Version) error {
	changed := v.Sum != f.standing.in.Sum
	if changed { // else they are in force already, under another number
		set, err := f.cfg.Parse(fmt.Sprintf("version %d", v.Number), v.Text)
		if err != nil {
			return err
		}
		f.use(set)
	}
	f.standing.in, f.standing.refused = v.Head, rules.Head{}
	f.ledger.inForce(from, v.Head, time.Now())
	f.cfg.Logger.Info("rules in force", "source", string(from), "version", v.Number, "author", v.Author, "comment", v.Comment,
		"pushed", v.Time.UTC().Format(time.RFC3339), "changed", changed)
	return nil
}

// refuse keeps a version out, for good unless Reload asks again.
func (f *Follower) refuse(head rules.Head, err error) {
	f.standing.refused = head
	if head != f.counted {
		f.counted = head
		f.ledger.refuse()
	}
	complain(f.cfg.Logger, "rules version refused", err)
	f.trouble.refused = fmt.Sprintf("version %d of the store was refused: %s", head.Number, brief(err))
	f.tellRefused(head)
}

// tellRefused tells that the latest version is the one that was refused last.
func (f *Follower) tellRefused(head rules.Head) {
	f.tell(fmt.Sprint("refused ", head), slog.LevelError, f.trouble.refused)
}

// lost tells that the store has less than what is in force.
func (f *Follower) lost(head rules.Head) {
	has := fmt.Sprintf("version %d", head.Number)
	switch head.Number {
	case 0:
		has = "no version"
	case f.standing.in.Number:
		has = fmt.Sprintf("another version %d", head.Number)
	}
	f.tell(fmt.Sprint("lost ", head), slog.LevelError, fmt.Sprintf("the store has %s, and version %d is in force here: it has lost data, or it is another store; "+
		"push the rules again with --above %d%s", has, f.standing.in.Number, f.standing.in.Number, f.fleetFlag()))
}

// fleetFlag is what a push for this fleet needs besides.
func (f *Follower) fleetFlag() string {
	if f.cfg.Fleet == "" || f.cfg.Fleet == "default" {
		return ""
	}
	return " --agent-fleet " + f.cfg.Fleet
}

// failed tells that the store does not answer. It returns false, for look.
func (f *Follower) failed(ctx context.Context, err error) bool {
	if errors.Is(ctx.Err(), context.Canceled) {
		return false // Close was called
	}
	f.tell("away", slog.LevelWarn, "the rules in the store cannot be read: "+brief(err))
	return false
}

// tell notes why what is in force may not be the latest, and logs it when it is another trouble than before.
func (f *Follower) tell(kind string, level slog.Level, why string) {
	f.ledger.stale(why)
	if kind != f.trouble.look {
		f.trouble.look = kind
		f.cfg.Logger.Log(context.Background(), level, "rules may not be the latest", "reason", why, "version", f.standing.in.Number)
	}
}

// well says that what is in force is the latest.
func (f *Follower) well() {
	if f.trouble.look != "" {
		f.cfg.Logger.Info("rules are the latest again", "version", f.standing.in.Number)
	}
	f.trouble.look = ""
}

// restore puts the snapshot into force.
func (f *Follower) restore() {
	v, err := readSnapshot(f.cfg.Snapshot)
	if err == nil && v != nil {
		err = f.take(rules.FromSnapshot, v)
	}
	if err != nil {
		complain(f.cfg.Logger, "rules snapshot not used", err)
	}
}

// save writes the snapshot of what is in force, if it is not the one on disk. A look later tries again what failed.
func (f *Follower) save() {
	if f.cfg.Snapshot == "" || f.unsaved == nil {
		f.unsaved = nil
		return
	}
	if err := writeSnapshot(f.cfg.Snapshot, f.unsaved); err != nil {
		f.ledger.unsaved()
		if !f.trouble.snapshot {
			f.trouble.snapshot = true
			f.cfg.Logger.Warn("rules snapshot not written: a start without the store would have other rules, or none", "version", f.unsaved.Number, "error", err)
		}
		return
	}
	f.trouble.snapshot = false
	f.unsaved = nil
}
