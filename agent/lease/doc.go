// Package lease is the agent's side of leases: what one agent holds of one hot bucket, what it
// asks the store for, and what can be said about a check without asking.
//
// # Life of a Holding
//
//	New            the bucket became hot: no tokens yet
//	  Spend, Judge a check: admitted from the lease, denied until a moment, or left to    [1]
//	               the store
//	  Plan         what to do then: a request, with the account of what was spent; the    [2]
//	               check's claim rides with it
//	  Apply        the reply: tokens for a LeaseTTL (less 1/64) from before the request, how full the   [3]
//	               bucket is, how many agents ask; or nothing, and a pause
//	  Tend         ten times a second: count the demand, return what nobody wants         [4]
//	Release        cold, or the agent stops: everything goes back                         [5]
//
// How much: the demand, which rises at once and halves in half a second, times a horizon from 20 ms (bucket
// near its limit) to LeaseTTL (bucket full). When: as soon as what is left would not last for four round
// trips, or the lease is about to end. One request is in flight at a time.
//
// A reply that brought less than was asked for names a pause: the time in which every contender's
// token refills, at least 20 ms, at most 250 ms, jittered by a quarter. While the store had less
// than one token for each contender, the Holding denies until the pause is over.
//
// A window (limit.FixedWindow, limit.SlidingWindow) refills at its end alone: a lease of it lasts until then at most, and is not renewed
// before.
//
// # Who owns what
//
// This is a pure core: time comes in, requests go out; no goroutine, clock or I/O. Tokens in a
// Grant are spent by compare-and-swap; all else is under the Holding's lock. The agent owns the
// clock and the batcher, and the simulator replaces both.
//
// # What it keeps
//
// No token is spent at or after the end of its lease, no token of which the store was told that it is
// spent or returned can be spent again, and every account is sent at most once. The
// store's side is limit.Terms.ApplyLeased; the proof is in docs/guarantees.md.
package lease
