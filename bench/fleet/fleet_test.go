package main

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spillgate/spillgate/limit"
)

// runProgram runs the program as main does and returns what it printed and wrote.
func runProgram(t *testing.T, args ...string) (string, *report) {
	t.Helper()
	file, out := filepath.Join(t.TempDir(), "out.json"), new(bytes.Buffer)
	args = append(args, "-agents", "3", "-warmup", "200ms", "-rounds", "1", "-json", file)
	if err := run(t.Context(), args, out); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	rep := new(report)
	if err := json.Unmarshal(text, rep); err != nil {
		t.Fatal(err)
	}
	return out.String(), rep
}

// TestNumbersAddUp: what the load made, what the agents counted and what was due agree.
func TestNumbersAddUp(t *testing.T) {
	out, rep := runProgram(t, "-scenario", "zipf", "-rate", "2000", "-keys", "1000", "-length", "1s")
	if len(rep.Results) != 1 || len(rep.Results[0].Samples) != len(modes) {
		t.Fatalf("want one workload with a run for each mode:\n%s", out)
	}
	for i, s := range rep.Results[0].Samples {
		switch {
		case s.Mode != modes[i]:
			t.Errorf("run %d is of mode %q", i, s.Mode)
		case s.Checks != s.Admitted+s.Denied:
			t.Errorf("%+v: checks are not admitted + denied", s)
		case s.Due != 2400 || s.Made+s.Unmade != 2400:
			t.Errorf("%+v: made and lost are not the 2400 checks that were due", s)
		case s.Checks == 0 || s.Checks > s.Made:
			t.Errorf("%+v: more checks were measured than made, or none", s)
		case s.Made != s.AgentChecks:
			t.Errorf("%+v: the agents counted other checks than were made", s)
		case s.Denied > s.Policy:
			t.Errorf("%+v: denied under a limit that nobody reaches", s)
		case s.Calls > s.Entries || s.Mode == "exact" && (s.Calls == 0 || s.Entries > s.Claims):
			t.Errorf("%+v: calls carry entries, and these claims", s)
		case s.Mode == "exact" && s.RedisCPU <= 0 || s.AgentCPU <= 0 || s.P50 <= 0 || s.P50 > s.P99:
			t.Errorf("%+v: no CPU time or no latency", s)
		}
	}
	for _, want := range []string{"| exact ", "| leased ", "| leased/exact ", "Redis CPU"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
}

// TestSaturatedBucket: the recorded admissions are all there, and never over the bound.
func TestSaturatedBucket(t *testing.T) {
	out, rep := runProgram(t, "-scenario", "saturated", "-buckets", "20:100", "-length", "500ms")
	for _, s := range rep.Results[0].Samples {
		sat := s.Saturated
		switch {
		case sat == nil:
			t.Fatalf("no account of the tokens:\n%s", out)
		case sat.Over:
			t.Errorf("mode %s: %v tokens over the bound", s.Mode, sat.Excess)
		case sat.AtReturn < sat.Excess:
			t.Errorf("mode %s: the excess at return, %v, is less than the certain one, %v", s.Mode, sat.AtReturn, sat.Excess)
		case s.Denied == 0 || sat.WithBurst <= 0 || sat.Most < 1 || sat.Least > 1:
			t.Errorf("mode %s: %+v", s.Mode, sat)
		}
	}
}

// TestLedger: for checks that take no time, all windows say what the reference bucket says.
func TestLedger(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		b := bucketOf{Burst: limit.Tokens(1 + r.IntN(5)), Rate: limit.Tokens(1 + r.IntN(2000))}
		all := make([]admission, 1+r.IntN(40))
		for i := range all {
			at := time.Duration(r.IntN(50)) * time.Millisecond
			all[i] = admission{at, at, 0}
		}
		window, booked := worstWindow(b, all).Over+float64(b.Rate)*slack.Seconds(), overdraft(b, all)
		if math.Abs(window-booked) > 1e-6 {
			t.Fatalf("%+v, %v: %v by windows, %v by the bucket", b, all, window, booked)
		}
		for i := range all {
			all[i].call -= min(all[i].call, 5*time.Millisecond)
		}
		if got := worstWindow(b, all).Over; got > booked {
			t.Fatalf("%+v, %v: %v by windows that allow for the checks' time, %v by the bucket", b, all, got, booked)
		}
	}
}

func TestHistogram(t *testing.T) {
	var h histogram
	if h.quantile(0.5) != 0 {
		t.Error("an empty histogram has a median")
	}
	var all []time.Duration
	r := rand.New(rand.NewPCG(3, 4))
	for range 10_000 {
		d := time.Duration(math.Exp(25 * r.Float64()))
		all = append(all, d)
		h.add(d)
	}
	h.add(math.MaxInt64)
	slices.Sort(all)
	for _, q := range []float64{0, 0.1, 0.5, 0.99} {
		got, want := h.quantile(q), all[int(q*float64(len(all)))]
		if got < want || float64(got) > 1.04*float64(want)+1 {
			t.Errorf("quantile %v: got %v, want %v", q, got, want)
		}
	}
}

func TestDraws(t *testing.T) {
	const keys, n = 1000, 100_000
	for name, d := range map[string]draw{"zipf": zipf(keys, 1), "uniform": uniform(keys, 1)} {
		counts, stream := make([]int, keys), d(0, n)
		for _, k := range stream {
			counts[k]++
		}
		if !slices.Equal(stream, d(0, n)) || slices.Equal(stream, d(1, n)) {
			t.Errorf("%s: want the same keys in the same round and others in the next", name)
		}
		want := 1.0 // of key 0 to key 9
		if name == "zipf" {
			want = 10
		}
		if got := float64(counts[0]) / float64(counts[9]); got < 0.7*want || got > 1.4*want {
			t.Errorf("%s: key 0 comes %.2f times as often as key 9", name, got)
		}
	}
	if got := replay([]uint32{7, 8, 9})(1, 4); !slices.Equal(got, []uint32{8, 9, 7, 8}) {
		t.Errorf("replay: got %v", got)
	}
}

func TestReadTrace(t *testing.T) {
	file := filepath.Join(t.TempDir(), "ids")
	for _, tt := range []struct {
		raw  []byte
		want []uint32
	}{
		{binary.LittleEndian.AppendUint32([]byte{1, 0, 0, 0}, 70_000), []uint32{1, 70_000}},
		{[]byte{1, 0, 0}, nil},
		{nil, nil},
	} {
		if err := os.WriteFile(file, tt.raw, 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := readTrace(file)
		if !slices.Equal(got, tt.want) || (err == nil) != (tt.want != nil) {
			t.Errorf("%v: got %v, %v", tt.raw, got, err)
		}
	}
}

func TestMistakes(t *testing.T) {
	for _, args := range []string{"-scenario nonsense", "-scenario trace", "-scenario trace -trace missing.xz", "-agents 0", "-rate 0",
		"-length 0s", "extra", "-scenario saturated -buckets 10", "-scenario saturated -buckets 0:5"} {
		if err := run(t.Context(), strings.Fields(args), new(bytes.Buffer)); err == nil {
			t.Errorf("%s: no error", args)
		}
	}
}
