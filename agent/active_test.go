package agent_test

import (
	"context"
	"slices"
	"strconv"
	"testing"

	"github.com/spillgate/spillgate/agent"
)

// TestActive: the distinct buckets of each rule are counted once, hot or cold, and the count of a rule
// outlives its set.
func TestActive(t *testing.T) {
	onFake(t, agent.Config{}, func(w *world) {
		for range 20 { // some of it is hot
			for i := range 7 {
				w.ask(1, d("user", strconv.Itoa(i)))
			}
		}
		w.ask(1, d("open", "42"))
		if _, err := w.Throttle(context.Background(), "mine", terms(w, 10, 1e9), 1); err != nil {
			w.Fatal(err)
		}
		want := []agent.Active{{Buckets: 1}, {Domain: "api", Rule: "slow-open", Buckets: 1}, {Domain: "api", Rule: "ten", Buckets: 7}}
		if got := w.Active(); !slices.Equal(got, want) {
			w.Errorf("%+v, want %+v", got, want)
		}
		w.SetRules(parse(`name: ten, match: [{key: user}], limit: 10/h`))
		if got, want := w.Active(), []agent.Active{want[0], want[2]}; !slices.Equal(got, want) {
			w.Errorf("with new rules %+v, want %+v", got, want)
		}
	})
}
