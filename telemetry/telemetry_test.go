package telemetry

import (
	"context"
	"flag"
	"fmt"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/spillgate/spillgate/agent"
	"github.com/spillgate/spillgate/agent/lease"
	"github.com/spillgate/spillgate/agent/split"
	"github.com/spillgate/spillgate/batcher"
	"github.com/spillgate/spillgate/limit"
	"github.com/spillgate/spillgate/memstore"
	"github.com/spillgate/spillgate/rules"
)

var rewrite = flag.Bool("rewrite", false, "write the table of docs/metrics.md anew")

const docsFile = "../docs/metrics.md"

func scrape(t *testing.T, tel *Telemetry) string {
	t.Helper()
	w := httptest.NewRecorder()
	tel.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	if w.Code != 200 {
		t.Fatalf("status %d: %s", w.Code, w.Body)
	}
	return w.Body.String()
}

func newTelemetry(t *testing.T) *Telemetry {
	t.Helper()
	tel, err := New(Config{Version: "v1.2.3"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tel.Shutdown(context.Background()) })
	return tel
}

// full is a reading in which every metric shows and every value is another.
func full() Reading {
	return Reading{
		Agent: agent.Stats{
			Checks: []agent.Count{{Admitted: true, Reason: limit.OK, Checks: 11}, {Reason: limit.OverLimit, Checks: 12},
				{Admitted: true, Reason: limit.ShadowOver, Checks: 13}},
			Shadow: []agent.ShadowDenied{{Domain: "d", Rule: "quiet", Denied: 14}},
			Batcher: batcher.Stats{Calls: 21, Entries: 22, Claims: 23, NotRun: 24, Unknown: 25, Damaged: 26,
				Overloaded: 27, GivenUp: 28, Refunded: 29, Waiting: 30, Down: 81, Opened: 82, Probes: 83, Refused: 84},
			Shares: 85,
			Leases: lease.Stats{
				Counts:   lease.Counts{Promoted: 41, Demoted: 42, KnownDenied: 43, Charged: 44, ChargesLost: 45},
				Totals:   lease.Totals{Granted: 46, Rode: 47, Spent: 48, Returned: 49, Expired: 50, Asks: 51, Admitted: 52, Denied: 53},
				Holdings: 54, Held: 55,
			},
			Splits: split.Totals{Active: 61, Split: 62, Merged: 63, Ended: 64, Touches: 65, Refused: 66, Overflow: 67},
		},
		Active: []agent.Active{{Buckets: 71}, {Domain: "d", Rule: "r", Buckets: 72}},
		ByPolicy: []agent.ByPolicy{{Admitted: true, Reason: limit.StoreOpen, Answers: 86},
			{Domain: "d", Rule: "q", Reason: limit.StoreLocal, Answers: 87}},
		Fleet:       88,
		StoreUp:     true,
		Masters:     []Master{{"10.0.0.1:6379", true}, {"10.0.0.2:6379", false}},
		StoreResent: 31,
		StoreSkew:   func() (time.Duration, bool) { return 1500 * time.Microsecond, true },
		Memstore:    &Memstore{Cells: 32},
		Rules:       33,
		RulesStatus: rules.Status{Source: rules.FromSnapshot, Version: 35, Since: time.UnixMilli(1_700_000_000_250), Stale: "why",
			Refused: 34, SnapshotsFailed: 36},
	}
}

func TestValues(t *testing.T) {
	tel := newTelemetry(t)
	tel.OnCall(batcher.CallInfo{Entries: 3, Took: 300 * time.Microsecond})
	tel.Observe(full)
	text := scrape(t, tel)
	for _, want := range []string{
		`spillgate_checks_total{outcome="admitted",reason="ok"} 11`,
		`spillgate_checks_total{outcome="denied",reason="over_limit"} 12`,
		`spillgate_checks_total{outcome="admitted",reason="shadow"} 13`,
		`spillgate_checks_total{outcome="admitted",reason="store_open"} 0`,
		`spillgate_shadow_denied_total{domain="d",rule="quiet"} 14`,
		`spillgate_checks_local_total{outcome="admitted",source="lease"} 52`,
		`spillgate_checks_local_total{outcome="denied",source="lease"} 53`,
		`spillgate_checks_local_total{outcome="denied",source="memory"} 43`,
		`spillgate_hot_buckets 54`,
		`spillgate_hot_buckets_changed_total{change="promoted"} 41`,
		`spillgate_hot_buckets_changed_total{change="demoted"} 42`,
		`spillgate_lease_tokens_held 55`,
		`spillgate_lease_tokens_total{kind="granted"} 46`,
		`spillgate_lease_tokens_total{kind="rode"} 47`,
		`spillgate_lease_tokens_total{kind="spent"} 48`,
		`spillgate_lease_tokens_total{kind="returned"} 49`,
		`spillgate_lease_tokens_total{kind="expired"} 50`,
		`spillgate_lease_requests_total 51`,
		`spillgate_tokens_charged_total 44`,
		`spillgate_tokens_charged_lost_total 45`,
		`spillgate_splits 61`,
		`spillgate_splits_changed_total{change="split"} 62`,
		`spillgate_splits_changed_total{change="merged"} 63`,
		`spillgate_splits_changed_total{change="ended"} 64`,
		`spillgate_split_touches_total 65`,
		`spillgate_split_refused_total 66`,
		`spillgate_split_overflows_total 67`,
		`spillgate_active_buckets{domain="",rule=""} 71`,
		`spillgate_active_buckets{domain="d",rule="r"} 72`,
		`spillgate_policy_answers_total{domain="",outcome="admitted",reason="store_open",rule=""} 86`,
		`spillgate_policy_answers_total{domain="d",outcome="denied",reason="store_local",rule="q"} 87`,
		`spillgate_local_shares 85`,
		`spillgate_fleet_agents 88`,
		`spillgate_shards_down 81`,
		`spillgate_shards_failed_total 82`,
		`spillgate_shard_probes_total 83`,
		`spillgate_claims_down_total 84`,
		`spillgate_store_skew_seconds 0.0015`,
		`spillgate_store_up 1`,
		`spillgate_store_master_up{master="10.0.0.1:6379"} 1`,
		`spillgate_store_master_up{master="10.0.0.2:6379"} 0`,
		`spillgate_store_calls_total 21`,
		`spillgate_store_calls_resent_total 31`,
		`spillgate_store_entries_total 22`,
		`spillgate_store_claims_total 23`,
		`spillgate_store_entries_failed_total{cause="not_run"} 24`,
		`spillgate_store_entries_failed_total{cause="unknown"} 25`,
		`spillgate_store_entries_failed_total{cause="damaged"} 26`,
		`spillgate_store_call_entries_bucket{le="2"} 0`,
		`spillgate_store_call_entries_bucket{le="4"} 1`,
		`spillgate_store_call_entries_sum 3`,
		`spillgate_store_call_seconds_bucket{le="0.0002"} 0`,
		`spillgate_store_call_seconds_bucket{le="0.0005"} 1`,
		`spillgate_store_call_seconds_count 1`,
		`spillgate_claims_overloaded_total 27`,
		`spillgate_claims_given_up_total 28`,
		`spillgate_tokens_refunded_total 29`,
		`spillgate_claims_waiting 30`,
		`spillgate_memstore_cells 32`,
		`spillgate_rules 33`,
		`spillgate_rules_loaded_timestamp_seconds 1.70000000025e+09`,
		`spillgate_rules_reloads_failed_total 34`,
		`spillgate_rules_snapshots_failed_total 36`,
		`spillgate_rules_version 35`,
		`spillgate_rules_stale 1`,
		`spillgate_rules_source{source="snapshot"} 1`,
		`spillgate_rules_source{source="store"} 0`,
		`go_goroutines `,
	} {
		if !strings.Contains(text, "\n"+want) {
			t.Errorf("no line %s", want)
		}
	}
	if t.Failed() {
		t.Log(text)
	}
}

// TestSeriesBeforeTheyCount: what an alarm may look at is there from the start, on every store.
func TestSeriesBeforeTheyCount(t *testing.T) {
	tel := newTelemetry(t)
	tel.Observe(func() Reading { return Reading{} })
	text := scrape(t, tel)
	for _, want := range []string{
		`spillgate_checks_total{outcome="denied",reason="over_limit"} 0`,
		`spillgate_checks_total{outcome="admitted",reason="shadow"} 0`,
		`spillgate_checks_local_total{outcome="admitted",source="lease"} 0`,
		`spillgate_checks_local_total{outcome="denied",source="lease"} 0`,
		`spillgate_checks_local_total{outcome="denied",source="memory"} 0`,
		`spillgate_hot_buckets 0`,
		`spillgate_hot_buckets_changed_total{change="demoted"} 0`,
		`spillgate_lease_tokens_held 0`,
		`spillgate_lease_tokens_total{kind="expired"} 0`,
		`spillgate_lease_requests_total 0`,
		`spillgate_tokens_charged_lost_total 0`,
		`spillgate_splits 0`,
		`spillgate_splits_changed_total{change="split"} 0`,
		`spillgate_splits_changed_total{change="ended"} 0`,
		`spillgate_split_overflows_total 0`,
		`spillgate_rules_stale 0`,
		`spillgate_rules_source{source="none"} 1`,
		`spillgate_rules_source{source="file"} 0`,
		`spillgate_rules_snapshots_failed_total 0`,
		`spillgate_checks_total{outcome="denied",reason="store_local"} 0`,
		`spillgate_shards_down 0`,
		`spillgate_shards_failed_total 0`,
	} {
		if !strings.Contains(text, "\n"+want+"\n") {
			t.Errorf("no line %s", want)
		}
	}
}

// TestAbsent: what is not known has no series, rather than a 0.
func TestAbsent(t *testing.T) {
	tel := newTelemetry(t)
	r := full()
	tel.Observe(func() Reading { return r })
	if text := scrape(t, tel); !strings.Contains(text, "\nspillgate_store_skew_seconds 0.0015\n") || !strings.Contains(text, `rule="r"`) {
		t.Fatalf("a reading that has all lacks some:\n%s", text)
	}
	r.StoreSkew = func() (time.Duration, bool) { return time.Second, false }
	r.Active, r.Memstore, r.RulesStatus, r.Fleet = r.Active[:1], nil, rules.Status{}, 0
	text := scrape(t, tel)
	for _, gone := range []string{"spillgate_store_skew_seconds ", `rule="r"`, "spillgate_memstore_cells ", "spillgate_fleet_agents ", "spillgate_rules_loaded_timestamp_seconds ", "spillgate_rules_version "} {
		if strings.Contains(text, gone) {
			t.Errorf("%s is there, and is not known:\n%s", gone, text)
		}
	}
}

// TestPoliciesOfManyRules: so may those that the store did not decide for. Scrapes keep nothing of them.
func TestPoliciesOfManyRules(t *testing.T) {
	tel := newTelemetry(t)
	var all []agent.ByPolicy
	for i := range 2 * mostRules {
		for _, admitted := range []bool{true, false} {
			all = append(all, agent.ByPolicy{Domain: "d", Rule: fmt.Sprintf("r%04d", i), Admitted: admitted, Reason: limit.StoreLocal, Answers: 1})
		}
	}
	tel.Observe(func() Reading { return Reading{ByPolicy: all} })
	scrape(t, tel)
	before := len(tel.read.Load().seen)
	if lines := strings.Count(scrape(t, tel), "\nspillgate_policy_answers_total{"); lines != 2*mostRules {
		t.Errorf("%d series, want %d", lines, 2*mostRules)
	}
	if after := len(tel.read.Load().seen); after != before {
		t.Errorf("%d values are kept, and %d before", after, before)
	}
}

// TestActiveOfManyRules: a rules file may have many thousands of rules. Those that have most are shown.
func TestActiveOfManyRules(t *testing.T) {
	tel := newTelemetry(t)
	var active []agent.Active
	for i := range 3 * mostRules {
		active = append(active, agent.Active{Domain: "d", Rule: fmt.Sprintf("r%04d", i), Buckets: uint64(i)})
	}
	tel.Observe(func() Reading { return Reading{Active: active} })
	text := scrape(t, tel)
	lines := regexp.MustCompile(`(?m)^spillgate_active_buckets{.*} (\d+)$`).FindAllStringSubmatch(text, -1)
	if len(lines) != mostRules {
		t.Errorf("%d series, want %d", len(lines), mostRules)
	}
	for _, line := range lines {
		if n, err := strconv.Atoi(line[1]); err != nil || n < 2*mostRules {
			t.Errorf("%s is there, and others have more", line[0])
		}
	}
	if active[0].Buckets != 0 {
		t.Error("the reading was sorted, and it is not ours")
	}
}

// TestShadowOfManyRules: of many shadow rules those are shown that would have denied most, and one that was gone begins anew.
func TestShadowOfManyRules(t *testing.T) {
	tel := newTelemetry(t)
	var all []agent.ShadowDenied
	for i := range 3 * mostRules {
		all = append(all, agent.ShadowDenied{Domain: "d", Rule: fmt.Sprintf("r%04d", i), Denied: uint64(i)})
	}
	tel.Observe(func() Reading { return Reading{Agent: agent.Stats{Shadow: all}} })
	text := scrape(t, tel)
	if n := strings.Count(text, "\nspillgate_shadow_denied_total{"); n != mostRules || strings.Contains(text, `rule="r0000"`) {
		t.Errorf("%d series, want %d, of the largest", n, mostRules)
	}
	all = []agent.ShadowDenied{{Domain: "d", Rule: "r1499", Denied: 1}}
	if want := `spillgate_shadow_denied_total{domain="d",rule="r1499"} 1`; !strings.Contains(scrape(t, tel), want) {
		t.Errorf("no line %s", want)
	}
}

// TestCountersDoNotFall: a total that is some behind, or below 0, is no restart. Gauges follow.
func TestCountersDoNotFall(t *testing.T) {
	tel := newTelemetry(t)
	var r Reading
	tel.Observe(func() Reading { return r })
	below := uint64(3)
	for i, at := range []struct{ spent, want uint64 }{{-below, 0}, {20, 20}, {18, 20}, {0, 20}, {21, 21}} {
		s := &r.Agent.Leases
		s.Spent, s.Admitted, s.Held = at.spent, at.spent, limit.Tokens(10-i)
		r.Agent.Checks = []agent.Count{{Admitted: true, Reason: limit.OK, Checks: at.spent}}
		text := scrape(t, tel)
		for _, want := range []string{
			fmt.Sprintf(`spillgate_lease_tokens_total{kind="spent"} %d`, at.want),
			fmt.Sprintf(`spillgate_checks_local_total{outcome="admitted",source="lease"} %d`, at.want),
			fmt.Sprintf(`spillgate_checks_total{outcome="admitted",reason="ok"} %d`, at.want),
			`spillgate_lease_tokens_total{kind="granted"} 0`,
			fmt.Sprintf(`spillgate_lease_tokens_held %d`, 10-i),
		} {
			if !strings.Contains(text, "\n"+want+"\n") {
				t.Errorf("reading %d: no line %s", i, want)
			}
		}
	}
	tel.Observe(func() Reading { return Reading{} })
	if want := `spillgate_lease_tokens_total{kind="spent"} 0`; !strings.Contains(scrape(t, tel), want) {
		t.Errorf("another agent begins where the first one was, not with %s", want)
	}
}

// TestNames holds the scrape against names.go: every name with its kind and its help, its
// labels and no others, and nothing else of ours.
func TestNames(t *testing.T) {
	tel := newTelemetry(t)
	tel.OnCall(batcher.CallInfo{Entries: 1, Took: time.Millisecond})
	tel.Observe(full)
	text := scrape(t, tel)
	var known []string
	for _, m := range Metrics {
		known = append(known, m.Name)
		for _, line := range []string{"# TYPE " + m.Name + " " + string(m.Kind), "# HELP " + m.Name + " " + m.Help} {
			if !strings.Contains(text, line+"\n") {
				t.Errorf("no line %q", line)
			}
		}
		labels := regexp.MustCompile(`(?m)^` + m.Name + `(?:_bucket)?(?:\{([^}]*)\})? `).FindStringSubmatch(text)
		if labels == nil {
			t.Errorf("%s has no series", m.Name)
			continue
		}
		var names []string
		for _, l := range regexp.MustCompile(`(\w+)="`).FindAllStringSubmatch(labels[1], -1) {
			if l[1] != "le" {
				names = append(names, l[1])
			}
		}
		want := slices.Clone(m.Labels)
		slices.Sort(want)
		if !slices.Equal(names, want) {
			t.Errorf("%s has the labels %q, want %q", m.Name, names, want)
		}
	}
	for _, m := range regexp.MustCompile(`(?m)^# TYPE (\S+)`).FindAllStringSubmatch(text, -1) {
		name := m[1]
		if !slices.Contains(known, name) && !strings.HasPrefix(name, "go_") && !strings.HasPrefix(name, "process_") {
			t.Errorf("%s is not in names.go", name)
		}
	}
}

const (
	tableBegins = "<!-- table: go test ./telemetry -rewrite -->\n"
	tableEnds   = "<!-- end of table -->\n"
)

// TestDocs holds the table of docs/metrics.md against names.go.
func TestDocs(t *testing.T) {
	var b strings.Builder
	b.WriteString("| name | kind | labels | meaning |\n|---|---|---|---|\n")
	for _, m := range Metrics {
		labels := make([]string, len(m.Labels))
		for i, l := range m.Labels {
			labels[i] = "`" + l + "`"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", m.Name, m.Kind, strings.Join(labels, ", "), m.Help)
	}
	text, err := os.ReadFile(docsFile)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(text), tableBegins)
	table, after, closed := strings.Cut(rest, tableEnds)
	if !found || !closed {
		t.Fatalf("%s has no table between %q and %q", docsFile, tableBegins, tableEnds)
	}
	if table == b.String() {
		return
	}
	if !*rewrite {
		t.Fatalf("the table of %s is not that of names.go; go test ./telemetry -rewrite writes:\n%s", docsFile, &b)
	}
	if err := os.WriteFile(docsFile, []byte(before+tableBegins+b.String()+tableEnds+after), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestBuckets: the bounds rise and reach from 50 us to 1 s.
func TestBuckets(t *testing.T) {
	for _, m := range Metrics {
		if (m.Kind == Histogram) != (len(m.Buckets) > 0) || !slices.IsSorted(m.Buckets) {
			t.Errorf("%s, a %s, has the buckets %v", m.Name, m.Kind, m.Buckets)
		}
	}
	if first, last := secondBuckets[0], secondBuckets[len(secondBuckets)-1]; first != 50e-6 || last != 1 {
		t.Errorf("seconds reach from %v to %v", first, last)
	}
}

// TestBeforeObserveAndAfterShutdown: a scrape may come before the agent exists, and after the end.
func TestBeforeObserveAndAfterShutdown(t *testing.T) {
	tel := newTelemetry(t)
	if text := scrape(t, tel); strings.Contains(text, "spillgate_") {
		t.Errorf("values of an agent that is not there:\n%s", text)
	}
	tel.Observe(full)
	if err := tel.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	scrape(t, tel)
}

// TestSeriesDoNotGrowWithKeys: 10,000 keys in several rules make no series.
func TestSeriesDoNotGrowWithKeys(t *testing.T) {
	store, err := memstore.New(memstore.Config{})
	if err != nil {
		t.Fatal(err)
	}
	set, err := rules.Parse("r", []byte("domain: d\nrules:\n- {name: a, match: [{key: u}], limit: 1/h}\n- {name: b, match: [{key: v}], limit: 1/h}\n"))
	if err != nil {
		t.Fatal(err)
	}
	tel := newTelemetry(t)
	a, err := agent.New(agent.Config{Store: store, Rules: set, OnCall: tel.OnCall})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close(t.Context())
	tel.Observe(func() Reading {
		return Reading{Agent: a.Stats(), StoreUp: a.Ready(), Rules: a.Rules().Len(), Memstore: &Memstore{Cells: store.Cells()}}
	})
	series := func() int {
		return len(regexp.MustCompile(`(?m)^spillgate_`).FindAllString(scrape(t, tel), -1))
	}
	before := series()
	for i := range 10_000 {
		for _, key := range []string{"u", "v", "w"} {
			for range 2 {
				_, err := a.Check(t.Context(), agent.Request{Domain: "d", Hits: 1,
					Descriptors: []rules.Descriptor{{{Key: key, Value: strconv.Itoa(i)}}}})
				if err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	if after := series(); after != before {
		t.Errorf("%d series before, %d after", before, after)
	}
	text := scrape(t, tel)
	for _, want := range []string{`reason="ok"} 20000`, `reason="over_limit"} 20000`, `reason="no_rule"} 20000`, "memstore_cells 20000"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
}

func TestOnCallAllocatesNothing(t *testing.T) {
	tel := newTelemetry(t)
	if n := testing.AllocsPerRun(1000, func() { tel.OnCall(batcher.CallInfo{Entries: 5, Took: time.Millisecond}) }); n > 0 {
		t.Errorf("%v allocations per call", n)
	}
}

func BenchmarkOnCall(b *testing.B) {
	tel, err := New(Config{})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		tel.OnCall(batcher.CallInfo{Entries: 5, Took: time.Millisecond})
	}
}
