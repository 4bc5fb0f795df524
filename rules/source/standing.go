package source

import "github.com/spillgate/spillgate/rules"

// verdict is what a version in the store means for a follower.
type verdict uint8

const (
	// same: it is what is in force.
	same verdict = iota
	// newer: fetch it.
	newer
	// known to be bad: it was refused before.
	bad
	// none: nobody has pushed yet.
	none
	// lost: the store has less than what is in force, or another text under its number. It has lost data, or is another store.
	lost
)

// standing is what a follower serves and what it has refused. It is pure: no store, no clock.
type standing struct {
	in      rules.Head // in force; zero: nothing
	refused rules.Head // the version that was refused last; zero: none
}

// judge says what to do about the version that the store has in force.
func (s *standing) judge(h rules.Head) verdict {
	switch {
	case h.Number < s.in.Number:
		return lost
	case h.Number == 0:
		return none
	case h == s.in:
		return same
	case h.Number == s.in.Number:
		return lost
	case h == s.refused:
		return bad
	}
	return newer
}
