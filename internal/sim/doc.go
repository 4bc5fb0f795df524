// Package sim runs whole fleets of agents on virtual time, with everything against them that can be, and
// recounts every token. A run is drawn from a seed and belongs to one goroutine: one seed is one run, and a
// broken promise can be looked at as often as it takes.
//
// # Life of a check in a run
//
//	callers    steady, in bursts, on and off, ten times too many; of several descriptors       [1]
//	  batch    asks the desk, as agent.Batch does: a lease, an allowance, a known denial?      [2]
//	    queue  else a claim, or a lease for it, into the line; calls leave as in batcher       [3]
//	 ---------------------------------------------------------------------------------------------
//	      net  delays, losses, partitions, requests that arrive long after they were given up  [4]
//	   master  a clock of its own; the cells, in memstore and in a plain map that must agree   [5]
//	 ---------------------------------------------------------------------------------------------
//	    queue  shares out what came, or gives up                                               [6]
//	   bucket  the ledger: each token that left a cell or a lease, and each that came back     [7]
//	    audit  at the end: all have stopped, nothing is left, and the books balance            [8]
//
// Real are the desk with its Holdings (agent/lease), what is known of divisions (agent/split), the tracker (hotkeys), the line
// (batcher) and the arithmetic (limit, memstore). Written once more, as plainly as can be, are the shells around them, which are
// goroutines, locks and timers: batcher/queue.go in queue.go, agent/batch.go in check.go, agent/divided.go in overflow.go. Whoever
// changes one changes the other.
//
// Agents crash, stop, and are suspended, also in the middle of a check. Stores' clocks stand apart, drift and step.
// Rules change while leases are out. Hoarders do with leases what the protocol allows and no desk does.
//
// Runs of their own have buckets that are divided. In those of DrawDivided nobody but dividers is there: they speak the whole
// protocol of divided buckets, by news that is old or late, and do what no agent would. In those of DrawViral agents ask so much that
// buckets are divided, and dividers help. The part i of a bucket lies on the i-th master after its home, and clocks are at most
// limit.MaxSkew apart. Masters fail over, to a copy that is behind or to nothing.
//
// Runs of their own, too, have buckets that count in windows (DrawWindows): their ledger is what each window was given, and the
// oracle of a sliding one the exact count.
//
// # What is checked
//
//	G1  after every event, for every window: the reference bucket never goes below zero
//	G2  the same with the allowances; and no agent has more than its own open or blocked
//	G3  fleets that ask for ten times what there is get nearly all of it, in equal shares (TestSaturated); a key that is asked
//	    for as no master would like is served by all, and whole again afterwards (TestViralKey)
//	G4  a lone caller who waits as told is admitted; from leases, at most 250 ms later; see patience for divided buckets
//	G5  in runs without faults, what left the cells is what was admitted, refunded or returned
//	G7  Holdings are bounded; an agent that stopped has none, and nothing in line
//
// Mistakes made on purpose must be found within a stated number of runs (TestMutationsAreCaught, and of divided buckets
// TestMistakesInDivisionsAreCaught, of windows TestMistakesInWindowsAreCaught). A bucket that is divided and made whole again grants as much as one that never was
// (TestDivisionLosesNothing).
//
// # What the ledger allows
//
// A store's clock that steps forward gives what refills in the step, and what is out on lease at that moment. A reset, and
// every operation under another rule than the newest, fills the reference. Tokens that were taken and not used, since a partial
// take could not be shared out or another descriptor denied, count until their refund has come: if the bucket ran full in
// the meantime they are there twice, in the reference as in the cell. Admissions by fail policy are not counted. After
// a failover a bucket may give what it had once more, as much from leases that no record knows, and what home refills that does not know
// of the split; some seconds later (aftermath) nothing of that may be left.
//
// # What it does not do
//
// No Redis, no sockets, no scripts, no data races: redisshard compares the script with the twin, cmd runs real
// fleets.
package sim
