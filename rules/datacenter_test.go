package rules

import (
	"bytes"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/spillgate/spillgate/limit"
)

const severalKinds = `
domain: api
rules:
  - {name: per-user, match: [{key: route, value: /pay}, {key: user}], limit: {requests: 100, per: 1s, burst: 250}, on_store_error: closed, deadline: 10ms, split: off}
  - {name: tiny,     match: [{key: phone}], limit: 1/h, mode: exact}
  - {name: odd,      match: [{key: host}], limit: 7/m}
  - {name: views,    match: [{key: page}], limit: 5000/s, mode: optimistic, allowance: 99}
  - {name: few,      match: [{key: job}], limit: 3/m, mode: optimistic}
  - {name: quota,    match: [{key: team}], limit: 7/d, algorithm: fixed_window}
  - {name: signup,   match: [{key: ip}], limit: 1/h, algorithm: fixed_window}
  - {name: search,   match: [{key: term}], limit: 2/h, algorithm: sliding_window, mode: exact}
  - {name: login,    match: [{key: login}], limit: 1/h, algorithm: sliding_log}
  - {name: closed,   match: [{key: door}], limit: 0/h, algorithm: sliding_log}
  - {name: none,     match: [{key: bot}], limit: 0/s}
  - {name: free,     match: [{key: plan, value: free}], unlimited: true}
  - {name: any-free, match: [{key: plan, value: fr*}], limit: 10/s}
`

// TestForDatacenter: what a third with headroom 0.2 enforces of each kind of rule.
func TestForDatacenter(t *testing.T) {
	whole, err := Parse("r.yaml", []byte(severalKinds))
	if err != nil {
		t.Fatal(err)
	}
	third, err := whole.ForDatacenter(1.0/3, 0.2)
	if err != nil {
		t.Fatal(err)
	}
	if third.Len() != whole.Len() {
		t.Fatalf("%d rules became %d", whole.Len(), third.Len())
	}
	want := map[string]struct {
		text      string
		allowance limit.Tokens
	}{
		"per-user": {"40/s burst 100", 0}, "tiny": {"0.4/h burst 1", 0}, "odd": {"2.8/m burst 2", 0}, "views": {"2000/s", 39}, "few": {"1.2/m burst 1", 1},
		"quota": {"2/d", 0}, "signup": {"1/3h", 0}, "search": {"1/2h", 0}, "login": {"1/150m", 0}, "closed": {"0/h", 0},
		"none": {"0/s", 0}, "free": {"", 0}, "any-free": {"4/s", 0},
	}
	for i, r := range third.Rules() {
		w := whole.Rules()[i]
		if r == w {
			t.Fatalf("%s is the whole rule", r.Name)
		}
		if third.Rule("api", r.Name) != r || r.Written() != w || w.Written() != w {
			t.Errorf("%s is not found by its name, or is not known to be of %v", r.Name, w)
		}
		if !bytes.Equal(r.Root, w.Root) || r.Name != w.Name || r.Domain != w.Domain {
			t.Errorf("%s is not the same any more: %+v", w.Name, r)
		}
		text := ""
		if !r.Unlimited {
			text = r.Rate.Text(w.Rate.Period)
		}
		if text != want[r.Name].text || r.Allowance != want[r.Name].allowance {
			t.Errorf("%s: %q, allowance %d, want %v", r.Name, text, r.Allowance, want[r.Name])
		}
		if r.Rate.Debt != r.Allowance*limit.MaxAgents {
			t.Errorf("%s: a debt of %d with allowance %d", r.Name, r.Rate.Debt, r.Allowance)
		}
		if terms, err := r.Rate.Terms(); !r.Unlimited && (err != nil || !reflect.DeepEqual(terms, r.Terms)) {
			t.Errorf("%s: terms are %+v, want %+v (%v)", r.Name, r.Terms, terms, err)
		}
		// All else stays.
		same := *r
		same.Whole, same.Rate, same.Terms, same.Allowance = nil, w.Rate, w.Terms, w.Allowance
		if !reflect.DeepEqual(&same, w) {
			t.Errorf("%s has changed:\n%+v\n%+v", r.Name, same, w)
		}
	}
	for _, d := range []Descriptor{{{"plan", "free"}}, {{"plan", "fries"}}, {{"route", "/pay"}, {"user", "1"}}, {{"host", "h"}}} {
		if got, w := third.Match("api", d), whole.Match("api", d); got == nil || got.Written() != w {
			t.Errorf("%v falls under %v, want %v", d, got, w)
		}
	}
	if r := third.Match("api", Descriptor{{"host", ""}}); r != nil {
		t.Errorf("an empty value falls under %v", r)
	}
}

// TestForTheOnlyDatacenter: the whole is the set itself, and no set is none.
func TestForTheOnlyDatacenter(t *testing.T) {
	whole, err := Parse("r.yaml", []byte(severalKinds))
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range [][2]float64{{1, 0.2}, {1, 0}, {0.5, 1}, {0.9, 0.2}} {
		if got, err := whole.ForDatacenter(tt[0], tt[1]); err != nil || got != whole {
			t.Errorf("share %v, headroom %v: another set (%v)", tt[0], tt[1], err)
		}
	}
	var none *Set
	if got, err := none.ForDatacenter(0.5, 0.2); err != nil || got != nil {
		t.Errorf("no rules became %v (%v)", got, err)
	}
}

func TestForDatacenterRefuses(t *testing.T) {
	whole, err := Parse("r.yaml", []byte(`
domain: api
rules:
  - {name: yearly,  match: [{key: a}], limit: 1/366d}
  - {name: monthly, match: [{key: b}], limit: 1/30d}
  - {name: ahead,   match: [{key: c}], limit: 100/s, mode: optimistic}
  - {name: behind,  match: [{key: d}], limit: 1/12h, mode: optimistic}
  - {name: window,  match: [{key: e}], limit: 9/366d, algorithm: fixed_window}
  - {name: log,     match: [{key: f}], limit: 1/31d, algorithm: sliding_log}
`))
	if err != nil {
		t.Fatal(err)
	}
	_, err = whole.ForDatacenter(0.11, 0)
	if err == nil || strings.Count(err.Error(), "\n") != 2 {
		t.Fatalf("%v", err)
	}
	for _, want := range []string{
		`the rule "yearly": limit: period: a bucket of 1 at 1 per 79854h32m43.636364s takes more`,
		`the rule "behind": `,
		`the rule "window": limit: period: 0.11 of 9/366d is 1 only in a fixed_window of more than 366d, the longest; a token_bucket may be slower; write`,
		"enlarge the data center's share",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if _, err = whole.ForDatacenter(0.01, 0); err == nil || !strings.Contains(err.Error(), `the rule "yearly": limit: period: 0.01 of 1/366d is less than 1/3650d`) ||
		!strings.Contains(err.Error(), `the rule "log": limit: period: 0.01 of 1/31d is 1 only in a sliding_log of more than 366d`) {
		t.Errorf("%v", err)
	}
	for _, tt := range []struct {
		share, headroom float64
		field           string
	}{{0, 0.2, "share"}, {-1, 0.2, "share"}, {1.1, 0.2, "share"}, {math.NaN(), 0.2, "share"}, {0.5, -0.1, "headroom"}, {0.5, 11, "headroom"}, {0.5, math.NaN(), "headroom"}} {
		if got, err := whole.ForDatacenter(tt.share, tt.headroom); err == nil || !strings.Contains(err.Error(), tt.field) || got != nil {
			t.Errorf("share %v, headroom %v: %v", tt.share, tt.headroom, err)
		}
	}
}

// TestForDatacenterIsRepeatable: the same file gives the same terms, so that a reload changes no bucket.
func TestForDatacenterIsRepeatable(t *testing.T) {
	var terms [2][]limit.Terms
	for i := range terms {
		whole, err := Parse("r.yaml", []byte(severalKinds))
		if err != nil {
			t.Fatal(err)
		}
		here, err := whole.ForDatacenter(0.3333, 0.2)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range here.Rules() {
			if r.Terms != nil {
				terms[i] = append(terms[i], *r.Terms)
			}
		}
	}
	if !reflect.DeepEqual(terms[0], terms[1]) {
		t.Error("the terms differ")
	}
}

func BenchmarkForDatacenter(b *testing.B) {
	whole, err := Parse("r.yaml", []byte(severalKinds))
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	start := time.Now()
	for b.Loop() {
		if _, err := whole.ForDatacenter(1.0/3, 0.2); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(time.Since(start).Nanoseconds())/float64(b.N*whole.Len()), "ns/rule")
}
