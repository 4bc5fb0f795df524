package limit

import (
	"math"
	"math/big"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestBucketClasses(t *testing.T) {
	// The names stand in Redis keys: a change here orphans every cell in production.
	want := []struct {
		name     string
		length   time.Duration
		perMicro float64
	}{
		{"b4s", 4 * time.Second, 8192000},
		{"b16s", 16 * time.Second, 2048000},
		{"b64s", 64 * time.Second, 512000},
		{"b256s", 256 * time.Second, 128000},
		{"b1024s", 1024 * time.Second, 32000},
		{"b4096s", 4096 * time.Second, 8000},
		{"b16384s", 16384 * time.Second, 2000},
		{"b65536s", 65536 * time.Second, 512},
		{"b262144s", 262144 * time.Second, 128},
		{"b1048576s", 1048576 * time.Second, 32},
		{"b4194304s", 4194304 * time.Second, 8},
		{"b16777216s", 16777216 * time.Second, 2},
		{"b67108864s", 67108864 * time.Second, 0.5},
		{"b268435456s", 268435456 * time.Second, 0.125},
	}
	if len(want) != len(classes) {
		t.Fatalf("%d classes, want %d", len(classes), len(want))
	}
	for i, w := range want {
		c := classes[i]
		if c.String() != w.name || c.Length != w.length || c.PerMicro != w.perMicro || c.Kind != KindBucket {
			t.Errorf("class %d is %q %+v, want %+v", i, c, c, w)
		}
		if got := Ticks(float64(c.Length.Microseconds()) * c.PerMicro); got != c.Span() || 2*got >= MaxTicks {
			t.Errorf("%s: a generation is %d ticks; two must stay below %d", c, got, MaxTicks)
		}
		if c.Span() < 1<<44 {
			t.Errorf("%s: a generation is %d ticks, below the 2^44 that Terms.Emission promises", c, c.Span())
		}
		if c.Step()*stepsPerSpan != c.Span() {
			t.Errorf("%s: %d steps of %d are no generation of %d", c, stepsPerSpan, c.Step(), c.Span())
		}
	}
	if got := classes[len(classes)-1].Length; got != MaxFill {
		t.Errorf("the longest class is %v, MaxFill %v", got, MaxFill)
	}
}

func TestClassString(t *testing.T) {
	for _, tt := range []struct {
		class Class
		want  string
	}{
		{Class{Kind: 'b', Length: 4 * time.Second}, "b4s"},
		{Class{Kind: 'w', Length: 1500 * time.Millisecond}, "w1500ms"},
		{Class{Kind: 'w', Length: time.Minute}, "w60s"},
	} {
		if got := tt.class.String(); got != tt.want {
			t.Errorf("got %q, want %q", got, tt.want)
		}
	}
}

func TestBucketClassIsTheShortest(t *testing.T) {
	for _, tt := range []struct {
		fill time.Duration
		want string // "" for none
	}{
		{0, "b4s"},
		{1, "b4s"},
		{4 * time.Second, "b4s"},
		{4*time.Second + 1, "b16s"},
		{16 * time.Second, "b16s"},
		{time.Hour, "b4096s"},
		{24 * time.Hour, "b262144s"},
		{30 * 24 * time.Hour, "b4194304s"},
		{MaxFill, "b268435456s"},
		{MaxFill + 1, ""},
	} {
		got, ok := BucketClass(tt.fill)
		if ok != (tt.want != "") || ok && got.String() != tt.want {
			t.Errorf("BucketClass(%v) = %q, %v; want %q", tt.fill, got, ok, tt.want)
		}
	}
}

func TestAt(t *testing.T) {
	short, coarse := classes[0], classes[len(classes)-1]
	for _, tt := range []struct {
		class Class
		nanos int64
		gen   int64
		now   Ticks
	}{
		{short, 0, 0, 0},
		{short, 1, 0, 8192},
		{short, 1000, 0, 8192000},
		{short, 4e9 - 1, 0, 32768000000000 - 8192},
		{short, 4e9, 1, 0},
		{short, 4e9 + 1, 1, 8192},
		{short, -1, -1, 32768000000000 - 8192}, // a clock before 1970 is a clock
		{short, -4e9, -1, 0},
		{short, -4e9 - 1, -2, 32768000000000 - 8192},
		{coarse, 7999, 0, 0}, // ticks of 8 us
		{coarse, 8000, 0, 1},
		{coarse, int64(coarse.Length) - 1, 0, coarse.Span() - 1},
	} {
		if gen, now := tt.class.At(tt.nanos); gen != tt.gen || now != tt.now {
			t.Errorf("%s.At(%d) = %d, %d; want %d, %d", tt.class, tt.nanos, gen, now, tt.gen, tt.now)
		}
	}
}

func drawClass(t *rapid.T) Class {
	return classes[rapid.IntRange(0, len(classes)-1).Draw(t, "class")]
}

// ticksPerNano is the class' unit as an exact fraction.
func ticksPerNano(c Class) *big.Rat {
	unit := new(big.Rat).SetFloat64(c.PerMicro)
	return unit.Quo(unit, big.NewRat(1000, 1))
}

// floor rounds a non-negative fraction down.
func floor(r *big.Rat) int64 { return new(big.Int).Quo(r.Num(), r.Denom()).Int64() }

// TestConversionsAreExact holds At and Duration to fractions without an error:
// At rounds down, Duration up, each once.
func TestConversionsAreExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := drawClass(t)
		unit := ticksPerNano(c)

		nanos := rapid.Int64Range(math.MinInt64/4, math.MaxInt64/4).Draw(t, "nanos")
		gen, now := c.At(nanos)
		since := nanos - gen*int64(c.Length)
		if since < 0 || since >= int64(c.Length) {
			t.Fatalf("%s: %d ns is not in generation %d", c, nanos, gen)
		}
		exact := new(big.Rat).Mul(big.NewRat(since, 1), unit)
		if want := Ticks(floor(exact)); now != want {
			t.Fatalf("%s: %d ns into a generation are %d ticks, want %d", c, since, now, want)
		}

		ticks := Ticks(rapid.Int64Range(0, int64(MaxTicks)).Draw(t, "ticks"))
		got := c.Duration(ticks)
		exact = new(big.Rat).Mul(big.NewRat(int64(got), 1), unit)
		if exact.Cmp(big.NewRat(int64(ticks), 1)) < 0 {
			t.Fatalf("%s: %d ticks are more than %d ns: who waits is early", c, ticks, got)
		}
		if got > 0 {
			exact.Mul(big.NewRat(int64(got-1), 1), unit)
			if exact.Cmp(big.NewRat(int64(ticks), 1)) >= 0 {
				t.Fatalf("%s: %d ticks fit into %d ns, got %d", c, ticks, got-1, got)
			}
		}
	})
}

// TestWholeMicrosecondsAsInTheScript: the script multiplies microseconds by PerMicro and
// rounds down, in float64.
func TestWholeMicrosecondsAsInTheScript(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := drawClass(t)
		micros := rapid.Int64Range(0, c.Length.Microseconds()-1).Draw(t, "micros")
		script := Ticks(math.Floor(float64(micros) * c.PerMicro))
		if _, now := c.At(micros * 1000); now != script {
			t.Fatalf("%s: %d us are %d ticks, in the script %d", c, micros, now, script)
		}
	})
}

func TestDurationRounding(t *testing.T) {
	short, coarse := classes[0], classes[len(classes)-1]
	for _, tt := range []struct {
		class Class
		ticks Ticks
		want  time.Duration
	}{
		{short, -1, 0},
		{short, math.MinInt64, 0},
		{short, 0, 0},
		{short, 1, 1},
		{short, 8192, 1},
		{short, 8193, 2},
		{short, 2007 * 8192, 2007}, // 2008 if divided and multiplied in float64
		{short, short.Span(), 4 * time.Second},
		{coarse, 1, 8 * time.Microsecond},
		{coarse, MaxTicks, 800_000_000 * time.Second},
	} {
		if got := tt.class.Duration(tt.ticks); got != tt.want {
			t.Errorf("%s.Duration(%d) = %d ns, want %d", tt.class, tt.ticks, got, tt.want)
		}
	}
}
