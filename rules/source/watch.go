package source

import "github.com/spillgate/spillgate/rules"

// sight is what one look at a file saw.
type sight struct {
	sum rules.Sum
	err string // why there is no text; then sum is zero
}

// watch decides which sights count: those that stay. It is pure: no clock, no file.
type watch struct {
	known     sight // acted upon
	fresh     sight // seen once since
	unsettled bool  // fresh counts
}

// look takes a sight. act: it is another one than before and has stayed, do something about it; it is known from now on.
// again: it is new, look again when it may have settled.
func (w *watch) look(s sight) (act, again bool) {
	switch {
	case s == w.known:
		w.unsettled = false
		return false, false
	case w.unsettled && s == w.fresh:
		w.settle(s)
		return true, false
	}
	w.fresh, w.unsettled = s, true
	return false, true
}

// settle makes a sight the known one without waiting. It reports whether it was another.
func (w *watch) settle(s sight) (other bool) {
	other = s != w.known
	w.known, w.unsettled = s, false
	return other
}
