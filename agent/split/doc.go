// Package split is the agent's side of dividing a bucket: whether home is to be told of the load, and, of a bucket
// that is divided, which part to ask and what all of them have together.
//
// # Life of a Spread
//
//	Watch         the bucket is hot, or its home said that it is divided              [1]
//	  Choose      where an entry goes: home; or a part, the own one first, then the   [2]
//	              fullest of the others
//	  Learn       what came back: how full that part is, how the bucket is divided    [3]
//	  Level, Wait what all parts have together, and until when none has enough        [4]
//	  touches     home hears of the load: every 32 entries while the bucket is whole, [5]
//	              twice a second while it is divided
//	  merge       home saw the load go: close the parts, bring home what they had     [6]
//	sweep         nobody asks any more                                                [7]
//
// Nobody leads. Home alone decides, in the script that counts; whoever learns of it follows. An agent that knows
// nothing goes to home, which refuses and tells how the bucket is divided. Two agents that merge at once do no harm: closing
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
