// Package source keeps the rules of a running agent up to date: it follows a file, or the versions in a store.
//
//	          file                                   store
//	fsnotify, 10 s, SIGHUP               announcement, cache_ttl, SIGHUP     [1] a reason to look
//	          |                                        |
//	text, or why there is none           number and sum of the version       [2] a look
//	          |                                        |
//	watch.look: new, and settled?        standing.judge: newer?              [3] pure
//	          |                                        |
//	          +------------- rules.Parse ---------------+                    [4] bad: refused whole, told once
//	                              |
//	                       use(set), Status                                  [5] the swap
//	                              |
//	                          snapshot (store only)                          [6] for a start without the store
//
// What was good last goes on serving, whatever happens: a bad text, a file or a store that is gone, a store that
// has lost its data. Status then says that it is stale, and why.
//
// # A file
//
// File looks at what the file holds, not at what happens to it: a plain write, a rename over it, and the swap of a
// symbolic link above it (a ConfigMap of Kubernetes) all end in another text under the same name. A text counts when
// two looks some time apart have found the same, so a file that is still being written is left alone. fsnotify
// says when to look; a look every ten seconds finds what it misses.
//
// # A store
//
// Follower trusts numbers alone: neither clocks nor the order in which announcements come. A version with a smaller
// number than the one in force never replaces it, so a late message and a replica that lags do no harm. A store whose number
// has fallen has lost data: that is told, and nothing changes until somebody pushes a version above what is
// in force.
//
// # In a program
//
//	f, err := source.NewFollower(source.FollowerConfig{Store: store.Rules("default"), Snapshot: "rules.snapshot"})
//	a, err := agent.New(agent.Config{Store: store, Rules: f.Begin(ctx)})
//	f.Follow(a.SetRules)
//	defer f.Close()
//
// # Who owns what
//
// Each source is one goroutine that looks and swaps (and one more that listens). Begin runs before it, in the caller's; Follow
// starts it; Close ends it and waits. Status and Reload may be called by anyone at any time.
//
// # What it does not do
//
// It knows no Redis: Store is the seam, redisshard.Rules stands behind it. It pushes nothing.
package source
