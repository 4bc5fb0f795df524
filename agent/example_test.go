package agent_test

import (
	"context"
	"fmt"
	"time"

	"github.com/spillgate/spillgate/agent"
	"github.com/spillgate/spillgate/limit"
	"github.com/spillgate/spillgate/memstore"
	"github.com/spillgate/spillgate/rules"
)

const exampleRules = `
domain: api
rules:
  - name: per-user
    match: [{key: route, value: /pay}, {key: user}]
    limit: {requests: 1, per: 1h, burst: 2}
`

// An agent inside a service, with its cells in memory.
func Example() {
	ctx := context.Background()
	set, err := rules.Parse("rules.yaml", []byte(exampleRules))
	if err != nil {
		panic(err)
	}
	store, err := memstore.New(memstore.Config{})
	if err != nil {
		panic(err)
	}
	a, err := agent.New(agent.Config{Store: store, Rules: set})
	if err != nil {
		panic(err)
	}
	defer a.Close(ctx)

	for range 3 {
		d, err := a.Check(ctx, agent.Request{
			Domain:      "api",
			Descriptors: []rules.Descriptor{{{Key: "route", Value: "/pay"}, {Key: "user", Value: "42"}}},
			Hits:        1,
		})
		if err != nil {
			panic(err) // the request itself is wrong; a store that fails is no error
		}
		fmt.Println(d.Admitted, d.Reason, d.Remaining, d.Rule, d.RetryAfter.Round(time.Minute))
	}
	// Output:
	// true ok 1 per-user 0s
	// true ok 0 per-user 0s
	// false over_limit 0 per-user 1h0m0s
}

// A handle needs no matching: the hot path of a service that knows which rule it wants.
func ExampleAgent_Handle() {
	ctx := context.Background()
	set, _ := rules.Parse("rules.yaml", []byte(exampleRules))
	store, _ := memstore.New(memstore.Config{})
	a, _ := agent.New(agent.Config{Store: store, Rules: set})
	defer a.Close(ctx)

	h, err := a.Handle("api", "per-user")
	if err != nil {
		panic(err) // there is no such rule
	}
	d := h.Check(ctx, 1, "/pay", "42")
	fmt.Println(d.Admitted, d.Remaining, "of", d.Limit)
	// Output: true 1 of 2
}

// Several checks at once share calls to the store, and the caller waits once.
func ExampleBatch() {
	ctx := context.Background()
	store, _ := memstore.New(memstore.Config{})
	a, _ := agent.New(agent.Config{Store: store})
	defer a.Close(ctx)
	terms, _ := limit.Rate{Requests: 10, Period: time.Hour}.Terms()

	b := a.NewBatch()
	b.Begin()
	for _, key := range []string{"alice", "bob", "alice"} {
		b.Throttle([]byte(key), terms, 1)
	}
	b.Decide(ctx)
	for i := range b.Len() {
		d, err := b.Decision(i)
		fmt.Println(d.Admitted, d.Remaining, err)
	}
	// Output:
	// true 9 <nil>
	// true 9 <nil>
	// true 8 <nil>
}
