package limit

import (
	"fmt"
	"slices"
	"time"
)

// Algorithm is how a bucket counts. The zero value is TokenBucket; the others are the window kinds.
type Algorithm uint8

const (
	// TokenBucket refills all the time, up to a burst.
	TokenBucket Algorithm = iota
	// SlidingWindow counts in aligned windows, and takes of the window before the part that a window which
	// slides would still cover, as if its admissions had been spread evenly.
	SlidingWindow
	// FixedWindow counts in windows that are aligned to 1970.
	FixedWindow
	// SlidingLog remembers when each token was taken, for the length of a window. It is exact.
	SlidingLog
)

// String is the algorithm's word in rules files.
func (a Algorithm) String() string {
	switch a {
	case SlidingWindow:
		return "sliding_window"
	case FixedWindow:
		return "fixed_window"
	case SlidingLog:
		return "sliding_log"
	}
	return "token_bucket"
}

// Kinds of the classes of windows.
const (
	KindSliding Kind = 's'
	KindFixed   Kind = 'f'
	KindLog     Kind = 'l'
)

const (
	// MinWindow and MaxWindow bound the length of windows.
	MinWindow = time.Millisecond
	MaxWindow = 366 * 24 * time.Hour
	// MaxLog is the highest limit of a sliding log: each token takes 8 bytes of its cell.
	MaxLog Tokens = 1000

	// stepsPerWindow is in how many steps, at most, the window before fades from a sliding window. With counts
	// of up to MaxTokens the products stay below 2^53.
	stepsPerWindow = 4096
)

// WindowClass is the class of windows of an algorithm and a length. Its generations are windows, or as many of them as take 4 s: the
// agents must be able to name a generation before the store knows the time.
func WindowClass(a Algorithm, window time.Duration) Class {
	kind := KindSliding
	switch a {
	case FixedWindow:
		kind = KindFixed
	case SlidingLog:
		kind = KindLog
	}
	return Class{Kind: kind, Length: window * max(1, (minLength+window-1)/window), PerMicro: 1, Window: window}
}

// windowTerms compiles the rate of a window kind. In its terms a tick of Level is a token: Emission is 1, Depth the limit.
func (r Rate) windowTerms() (*Terms, error) {
	switch {
	case r.Burst != 0:
		return nil, &FieldError{"burst", fmt.Sprintf("a %v has no burst: its limit is the most that is admitted at one moment", r.Algorithm)}
	case r.Debt != 0:
		return nil, &FieldError{"debt", fmt.Sprintf("a %v cannot be in debt", r.Algorithm)}
	case r.Period < MinWindow || r.Period > MaxWindow:
		return nil, &FieldError{"period", fmt.Sprintf("%v is not between %v and %dd, as a %v asks for", r.Period, MinWindow, MaxWindow/(24*time.Hour), r.Algorithm)}
	case r.Period%time.Microsecond != 0:
		return nil, &FieldError{"period", fmt.Sprintf("%v is no whole number of microseconds, as a %v asks for", r.Period, r.Algorithm)}
	case r.Algorithm == SlidingLog && r.Requests > MaxLog:
		return nil, &FieldError{"requests", fmt.Sprintf("%d is more than a sliding_log remembers, which is %d; sliding_window has no such bound", r.Requests, MaxLog)}
	case r.Requests == 0:
		return nil, nil
	}
	limit := Ticks(r.Requests)
	return &Terms{Algorithm: r.Algorithm, Class: WindowClass(r.Algorithm, r.Period), Emission: 1, Burst: r.Requests, Depth: limit, Ceiling: limit}, nil
}

// Window is the cell of a window kind. The zero value has admitted nothing.
type Window struct {
	// Index numbers the window that Count belongs to, from 1970; of a sliding log it is the time of the newest write, in microseconds.
	Index int64
	// Count is what was admitted in that window, Before in the one before it. A fixed window has no use for Before.
	Count, Before Tokens
	// Asked is for whom leases are asked; zero if nobody asks.
	Asked Asked
	// Hits are, of a sliding log, when tokens were taken, in microseconds since 1970, in order. It has no counts.
	Hits []int64
}

// Asked counts for how long agents have asked for leases, as Leases does.
type Asked struct {
	Epoch            int64 // of LeaseTTL, from 1970
	Seen, SeenBefore int64
}

// ApplyWindow is the arithmetic of the window kinds: the cell and the time now, in microseconds since 1970, to the cell after the
// operation. A missing cell is the zero one. write is false when nothing need be stored.
//
// Of ask, Epoch says in which window a refund was taken (Outcome.Epoch): once that is over the refund is dropped. Piece is for Outcome.Wait.
// Charge is a partial take, since a window has no debt. What is leased is counted as it is granted, and Term ends with the
// window; what comes back (Ask.Returned) is as a refund. A sliding log is not leased, and no window is divided.
//
// The script redisshard/lua/debit.lua does the same; a test compares them bit for bit.
//
// Invariants, for any order of times and terms (window_property_test.go):
//   - a fixed window admits at most the limit in each window; so does a sliding one;
//   - a sliding log admits at most the limit in every span of a window's length;
//   - time never runs back past what a cell has seen.
func (t *Terms) ApplyWindow(op Op, n Tokens, ask *Ask, cell Window, micros int64) (next Window, out Outcome, write bool) {
	if t.Algorithm == SlidingLog {
		return t.applyLog(op, n, ask, cell, micros)
	}
	length := t.Class.Window.Microseconds()
	next = Window{Index: max(cell.Index, micros/length), Asked: cell.Asked}
	switch next.Index {
	case cell.Index:
		next.Count, next.Before = cell.Count, cell.Before
	case cell.Index + 1:
		next.Before = cell.Count
	}
	if t.Algorithm == FixedWindow {
		next.Before = 0
	}
	out.Epoch, out.Left = next.Index, Ticks((next.Index+1)*length-micros)
	faded := t.faded(next.Before, out.Left)
	switch granted := t.grantable(op, n, next.Count+faded); op {
	case Refund:
		if granted = min(n, next.Count); granted > 0 && ask.Epoch == next.Index {
			next.Count -= granted
			out.Granted, write = granted, true
		}
	case Reset:
		next.Count, next.Before, faded, write = 0, 0, 0, true
	case Lease:
		if ask.Epoch == next.Index {
			next.Count -= max(0, min(ask.Returned, next.Count))
		}
		t.grantWindow(n, ask, &next, micros, max(0, t.Burst-next.Count-faded), &out)
		write = true
	default:
		next.Count += granted
		out.Granted, write = granted, granted > 0
	}
	out.Level, out.Fading = Ticks(next.Count+faded), next.Before
	return next, out, write
}

// grantWindow is grant for a window of which so much is free.
func (t *Terms) grantWindow(n Tokens, ask *Ask, w *Window, micros int64, free Tokens, out *Outcome) {
	a, ttl := &w.Asked, LeaseTTL.Microseconds()
	switch epoch := micros / ttl; {
	case epoch == a.Epoch+1:
		*a = Asked{Epoch: epoch, SeenBefore: a.Seen}
	case epoch > a.Epoch:
		*a = Asked{Epoch: epoch}
	}
	a.Seen = min(a.Seen+ask.Presence, maxSeen)
	part := min(Presence, max(0, micros-a.Epoch*ttl)*Presence/ttl)
	m := max(1, (a.Seen*Presence+a.SeenBefore*(Presence-part))/(Presence*Presence))
	out.Taken = min(ask.Take, free)
	out.Taken -= out.Taken % max(1, ask.Piece)
	free -= out.Taken
	share := free / Tokens(m+1)
	switch {
	case out.Taken < ask.Take:
		share = 0
	case share == 0 && ask.Take > 0 && free > 0:
		share = 1
	}
	out.Granted = max(0, min(n, share))
	w.Count += out.Taken + out.Granted
	out.Contenders, out.Term = m, min(LeaseTTL.Nanoseconds(), int64(out.Left)*1000)
}

// grantable is what an operation gets when so much is used.
func (t *Terms) grantable(op Op, n, used Tokens) Tokens {
	free := max(0, t.Burst-used)
	if op == Take && n > free {
		return 0
	}
	return max(0, min(n, free))
}

// steps are those in which the window before fades: how long one is, in microseconds, and how many there are. The last may be shorter.
func (t *Terms) steps() (length, count int64) {
	window := t.Class.Window.Microseconds()
	length = (window + stepsPerWindow - 1) / stepsPerWindow
	return length, (window + length - 1) / length
}

// faded is what still counts of what was admitted in the window before, when so much is left of this one. It is rounded
// up, in steps and in tokens.
func (t *Terms) faded(before Tokens, left Ticks) Tokens {
	if before == 0 {
		return 0
	}
	step, count := t.steps()
	since := max(0, t.Class.Window.Microseconds()-int64(left))
	overlap := Tokens(count - since/step)
	return (before*overlap + Tokens(count) - 1) / Tokens(count)
}

// fades is how long after the start of a window what was admitted in the one before counts for no more than room; a whole window if it
// always counts for more.
func (t *Terms) fades(before, room Tokens) Ticks {
	if before <= room {
		return 0
	}
	step, count := t.steps()
	overlap := int64(room * Tokens(count) / before)
	return min(Ticks((count-overlap)*step), Ticks(t.Class.Window.Microseconds()))
}

// applyLog is ApplyWindow for a sliding log.
func (t *Terms) applyLog(op Op, n Tokens, ask *Ask, cell Window, micros int64) (next Window, out Outcome, write bool) {
	length, now := t.Class.Window.Microseconds(), max(cell.Index, micros)
	gone, _ := slices.BinarySearch(cell.Hits, now-length+1)
	hits := cell.Hits[gone:]
	switch granted := t.grantable(op, n, Tokens(len(hits))); op {
	case Refund:
		first, _ := slices.BinarySearch(hits, ask.Epoch)
		after, _ := slices.BinarySearch(hits, ask.Epoch+1)
		if granted = min(n, Tokens(after-first)); granted > 0 {
			out.Granted, write = granted, true
			hits = slices.Delete(slices.Clone(hits), after-int(granted), after)
		}
	case Reset:
		hits, write = nil, true
	default:
		if granted > 0 {
			out.Granted, write = granted, true
			hits = append(make([]int64, 0, len(hits)+int(granted)), hits...)
			for range granted {
				hits = append(hits, now)
			}
		}
	}
	next = Window{Index: now, Hits: hits}
	out.Level, out.Epoch = Ticks(len(hits)), now
	if used := len(hits); used > 0 {
		out.Left = Ticks(hits[used-1] + length - micros)
		piece := ask.Piece
		if piece == 0 {
			piece = n
		}
		if k := Tokens(used) + piece - t.Burst; k > 0 && piece <= t.Burst {
			out.Wait = Ticks(hits[k-1] + length - micros)
		}
	}
	return next, out, write
}

// decideWindow is Decide for the window kinds.
func (t *Terms) decideWindow(n Tokens, out *Outcome) Decision {
	d := Decision{Admitted: out.Granted >= n, Reason: OK, Limit: t.Burst, Remaining: t.Remaining(out.Level), RetryAfter: NoRetry}
	lag := time.Duration(out.Lag)
	if out.Level > 0 {
		d.ResetAfter = t.Class.Duration(t.resets(out)) + lag
	}
	switch {
	case d.Admitted:
	case n > t.Burst:
		d.Reason = Never
	default:
		d.Reason = OverLimit
		d.RetryAfter = t.Class.Duration(t.retries(n, out)) + lag
	}
	return d
}

// retries is how long after the outcome n tokens can be taken, of at most the limit, that could not be.
func (t *Terms) retries(n Tokens, out *Outcome) Ticks {
	window := Ticks(t.Class.Window.Microseconds())
	switch t.Algorithm {
	case FixedWindow:
		return out.Left
	case SlidingLog:
		return out.Wait
	}
	count := Tokens(out.Level) - t.faded(out.Fading, out.Left)
	if room := t.Burst - n - count; room >= 0 {
		if at := t.fades(out.Fading, room); at < window {
			return max(0, at-(window-out.Left))
		}
	}
	// Not in this window: the next one has nothing of its own then, and what counts now fades.
	return out.Left + t.fades(count, t.Burst-n)
}

// resets is how long after the outcome the bucket is full.
func (t *Terms) resets(out *Outcome) Ticks {
	if t.Algorithm == SlidingWindow && Tokens(out.Level) > t.faded(out.Fading, out.Left) {
		return out.Left + Ticks(t.Class.Window.Microseconds())
	}
	return out.Left
}
