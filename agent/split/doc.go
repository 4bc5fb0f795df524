// Package split is the agent's side of dividing a bucket: whether home is to be told of the load, and, of a bucket
// that is divided, which sub-bucket to ask and what all of them have together.
//
// # Life of a Spread
//
//	Watch         the bucket is hot, or its home said that it is divided               [1]
//	  Choose      where an entry goes: home; or a sub-bucket, the own one first, then   [2]
//	              the fullest of the others
//	  Learn       what came back: how full that part is, how home is divided; is there  [3]
//	              more elsewhere?
//	  Whole       what all parts have together, for the caller                          [4]
//	  touches     home hears of the load: every 32 entries while the bucket is whole,   [5]
//	              twice a second while it is divided
//	  merge       home saw the load go: close the others, bring home what they had      [6]
//	sweep         nobody asks any more                                                  [7]
//
// Nobody leads. Home alone decides, in the script that counts; whoever learns of it follows. An agent that knows
// nothing goes to home, which is then one part of several. Two agents that merge at once do no harm: closing
// twice is closing, and home counts the first merge alone.
//
// # Who owns what
//
// Spread is a pure core: time comes in, what to send goes out. Table is the shell: it keeps the Spreads, sends
// what they want and takes the answers. Which parts there are and where they live is the store's business (limit.Split).
//
// # What it does not do
//
// No arithmetic of cells: that is limit. It holds no tokens: leases are agent/lease, which asks a Spread where to.
package split
