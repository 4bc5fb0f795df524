// Package redisshard keeps cells in Redis: one server, a sentinel group or a
// cluster. It implements batcher.Store.
//
// # Part in the life of a check
//
//	entries of one shard
//	  |  layout: bucket -> tag, bin                          [1]
//	  |  payload: sorted into groups (one hash each) and runs [2]
//	  |  names: four generations of hash names per group      [3]
//	  v
//	EVALSHA debit.lua on the master of the tag's slot         [4]
//	  |  proof that nothing ran? once more                    [5]
//	  v
//	outcomes, one per entry                                   [6]
//
// # Where a cell lives
//
// A cell is one field of a big hash named sg:{tag}:class:bin:generation
// (keys.go). A layout of V tags spreads over the slots evenly; a keyed hash of
// the bucket's id picks tag and bin. On a cluster a shard is a tag, since
// a call must stay in one slot; elsewhere everything is one shard and one call
// carries all tags.
//
// # Where the parts of a divided bucket live
//
// Part i lies i*stride tags after its home. The store finds the number of parts and the
// stride that load the masters evenly (division.go), says so in what a Touch carries to home, and home's
// answer is what every agent goes by. Parts end by the clocks of their
// masters, so the store measures from the replies how far those are apart (skew.go), and divides nothing while that
// is more than limit.MaxSkew.
//
// # Where the rules live
//
// Rules (rules.go) keeps the versions of a fleet's rules on one slot: a head with number and sum of the one in
// force, a hash of stories, a hash of texts. A push is one script (lua/pushrules.lua), and announces itself on a
// channel, to which Listen subscribes (listen.go). docs/adr/0012-rule-versions.md has the reasons.
//
// # The fleet
//
// Agents say every few seconds that they live, in one key for each fleet (beat.go): so they know how many share a limit when the
// store is away.
//
// # What it promises
//
// An entry runs at most once. Only a reply that proves that nothing ran leads
// to a second sending, and only one per kind of proof; a lost reply is reported as
// batcher.ErrUnknown and counts as spent. Every key has a time to live, but for those of the rules.
//
// # What it does not do
//
// It does not batch (batcher does), does not decide what an error means
// for the caller (agent does), and holds no cell in memory.
package redisshard
