package limit

// Op is what an entry asks of a cell. The numbers are on the wire to the script.
type Op uint8

// The operations. Each is applied to one cell at one moment, atomically.
const (
	// Take debits n tokens if all of them are there, else nothing.
	Take Op = 1
	// TakePartial debits as many of n tokens as are there. With n = 0 it is a
	// peek: it creates, charges and extends nothing.
	TakePartial Op = 2
	// Charge debits n tokens that were admitted already, down to a debt that
	// Terms.Ceiling bounds.
	Charge Op = 3
	// Refund gives back n tokens that were taken and not used.
	Refund Op = 4
	// Reset makes the bucket full, but for what is out on lease.
	Reset Op = 5
	// Lease settles what an agent has spent of earlier leases, serves its waiting callers and
	// grants up to n tokens on lease; see Ask. With n = 0 it only settles.
	Lease Op = 6

	// The next are about the division of a bucket; see Part.

	// Touch tells home of the load on the bucket, and asks how it is divided. It takes no tokens.
	Touch Op = 7
	// Close ends a part. It may be repeated.
	Close Op = 8
	// Merge brings home what the closed parts had.
	Merge Op = 9
)

// Apply is the arithmetic of a token bucket: the cell's TAT and the time now, both in
// ticks since the start of the same generation, to the TAT after the operation.
// A missing cell is passed as tat = now (full). write is false when the
// cell need not be stored: a denial or a peek changes nothing.
//
// The script redisshard/lua/debit.lua does the same; a test compares them bit for bit.
//
// Invariants, for any order of times and terms (cell_test.go):
//   - tokens never exceed Burst and, Charge apart, never fall below zero;
//   - a time in the past yields no token that was not there;
//   - a TAT beyond Ceiling can only come from larger terms, since a hash's clock never runs
//     back by a step. For these terms the bucket is empty until it has come down to Depth. Cutting it would
//     forget what was consumed under the larger ones, and whoever has them still could take it all again.
func (t *Terms) Apply(op Op, n Tokens, tat, now Ticks) (next Ticks, granted Tokens, write bool) {
	if tat < now {
		tat = now
	}
	free := now + t.Depth - tat // < 0 in debt, or after larger terms
	switch op {
	case Take:
		if cost := Ticks(n) * t.Emission; n > 0 && n <= t.Burst && cost <= free {
			return tat + cost, n, true
		}
	case TakePartial:
		if free >= t.Emission && n > 0 {
			granted = min(n, Tokens(free/t.Emission))
			return tat + Ticks(granted)*t.Emission, granted, true
		}
	case Charge:
		// Counting only what fits under the ceiling keeps the product in range.
		room := Tokens((now + t.Ceiling - tat) / t.Emission)
		if granted = min(n, room); granted > 0 {
			return tat + Ticks(granted)*t.Emission, granted, true
		}
		granted = 0
	case Refund:
		if granted = min(n, t.Burst); granted > 0 && tat > now {
			return max(now, tat-Ticks(granted)*t.Emission), granted, true
		}
		granted = 0
	case Reset:
		return now, 0, true
	}
	return tat, granted, write
}

// Outcome is what a store answers to one entry.
type Outcome struct {
	// Granted tokens; for Take all or none, for Charge and Refund those that counted, for
	// Lease those on lease.
	Granted Tokens
	// Level is TAT - now after the operation: the time until the bucket is full. Of the window kinds it is what is used.
	Level Ticks
	// Lag is by how much the store's clock is behind the time that the cell has seen,
	// in nanoseconds; 0 unless that clock was set back.
	Lag int64

	// What only Lease has.

	// Taken tokens, for the callers that wait (Ask.Take).
	Taken Tokens
	// Epoch of the grant, counted from 1970.
	Epoch int64
	// Contenders is how many agents ask for leases at a time, as the store sees it; at least 1.
	Contenders int64
	// Term is for how long the grant may be spent, in nanoseconds, where that is less than LeaseTTL; else 0 or LeaseTTL.
	Term int64

	// What only the window kinds have. Their Epoch is, for every op, the number of the window, counted from 1970; of a sliding log the
	// time of the hits, in microseconds. A refund tells it (Ask.Epoch).

	// Left is how long the window lasts yet; of a sliding log, how long until nothing of it counts.
	Left Ticks
	// Fading is what was admitted in the window before, of a sliding window.
	Fading Tokens
	// Wait is how long until Ask.Piece tokens, or the entry's N if that is 0, can be taken from a sliding log.
	Wait Ticks
}
