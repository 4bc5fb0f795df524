package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillgate/spillgate/internal/redistest"
)

// denialSlack is how much longer than the truth a denial that an agent remembers may live.
const denialSlack = 250 * time.Millisecond

// throttleOne asks for some tokens of a bucket, alone on its connection.
func throttleOne(t *testing.T, c *redis.Client, b hotBucket) throttleReply {
	t.Helper()
	v, err := c.Do(t.Context(), "CL.THROTTLE", b.key, b.burst-1, b.count, b.period, b.quantity).Int64Slice()
	if err != nil || len(v) != 5 {
		t.Fatalf("CL.THROTTLE: %v, %v", v, err)
	}
	return throttleReply{v[0] != 0, v[1], v[2], v[3], v[4], ""}
}

// TestHotLastToken is fault 14 on a bucket that was hot just before: limit 10, and of 11 calls one by one the
// first ten pass with 9 to 0 left.
func TestHotLastToken(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	p := startProc(t, shortDir(t), "agent", srv.URL())
	b := hotBucket{key: "ten", burst: 10, count: 10, period: 3, quantity: 1}
	l := newLedger(b)
	client := p.client(t)
	const emission = 300 * time.Millisecond // even a busy machine makes 11 calls in less, most of the time
	for rounds, end := 0, time.Now().Add(2*time.Minute); rounds < 3; {
		if time.Now().After(end) {
			t.Fatal("the machine is too slow: 11 calls take longer than a token takes to come")
		}
		var got []throttleReply
		start := time.Now()
		for range 11 {
			got = append(got, throttleOne(t, client, b))
		}
		if time.Since(start) < emission { // or else a token may have come in between
			for i, r := range got {
				if want := i == 10; r.denied != want || r.remaining != int64(max(0, 9-i)) || r.limit != 10 {
					t.Errorf("round %d: call %d of 11: %+v", rounds, i+1, r)
				}
			}
			rounds++
		}
		// Hot: 500 checks a second, nearly all denied. Then nobody, until it is full again.
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		must(t, (&stream{agent: p, l: l, batch: 5, every: 10 * time.Millisecond}).run(ctx))
		cancel()
		await(t, "the agent has given back what it held", func() bool { // late, if it is slow
			text, err := client.Info(t.Context()).Result()
			must(t, err)
			return strings.Contains(text, "lease_tokens_held:0\r\n")
		})
		time.Sleep(10*emission + denialSlack)
	}
	l.judge(t)
}

// TestHotLastFive is fault 15: two agents that both have the bucket hot and both want all 100 of it when 5 are left. Nobody
// gets 100, the refusals cost nothing and say when to come back, and the five are there for whoever takes them singly.
func TestHotLastFive(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	dir := shortDir(t)
	one, two := startProc(t, dir, "one", srv.URL()), startProc(t, dir, "two", srv.URL())
	b := hotBucket{key: "five", burst: 100, count: 1, period: 60, quantity: 1}
	l := newLedger(b)
	callers := []*caller{one.mustCall(t, l), two.mustCall(t, l)}
	taken := 0
	for i := 0; taken < 95; i++ {
		n, err := callers[i%2].ask(min(5, 95-taken))
		must(t, err)
		taken += n
		if i > 1000 {
			t.Fatalf("only %d of the first 95 tokens are admitted", taken)
		}
		time.Sleep(10 * time.Millisecond)
	}
	all := b
	all.quantity = 100
	var wg sync.WaitGroup
	for _, p := range []*agentProc{one, two} {
		client := p.client(t)
		wg.Go(func() {
			for range 3 {
				v, err := client.Do(t.Context(), "CL.THROTTLE", b.key, b.burst-1, b.count, b.period, all.quantity).Int64Slice()
				// 95 tokens are missing, one a minute; those on lease elsewhere may be missing as well.
				if err != nil || v[0] != 1 || v[3] < 94*60 || v[3] > 100*60 {
					t.Errorf("100 of 5 tokens: %v, %v; want a denial and a wait of 95 minutes", v, err)
				}
			}
		})
	}
	wg.Wait()
	// What an agent holds and does not need goes back before its lease ends. What does not is lost, and the next token of the bucket
	// comes a minute after the first was taken.
	left := 0
	for end := l.now() + 5*leaseGone; left < 5 && l.now() < end; {
		for _, c := range callers {
			n, err := c.ask(1)
			must(t, err)
			left += n
		}
		time.Sleep(5 * time.Millisecond)
	}
	if left != 5 {
		t.Errorf("%d of the last 5 tokens were admitted", left)
	}
	for _, c := range callers {
		if n, err := c.ask(1); n != 0 || err != nil {
			t.Errorf("after the last token: %d admitted, %v", n, err)
		}
	}
	l.judge(t)
}

// TestHotHerd is fault 26: 1,000 callers at an empty bucket that gets one token a second. One of them has it, and the
// store is not asked a thousand times.
func TestHotHerd(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	dir := shortDir(t)
	agents := []*agentProc{startProc(t, dir, "one", srv.URL()), startProc(t, dir, "two", srv.URL())}
	b := hotBucket{key: "herd", burst: 1, count: 1, period: 1, quantity: 1}
	l := newLedger(b)
	// 2 agents * 25 connections * 20 commands at a time, ten times a second.
	herd := func(length time.Duration) {
		ctx, cancel := context.WithTimeout(t.Context(), length)
		defer cancel()
		var wg sync.WaitGroup
		for _, a := range agents {
			for range 25 {
				wg.Go(func() {
					time.Sleep(rand.N(100 * time.Millisecond)) // each in its own time
					if err := (&stream{agent: a, l: l, batch: 20, every: 100 * time.Millisecond}).run(ctx); err != nil {
						t.Error(err)
					}
				})
			}
		}
		wg.Wait()
	}
	herd(500 * time.Millisecond) // empties it, and makes it hot
	from, before := l.now(), scriptCalls(t, srv)
	const length = 3 * time.Second
	herd(length)
	took, calls := l.now()-from, scriptCalls(t, srv)-before
	admitted := l.tokens(from)
	t.Logf("in %v: %d admitted, %d script calls", took, admitted, calls)
	l.judge(t)
	if least := int64(length/time.Second) - 1; admitted < least {
		t.Errorf("%d admitted in %v of load, want %d", admitted, length, least)
	}
	t.Run("calls", func(t *testing.T) {
		// Each agent asks at most 1/emission + 50 times a second.
		if most := int(float64(len(agents))*(b.refill(time.Second)+50)*took.Seconds()) + 10; calls > most {
			t.Errorf("%d script calls in %v, want at most %d", calls, took, most)
		}
	})
}

// TestHotDenialEnds is fault 8: an agent that remembers denials forgets them in time.
func TestHotDenialEnds(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	dir := shortDir(t)
	file := filepath.Join(dir, "rules.yaml")
	writeRules := func(limit string) {
		text := fmt.Sprintf(`domain: api
rules:
  - {name: reset, match: [{key: reset}], limit: 3/h}
  - {name: raise, match: [{key: raise}], limit: %s}
  - {name: wait, match: [{key: wait}], limit: 1/s}
`, limit)
		must(t, os.WriteFile(file, []byte(text), 0o600))
	}
	writeRules("3/h")
	one, two := startProc(t, dir, "one", srv.URL(), "--rules", file), startProc(t, dir, "two", srv.URL(), "--rules", file)
	client, other := one.client(t), two.client(t)

	check := func(key string) bool {
		v, err := client.Do(t.Context(), "SG.CHECK", "api", 1, key, "x").Slice()
		if err != nil || len(v) != 7 {
			t.Fatalf("SG.CHECK: %v, %v", v, err)
		}
		return v[0] == int64(1)
	}
	// deny drives a bucket to denial, and keeps at it for long enough to be remembered.
	deny := func(key string) {
		for range 4 {
			check(key)
		}
		for end := time.Now().Add(300 * time.Millisecond); time.Now().Before(end); time.Sleep(time.Millisecond) {
			if check(key) && key != "wait" {
				t.Errorf("%s: admitted a fourth time", key)
			}
		}
	}
	// admittedBy asks until it is admitted, and fails the test if a check sent after the deadline was not.
	admittedBy := func(what, key string, deadline time.Time) {
		for {
			sent := time.Now()
			if check(key) {
				return
			}
			if sent.After(deadline) {
				t.Errorf("%s: denied %v after the last moment", what, sent.Sub(deadline))
				return
			}
			time.Sleep(time.Millisecond)
		}
	}

	t.Run("reset through another agent", func(t *testing.T) {
		for range 2 {
			deny("reset")
			if n, err := other.Do(t.Context(), "SG.RESET", "api", "reset", "x").Int(); n != 1 || err != nil {
				t.Fatalf("SG.RESET: %v, %v", n, err)
			}
			admittedBy("after a reset", "reset", time.Now().Add(denialSlack+50*time.Millisecond))
		}
	})
	t.Run("limit raised", func(t *testing.T) {
		deny("raise")
		// The hour that was consumed stays consumed; a burst of two hours leaves one.
		writeRules("{requests: 3000, per: 1h, burst: 6000}")
		must(t, one.signal(syscall.SIGHUP))
		awaitProc(t, one, "rules reloaded")
		if !check("raise") {
			t.Error("denied by a limit that is no more")
		}
	})
	t.Run("first token", func(t *testing.T) {
		for range 2 {
			deny("wait")
			for !check("wait") { // to know when the bucket was taken from last
				time.Sleep(time.Millisecond)
			}
			taken := time.Now()
			admittedBy("after the refill", "wait", taken.Add(time.Second+denialSlack))
		}
	})
}

// awaitProc waits until an agent has logged a text.
func awaitProc(t *testing.T, p *agentProc, text string) {
	t.Helper()
	for end := time.Now().Add(scriptPatience); ; time.Sleep(5 * time.Millisecond) {
		log, err := os.ReadFile(p.log)
		if err == nil && strings.Contains(string(log), text) {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("the agent did not log %q: %v", text, err)
		}
	}
}
