package agent_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/spillgate/spillgate/agent"
	"github.com/spillgate/spillgate/limit"
)

// TestRetryOfLeased: who is denied by a leased rule whose bucket is divided, and waits as long as told, is admitted if he has no rivals, at most 250 ms later (G4): for
// claims of one token, and of two.
func TestRetryOfLeased(t *testing.T) {
	for _, most := range []int{1, 2} {
		inFleet(t, fleetConfig{1, 8, 8, agent.Config{Rules: parse(`name: r, match: [{key: r}], limit: 16/s, mode: leased`)}}, func(f *fleet) {
			f.keep(f.bucket("r", "x"), terms(t, 16, time.Second))
			f.store.befalls(distant)
			r := rand.New(rand.NewPCG(1, 1))
			bad := 0
			for i := range 400 {
				n := limit.Tokens(1 + r.IntN(most))
				if got := f.ask(0, n, d("r", "x")); !got.Admitted {
					f.pass(got.RetryAfter)
					again := f.ask(0, n, d("r", "x"))
					if !again.Admitted {
						f.pass(250 * time.Millisecond) // what this agent leased elsewhere takes room until it is accounted for
						again = f.ask(0, n, d("r", "x"))
					}
					if !again.Admitted {
						if bad++; bad == 1 {
							f.Errorf("check %d of up to %d tokens: %+v, then %+v", i, most, got, again)
						}
					}
				}
				f.pass(time.Millisecond)
			}
			if bad > 0 {
				f.Errorf("of up to %d tokens: %d retries were denied", most, bad)
			}
		})
	}
}

// TestTokensThatCameBackLeased: an agent that found all parts of a leased rule's bucket empty finds what another's reset filled, after 250 ms.
func TestTokensThatCameBackLeased(t *testing.T) {
	inFleet(t, fleetConfig{2, 8, 8, agent.Config{Rules: parse(`name: r, match: [{key: r}], limit: 100/h, mode: leased`)}}, func(f *fleet) {
		f.keep(f.bucket("r", "x"), terms(t, 100, time.Hour))
		f.store.befalls(distant)
		for range 300 {
			f.ask(0, 1, d("r", "x"))
			f.pass(5 * time.Millisecond)
		}
		if err := f.reset(1, d("r", "x")); err != nil {
			f.Fatal(err)
		}
		f.forget()
		f.pass(250 * time.Millisecond)
		for range 150 {
			f.ask(0, 1, d("r", "x"))
			f.pass(5 * time.Millisecond)
		}
		if n := f.admitted("r"); n != 100 {
			f.Errorf("%d of 100 admitted", n)
		}
	})
}
