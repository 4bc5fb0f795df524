// Package window looks for breaches of a rate limit in what clients saw.
//
// The promise (G1 in docs/guarantees.md) speaks of every window: in any time w
// at most burst + rate * w are admitted. A client does not see the moment at
// which its token was taken, only that it lay between sending the check and
// receiving the answer. So a ledger of a test holds intervals:
//
//	check     sent |------- admitted somewhere in here -------| received
//	window  [a ........................................................ b]
//
// An admission CERTAINLY lies in [a, b] if a <= sent and received <= b. If
// those that certainly do are more than the window allows, the promise was
// broken, wherever in their intervals the admissions were. There are no false
// alarms. What goes unseen is a breach smaller than what the answers' travel
// time can hide, so tests keep the answers quick.
//
//	Worst   the window, of any length, that is most over its allowance
//	Most    the window of one given length that holds most
//
// # How
//
// A window that is worst begins with a sent and ends with a received, which
// leaves n^2 of them. Worst takes the ends in order and keeps, for every begin
// at once, what the window from there is over; an admission adds to all begins
// up to its sent. A segment tree does that in O(n log n): 100,000 admissions in
// a fraction of a second. The tests hold it against looking at all windows, and
// against a reference bucket.
//
// # What it does not do
//
// It reads no clock and knows nothing of buckets, stores or agents: it is the
// oracle of the product's tests and shares no code with it.
package window
