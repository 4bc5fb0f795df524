package main

import (
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/spillgate/spillgate/cmd/spillgate/config"
	"github.com/spillgate/spillgate/rules"
)

// ruleFile is the file that the rules come from, and how often they did.
type ruleFile struct {
	path string // empty: no rules
	dc   *config.Datacenter
	log  *slog.Logger

	mu struct {
		sync.Mutex
		loaded time.Time // last success
		failed uint64    // reloads refused
	}
}

// load reads the file; without one the set is nil, which has no rules.
func (f *ruleFile) load() (*rules.Set, error) {
	if f.path == "" {
		return nil, nil
	}
	set, err := rules.Load(f.path)
	if err != nil {
		return nil, err
	}
	if set, err = inDatacenter(f.dc, set); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.loaded = time.Now()
	return set, nil
}

// reload reads the file again and gives the set to use. A bad file changes nothing but a count.
func (f *ruleFile) reload(use func(*rules.Set)) {
	if f.path == "" {
		f.log.Warn("no rules to reload: the agent was started without a rules file")
		return
	}
	set, err := f.load()
	if err != nil {
		f.mu.Lock()
		f.mu.failed++
		f.mu.Unlock()
		f.refuse(err)
		return
	}
	use(set)
	f.log.Info("rules reloaded", "file", f.path, "rules", set.Len())
}

// refuse logs why the file was not taken, a line for each problem.
func (f *ruleFile) refuse(err error) {
	var problems rules.Errors
	if errors.As(err, &problems) {
		for _, p := range problems {
			f.log.Error("rules file refused", "error", p)
		}
	} else {
		f.log.Error("rules file refused", "error", err)
	}
	f.log.Error("rules not reloaded, the running ones stay", "file", f.path)
}

// history is when the rules in force were loaded, and how many reloads were refused.
func (f *ruleFile) history() (loaded time.Time, failed uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.mu.loaded, f.mu.failed
}
