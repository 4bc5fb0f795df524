package rules

import (
	"fmt"
	"strings"
	"time"
)

// Source is where the rules in force came from.
type Source string

// The sources.
const (
	// NoSource: there are no rules.
	NoSource Source = "none"
	// FromFile: the file that the agent watches.
	FromFile Source = "file"
	// FromStore: the store that the agent follows.
	FromStore Source = "store"
	// FromSnapshot: the copy on disk of what the store had last, until the store is heard of.
	FromSnapshot Source = "snapshot"
)

// Sources are all of them.
func Sources() []Source { return []Source{NoSource, FromFile, FromStore, FromSnapshot} }

// Status says which rules an agent serves, and whether they are the latest. The zero value stands for an agent that
// was given no rules.
type Status struct {
	// Source of the rules in force; empty is NoSource.
	Source Source
	// Version in force, if a store numbers them; else 0.
	Version int64
	// Since is when the rules in force came into force here; zero while none did.
	Since time.Time
	// Stale is why what is in force may not be the latest: it goes on serving all the same. Empty: it is the latest.
	Stale string
	// Missing is why there are no rules yet from a source that should have some. Empty: there are, or there is no source.
	Missing string
	// Refused counts the texts that were not taken, for what was wrong with them. What was in force stayed.
	Refused uint64
	// SnapshotsFailed counts the snapshots that could not be written.
	SnapshotsFailed uint64
}

// From is the source, in a word.
func (s *Status) From() Source {
	if s.Source == "" {
		return NoSource
	}
	return s.Source
}

// String is the status in a line.
func (s Status) String() string {
	var b strings.Builder
	if s.Missing != "" {
		return s.Missing
	}
	if s.From() == NoSource {
		return "no rules"
	}
	if s.Version > 0 {
		fmt.Fprintf(&b, "rules version %d of the %s", s.Version, s.Source)
	} else {
		fmt.Fprintf(&b, "rules of the %s", s.Source)
	}
	fmt.Fprintf(&b, " since %s", s.Since.UTC().Format(time.RFC3339))
	if s.Stale != "" {
		fmt.Fprintf(&b, ", stale but serving: %s", s.Stale)
	}
	return b.String()
}
