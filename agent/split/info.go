package split

import (
	"time"

	"github.com/spillgate/spillgate/limit"
)

// Info is what an agent knows of one divided bucket.
type Info struct {
	// ID is the bucket's id as limit.AppendPart builds it: domain, rule and values; or an empty domain and a key.
	ID []byte
	// Bucket in the store.
	Bucket limit.Bucket
	// Ways is the number of parts.
	Ways int
	// Since is when the bucket was split, by its home's clock.
	Since time.Time
	// Closing: the split is about to end.
	Closing bool
	// Parts has Ways elements, by index; that of 0 is home.
	Parts []PartInfo
}

// PartInfo is what an agent knows of one part.
type PartInfo struct {
	// Part names it to the store.
	Part limit.Part
	// Ops are the entries that this agent sent there since the split.
	Ops uint64
	// Remaining tokens as last heard, with what has refilled since.
	Remaining limit.Tokens
	// Failing: its master did not answer last.
	Failing bool
}

// EventKind says what became of a bucket.
type EventKind string

// The kinds, as an agent learns of them: each agent sees a split once.
const (
	// EventSplit: it is divided.
	EventSplit EventKind = "split"
	// EventMerged: it is whole again, by order of an agent that saw the load go.
	EventMerged EventKind = "merged"
	// EventEnded: it is whole again, since its time was over.
	EventEnded EventKind = "ended"
)

// Event is a change that an agent has learned of.
type Event struct {
	Kind EventKind
	Info Info
}

// Totals count since the start.
type Totals struct {
	Active   int    // divided buckets that the agent knows of now
	Split    uint64 // events of each kind
	Merged   uint64
	Ended    uint64
	Touches  uint64 // reports of load to home
	Refused  uint64 // entries on parts that were not divided any more
	Overflow uint64 // checks and leases that went on to another part, the first having too little
}
