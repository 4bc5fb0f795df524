package dashboard

import (
	"time"

	"github.com/spillgate/spillgate/agent/split"
	"github.com/spillgate/spillgate/limit"
)

// rateWindow is how often the counts are looked at. A rate is that since the look before the last, so
// over one to two of them.
const rateWindow = time.Second

// rates makes rates of the counts of divided buckets. For one goroutine at a time.
type rates struct{ older, newer sample }

// sample is what had been counted at a time.
type sample struct {
	at  time.Time
	ops map[limit.Sum]counted
}

// counted are the entries of one split.
type counted struct {
	since time.Time
	ops   uint64
}

// take looks at the counts.
func (r *rates) take(at time.Time, all []split.Info) {
	r.older, r.newer = r.newer, sample{at, make(map[limit.Sum]counted, len(all))}
	for i := range all {
		r.newer.ops[all[i].Bucket.Sum()] = counted{all[i].Since, total(&all[i])}
	}
}

// perSecond is the rate of a bucket at a time. Of a split that is younger than the look before the last all
// entries count.
func (r *rates) perSecond(at time.Time, i *split.Info) float64 {
	ops, from := total(i), &r.older
	elapsed := at.Sub(from.at).Seconds()
	if before, ok := from.ops[i.Bucket.Sum()]; ok && before.since.Equal(i.Since) {
		ops -= min(ops, before.ops)
	}
	if elapsed <= 0 {
		return 0
	}
	return float64(ops) / elapsed
}

// total are the entries that this agent sent since the split.
func total(i *split.Info) (ops uint64) {
	for k := range i.Parts {
		ops += i.Parts[k].Ops
	}
	return ops
}
