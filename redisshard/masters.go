package redisshard

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// A store of several masters may lose one of them: only the buckets that live there are decided by policy then. Which one
// it is shows in the calls that fail. Those of a shard that is down are probes, less than a second apart (batcher), so
// that a fault which is not seen again is over, or nobody asks.

// faultLife and the time of a call, of which longestCall counts, are how long a fault is remembered that no later call has confirmed: longer
// than it takes a probe to come by.
const (
	faultLife   = 2 * time.Second
	longestCall = 10 * time.Second
)

// fault is why the last call of a shard failed.
type fault struct {
	server string // that was asked; "" if no master was known
	err    error
	at     int64 // agent's time
}

// Error names the server, which not every cause does.
func (f *fault) Error() string {
	text := f.err.Error()
	if strings.Contains(text, f.server) {
		return text
	}
	return f.server + ": " + text
}

func (f *fault) Unwrap() error { return f.err }

// expireFaults forgets the faults that were not confirmed for long.
func (s *Store) expireFaults(st *state) {
	oldest := s.now() - int64(faultLife+min(s.cfg.Timeout, longestCall))
	for i := range st.faults {
		if f := st.faults[i].Load(); f != nil && f.at < oldest {
			st.faults[i].CompareAndSwap(f, nil)
		}
	}
}

// Master is how one of the store's masters answers.
type Master struct {
	Addr string
	// Err is why the last call of some shard there got no answer; nil if all were answered, or if nothing was asked of it.
	Err error
}

// Masters are those that serve buckets, as far as is known, by address; none before the store was reached.
//
// It follows calls as Status does.
func (s *Store) Masters() []Master {
	st := s.state.Load()
	if st == nil {
		return nil
	}
	failing := st.failing()
	addrs := st.nodes.topology.Load().masters
	all := make([]Master, len(addrs))
	for i, addr := range addrs {
		if all[i].Addr = addr; failing[addr] != nil {
			all[i].Err = failing[addr].err
		}
	}
	slices.SortFunc(all, func(a, b Master) int { return cmp.Compare(a.Addr, b.Addr) })
	return all
}

// failing are the faults by the server that they are of, of each the latest.
func (st *state) failing() map[string]*fault {
	failing := make(map[string]*fault)
	for i := range st.faults {
		if f := st.faults[i].Load(); f != nil && (failing[f.server] == nil || f.at > failing[f.server].at) {
			failing[f.server] = f
		}
	}
	return failing
}

// watchMasters tells the operator at which masters calls fail, and when they succeed again. A store of one master is
// the whole. It is called by tend.
func (s *Store) watchMasters(st *state) {
	if !st.nodes.clustered() {
		return
	}
	failing, all := st.failing(), st.nodes.topology.Load().masters
	for addr, f := range failing {
		if !s.silent[addr] {
			s.silent[addr] = true
			s.cfg.Logger.Warn("calls to a master of the store fail, fail policies decide for its buckets",
				"master", cmp.Or(addr, "unknown"), "error", f.err, "failing", len(failing), "masters", len(all))
		}
	}
	for addr := range s.silent {
		if failing[addr] != nil {
			continue
		}
		delete(s.silent, addr)
		if addr == "" || slices.Contains(all, addr) {
			s.cfg.Logger.Info("calls to a master of the store succeed again", "master", cmp.Or(addr, "unknown"))
		} else {
			s.cfg.Logger.Info("a master of the store whose calls failed has been replaced", "master", addr, "masters", fmt.Sprint(all))
		}
	}
}
