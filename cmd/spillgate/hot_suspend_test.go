package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/spillgate/spillgate/internal/redistest"
)

// TestHotSuspend: an agent that was stopped by SIGSTOP for longer than a lease lives decides nothing from what it held before.
//
// The story of a round, on a bucket that refills within the stop:
//
//	load on the sleeper, far from the limit, so that it may hold much
//	SIGSTOP, with batches of 64 commands on their way
//	... the store forgets what the sleeper held, and the bucket is full again
//	the other agent takes all there is
//	64 commands a write into the sleeper's sockets: whatever it admits now is over the bound
//	SIGCONT, and more of the same
//
// Several sleepers, each with buckets of its own, make several moments of the stop.
func TestHotSuspend(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	dir := shortDir(t)
	other := startProc(t, dir, "other", srv.URL())
	var wg sync.WaitGroup
	var rounds [3][]*suspension
	for i := range rounds {
		name := fmt.Sprint("sleeper", i)
		sleeper := startProc(t, dir, name, srv.URL())
		// A lease counts for at most two times its 2 s, and for at least one.
		for round, stop := range []time.Duration{2200*time.Millisecond + rand.N(1800*time.Millisecond), 5 * time.Second} {
			l := newLedger(hotBucket{key: fmt.Sprint(name, " round ", round), burst: 6000, count: 1000, period: 1, quantity: 5})
			rounds[i] = append(rounds[i], &suspension{sleeper: sleeper, other: other, l: l, stop: stop})
		}
		wg.Go(func() {
			for _, s := range rounds[i] {
				if err := s.run(t); err != nil {
					t.Errorf("%s, stopped for %v: %v", s.l.bucket.key, s.stop, err)
					return
				}
			}
		})
	}
	wg.Wait()
	for _, s := range slices.Concat(rounds[:]...) {
		s.l.judge(t)
	}
}

// suspension is a round: one sleeper, a bucket of its own, and the agent that stays awake.
type suspension struct {
	sleeper, other *agentProc
	l              *ledger
	stop           time.Duration
}

// perWrite is how many commands go into one write.
const perWrite = 64

func (s *suspension) run(t *testing.T) error {
	awake, err := s.other.caller(s.l)
	if err != nil {
		return err
	}
	defer awake.conn.Close()
	var waiting []*caller // connected before the stop
	for range 2 {
		c, err := s.sleeper.caller(s.l)
		if err != nil {
			return err
		}
		defer c.conn.Close()
		waiting = append(waiting, c)
	}

	// 64 * 5 tokens every 200 ms from one client: 1,600/s out of a full bucket. The last batches are on their way at the stop.
	ctx, endLoad := context.WithCancel(t.Context())
	defer endLoad()
	load := make(chan error, 1)
	go func() {
		load <- (&stream{agent: s.sleeper, l: s.l, batch: perWrite, every: 200 * time.Millisecond}).run(ctx)
	}()
	time.Sleep(700*time.Millisecond + rand.N(200*time.Millisecond))
	if _, err := waiting[0].ask(1); err != nil {
		return err
	}
	at, err := waiting[0].send(perWrite)
	if err != nil {
		return err
	}
	time.Sleep(rand.N(500 * time.Microsecond)) // into the batch, or just past it
	if err := s.sleeper.signal(syscall.SIGSTOP); err != nil {
		return err
	}
	defer s.sleeper.signal(syscall.SIGCONT)
	endLoad()
	time.Sleep(s.stop)

	from := s.l.now()
	if err := drain(awake, 200*time.Millisecond); err != nil {
		return err
	}
	drained := s.l.tokens(from)
	var late []time.Duration
	for _, c := range waiting {
		at, err := c.send(perWrite)
		if err != nil {
			return err
		}
		late = append(late, at)
	}
	if err := s.sleeper.signal(syscall.SIGCONT); err != nil {
		return err
	}
	if _, err := waiting[0].receive(at, perWrite); err != nil {
		return err
	}
	for i, c := range waiting {
		if _, err := c.receive(late[i], perWrite); err != nil {
			return err
		}
	}
	for end := time.Now().Add(300 * time.Millisecond); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if _, err := waiting[1].ask(perWrite); err != nil {
			return err
		}
	}
	t.Logf("%s: stopped for %v, then %d tokens drained through the other agent", s.l.bucket.key, s.stop, drained)
	if err := <-load; err != nil {
		return err
	}
	return errors.Join(goesOn(waiting[0]), goesOn(awake))
}

// drain takes what there is: it asks until for a while no batch was admitted whole. The pauses let an agent ask
// its store again.
func drain(c *caller, while time.Duration) error {
	hopeless := time.Now().Add(scriptPatience)
	for last := time.Now(); time.Since(last) < while; {
		admitted, err := c.ask(perWrite)
		switch {
		case err != nil:
			return err
		case time.Now().After(hopeless):
			return fmt.Errorf("bucket %s has no end", c.l.bucket.key)
		case admitted == perWrite:
			last = time.Now()
		default:
			time.Sleep(5 * time.Millisecond)
		}
	}
	return nil
}

// goesOn asks for single commands until one is admitted.
func goesOn(c *caller) error {
	for end := time.Now().Add(scriptPatience); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if admitted, err := c.ask(1); admitted > 0 || err != nil {
			return err
		}
	}
	return fmt.Errorf("nothing is admitted any more on %v", c.conn.RemoteAddr())
}
