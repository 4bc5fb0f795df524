package source

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/spillgate/spillgate/internal/strictyaml"
	"github.com/spillgate/spillgate/rules"
)

// FileConfig of a File. The zero value of each field but Path stands for its default.
type FileConfig struct {
	// Path of the rules file. Required. It may be a symbolic link, or lead through some.
	Path string
	// Poll is how often the file is looked at unasked, for what fsnotify misses: a network file system, a link that
	// leads to another directory. Default 10 s. Shorter reads the file more often.
	Poll time.Duration
	// Settle is how long a new text has to stay before it counts. Default 200 ms. Longer forgives slower writers, and
	// takes effect later.
	Settle time.Duration
	// Parse makes a set of a text; its error refuses the text. Default rules.Parse.
	Parse func(name string, text []byte) (*rules.Set, error)
	// Logger takes what operators should know. Default slog.Default().
	Logger *slog.Logger
}

func (c *FileConfig) ensureDefaults() {
	if c.Poll == 0 {
		c.Poll = 10 * time.Second
	}
	if c.Settle == 0 {
		c.Settle = 200 * time.Millisecond
	}
	if c.Parse == nil {
		c.Parse = rules.Parse
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
}

// File follows a rules file. Begin, then Follow, then Close.
type File struct {
	cfg    FileConfig
	watch  watch // of Begin, then of run
	rules  int   // in force, for the log; the same owner
	use    func(*rules.Set)
	reload chan struct{}
	ledger ledger
	life
}

// NewFile returns a File that does nothing yet.
func NewFile(cfg FileConfig) (*File, error) {
	cfg.ensureDefaults()
	switch {
	case cfg.Path == "":
		return nil, errors.New("source: FileConfig.Path is missing: name the rules file")
	case cfg.Poll < 0 || cfg.Settle < 0:
		return nil, fmt.Errorf("source: FileConfig.Poll %v and Settle %v must be positive", cfg.Poll, cfg.Settle)
	}
	return &File{cfg: cfg, reload: make(chan struct{}, 1)}, nil
}

// Begin reads the file. A file that is bad or missing is an error here: there is nothing else to serve. Of a bad one it
// is of type rules.Errors.
func (f *File) Begin(context.Context) (*rules.Set, error) {
	text, s, err := f.read()
	if err != nil {
		return nil, err
	}
	set, err := f.cfg.Parse(f.cfg.Path, text)
	if err != nil {
		return nil, err
	}
	f.watch.settle(s)
	f.rules = set.Len()
	f.ledger.inForce(rules.FromFile, rules.Head{Sum: s.sum}, time.Now())
	return set, nil
}

// Follow gives use every set that comes into force from now on, until Close, one after the other.
func (f *File) Follow(use func(*rules.Set)) {
	f.use = use
	f.begin(f.run)
}

// Reload looks at the file now, takes what it finds without waiting for it to settle, and tells the log in any case. It
// does not wait for that.
func (f *File) Reload() { poke(f.reload) }

// Status says what is in force.
func (f *File) Status() rules.Status { return f.ledger.status() }

// run is the goroutine of the file, [1] to [5].
func (f *File) run(ctx context.Context) {
	seen := f.listen()
	defer seen.close()
	poll := time.NewTicker(f.cfg.Poll)
	defer poll.Stop()
	settled := time.NewTimer(f.cfg.Settle)
	settled.Stop()
	defer settled.Stop()
	look := func() {
		if f.look() {
			settled.Reset(f.cfg.Settle)
		}
	}
	look() // it may have changed since Begin
	for {
		select {
		case <-ctx.Done():
			return
		case <-f.reload:
			settled.Stop()
			f.reloadNow()
		case <-settled.C:
			look()
		case <-poll.C:
			seen.renew()
			if !f.watch.unsettled {
				look()
			}
		case e := <-seen.events:
			if f.concerns(e) && !f.watch.unsettled { // else the next look is due soon
				look()
			}
		case err := <-seen.errors:
			f.cfg.Logger.Warn("changes of the rules file may be noticed late", "file", f.cfg.Path, "error", err)
			if !f.watch.unsettled {
				look()
			}
		}
	}
}

// concerns reports whether an event in the file's directory can have changed what the file holds: one of the file itself, or of a
// name that comes or goes, which may be a link on the way to it.
func (f *File) concerns(e fsnotify.Event) bool {
	if filepath.Base(e.Name) == filepath.Base(f.cfg.Path) {
		return true
	}
	return e.Has(fsnotify.Create) || e.Has(fsnotify.Rename) || e.Has(fsnotify.Remove)
}

// read is the text of the file and the sight of it.
func (f *File) read() ([]byte, sight, error) {
	text, err := strictyaml.ReadFile(f.cfg.Path, rules.MaxSize)
	if err != nil {
		err = fmt.Errorf("rules: %w", err)
		return nil, sight{err: err.Error()}, err
	}
	return text, sight{sum: rules.SumOf(text)}, nil
}

// look reads the file, and acts if there is something else that has settled. again: look once more when it may have.
func (f *File) look() (again bool) {
	text, s, err := f.read()
	act, again := f.watch.look(s)
	if act {
		f.take(text, s, err, true)
	}
	return again
}

// reloadNow acts on what the file holds, whatever that is.
func (f *File) reloadNow() {
	text, s, err := f.read()
	f.take(text, s, err, f.watch.settle(s))
}

// take puts the text of a sight into force, or says why not. other: it is not the sight that was acted upon last.
func (f *File) take(text []byte, s sight, err error, other bool) {
	log := f.cfg.Logger
	if err == nil && s.sum == f.ledger.head().Sum {
		f.ledger.confirm()
		log.Info("rules reloaded", "file", f.cfg.Path, "rules", f.rules, "changed", false)
		return
	}
	var set *rules.Set
	if err == nil {
		set, err = f.cfg.Parse(f.cfg.Path, text)
	}
	if err != nil {
		if other {
			f.ledger.refuse()
		}
		f.ledger.stale(brief(err))
		complain(log, "rules file refused", err)
		log.Error("rules not reloaded, the running ones stay", "file", f.cfg.Path)
		return
	}
	f.use(set)
	f.rules = set.Len()
	f.ledger.inForce(rules.FromFile, rules.Head{Sum: s.sum}, time.Now())
	log.Info("rules reloaded", "file", f.cfg.Path, "rules", f.rules, "changed", true)
}

// sightings are the events of a directory; without fsnotify there are none, and looking has to do.
type sightings struct {
	watcher *fsnotify.Watcher
	dir     string
	events  <-chan fsnotify.Event
	errors  <-chan error
}

// listen asks for the events of the file's directory. Not of the file: a rename over it would take the watch along.
func (f *File) listen() *sightings {
	s := &sightings{dir: filepath.Dir(f.cfg.Path)}
	w, err := fsnotify.NewWatcher()
	if err == nil {
		s.watcher, s.events, s.errors = w, w.Events, w.Errors
		err = w.Add(s.dir)
	}
	if err != nil {
		f.cfg.Logger.Warn("the rules file is looked at from time to time only: its directory cannot be watched",
			"file", f.cfg.Path, "every", f.cfg.Poll.String(), "error", err)
	}
	return s
}

// renew watches the directory again in case it was removed and is back. What is watched stays so.
func (s *sightings) renew() {
	if s.watcher != nil {
		_ = s.watcher.Add(s.dir) // it is gone, or still not to be watched: looking goes on
	}
}

func (s *sightings) close() {
	if s.watcher != nil {
		s.watcher.Close()
	}
}

// life is the goroutines of a source.
type life struct {
	stop context.CancelFunc
	all  sync.WaitGroup
}

// begin starts goroutines.
func (l *life) begin(runs ...func(context.Context)) {
	var ctx context.Context
	ctx, l.stop = context.WithCancel(context.Background())
	for _, run := range runs {
		l.all.Go(func() { run(ctx) })
	}
}

// Close ends what Follow started, and waits for it. What is in force stays.
func (l *life) Close() {
	if l.stop != nil {
		l.stop()
	}
	l.all.Wait()
}

// poke wakes whoever reads the channel, which holds one call.
func poke(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default: // awake already
	}
}
