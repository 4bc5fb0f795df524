package viral

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

// sampleReport has two rounds, of which one was spread.
func sampleReport() *Report {
	second := time.Second
	run := func(splitting string, round int, perSecond, a, b float64) *RunReport {
		return &RunReport{Splitting: splitting, Round: round, Length: 5 * second, Checks: 1000, Admitted: 1000, PerSecond: perSecond,
			Masters: []MasterReport{{Addr: "h:1", Calls: a, CPU: 0.5}, {Addr: "h:2", Calls: b, CPU: 0.25}}, CallsRatio: busiestOverMean([]float64{a, b})}
	}
	split := run("on", 1, 4000, 300, 300)
	split.SpreadAfter, split.WholeAfter, split.Ways, split.Knew, split.Parts = &second, &second, 2, 8, []float64{0.5, 0.5}
	return &Report{Agents: 8, Connections: 2, Settle: 2 * second, Duration: 5 * second, Rounds: 2, Limit: 10, Masters: []string{"h:1", "h:2"},
		Runs: []*RunReport{run("off", 1, 1000, 600, 0), split, run("on", 2, 2000, 500, 100), run("off", 2, 3000, 600, 0)}}
}

func TestPrint(t *testing.T) {
	r := sampleReport()
	r.Runs[2].Policy, r.Runs[2].Denied, r.Runs[2].Lag = 5, 105, 0.25
	var b strings.Builder
	if err := r.Print(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"8 agents x 2 connections, closed loop\n",
		"                                       splitting off  splitting on\n",
		"checks/s                                        2000          3000\n",
		"h:1 calls/s                                      600           400\n",
		"h:2 CPU, of a core                              25 %          25 %\n",
		"calls, busiest/mean                             2.00          1.33\n",
		"from the load's begin until spread                 -         1.0 s\n",
		"from its end until whole                           -         1.0 s\n",
		"note: round 1, splitting on: 2 parts, known to 8 of 8 agents, had 50/50 % of the entries\n",
		"note: round 2, splitting on: 0.5 % of the checks were answered without the store\n",
		"note: round 2, splitting on: 10.5 % of the checks were denied",
		"note: round 2, splitting on: 25.0 % of the checks that were due were not made",
		"note: round 2, splitting on: the bucket was not divided",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, &b)
		}
	}
	if strings.Contains(b.String(), "splitting off: ") || strings.Contains(b.String(), "share this machine") {
		t.Errorf("needless notes in\n%s", &b)
	}
	if narrow(b.String()) != "" {
		t.Errorf("over 80 columns: %s", narrow(b.String()))
	}
}

// narrow is the first line of the table that does not fit a screen.
func narrow(text string) string {
	for l := range strings.Lines(text) {
		if len(l) > 81 && !strings.HasPrefix(l, "note: ") {
			return l
		}
	}
	return ""
}

func TestNotesOfASplit(t *testing.T) {
	notes := func(change func(*RunReport)) string {
		r := sampleReport()
		r.Runs = r.Runs[1:2]
		change(r.Runs[0])
		return strings.Join(r.notes(), "\n")
	}
	for want, change := range map[string]func(*RunReport){
		"was not spread over the masters": func(r *RunReport) { r.SpreadAfter = nil },
		"raise --settle":                  func(r *RunReport) { *r.SpreadAfter = 3 * time.Second },
		"still knew of the split":         func(r *RunReport) { r.WholeAfter = nil },
		"no check was answered":           func(r *RunReport) { r.Checks = 0 },
		"was not divided":                 func(r *RunReport) { r.Ways = 0 },
		"but whole again before":          func(r *RunReport) { r.Ways, r.Slices = 0, []SliceReport{{Knew: 1}, {}} },
	} {
		if got := notes(change); !strings.Contains(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestMedian(t *testing.T) {
	for _, tt := range []struct {
		values []float64
		want   float64
	}{{[]float64{3}, 3}, {[]float64{9, 1, 2}, 2}, {[]float64{4, 1, 2, 100}, 3}} {
		if got := median(tt.values); got != tt.want {
			t.Errorf("%v: %v, want %v", tt.values, got, tt.want)
		}
	}
}

// TestWrite: what --json writes holds everything.
func TestWrite(t *testing.T) {
	file := filepath.Join(t.TempDir(), "out.json")
	want := sampleReport()
	if err := want.Write(file); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	got := new(Report)
	if err := json.Unmarshal(text, got); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s", text)
	}
	if !strings.Contains(string(text), `"spread_after_ns": null`) {
		t.Error("what was not measured is not null")
	}
}
