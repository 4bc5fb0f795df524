package viral

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spillgate/spillgate/agent/split"
)

func near(a, b float64) bool { return math.Abs(a-b) < 1e-9 }

func TestBusiestOverMean(t *testing.T) {
	for _, tt := range []struct {
		values []float64
		want   float64
	}{
		{[]float64{5, 5, 5}, 1},
		{[]float64{0, 9, 0}, 3},
		{[]float64{1, 2, 3}, 1.5},
		{[]float64{0, 0}, 0},
		{[]float64{4}, 1},
	} {
		if got := busiestOverMean(tt.values); !near(got, tt.want) {
			t.Errorf("%v: %v, want %v", tt.values, got, tt.want)
		}
	}
}

func (m MasterReport) is(addr string, calls, cpu float64) bool {
	return m.Addr == addr && near(m.Calls, calls) && near(m.CPU, cpu) && near(m.Micros, 20)
}

// timeline makes samples, one every 100 ms, of two masters and ten checks for each call. A step is the calls of the
// masters since the sample before; a master is busy 1 ms for each call.
func timeline(steps ...[2]uint64) []sample {
	all := []sample{{masters: make([]reading, 2)}}
	for i, step := range steps {
		before, at := all[i], time.Duration(i+1)*slice
		s := sample{at: at, counts: before.counts}
		for m, calls := range step {
			r := before.masters[m]
			s.masters = append(s.masters, reading{at, scripts{r.calls + calls, r.micros + 20*calls}, r.cpu + time.Duration(calls)*time.Millisecond})
			s.counts.Admitted += 10 * calls
		}
		all = append(all, s)
	}
	return all
}

func TestMeasure(t *testing.T) {
	samples := timeline([2]uint64{90, 0}, [2]uint64{90, 0}, [2]uint64{60, 30}, [2]uint64{30, 30})
	samples[4].counts.Denied += 100
	samples[4].counts.Policy += 7
	samples[3].knew = 2
	r := measure(samples, 2*slice, []string{"a", "b"})
	switch {
	case r.Length != 2*slice || r.Checks != 1600 || r.Admitted != 1500 || r.Denied != 100 || r.Policy != 7:
		t.Errorf("%+v: not the counts of the last two slices", r)
	case !near(r.PerSecond, 8000):
		t.Errorf("%v checks/s, want 8000", r.PerSecond)
	case len(r.Masters) != 2 || !r.Masters[0].is("a", 450, 0.45) || !r.Masters[1].is("b", 300, 0.3):
		t.Errorf("masters %+v", r.Masters)
	case !near(r.CallsRatio, 1.2) || !near(r.CPURatio, 1.2):
		t.Errorf("busiest/mean %v of calls and %v of CPU, want 1.2", r.CallsRatio, r.CPURatio)
	case !near(r.Micros, 20):
		t.Errorf("%v us per call, want 20", r.Micros)
	case !near(r.Busiest, 56.25) || !near(r.All, 93.75):
		t.Errorf("%v and %v calls per 1,000 checks, want 56.25 and 93.75", r.Busiest, r.All)
	case r.SpreadAfter == nil || *r.SpreadAfter != 4*slice:
		t.Errorf("spread after %v, want the end of the fourth slice", r.SpreadAfter)
	case !r.everDivided() || r.Slices[2].Knew != 2 || r.Slices[3].Knew != 0:
		t.Errorf("slices %+v; want that two agents knew of a split in the third", r.Slices)
	case len(r.Slices) != 4 || r.Slices[2].Checks != 900 || !slices.Equal(r.Slices[2].Calls, []uint64{60, 30}) || r.Slices[2].At != 3*slice:
		t.Errorf("slices %+v", r.Slices)
	}
}

// TestMeasureReset: a server that was restarted, and counts from zero, gives no absurd rate.
func TestMeasureReset(t *testing.T) {
	samples := timeline([2]uint64{50, 50}, [2]uint64{50, 50})
	samples[2].masters[1].scripts = scripts{10, 200}
	if r := measure(samples, 0, []string{"a", "b"}); !r.Masters[1].is("b", 50, 0.5) {
		t.Errorf("%+v, want the 10 calls since the restart, in 200 ms", r.Masters[1])
	}
}

// TestMeasureIdle: nothing is divided by nothing.
func TestMeasureIdle(t *testing.T) {
	r := measure(timeline([2]uint64{}, [2]uint64{}), slice, []string{"a", "b"})
	if r.Checks != 0 || r.Length != slice || r.CallsRatio != 0 || r.Busiest != 0 || r.SpreadAfter != nil {
		t.Errorf("%+v", r)
	}
}

func TestSpreadAfter(t *testing.T) {
	for _, tt := range []struct {
		name  string
		steps [][2]uint64
		want  int // slices; 0 for never
	}{
		{"never", [][2]uint64{{100, 0}, {100, 1}, {100, 60 - 1}}, 0},
		{"at the bound", [][2]uint64{{100, 0}, {100, 60}}, 2},
		{"at once", [][2]uint64{{50, 50}, {100, 0}}, 1},
		{"the other one busy", [][2]uint64{{100, 0}, {10, 90}, {45, 55}}, 3},
		// Five calls to each would be even, but say nothing; with the next slice they are.
		{"few calls", [][2]uint64{{5, 5}, {100, 0}, {10, 10}, {15, 15}}, 4},
	} {
		got := spreadAfter(timeline(tt.steps...))
		if tt.want == 0 && got != nil || tt.want > 0 && (got == nil || *got != time.Duration(tt.want)*slice) {
			t.Errorf("%s: %v, want the end of slice %d", tt.name, got, tt.want)
		}
	}
}

func TestDivided(t *testing.T) {
	now := time.Now()
	info := func(since time.Time, ops ...uint64) split.Info {
		i := split.Info{Ways: len(ops), Since: since}
		for _, n := range ops {
			i.Parts = append(i.Parts, split.PartInfo{Ops: n})
		}
		return i
	}
	var r RunReport
	r.divided([]split.Info{info(now, 30, 10, 0), info(now.Add(-time.Second), 0, 50), info(now, 0, 0, 10)})
	if r.Ways != 3 || r.Knew != 3 || shares(r.Parts) != "30/60/10 %" {
		t.Errorf("%+v", r)
	}
	r = RunReport{}
	if r.divided(nil); r.Ways != 0 || r.Knew != 0 || len(r.Parts) != 0 {
		t.Errorf("of no split: %+v", r)
	}
}

func TestInfo(t *testing.T) {
	const commands = "# Commandstats\r\ncmdstat_eval:calls=2,usec=9,usec_per_call=4.50,rejected_calls=0,failed_calls=0\r\n" +
		"cmdstat_evalsha_ro:calls=100,usec=1\r\ncmdstat_evalsha:calls=40,usec=1,usec_per_call=0.03\r\n"
	if s, err := scriptsRun(commands); s != (scripts{42, 10}) || err != nil {
		t.Errorf("%+v, %v; want 42 calls in 10 us", s, err)
	}
	if s, err := scriptsRun("# Commandstats\r\n"); s != (scripts{}) || err != nil {
		t.Errorf("%+v, %v; want nothing of a server that ran no script", s, err)
	}
	for _, bad := range []string{"cmdstat_eval:calls=x,usec=1\r\n", "cmdstat_evalsha:calls=1\r\n"} {
		if _, err := scriptsRun(bad); err == nil {
			t.Errorf("%q was read", bad)
		}
	}
	const cpu = "# CPU\r\nused_cpu_sys:1.250000\r\nused_cpu_user:2.500000\r\nused_cpu_sys_children:7.000000\r\n"
	if d, err := cpuUsed(cpu); d != 3750*time.Millisecond || err != nil {
		t.Errorf("%v, %v; want 3.75s", d, err)
	}
	for _, bad := range []string{"", strings.Replace(cpu, "2.5", "x", 1), "used_cpu_sys:1\r\n"} {
		if _, err := cpuUsed(bad); err == nil {
			t.Errorf("CPU times were read from %q", bad)
		}
	}
}
