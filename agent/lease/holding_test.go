package lease

import (
	"math"
	"testing"
	"time"

	"github.com/spillgate/spillgate/limit"
)

const second = int64(time.Second)

// one is a Holding, and the time that its test has come to.
type one struct {
	*Holding
	t     *testing.T
	terms *limit.Terms
	now   int64
}

// hold begins at 100 s, with a demand in tokens per second.
func hold(t *testing.T, terms *limit.Terms, demand float64) *one {
	var b limit.Bucket
	new(limit.Secret).Name(&b, []byte("b"))
	return &one{New([]byte("b"), &b, terms, 100*second, demand, 1), t, terms, 100 * second}
}

// check spends n tokens.
func (o *one) check(n limit.Tokens) Verdict { return o.Judge(o.Spend(n, 0), o.now) }

// checks that a number of checks of one token end in a verdict.
func (o *one) wants(times int, want Verdict) {
	o.t.Helper()
	for i := range times {
		if got := o.check(1); got != want {
			o.t.Fatalf("check %d of %d: verdict %d, want %d", i+1, times, got, want)
		}
	}
}

// untilRenewal spends single tokens until it is time to renew, and returns how many.
func (o *one) untilRenewal() (n limit.Tokens) {
	o.t.Helper()
	for {
		n++
		switch v := o.check(1); v {
		case AdmitAndRenew:
			return n
		case Admit:
		default:
			o.t.Fatalf("after %d tokens: verdict %d", n, v)
		}
	}
}

// plans what must end in a step.
func (o *one) plans(need limit.Tokens, want Step) Request {
	o.t.Helper()
	step, r := o.Plan(o.now, need)
	if step != want {
		o.t.Fatalf("need of %d: step %d, want %d", need, step, want)
	}
	return r
}

// reply to a request after a round trip: tokens of an epoch, with so many left in the bucket.
func (o *one) reply(r Request, granted, free limit.Tokens, epoch int64, roundTrip int64) {
	o.now += roundTrip
	level := o.terms.Depth - limit.Ticks(free)*o.terms.Emission
	o.Apply(r, Answer{Out: limit.Outcome{Granted: granted, Level: level, Epoch: epoch, Contenders: 1}}, o.now)
}

// adds up: where every token that was granted is.
func (o *one) addsUp() Totals {
	o.t.Helper()
	s := o.State()
	if n := s.Totals; n.Granted != n.Spent+n.Returned+n.Expired+uint64(s.Held) {
		o.t.Fatalf("granted %d = spent %d + returned %d + expired %d + held %d does not hold", n.Granted, n.Spent, n.Returned, n.Expired, s.Held)
	}
	return s.Totals
}

// settles checks what a request tells the store.
func (o *one) settles(r Request, epoch int64, settled, returned limit.Tokens) {
	o.t.Helper()
	if a := r.Ask; a.Epoch != epoch || a.Settled != settled || a.Returned != returned || a.Take != 0 {
		o.t.Errorf("told of epoch %d: settled %d, returned %d; want %d: %d, %d", a.Epoch, a.Settled, a.Returned, epoch, settled, returned)
	}
}

// TestLifeOfAHolding: [1] to [5] of the package's figure.
func TestLifeOfAHolding(t *testing.T) {
	o := hold(t, rate(t, 1000, time.Second, 0), 100)
	o.wants(1, Ask)
	r := o.plans(1, Send)
	if r.Want != 2 || r.Sent != o.now || r.Ask.Presence != limit.Presence/4 {
		t.Errorf("first request: %+v, want two tokens: a demand of 100/s for 20 ms", r)
	}
	o.settles(r, 0, 0, 0)
	o.plans(1, Wait) // one is in flight
	o.plans(0, Wait)
	o.reply(r, 5, 900, 77, ms)
	o.wants(5, Admit)
	o.wants(1, Ask)
	r = o.plans(1, Send)
	o.settles(r, 77, 5, 0)
	if r.Want < 6 {
		t.Errorf("after 8 tokens in a ms %d are wanted", r.Want)
	}
	o.reply(r, 8, 0, 77, ms)
	o.wants(3, Admit)
	if checks, _, send := o.Tend(o.now); send || checks != 11 { // eight from leases, three that went to the store
		t.Errorf("tokens go back: %v; %d checks, want 11", send, checks)
	}
	if _, _, send := o.Tend(o.now + 499*ms); send {
		t.Error("tokens went back while they were wanted half a second ago")
	}
	checks, r, send := o.Tend(o.now + 500*ms)
	if !send || checks != 0 || r.Want != 0 {
		t.Errorf("idle: %v, %+v", send, r)
	}
	o.settles(r, 77, 8, 5)
	o.wants(1, Deny) // it was told that none are left, and its time has not come
	o.now += second
	o.wants(1, Ask)
	o.Apply(r, Answer{Out: limit.Outcome{Epoch: 78, Contenders: 1}}, o.now)
	if got := o.Release(o.now); len(got) != 0 {
		t.Errorf("all was told, and yet: %+v", got)
	}
	want := Totals{Granted: 13, Spent: 8, Returned: 5, Asks: 3, Admitted: 8, Denied: 1}
	if got := o.addsUp(); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// TestNoTokenAfterItsEnd: at the end of the lease by Judge's clock nothing is admitted, even if the token was taken
// long before: the process may have been stopped in between. It counts as spent, and not as a check.
func TestNoTokenAfterItsEnd(t *testing.T) {
	o := hold(t, rate(t, 1000, time.Second, 0), 1000)
	r := o.plans(1, Send)
	o.reply(r, 10, 900, 7, 30*ms)
	end := r.Sent + spendable
	s, late := o.Spend(2, 0), o.Spend(3, 0)
	if got := o.Judge(s, end-1); got != AdmitAndRenew && got != Admit {
		t.Errorf("just before the end: %d", got)
	}
	if got := o.Judge(late, end); got != Ask {
		t.Errorf("at the end: %d", got)
	}
	if o.now = end + second; o.check(1) != Ask {
		t.Error("spent after the end")
	}
	if end >= r.Sent+ttl {
		t.Error("the lease is spent for all of its TTL")
	}
	r = o.plans(1, Send)
	o.settles(r, 0, 0, 0) // void: the store's record has ended
	if got := o.addsUp(); got.Spent != 6 || got.Admitted != 1 || got.Expired != 4 {
		t.Errorf("%+v, want 6 spent for one check, 4 expired", got)
	}
}

// TestRenewal asks once, ahead of time; what came is used when it is time, and not asked for again.
func TestRenewal(t *testing.T) {
	o := hold(t, rate(t, 1_000_000, time.Second, 0), 1000)
	r := o.plans(1, Send)
	o.reply(r, 200, 900_000, 7, 10*ms)
	spent := o.untilRenewal()
	if spent < 155 || spent > 165 {
		t.Errorf("renewed after %d of 200, want some 160: four round trips of a demand of 1000/s are left", spent)
	}
	o.wants(5, Admit) // asked once
	r = o.plans(0, Send)
	o.wants(5, Admit)
	o.settles(r, 7, spent+5, 0)
	o.reply(r, r.Want, 900_000, 8, 10*ms)
	left := 200 - spent - 10
	if held := o.State().Held; held != left+r.Want {
		t.Errorf("%d are held, want %d and %d", held, left, r.Want)
	}
	o.wants(1, AdmitAndRenew)
	o.plans(0, Wait)
	if got := o.addsUp(); got.Returned != 0 || got.Asks != 2 || o.State().Held != left+r.Want-1 {
		t.Errorf("%+v, %d held: want no third request, and what was left of the first still to be sent back", got, o.State().Held)
	}
	o.wants(100, Admit)

	// At its time, too.
	o.now = r.Sent + spendable - ttl/8 - 1
	o.wants(1, Admit)
	o.now++
	o.wants(1, AdmitAndRenew)
	o.wants(1, Admit)
	r = o.plans(0, Send)
	if a := r.Ask; a.Epoch != 8 || a.Returned == 0 {
		t.Errorf("a lease that is about to end: %+v, want that what will not be spent is returned", a)
	}
	o.addsUp()
}

// TestNextWhenCurIsUsedUp: who finds nothing in the old grant takes the new one, without a request.
func TestNextWhenCurIsUsedUp(t *testing.T) {
	o := hold(t, rate(t, 1_000_000, time.Second, 0), 1000)
	o.reply(o.plans(1, Send), 50, 900_000, 7, 10*ms)
	spent := o.untilRenewal()
	o.reply(o.plans(0, Send), 30, 900_000, 8, 10*ms)
	s := o.Spend(45, 0) // more than are left
	if v := o.Judge(s, o.now); v != Ask {
		t.Fatalf("verdict %d", v)
	}
	// Neither has so many: all goes back in one request, with the account of the epoch that has the most.
	r := o.plans(45, Send)
	if held := o.State().Held; held != min(50-spent, 30) {
		t.Errorf("%d are held that were not sent back, want %d or 30", held, 50-spent)
	}
	if r.Ask.Returned != max(50-spent, 30) {
		t.Errorf("%+v, want %d or 30 back", r.Ask, 50-spent)
	}
	o.reply(r, 60, 900_000, 8, 10*ms)
	if v := o.check(45); v != Admit {
		t.Errorf("verdict %d", v)
	}
	o.addsUp()

	o = hold(t, o.terms, 1000)
	o.reply(o.plans(1, Send), 50, 900_000, 7, 10*ms)
	o.untilRenewal()
	r = o.plans(0, Send)
	o.reply(r, 60, 900_000, 8, 10*ms)
	if v := o.check(45); v != Ask {
		t.Fatalf("verdict %d", v)
	}
	o.plans(45, Again)
	if v := o.check(45); v != Admit && v != AdmitAndRenew {
		t.Errorf("verdict %d", v)
	}
	if got := o.addsUp(); got.Returned != 0 || got.Asks != 2 {
		t.Errorf("%+v, want nothing sent back yet", got)
	}
	r = o.plans(1000, Send)
	if got := o.addsUp(); r.Ask.Returned == 0 || got.Returned != uint64(r.Ask.Returned) {
		t.Errorf("%+v after %+v", got, r.Ask)
	}
}

// TestReturnedTooLate: what was to go back and did not before the end of its lease has expired.
func TestReturnedTooLate(t *testing.T) {
	o := hold(t, rate(t, 1_000_000, time.Second, 0), 1000)
	o.reply(o.plans(1, Send), 50, 900_000, 7, 10*ms)
	spent := o.untilRenewal()
	r := o.plans(0, Send)
	o.reply(r, 60, 900_000, 8, 10*ms)
	if v := o.check(45); v != Ask {
		t.Fatalf("verdict %d", v)
	}
	o.plans(45, Again) // what the first lease had is to go back
	o.now = r.Sent + 2*ttl
	o.plans(1, Send)
	if got := o.addsUp(); got.Returned != 0 || got.Expired < uint64(50-spent) {
		t.Errorf("%+v, want %d of the first lease expired, and nothing sent back", got, 50-spent)
	}
}

// TestLateToTheReply: who found nothing, and comes to Plan after the reply, uses what it brought. He
// does not send it back and ask again.
func TestLateToTheReply(t *testing.T) {
	o := hold(t, rate(t, 1000, time.Second, 0), 100)
	o.wants(2, Ask)
	o.reply(o.plans(1, Send), 50, 900, 7, ms)
	o.plans(1, Again)
	o.wants(1, Admit)
	o.wants(49, Admit)
	o.wants(2, Ask)
	o.reply(o.plans(1, Send), 0, 0, 7, ms)
	o.plans(1, Again)
	o.wants(1, Deny)
	if got := o.addsUp(); got.Asks != 2 || got.Returned != 0 {
		t.Errorf("%+v", got)
	}
}

// TestNeedBeyondWhatIsLeft returns the rest in the same request: perhaps the bucket has enough with it.
func TestNeedBeyondWhatIsLeft(t *testing.T) {
	o := hold(t, rate(t, 10, time.Second, 0), 10)
	o.reply(o.plans(1, Send), 4, 1, 7, ms)
	o.wants(1, Admit)
	if v := o.check(4); v != Ask {
		t.Fatalf("verdict %d", v)
	}
	r := o.plans(4, Send)
	o.settles(r, 7, 4, 3)
	o.wants(1, Ask)
	o.addsUp()
}

// TestFailedRequests: after an unknown outcome the account is dropped, else what was spent is told later; what was
// to come back ends in either case. The next request waits for a pause, and callers ask for themselves.
func TestFailedRequests(t *testing.T) {
	for _, notRun := range []bool{false, true} {
		o := hold(t, rate(t, 1000, time.Second, 0), 100)
		o.reply(o.plans(1, Send), 10, 900, 7, ms)
		o.wants(4, Admit)
		if v := o.check(7); v != Ask {
			t.Fatalf("verdict %d", v)
		}
		r := o.plans(7, Send)
		o.settles(r, 7, 10, 6)
		o.Apply(r, Answer{Failed: true, NotRun: notRun}, o.now)
		o.wants(1, Ask)
		o.plans(1, Wait)
		o.now += 14 * ms
		o.plans(1, Wait)
		o.now += 11*ms + 1
		r = o.plans(1, Send)
		if notRun {
			o.settles(r, 7, 4, 0)
		} else {
			o.settles(r, 0, 0, 0)
		}
		o.addsUp()
	}
}

// TestFailedRenewal: local answers go on, and the renewal is tried again after the pause.
func TestFailedRenewal(t *testing.T) {
	o := hold(t, rate(t, 1_000_000, time.Second, 0), 1000)
	o.reply(o.plans(1, Send), 200, 900_000, 7, 10*ms)
	spent := o.untilRenewal()
	o.Apply(o.plans(0, Send), Answer{Failed: true}, o.now)
	for range 5 {
		o.wants(1, AdmitAndRenew)
		o.plans(0, Wait)
	}
	o.now += 26 * ms
	o.wants(1, AdmitAndRenew)
	o.plans(0, Send)
	o.wants(int(200-spent)-6, Admit)
	o.wants(1, Ask)
}

// TestRelease tells everything exactly once: of both grants, of what rode, and of a reply that comes later.
func TestRelease(t *testing.T) {
	o := hold(t, rate(t, 1_000_000, time.Second, 0), 1000)
	o.reply(o.plans(1, Send), 200, 900_000, 7, 10*ms)
	left := 200 - o.untilRenewal()
	o.now += 10 * ms
	o.Apply(o.plans(0, Send), Answer{Out: limit.Outcome{Granted: 50, Epoch: 8, Contenders: 1}, Rode: 4}, o.now) // and told of what was spent
	o.wants(1, AdmitAndRenew)
	if o.State().Held != left-1+50 {
		t.Fatalf("%d are held", o.State().Held)
	}
	s := o.Spend(2, 0)
	if o.Judge(s, o.now) != Admit {
		t.Fatal("not admitted")
	}
	told := map[int64][2]limit.Tokens{}
	tell := func(all []Request) {
		for _, r := range all {
			if r.Want != 0 || r.Ask.Settled == 0 {
				t.Errorf("%+v wants something, or tells nothing", r)
			}
			if _, twice := told[r.Ask.Epoch]; twice {
				t.Errorf("epoch %d twice", r.Ask.Epoch)
			}
			told[r.Ask.Epoch] = [2]limit.Tokens{r.Ask.Settled, r.Ask.Returned}
		}
	}
	tell(o.Release(o.now))
	if got := [2][2]limit.Tokens{told[7], told[8]}; got != [2][2]limit.Tokens{{left, left - 3}, {54, 50}} || len(told) != 2 {
		t.Errorf("told %v, want of epoch 7 three spent and the rest back, of epoch 8 four that rode and 50 back", told)
	}
	tell(o.Release(o.now))
	if all := o.Late(o.now); len(all) > 0 {
		t.Errorf("nothing was in flight: %+v", all)
	}
	o.wants(1, Ask)
	o.plans(1, Wait)
	o.plans(0, Wait)
	if o.Unspend(s) {
		t.Error("tokens came back to what was released")
	}
	o.addsUp()

	// With a request in flight.
	o = hold(t, o.terms, 1000)
	r := o.plans(1, Send)
	if got := o.Release(o.now); len(got) != 0 {
		t.Errorf("%+v", got)
	}
	o.now += 10 * ms
	o.Apply(r, Answer{Out: limit.Outcome{Granted: 50, Epoch: 9, Contenders: 1}, Rode: 3}, o.now)
	o.wants(1, Ask)
	all := o.Late(o.now)
	if len(all) != 1 || all[0].Ask.Epoch != 9 || all[0].Ask.Settled != 53 || all[0].Ask.Returned != 50 {
		t.Errorf("%+v, want 53 settled, 50 of them returned", all)
	}
	if got := o.State().Totals; got.Granted != 50 || got.Returned != 50 || got.Rode != 3 {
		t.Errorf("totals %+v", got)
	}
	if all := o.Late(o.now); len(all) != 0 {
		t.Errorf("told twice: %+v", all)
	}
	o.addsUp()
}

// TestUnspend: tokens that were not needed can be spent again, or go back with the account that has them, until that is sent.
func TestUnspend(t *testing.T) {
	o := hold(t, rate(t, 1000, time.Second, 0), 100)
	o.reply(o.plans(1, Send), 20, 900, 7, ms)
	three := o.Spend(3, 0)
	if o.Judge(three, o.now) != Admit || !o.Unspend(three) || o.Spend(20, 0).Left != 0 {
		t.Errorf("before the account: %+v", o.State())
	}

	o = hold(t, o.terms, 100)
	o.reply(o.plans(1, Send), 20, 900, 7, ms)
	one, five := o.Spend(1, 0), o.Spend(5, 0)
	o.Judge(one, o.now)
	o.Judge(five, o.now)
	o.Tend(o.now) // takes down 6
	two := o.Spend(2, 0)
	o.Judge(two, o.now)
	if !o.Unspend(two) || !o.Unspend(five) || o.State().Held != 19 {
		t.Errorf("before the account is sent: %+v", o.State())
	}
	if got := o.addsUp(); got.Spent != 1 || got.Admitted != 1 {
		t.Errorf("%+v, want 1 spent by 1 check", got)
	}
	r := o.plans(0, Send)
	if r.Ask.Settled != 6 || r.Ask.Returned != 5 {
		t.Errorf("%+v, want 6 settled, 5 of them returned", r.Ask)
	}
	if o.Unspend(one) {
		t.Error("a token came back that the store was told is spent")
	}
	if got := o.addsUp(); got.Spent != 1 || got.Admitted != 0 || got.Returned != 5 || o.State().Held != 14 {
		t.Errorf("%+v, want 1 spent by no check, 5 returned, 14 held", o.State())
	}
}

// TestUnspendOfAnother: an account of another grant does not take back what it does not have.
func TestUnspendOfAnother(t *testing.T) {
	o := hold(t, rate(t, 1000, time.Second, 0), 100)
	o.reply(o.plans(1, Send), 20, 900, 7, ms)
	old := o.Spend(20, 0)
	o.Judge(old, o.now)
	o.reply(o.plans(1, Send), 20, 900, 8, ms) // tells that 20 are spent
	s := o.Spend(20, 0)
	o.Judge(s, o.now)
	o.Tend(o.now)
	if o.Unspend(old) || !o.Unspend(s) {
		t.Error("other tokens came back than those of the account that was not sent")
	}
	o.addsUp()
}

// TestDemand rises at once, and forgets half of itself in half a second.
func TestDemand(t *testing.T) {
	o := hold(t, rate(t, 1_000_000, time.Second, 0), 10)
	demand := func(want float64) {
		t.Helper()
		if got := o.State().Demand; math.Abs(got-want) > 0.02*want {
			t.Errorf("demand %.1f/s, want %.1f", got, want)
		}
	}
	demand(10)
	o.reply(o.plans(1, Send), 0, 900_000, 7, 0) // what made it hot counts at first
	demand(10)
	o.now += 100 * ms
	r := o.plans(500, Send)
	demand(5000)
	o.reply(r, 0, 900_000, 7, 0)
	for i := 1; i <= 4; i++ {
		o.now += 500 * ms
		o.reply(o.plans(0, Send), 0, 900_000, 7, 0)
		demand(5000 / math.Exp2(float64(i)))
	}
	o.now += 10 * ms // measured over 20 ms at least
	o.plans(100, Send)
	demand(5000)
}

// TestHorizon: the fuller the bucket, the longer the lease is meant to last, up to an eighth of the burst for all
// contenders.
func TestHorizon(t *testing.T) {
	for _, tt := range []struct {
		free limit.Tokens // of 10,000
		want limit.Tokens // at a demand of 1000/s
	}{{0, 20}, {500, 20}, {1000, 20}, {2000, 80}, {5000, 500}, {10_000, 1250}} {
		o := hold(t, rate(t, 1000, time.Second, 10_000), 1000)
		o.reply(o.plans(0, Send), 0, tt.free, 7, 0)
		o.Forget(o.now) // or it denies
		if r := o.plans(20, Send); r.Want != tt.want {
			t.Errorf("%d of 10,000 are free: %d wanted, want %d", tt.free, r.Want, tt.want)
		}
	}
	o := hold(t, rate(t, 1000, time.Second, 100), 1000)
	o.reply(o.plans(0, Send), 0, 100, 7, 0)
	if r := o.plans(20, Send); r.Want != 20 { // the shortest horizon, though it is more than an eighth
		t.Errorf("%d wanted of a burst of 100", r.Want)
	}
	o = hold(t, rate(t, 1000, time.Second, 10_000), 1000)
	o.Apply(o.plans(0, Send), Answer{Out: limit.Outcome{Epoch: 7, Contenders: 5}}, o.now)
	if r := o.plans(20, Send); r.Want != 250 {
		t.Errorf("%d wanted of a burst of 10,000 with 5 contenders, want 250", r.Want)
	}
	// What is held already is not wanted.
	o = hold(t, rate(t, 1000, time.Second, 10_000), 1000)
	o.reply(o.plans(0, Send), 300, 5000, 7, 0)
	o.now += 20 * ms
	o.wants(20, Admit)
	if _, r := o.Plan(o.now, 0); r.Want < 200 || r.Want > 500-280+1 {
		t.Errorf("%d wanted, 280 of 500 are held", r.Want)
	}
}

// TestHints: the pause after a reply that was not enough.
func TestHints(t *testing.T) {
	for _, tt := range []struct {
		what       string
		terms      *limit.Terms
		contenders int64
		want       int64 // before the jitter of a quarter
	}{
		{"a fast bucket", rate(t, 1000, time.Second, 0), 1, 20 * ms},
		{"its contenders", rate(t, 1000, time.Second, 0), 60, 60 * ms},
		{"many of them", rate(t, 1000, time.Second, 0), 100_000, 250 * ms},
		{"a slow bucket", rate(t, 10, time.Second, 0), 1, 100 * ms},
		{"a very slow one", rate(t, 10, time.Hour, 0), 1, 250 * ms},
		{"of hundreds", rate(t, 10, time.Hour, 0), 1 << 25, 250 * ms},
		{"a small one, half its time to fill", rate(t, 1000, time.Second, 10), 1, 5 * ms},
		{"the smallest", rate(t, 1_000_000, time.Second, 1), 1, 500},
	} {
		least, most := int64(math.MaxInt64), int64(0)
		var b limit.Bucket
		for seed := range uint64(300) {
			h := New([]byte("b"), &b, tt.terms, 0, 0, seed*seed)
			for range 3 {
				got := h.hintLocked(tt.contenders)
				least, most = min(least, got), max(most, got)
			}
		}
		up := min(tt.want+tt.want/4, mostHint)
		if least < tt.want-tt.want/4 || most > up {
			t.Errorf("%s: pauses of %d to %d ns, want %d give or take a quarter", tt.what, least, most, tt.want)
		}
		if spread := up - (tt.want - tt.want/4); most-least < spread*8/10 {
			t.Errorf("%s: pauses of %d to %d ns are not spread", tt.what, least, most)
		}
	}
}

// TestDenyUntil: a Holding denies while the store has less than a token for each who asks: until the first may be there, and
// never for longer than 250 ms.
func TestDenyUntil(t *testing.T) {
	for _, tt := range []struct {
		what        string
		terms       *limit.Terms
		free        limit.Tokens
		contenders  int64
		least, most int64 // 0: not at all
	}{
		{"one free, one asks", rate(t, 10, time.Second, 0), 1, 1, 0, 0},
		{"three free, four ask", rate(t, 100, time.Second, 0), 3, 4, 30 * ms, 50 * ms},
		{"none free, soon", rate(t, 1000, time.Second, 0), 0, 1, 15 * ms, 25 * ms},
		{"none free, for long", rate(t, 10, time.Hour, 0), 0, 1, 250 * ms, 250 * ms},
		{"none free, the truth is later than the pause", rate(t, 5, time.Second, 0), 0, 1, 200 * ms, 250 * ms},
	} {
		o := hold(t, tt.terms, 100)
		r := o.plans(1, Send)
		level := o.terms.Depth - limit.Ticks(tt.free)*o.terms.Emission
		o.Apply(r, Answer{Out: limit.Outcome{Level: level, Contenders: tt.contenders}}, o.now)
		start := o.now
		if tt.most == 0 {
			o.wants(1, Ask)
			continue
		}
		o.now = start + tt.least - 1
		o.wants(3, Deny)
		var d limit.Decision
		if o.Spend(1, 0).Grant.denied(o.now, 1, &d); d.Admitted || d.Reason != limit.OverLimit || d.RetryAfter < 1 {
			t.Errorf("%s: %+v", tt.what, d)
		}
		if until := start + int64(d.RetryAfter) + o.now - start; until < start+tt.least {
			t.Errorf("%s: told to come at %d", tt.what, until-start)
		}
		o.now = start + tt.most + 1
		o.wants(1, Ask)
		if got := o.addsUp(); got.Denied != 3 || got.Admitted != 0 {
			t.Errorf("%s: %+v", tt.what, got)
		}
	}
}

// TestForget: after a reset no denial stands, also not that of a grant which is to come into use.
func TestForget(t *testing.T) {
	o := hold(t, rate(t, 10, time.Hour, 0), 100)
	o.reply(o.plans(1, Send), 0, 0, 7, ms)
	o.wants(1, Deny)
	o.Forget(o.now)
	o.wants(1, Ask)
	r := o.plans(1, Send)
	o.reply(r, 3, 5, 7, ms)
	o.Forget(o.now)
	o.wants(2, Admit) // no denial, nothing to forget
	o.now = r.Sent + spendable - 1
	o.wants(1, AdmitAndRenew)
	o.addsUp()

	o = hold(t, rate(t, 1000, time.Second, 0), 1000)
	o.reply(o.plans(1, Send), 100, 900, 7, 10*ms)
	for o.check(1) != AdmitAndRenew {
		continue
	}
	o.reply(o.plans(0, Send), 0, 0, 7, 10*ms)
	if o.deniedUntil() <= o.now {
		t.Fatal("the second reply is no denial")
	}
	o.Forget(o.now)
	for o.check(1) == Admit || o.State().Held > 0 {
		continue
	}
	o.wants(1, Ask)
	o.plans(1, Send)
	o.addsUp()
}

// TestPresence is the time since the last request, in 1/256 of a TTL; a quarter of one at first.
func TestPresence(t *testing.T) {
	o := hold(t, rate(t, 1000, time.Second, 0), 100)
	for _, tt := range []struct{ passed, want int64 }{{0, 64}, {second, 128}, {ms, 1}, {10 * second, 256}, {500 * ms, 64}} {
		o.now += tt.passed
		r := o.plans(1, Send)
		if r.Ask.Presence != tt.want {
			t.Errorf("after %d ms: %d, want %d", tt.passed/ms, r.Ask.Presence, tt.want)
		}
		o.reply(r, 0, 900, 7, 0)
		o.Forget(o.now)
	}
}

// TestTwoGrantsOfAnEpoch: what comes back of the later one is not void because the earlier one has ended.
func TestTwoGrantsOfAnEpoch(t *testing.T) {
	o := hold(t, rate(t, 1000, time.Second, 0), 1000)
	o.reply(o.plans(1, Send), 6, 500, 7, 0)
	for range 5 {
		o.wants(1, Admit)
	}
	o.now += 1500 * ms
	r := o.plans(0, Send)
	o.settles(r, 7, 5, 0)
	o.wants(1, Admit) // the last of the first: nothing will tell of it in time
	o.Apply(r, Answer{Out: limit.Outcome{Granted: 10, Epoch: 7, Contenders: 1}, Rode: 3}, o.now)
	o.now += 600 * ms // the first has ended, the second has not
	o.wants(1, AdmitAndRenew)
	all := o.Release(o.now)
	if len(all) != 1 || all[0].Ask.Epoch != 7 || all[0].Ask.Settled != 13 || all[0].Ask.Returned != 9 {
		t.Errorf("%+v, want of epoch 7 thirteen, nine of them returned", all)
	}
}

// TestReclaim: what a caller took of a lease and did not need goes back with the lease's account, once, and only while that has not been
// sent.
func TestReclaim(t *testing.T) {
	o := hold(t, rate(t, 1_000_000, time.Second, 0), 1000)
	r := o.plans(1, Send)
	o.now += 10 * ms
	o.Apply(r, Answer{Out: limit.Outcome{Granted: 50, Epoch: 9, Contenders: 1}, Rode: 3}, o.now)
	for _, tt := range []struct {
		at    int
		epoch int64
		n     limit.Tokens
		want  bool
	}{{0, 8, 1, false}, {1, 9, 1, false}, {0, 9, 4, false}, {0, 9, 2, true}, {0, 9, 2, false}} {
		if got := o.reclaim(tt.at, tt.epoch, tt.n); got != tt.want {
			t.Errorf("%+v: %v", tt, got)
		}
	}
	if got := o.addsUp(); got.Granted != 52 || got.Rode != 3 || o.State().Held != 52 {
		t.Errorf("%+v, %d held", got, o.State().Held)
	}
	all := o.Release(o.now)
	if len(all) != 1 || all[0].Ask.Settled != 53 || all[0].Ask.Returned != 52 {
		t.Errorf("%+v, want 53 settled, 52 of them returned", all)
	}
	if o.reclaim(0, 9, 1) {
		t.Error("what was told is taken back")
	}
}
