// Package agent is the engine of Spillgate: it answers "may this request pass?" from a
// store of cells, by rules, in time.
//
// # Life of a check
//
//	Check, Handle.Check, Batch
//	  |  validate, match the rule              rules.Set.Match      [1]
//	  |  drop what another rule replaces, take the request's own limits      (replace.go, override.go)
//	  |  name the bucket                       limit.Secret.Name    [2]
//	  |  no store needed? answer               unlimited, limit 0   [3]
//	  v
//	Direct store (memory): apply at once                            [4a]
//	other stores, modes leased and optimistic: the desk             lease.Desk            [4b]
//	  |  hot bucket: a token on lease, or a pause
//	  |  cold: denied a moment ago; admitted ahead (optimistic)
//	  v
//	what is left, and mode exact: claim in the batcher, wait until the deadline  [4c]
//	  |
//	  |  a shadow rule denies: admit, and count it                  (shadow.go)
//	  |  several descriptors, one denies: refund the others         [5]
//	  v
//	Decision; without an answer, by the rule's fail policy          [6]
//	          or by the agent's share of the bucket (limit.Local)   share.Table
//
// # Who owns what
//
// The rule set is immutable behind one atomic pointer. A Batch belongs to one goroutine. The
// agent owns the batcher, the desk and the goroutine that tends it, but not the store: whoever opened the store closes
// it after the agent.
//
// Goroutines: one tends the desk and the shares, one says every 2 s that the agent lives (fleet.go).
//
// # What it does not do
//
// It knows no wire and no Redis; doors and stores are plugged in. It exports
// Stats and one hook per store call, and no telemetry of its own.
//
// It does not remember which rule a descriptor fell under. A cache by the descriptor's hash was
// tried and rejected: Match costs 85-180 ns at 16 to 10,000 rules, a look-up that hits
// 270-590 ns, and of a million users most miss.
package agent
