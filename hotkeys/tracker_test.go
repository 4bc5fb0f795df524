package hotkeys

import (
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/spillgate/spillgate/limit"
)

const second = int64(time.Second)

func newTracker(t rapid.TB, c Config) *Tracker {
	t.Helper()
	tr, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

func TestConfig(t *testing.T) {
	for _, tt := range []struct {
		c    Config
		want string // part of the error, empty for none
	}{
		{Config{}, ""},
		{Config{Top: 1, MinRate: 0.001, HalfLife: time.Hour, Seed: 1<<64 - 1}, ""},
		{Config{Top: -1}, "Top"},
		{Config{Top: MaxTop + 1}, "Top"},
		{Config{MinRate: -1}, "MinRate"},
		{Config{MinRate: math.NaN()}, "MinRate"},
		{Config{MinRate: math.Inf(1)}, "MinRate"},
		{Config{HalfLife: time.Microsecond}, "HalfLife"},
		{Config{HalfLife: 2 * time.Hour}, "HalfLife"},
	} {
		_, err := New(tt.c)
		switch {
		case tt.want == "" && err != nil:
			t.Errorf("%+v: %v", tt.c, err)
		case tt.want != "" && (!errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), tt.want)):
			t.Errorf("%+v: got %v, want an ErrConfig that names %s", tt.c, err, tt.want)
		}
	}
	if Hot.String() != "hot" || Cold.String() != "cold" {
		t.Errorf("classes are %v and %v", Hot, Cold)
	}
}

// TestAgainstExact holds the tracker to the exact map, in smaller streams than those of
// docs/adr/0007-hot-keys.md.
func TestAgainstExact(t *testing.T) {
	const keys, n = 100_000, 60_000
	for _, s := range []stream{
		zipfStream("zipf0.8", 0.8, keys, n, 33_000),
		zipfStream("zipf1.0", 1.0, keys, n, 33_000),
		zipfStream("zipf1.2", 1.2, keys, n, 33_000),
		flashCrowd(keys, n, 33_000),
		drift(keys, n, 33_000),
		flood(n, 33_000),
	} {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			got := judge(s, newPlain(1e9, true), 1e9, 2)
			t.Logf("%+v", got)
			if got.recall < 0.99 || got.precision < 0.95 || got.off > 0.01 {
				t.Errorf("%+v, want recall of 0.99, precision of 0.95, rates off by 0.01 at the most", got)
			}
		})
	}
}

// TestRateOfSteadyKeys holds rates to what they are by definition.
func TestRateOfSteadyKeys(t *testing.T) {
	for _, rate := range []float64{20, 1000, 10_000} {
		tr := newTracker(t, Config{})
		key, now := sumOf(1), int64(0)
		for now < 10*second {
			now += int64(1e9 / rate)
			tr.Touch(now, key, 1)
		}
		if got, class := tr.Rate(now, key); math.Abs(got/rate-1) > 0.02 || class != Hot {
			t.Errorf("%v touches/s: rate %v, %v", rate, got, class)
		}
		if got, _ := tr.Rate(now+3*second, key); math.Abs(got/rate*8-1) > 0.02 {
			t.Errorf("%v touches/s: three half-lives later %v, want an eighth", rate, got)
		}
		if got, class := tr.Rate(now, sumOf(2)); got != 0 || class != Cold {
			t.Errorf("unknown key: %v, %v", got, class)
		}
	}
}

// TestLowerBound: whatever comes, Rate - Error of a key is no more than the exact rate, and
// no more than Top keys are hot.
func TestLowerBound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tr := newTracker(t, Config{Top: 2, MinRate: 2, Seed: rapid.Uint64().Draw(t, "seed")})
		now := rapid.Int64Range(-1e18, 1e18).Draw(t, "origin")
		truth := &exact{1e9, map[limit.Sum]decayed{}}
		for range rapid.IntRange(1, 40).Draw(t, "touches") {
			now += rapid.OneOf(rapid.Int64Range(0, 1e7), rapid.Int64Range(0, 40e9)).Draw(t, "gap")
			// All keys lie in one set, which is the hardest case.
			key := limit.Sum{Hi: rapid.Uint64Range(0, 20).Draw(t, "key"), Lo: 77}
			w := rapid.Uint32Range(0, 1000).Draw(t, "weight")
			tr.Touch(now, key, w)
			truth.touch(now, key, w)
			hot := 0
			for _, h := range tr.Top(now, 100) {
				if want := truth.rate(now, h.Key); h.Rate-h.Error > want*1.001+1e-3*h.Rate {
					t.Fatalf("%v: at least %v, but exactly %v", h.Key, h.Rate-h.Error, want)
				}
				hot += int(h.Class)
			}
			if hot != tr.Hot() || hot > 2 {
				t.Fatalf("%d keys are hot, counted %d, Top is 2", hot, tr.Hot())
			}
		}
	})
}

func TestWeightEqualsRepetition(t *testing.T) {
	one, bulk := newTracker(t, Config{}), newTracker(t, Config{})
	rng := rand.New(rand.NewPCG(5, 5))
	for now := int64(0); now < 5*second; now += 1e7 {
		key, w := sumOf(rng.Uint64N(200)), uint32(rng.IntN(500)+1)
		for range w {
			one.Touch(now, key, 1)
		}
		bulk.Touch(now, key, w)
	}
	now := 5 * second
	for i := range uint64(200) {
		r1, c1 := one.Rate(now, sumOf(i))
		r2, c2 := bulk.Rate(now, sumOf(i))
		if math.Abs(r1-r2) > 1e-6*r1 || c1 != c2 {
			t.Errorf("key %d: %v %v by ones, %v %v in bulk", i, r1, c1, r2, c2)
		}
	}
}

// TestWeightBuysAdmission: in a full set a bulk touch finds room as often as its repetition does.
func TestWeightBuysAdmission(t *testing.T) {
	admitted := func(weight, times int) (n int) {
		for seed := range uint64(200) {
			tr := newTracker(t, Config{Top: 1, Seed: seed})
			for i := range uint64(ways) {
				tr.Touch(0, limit.Sum{Hi: i + 1}, 100)
			}
			for range times {
				tr.Touch(0, limit.Sum{Hi: 99}, uint32(weight))
			}
			if rate, _ := tr.Rate(0, limit.Sum{Hi: 99}); rate > 0 {
				n++
			}
		}
		return n
	}
	for _, w := range []int{1, 10, 100} {
		once, ones := admitted(w, 1), admitted(1, w)
		// By the formulas w/(100+w) and 1-(100/101)^w: 2 and 2, 18 and 19, 100 and 126 of 200.
		if want := 200 * w / (100 + w); once < want/2 || once > want*3/2+3 || ones < want/2 || ones > want*3/2+3 {
			t.Errorf("weight %d: admitted %d of 200 times, by ones %d, want about %d", w, once, ones, want)
		}
	}
}

// TestNewcomerIsCold: a key is not hot by the sum that it took over.
func TestNewcomerIsCold(t *testing.T) {
	tr := newTracker(t, Config{Top: 100, MinRate: 5})
	for i := range uint64(ways) {
		tr.Touch(0, limit.Sum{Hi: i + 1}, 100)
	}
	key, own := limit.Sum{Hi: 99}, 0
	for own < 7 { // 5/s is a sum of 7.2
		class := tr.Touch(0, key, 1)
		if rate, _ := tr.Rate(0, key); rate > 0 {
			own++
		}
		if class != Cold {
			t.Fatalf("hot by %d touches of its own", own)
		}
	}
	if tr.Touch(0, key, 1) != Hot {
		t.Errorf("cold after %d touches of its own", own+1)
	}
}

// TestHysteresis: a steady key changes class once at most, at whatever rate around the thresholds.
func TestHysteresis(t *testing.T) {
	for rate := 2.0; rate < 7; rate += 0.2 {
		tr := newTracker(t, Config{MinRate: 5})
		changes, last := 0, Cold
		for now := int64(0); now < 60*second; now += int64(1e9 / rate) {
			// Looked at just before the touch, when the rate is lowest, and after it.
			_, before := tr.Rate(now, sumOf(1))
			for _, c := range []Class{before, tr.Touch(now, sumOf(1), 1)} {
				if c != last {
					changes++
					last = c
				}
			}
		}
		if changes > 1 {
			t.Errorf("%.2f/s: class changed %d times", rate, changes)
		}
		if (rate > 5.1 && last != Hot) || (rate < 4 && last != Cold) {
			t.Errorf("%.2f/s: %v", rate, last)
		}
	}
}

// TestColdHotCold is the life of a viral key.
func TestColdHotCold(t *testing.T) {
	tr := newTracker(t, Config{MinRate: 5})
	key, now := sumOf(1), int64(0)
	if c := tr.Touch(now, key, 1); c != Cold {
		t.Errorf("first touch: %v", c)
	}
	touches := 1
	for ; tr.Touch(now, key, 1) == Cold; touches++ {
		now += 50_000 // 20,000/s
	}
	if touches > 9 { // 5/s is a sum of 7.2
		t.Errorf("hot after %d touches, want 8", touches)
	}
	for ; now < 20*second; now += 50_000 {
		if tr.Touch(now, key, 1) != Hot {
			t.Fatalf("cold at %d", now)
		}
	}
	cooled := int64(0)
	for i := range int64(40) { // 1/s
		now += second
		if c := tr.Touch(now, key, 1); c == Cold && cooled == 0 {
			cooled = i
		} else if c == Hot && cooled != 0 {
			t.Fatalf("hot again after %d s", i)
		}
	}
	if cooled < 5 || cooled > 15 { // log2(20000/1.5) is 13.7
		t.Errorf("cold after %d s", cooled)
	}
}

// TestSilenceCools: keys that never come again do not stay hot.
func TestSilenceCools(t *testing.T) {
	tr := newTracker(t, Config{Top: 100})
	for i := range uint64(100) {
		tr.Touch(0, sumOf(i), 1000)
	}
	if tr.Hot() != 100 {
		t.Fatalf("%d of 100 keys are hot", tr.Hot())
	}
	tr.Top(20*second, 1) // a review, 1000 * 2^-20 later
	if tr.Hot() != 0 {
		t.Errorf("%d keys are hot after a silence", tr.Hot())
	}
}

// TestPushedOut: with more keys at MinRate than Top, the strongest are hot.
func TestPushedOut(t *testing.T) {
	tr := newTracker(t, Config{Top: 50})
	busy := func(from, ids uint64, weight uint32, start, end int64) {
		for now := start; now < end; now += second / 20 {
			for id := from; id < from+ids; id++ {
				tr.Touch(now, sumOf(id), weight)
			}
			if tr.Hot() > 50 {
				t.Fatalf("%d keys are hot, Top is 50", tr.Hot())
			}
		}
	}
	hot := func(from, ids uint64, now int64) (n int) {
		for id := from; id < from+ids; id++ {
			_, c := tr.Rate(now, sumOf(id))
			n += int(c)
		}
		return n
	}
	busy(0, 50, 1, 0, 5*second)
	if n := hot(0, 50, 5*second); n != 50 {
		t.Errorf("%d of 50 keys of 20/s are hot", n)
	}
	for now := 5 * second; now < 15*second; now += second / 20 {
		busy(0, 50, 1, now, now+1)
		busy(1000, 50, 10, now, now+1)
	}
	if strong, weak := hot(1000, 50, 15*second), hot(0, 50, 15*second); strong != 50 || weak != 0 {
		t.Errorf("hot: %d of 50 strong keys and %d weak ones", strong, weak)
	}
}

func TestTime(t *testing.T) {
	for _, origin := range []int64{0, -second * 1e6, 1 << 61, -1 << 61} {
		tr := newTracker(t, Config{})
		key := sumOf(1)
		tr.Touch(origin, key, 1000)
		want, _ := tr.Rate(origin, key)
		for i := range int64(1000) { // backwards, by little and by much
			if got, class := tr.Rate(origin-i*i*1000, key); got != want || class != Hot {
				t.Fatalf("origin %d: rate %v in the past, was %v", origin, got, want)
			}
		}
		tr.Touch(origin-second, key, 1000)
		if got, _ := tr.Rate(origin, key); math.Abs(got/want-2) > 1e-9 {
			t.Errorf("origin %d: a touch in the past counted %v of one", origin, got/want-1)
		}
		// Over many landmarks and over a long silence.
		for i := range int64(2500) {
			now := origin + i*second
			tr.Touch(now, key, 1000)
		}
		// 1000 touches at once every half-life: a sum of 2000.
		if got, _ := tr.Rate(origin+2499*second, key); math.Abs(got/(2000*math.Ln2)-1) > 0.001 {
			t.Errorf("origin %d: rate %v, want %v", origin, got, 2000*math.Ln2)
		}
		if got, class := tr.Rate(origin+1e8*second, key); got != 0 || class != Cold || tr.Hot() != 0 {
			t.Errorf("origin %d: after three years of silence %v, %v, %d hot", origin, got, class, tr.Hot())
		}
		if class := tr.Touch(origin+1e8*second, key, 1000); class != Hot {
			t.Errorf("origin %d: not hot after the silence", origin)
		}
	}
}

// TestFlood is fault 21 of the field in small; the ADR has it at full size.
func TestFlood(t *testing.T) {
	tr := newTracker(t, Config{})
	s := flood(200_000, 6000) // 10 M keys a minute
	for i, id := range s.ids {
		tr.Touch(int64(i)*s.every, sumOf(id), 1)
	}
	now := int64(len(s.ids)) * s.every
	for i, h := range tr.Top(now, 20) {
		if h.Class != Hot {
			t.Errorf("place %d of the top: %+v", i, h)
		}
	}
	for id := range uint64(20) {
		if rate, class := tr.Rate(now, sumOf(id)); class != Hot || rate < 180 || rate > 300 {
			t.Errorf("key %d of 417 touches/s, for 1.2 half-lives: rate %v, %v", id, rate, class)
		}
	}
	if tr.Hot() != 20 {
		t.Errorf("%d keys are hot, want 20: the keys of a flood come once", tr.Hot())
	}
}

func TestTop(t *testing.T) {
	tr := newTracker(t, Config{})
	if got := tr.Top(0, 10); len(got) != 0 {
		t.Errorf("of nothing: %v", got)
	}
	for i := range uint64(300) {
		tr.Touch(0, sumOf(i), uint32(i+1))
	}
	for _, n := range []int{0, 1, 10, 1000} {
		got := tr.Top(0, n)
		if len(got) != min(n, 300) {
			t.Errorf("Top(%d) has %d keys", n, len(got))
		}
		for i, h := range got {
			if h.Key != sumOf(uint64(299-i)) || h.Error != 0 || math.Abs(h.Rate-float64(300-i)*math.Ln2) > 1e-9 {
				t.Errorf("Top(%d)[%d] = %+v", n, i, h)
			}
		}
	}
	if got := tr.Top(0, -1); len(got) != 0 {
		t.Errorf("Top(-1) has %d keys", len(got))
	}
}

func TestOneSeedOneOutcome(t *testing.T) {
	s := zipfStream("", 1, 50_000, 50_000, 33_000)
	run := func(seed uint64) []Heavy {
		tr := newTracker(t, Config{Top: 50, Seed: seed})
		for i, id := range s.ids {
			tr.Touch(int64(i)*s.every, sumOf(id), 1)
		}
		return tr.Top(int64(len(s.ids))*s.every, 1<<20)
	}
	same := func(a, b []Heavy) bool {
		for i := range min(len(a), len(b)) {
			if a[i] != b[i] {
				return false
			}
		}
		return len(a) == len(b)
	}
	if !same(run(1), run(1)) {
		t.Error("one seed, two outcomes")
	}
	if same(run(1), run(2)) {
		t.Error("the seed changes nothing")
	}
}

// TestTwinKeys: keys that share half of their bits are different keys.
func TestTwinKeys(t *testing.T) {
	tr := newTracker(t, Config{})
	a, b, c := limit.Sum{Hi: 1, Lo: 64}, limit.Sum{Hi: 2, Lo: 64}, limit.Sum{Hi: 1, Lo: 128}
	for i, key := range []limit.Sum{a, b, c, {}} {
		tr.Touch(0, key, uint32(i+1))
	}
	for i, key := range []limit.Sum{a, b, c, {}} {
		if got, _ := tr.Rate(0, key); math.Abs(got/math.Ln2-float64(i+1)) > 1e-9 {
			t.Errorf("%v: sum %v, want %d", key, got/math.Ln2, i+1)
		}
	}
}

func TestConcurrent(t *testing.T) {
	tr := newTracker(t, Config{Top: 64})
	const workers, n = 4, 20_000
	var all sync.WaitGroup
	for w := range workers {
		all.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(w), 1))
			for i := range n {
				now := int64(i)*50_000 + rng.Int64N(1_000_000)
				tr.Touch(now, sumOf(rng.Uint64N(1+rng.Uint64N(1000))), 1)
				if i%100 == 0 {
					tr.Rate(now, sumOf(rng.Uint64N(100)))
				}
				if i%2000 == 0 {
					tr.Top(now, 10)
				}
				if hot := tr.Hot(); hot < 0 || hot > 64+workers {
					t.Errorf("%d hot", hot)
				}
			}
		})
	}
	all.Wait()
	hot := 0
	for _, h := range tr.Top(second, 1<<20) {
		hot += int(h.Class)
	}
	if hot != tr.Hot() || hot == 0 || hot > 64 {
		t.Errorf("%d keys are hot, counted %d", hot, tr.Hot())
	}
}

// TestLost: what meets another core is lost and counted, and never waits.
func TestLost(t *testing.T) {
	tr := newTracker(t, Config{})
	key := sumOf(1)
	s := &tr.shards[key.Lo%shards]
	s.mu.Lock()
	class := tr.Touch(0, key, 500)
	s.mu.Unlock()
	if rate, _ := tr.Rate(0, key); class != Cold || tr.Lost() != 500 || rate != 0 {
		t.Errorf("%v, %d lost, rate %v", class, tr.Lost(), rate)
	}
}

func TestHotPathAllocatesNothing(t *testing.T) {
	tr := newTracker(t, Config{})
	now, id := int64(0), uint64(0)
	for name, run := range map[string]func(){
		"Touch": func() { id++; now += 1e6; tr.Touch(now, sumOf(id%1000), 1) },
		"Rate":  func() { id++; now += 1e6; tr.Rate(now, sumOf(id%1000)) },
	} {
		if got := testing.AllocsPerRun(5000, run); got != 0 {
			t.Errorf("%s: %v allocations, want 0", name, got)
		}
	}
}

func TestMemory(t *testing.T) {
	before := heap()
	tr := newTracker(t, Config{})
	for i := range uint64(100_000) {
		tr.Touch(int64(i)*1000, sumOf(i), 1)
	}
	if got := int64(heap() - before); got > 1<<20 {
		t.Errorf("%d bytes, want at most 1 MB", got)
	} else {
		t.Logf("%d bytes", got)
	}
	tr.Lost()
}
