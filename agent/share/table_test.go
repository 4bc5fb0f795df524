package share_test

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/spillgate/spillgate/agent/share"
	"github.com/spillgate/spillgate/limit"
)

func terms(t testing.TB, requests limit.Tokens, period time.Duration, burst limit.Tokens) *limit.Terms {
	t.Helper()
	terms, err := limit.Rate{Requests: requests, Period: period, Burst: burst}.Terms()
	if err != nil {
		t.Fatal(err)
	}
	return terms
}

func named(n int) (b limit.Bucket) {
	new(limit.Secret).Name(&b, binary.BigEndian.AppendUint64(nil, uint64(n)))
	return b
}

// start is a time long after the agent's first.
const start = int64(time.Hour)

// desk asks one table about one bucket.
type desk struct {
	*testing.T
	*share.Table
	share.Ask
}

// newDesk has a share that was empty at start.
func newDesk(t *testing.T, terms *limit.Terms, agents int) *desk {
	b := named(0)
	return &desk{t, share.NewTable(share.Config{While: time.Second}),
		share.Ask{Bucket: &b, Terms: terms, Agents: agents, Since: start, Now: start}}
}

func (d *desk) take(n limit.Tokens) limit.Decision {
	d.N = n
	return d.Take(d.Ask)
}

func (d *desk) pass(by time.Duration) { d.Now += int64(by) }

// all is how many single tokens are admitted now.
func (d *desk) all() (n limit.Tokens) {
	for d.take(1).Admitted {
		n++
	}
	return n
}

// due is what the store would be charged.
func (d *desk) due() (n limit.Tokens) {
	for _, c := range d.Due(d.Now, 100, func(*limit.Bucket) bool { return true }) {
		n += c.N
	}
	return n
}

// TestShare: empty at first, then the n-th part of the rate, and never more than the n-th part of the burst.
func TestShare(t *testing.T) {
	for _, tt := range []struct {
		requests, burst limit.Tokens
		agents          int
		after           time.Duration
		want            limit.Tokens
	}{
		{100, 100, 4, 0, 0},
		{100, 100, 4, 400 * time.Millisecond, 10},
		{100, 100, 4, time.Hour, 25},
		{100, 100, 1, time.Hour, 100},
		{100, 10, 3, time.Hour, 3},
		{100, 10, 10, time.Hour, 1},
		{100, 10, 11, time.Hour, 0}, // a share without a whole token denies
		{1, 1, 1, time.Second, 1},
		{1, 1, 2, time.Hour, 0},
		{1000, 1_000_000_000, share.MostAgents, 24 * time.Hour, 1318}, // 1000 * 86400 / 65536
	} {
		d := newDesk(t, terms(t, tt.requests, time.Second, tt.burst), tt.agents)
		d.pass(tt.after)
		if got := d.all(); got != tt.want {
			t.Errorf("%+v: %d admitted", tt, got)
		}
	}
}

// TestDecision: what a caller is told.
func TestDecision(t *testing.T) {
	d := newDesk(t, terms(t, 100, time.Second, 0), 4)
	if got, want := d.take(1), (limit.Decision{Reason: limit.StoreLocal, Limit: 100, RetryAfter: 40 * time.Millisecond, ResetAfter: time.Second}); got != want {
		t.Errorf("empty: %+v", got)
	}
	d.pass(40 * time.Millisecond)
	if got := d.take(1); !got.Admitted || got.Reason != limit.StoreLocal || got.RetryAfter != limit.NoRetry || got.Remaining != 0 || got.ResetAfter != time.Second {
		t.Errorf("after the wait: %+v", got)
	}
	d.pass(time.Hour)
	if got := d.take(10); !got.Admitted || got.Remaining != 15 {
		t.Errorf("full: %+v", got)
	}
	if got := d.take(0); !got.Admitted || got.Remaining != 15 {
		t.Errorf("a look: %+v", got)
	}
	if got := d.take(26); got.Admitted || got.RetryAfter != time.Second {
		t.Errorf("more than the share: %+v", got)
	}
	if got := d.take(15); !got.Admitted {
		t.Errorf("the rest: %+v", got)
	}
}

// TestLooksAndDenialsTakeNoMemory while it is known when the share was empty.
func TestLooksAndDenialsTakeNoMemory(t *testing.T) {
	d := newDesk(t, terms(t, 100, time.Second, 0), 4)
	d.take(0)
	d.take(1)
	d.take(26)
	d.Since = 0
	d.take(0)
	d.take(26)
	if n := d.Len(); n != 0 {
		t.Errorf("%d shares", n)
	}
}

// TestUnknownBeginning: where the store answers others, the first denial begins the share, and later ones go on with it.
func TestUnknownBeginning(t *testing.T) {
	d := newDesk(t, terms(t, 100, time.Second, 0), 4)
	d.Since = 0
	if n := d.all(); n != 0 {
		t.Errorf("%d admitted at once", n)
	}
	d.pass(400 * time.Millisecond)
	if n := d.all(); n != 10 {
		t.Errorf("%d admitted, want 10", n)
	}
	d.pass(400 * time.Millisecond)
	d.Since = d.Now // now the shard is gone: from here on
	if n := d.all(); n != 0 {
		t.Errorf("%d admitted that others may have taken", n)
	}
}

// TestCharges: what has refilled is not charged, what has not is, once; and what was told is not.
func TestCharges(t *testing.T) {
	hundred := terms(t, 100, 10*time.Second, 0)
	d := newDesk(t, hundred, 1)
	d.pass(10 * time.Second)
	if !d.take(60).Admitted {
		t.Fatal("60 of 100 are not admitted")
	}
	d.pass(2 * time.Second) // 20 have refilled, of which those of the last second do not count
	if n := d.due(); n != 50 {
		t.Errorf("%d are charged, want 50", n)
	}
	if n := d.due(); n != 0 {
		t.Errorf("%d are charged again", n)
	}
	d.Failed(d.Bucket, 50)
	if n := d.Due(d.Now, 100, func(*limit.Bucket) bool { return false }); n != nil {
		t.Errorf("charges to a shard that is away: %v", n)
	}
	if n := d.due(); n != 50 {
		t.Errorf("after a failure %d are charged, want 50", n)
	}
	d.Told = true
	if !d.take(10).Admitted || d.due() != 0 {
		t.Error("what the store was told is charged")
	}
}

// TestPartitionLongerThanTheWindow is fault 5: 60 hits of a window of 10 s, and 25 s later nothing of them is charged.
func TestPartitionLongerThanTheWindow(t *testing.T) {
	d := newDesk(t, terms(t, 100, 10*time.Second, 0), 1)
	d.pass(10 * time.Second)
	for range 60 {
		d.take(1)
	}
	d.pass(25 * time.Second)
	if n := d.due(); n != 0 {
		t.Errorf("%d old hits are charged", n)
	}
	if d.Sweep(d.Now, 100); d.Len() != 0 {
		t.Errorf("%d shares are kept", d.Len())
	}
}

// TestUndo: a check that another descriptor denied leaves nothing.
func TestUndo(t *testing.T) {
	d := newDesk(t, terms(t, 100, 10*time.Second, 0), 4)
	d.pass(10 * time.Second)
	d.take(25)
	d.Undo(d.Bucket, 25)
	if got := d.take(25); !got.Admitted {
		t.Errorf("after undo: %+v", got)
	}
	d.Undo(d.Bucket, 25)
	if n := d.due(); n != 0 {
		t.Errorf("%d are charged", n)
	}
	other := named(1)
	d.Undo(&other, 1) // nothing is known of it
}

// TestFullTable: a bucket that does not fit is denied, those that are there go on, and room comes back with time.
func TestFullTable(t *testing.T) {
	d := newDesk(t, terms(t, 100, time.Second, 0), 1)
	d.Table = share.NewTable(share.Config{Most: 10, While: time.Second})
	d.pass(time.Second)
	for i := range 20 {
		b := named(i)
		d.Bucket = &b
		if got := d.take(1); got.Admitted != (i < 10) || got.Reason != limit.StoreLocal {
			t.Errorf("bucket %d: %+v", i, got)
		}
	}
	b := named(0)
	if d.Bucket = &b; !d.take(1).Admitted {
		t.Error("the first bucket is denied")
	}
	if d.Len() != 10 {
		t.Errorf("%d shares", d.Len())
	}
	d.pass(2 * time.Second)
	d.Due(d.Now, 100, func(*limit.Bucket) bool { return false }) // nothing is owed any more
	for range 10 {
		d.Sweep(d.Now, 3) // some at a time
	}
	if d.Len() != 0 {
		t.Errorf("%d shares are left", d.Len())
	}
}

// TestDueGoesRound: shards that are away do not keep others from being charged.
func TestDueGoesRound(t *testing.T) {
	d := newDesk(t, terms(t, 100, time.Second, 0), 1)
	d.pass(time.Second)
	for i := range 10 {
		b := named(i)
		d.Bucket = &b
		d.take(10)
	}
	last := named(9)
	well := func(b *limit.Bucket) bool { return b.Sum() == last.Sum() }
	charged := 0
	for range 4 {
		charged += len(d.Due(d.Now, 3, well))
	}
	if charged != 1 {
		t.Errorf("%d charges", charged)
	}
}

// BenchmarkTake is a check by an agent's share.
func BenchmarkTake(b *testing.B) {
	t := share.NewTable(share.Config{})
	names := make([]limit.Bucket, 4096)
	for i := range names {
		names[i] = named(i)
	}
	rate := terms(b, 1_000_000, time.Second, 0)
	now, i := start+int64(time.Second), 0
	b.ReportAllocs()
	for b.Loop() {
		now += 1000
		i++
		t.Take(share.Ask{Bucket: &names[i%len(names)], Terms: rate, N: 1, Agents: 4, Since: start, Now: now})
	}
}
