package dashboard

import (
	"testing"
	"time"

	"github.com/spillgate/spillgate/limit"
	"github.com/spillgate/spillgate/rules"
)

// inFleet is an agent that counts its fleet, or does not.
type inFleet struct {
	known
	agents int
	counts bool
}

func (f *inFleet) Fleet() (int, bool) { return f.agents, f.counts }

const someRules = `
domain: api
rules:
  - {name: per-user, match: [{key: route, value: /pay}, {key: user}], limit: {requests: 100, per: 1s, burst: 250}, on_store_error: closed, deadline: 10ms, split: off}
  - {name: codes,    match: [{key: phone}], limit: 1/h, mode: exact}
  - {name: views,    match: [{key: page, value: /a*}], limit: 7/m, mode: optimistic, allowance: 5}
  - {name: none,     match: [{key: bot, value: ""}], limit: 0/s}
  - {name: free,     match: [{key: plan, value: free}], unlimited: true}
`

// TestRules: the answer byte for byte: of the whole, of a portion with an agent that counts the fleet, and hidden.
func TestRules(t *testing.T) {
	whole, err := rules.Parse("r.yaml", []byte(someRules))
	if err != nil {
		t.Fatal(err)
	}
	none, _ := open(t, new(known), Config{Datacenter: Datacenter{Share: 1, Headroom: 0.2}, Deadline: 25 * time.Millisecond})
	got := ask(none, "GET", "/api/v1/rules")

	only, _ := open(t, &known{rules: whole}, Config{Datacenter: Datacenter{Share: 1, Headroom: 0.2}, Deadline: 25 * time.Millisecond})
	got += ask(only, "GET", "/api/v1/rules")

	third, err := whole.ForDatacenter(1.0/3, 0.2)
	if err != nil {
		t.Fatal(err)
	}
	secret := limit.Secret{9}
	several, _ := open(t, &inFleet{known{rules: third}, 20, true}, Config{Datacenter: Datacenter{Name: "eu", Share: 1.0 / 3, Headroom: 0.2},
		OnStoreError: limit.Closed, Deadline: time.Second, Redact: func() (*limit.Secret, bool) { return &secret, true }})
	golden(t, "rules.txt", got+ask(several, "GET", "/api/v1/rules"))
}

// TestRulesOfAnUnknownFleet: an agent that does not know of others counts itself.
func TestRulesOfAnUnknownFleet(t *testing.T) {
	a, _ := open(t, &inFleet{agents: 7}, Config{Datacenter: Datacenter{Share: 1}})
	if r := a.rules(); r.Agents != 1 || r.Known {
		t.Errorf("%d agents, known: %v", r.Agents, r.Known)
	}
}

// TestPolicyInForce: a rule that counts in windows has no shares, so where the agent's policy is local it is shown as what it is: closed.
func TestPolicyInForce(t *testing.T) {
	set, err := rules.Parse("", []byte("domain: a\nrules:\n- {name: b, match: [{key: b}], limit: 1/s}\n"+
		"- {name: w, match: [{key: w}], limit: 1/s, algorithm: fixed_window}\n"+
		"- {name: o, match: [{key: o}], limit: 1/s, algorithm: sliding_log, on_store_error: open}\n"))
	if err != nil {
		t.Fatal(err)
	}
	a, _ := open(t, &known{rules: set}, Config{Datacenter: Datacenter{Share: 1}, OnStoreError: limit.Local})
	for i, want := range []string{"local", "closed", "open"} {
		if got := a.rules().Rules[i]; got.OnStoreError != want {
			t.Errorf("%s: %s, want %s", got.Name, got.OnStoreError, want)
		}
	}
}

// TestBoundIsNotRoundedDown: in an answer no bound is below what is promised.
func TestBoundIsNotRoundedDown(t *testing.T) {
	for _, period := range []time.Duration{3 * time.Second, 7 * time.Minute, 42_857_143 * time.Microsecond, 11 * time.Hour} {
		rate := limit.Rate{Requests: 1, Period: period}
		terms, err := rate.Terms()
		if err != nil {
			t.Fatal(err)
		}
		b := BoundOf(&rules.Rule{Rule: limit.Rule{Rate: rate, Terms: terms}}, 1)
		if inPeriod := b.PerSecond * period.Seconds(); inPeriod < 1 || inPeriod > 1.000001 {
			t.Errorf("1 per %v: %v a second, which is %v", period, b.PerSecond, inPeriod)
		}
	}
}
