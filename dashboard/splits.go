package dashboard

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/spillgate/spillgate/agent/split"
	"github.com/spillgate/spillgate/limit"
)

// Split is a bucket that is divided, as this agent knows it.
type Split struct {
	Bucket
	Ways int `json:"ways"`
	// Since is when it was divided, by its home's clock, and Seconds how long ago that is.
	Since   time.Time `json:"since"`
	Seconds float64   `json:"seconds"`
	// Closing: it is about to be made whole.
	Closing bool `json:"closing"`
	// Home is the master that says how the bucket is divided; empty if it is not known now.
	Home string `json:"home"`
	// OpsPerSecond are the entries that this agent sends, over the last second or two.
	OpsPerSecond float64 `json:"ops_per_second"`
	// Remaining tokens of all parts, as last heard, with what has refilled since.
	Remaining limit.Tokens `json:"remaining"`
	// Parts by index, and Masters by address.
	Parts   []Part   `json:"parts"`
	Masters []Master `json:"masters"`
	// Spread is how many times the mean the busiest master has of this agent's entries; 1 is even, 0 is none yet.
	Spread float64 `json:"spread"`
}

// Part is a part of a divided bucket.
type Part struct {
	Index int `json:"index"`
	// Master is its address; empty if it is not known now.
	Master string `json:"master"`
	// Ops are this agent's entries since the split.
	Ops       uint64       `json:"ops"`
	Remaining limit.Tokens `json:"remaining"`
	// Failing: its master did not answer of late.
	Failing bool `json:"failing"`
}

// Master is what a master has of a divided bucket.
type Master struct {
	Master string `json:"master"`
	Parts  int    `json:"parts"`
	Ops    uint64 `json:"ops"`
}

// splits shows what is divided now, sorted by name. [5]
func (a *API) splits(now time.Time) []Split {
	all := []Split{} // never null
	for _, i := range a.agent.Splits() {
		s := a.cfg.describe(&i, now)
		s.OpsPerSecond = round(a.perSecond(now, &i), 1)
		all = append(all, s)
	}
	slices.SortFunc(all, func(x, y Split) int {
		return cmp.Or(cmp.Compare(x.Domain, y.Domain), cmp.Compare(x.Rule, y.Rule), slices.Compare(x.Values, y.Values))
	})
	return all
}

// describe shows a bucket as of a time, without its rate.
func (c *Config) describe(i *split.Info, now time.Time) Split {
	s := Split{
		Bucket: c.bucket(i.ID), Ways: i.Ways, Since: i.Since.UTC(), Closing: i.Closing,
		Seconds: round(max(0, now.Sub(i.Since).Seconds()), 3),
		Parts:   make([]Part, 0, len(i.Parts)), Masters: []Master{},
	}
	if c.Master != nil {
		s.Home = c.Master(&i.Bucket, nil)
	}
	for k := range i.Parts {
		p := &i.Parts[k]
		shown := Part{Index: p.Part.Index, Ops: p.Ops, Remaining: p.Remaining, Failing: p.Failing}
		if c.Master != nil {
			shown.Master = c.Master(&i.Bucket, &p.Part)
		}
		s.Parts = append(s.Parts, shown)
		s.Remaining += p.Remaining
		s.addTo(&shown)
	}
	slices.SortFunc(s.Masters, func(x, y Master) int { return cmp.Compare(x.Master, y.Master) })
	s.Spread = round(spread(s.Masters), 3)
	return s
}

// addTo counts a part for its master.
func (s *Split) addTo(p *Part) {
	at := slices.IndexFunc(s.Masters, func(m Master) bool { return m.Master == p.Master })
	if at < 0 {
		at = len(s.Masters)
		s.Masters = append(s.Masters, Master{Master: p.Master})
	}
	s.Masters[at].Parts++
	s.Masters[at].Ops += p.Ops
}

// spread is the busiest of the masters against their mean.
func spread(masters []Master) float64 {
	var sum, most uint64
	for _, m := range masters {
		sum += m.Ops
		most = max(most, m.Ops)
	}
	if sum == 0 {
		return 0
	}
	return float64(most) * float64(len(masters)) / float64(sum)
}

// round leaves that many decimals.
func round(x float64, decimals int) float64 {
	unit := math.Pow10(decimals)
	return math.Round(x*unit) / unit
}
