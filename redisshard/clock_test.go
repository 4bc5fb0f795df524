package redisshard

import (
	"testing"
	"time"

	"github.com/spillgate/spillgate/internal/redistest"
	"github.com/spillgate/spillgate/limit"
)

// think makes a store believe that the server's clock is ahead of its own by d.
func (s *Store) think(d time.Duration) { s.state.Load().offsets[0].Store(int64(d)) }

// TestClockBoundary: whoever is wrong about the generation by one, as when a call crosses the
// boundary on its way, is served at once; who is further off, at the second attempt.
func TestClockBoundary(t *testing.T) {
	_, url := sharedServer(t)
	s, terms := openStore(t, Config{URL: url}), compile(t, 1000, time.Hour)
	length := terms.Class.Length
	b := s.bucket("b")
	// Away from a boundary, so that "wrong by one" means one.
	if left := length - time.Duration(time.Now().UnixNano()%int64(length)); left < 10*time.Second {
		time.Sleep(left)
	}
	s.must(t, b, terms, limit.TakePartial, 0) // the server knows the script from here on
	taken := limit.Tokens(0)
	for off, resent := range map[time.Duration]uint64{
		0: 0, -length: 0, length: 0, 2 * length: 1, -2 * length: 1, 1000 * length: 1, -1000 * length: 1, 2*length - 20*time.Second: 1,
	} {
		for range 3 {
			s.think(off)
			before := s.Stats().Resent
			taken++
			if out := s.must(t, b, terms, limit.Take, 1); out.Granted != 1 || out.Lag != 0 {
				t.Errorf("off by %v: %+v", off, out)
			}
			if off == 2*length-20*time.Second {
				continue // one generation off, or two
			}
			if got := s.Stats().Resent - before; got != resent {
				t.Errorf("off by %v: sent again %d times, want %d", off, got, resent)
			}
		}
	}
	if out := s.out(t, b, terms); out != taken {
		t.Errorf("%d tokens are out, %d were taken", out, taken)
	}
}

// TestSkewedAgents is fault 3: where Redis's clock decides, agents that are 5 s ahead and 5 s
// behind do not move a bucket.
func TestSkewedAgents(t *testing.T) {
	const length = 300 * time.Millisecond
	_, url := sharedServer(t)
	ahead, behind := openStore(t, Config{URL: url}), openStore(t, Config{URL: url})
	terms := compile(t, 10, 500*time.Millisecond)
	b := ahead.bucket("b")
	start := time.Now()
	granted := limit.Tokens(0)
	for i := 0; time.Since(start) < length; i++ {
		s, skew := ahead, -5*time.Second
		if i%2 == 1 {
			s, skew = behind, 5*time.Second
		}
		s.think(skew)
		out := s.must(t, b, terms, limit.TakePartial, 100)
		granted += out.Granted
		if out.Lag != 0 {
			t.Fatalf("the server's clock was set back by %d ns", out.Lag)
		}
	}
	most := 10 + limit.Tokens((time.Since(start)+time.Millisecond)/(50*time.Millisecond))
	if granted < 10 || granted > most {
		t.Errorf("granted %d, want 10 to %d", granted, most)
	}
}

// TestClockOfAgents: no TIME is asked; agents that differ move the answers by their skew, and
// a bucket's time does not run back.
func TestClockOfAgents(t *testing.T) {
	srv, url := sharedServer(t)
	s := openStore(t, Config{URL: url, Clock: ClockAgent})
	terms := compile(t, 10, 10*time.Second)
	admin := adminOf(t, url)
	asked := commandCalls(t, srv.Client(), "time")
	b := s.bucket("b")
	for range 20 {
		s.must(t, b, terms, limit.Take, 1)
	}
	if n := commandCalls(t, srv.Client(), "time") - asked; n != 0 {
		t.Errorf("TIME was asked %d times", n)
	}
	checkTTLs(t, admin, "clock: agent")

	skewed := openStore(t, Config{URL: url, Clock: ClockAgent})
	redistest.Must(t, admin.FlushDB(t.Context()).Err())
	skew := int64(0)
	skewed.stamp = func() int64 { return time.Now().UnixMicro() + skew }
	granted, start := limit.Tokens(0), time.Now()
	for i := range 200 {
		skew = []int64{5e6, -5e6}[i%2]
		out := skewed.must(t, b, terms, limit.TakePartial, 100)
		granted += out.Granted
		if i%2 == 1 && out.Lag < 9e9 {
			t.Errorf("call %d is behind by %v", i, time.Duration(out.Lag))
		}
	}
	if most := 10 + limit.Tokens((time.Since(start)+time.Millisecond)/time.Second); granted > most {
		t.Errorf("granted %d, want at most %d", granted, most)
	}
}

// TestClocksThatAgreeEnough: less than a generation apart, agents share a bucket of the shortest class
// exactly, and no call is refused.
func TestClocksThatAgreeEnough(t *testing.T) {
	_, url := sharedServer(t)
	s, terms := openStore(t, Config{URL: url}), compile(t, 10, time.Second)
	const start, calls, step = int64(4e14), 600, int64(20_000) // us: 12 s in all, three generations
	var now, skew int64
	s.stamp = func() int64 { return now + skew }
	granted := limit.Tokens(0)
	for i := range int64(calls) {
		now, skew = start+i*step, []int64{1_900_000, -1_900_000}[i%2]
		granted += s.must(t, s.bucket("b"), terms, limit.TakePartial, 100).Granted
	}
	if want := 10 + limit.Tokens((calls-2)*step/100_000); granted < want-1 || granted > want {
		t.Errorf("granted %d, want %d", granted, want)
	}
}
