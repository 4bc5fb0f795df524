package rules_test

import (
	"errors"
	"fmt"

	"github.com/spillgate/spillgate/rules"
)

const file = `
domain: api
rules:
  - name: pay-per-user
    match: [{key: route, value: /pay}, {key: user}]
    limit: {requests: 100, per: 1s, burst: 200}
  - name: everything-else
    match: [{key: route}, {key: user}]
    limit: 1000/m
`

func Example() {
	set, err := rules.Parse("rules.yaml", []byte(file))
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, route := range []string{"/pay", "/search", ""} {
		d := rules.Descriptor{{Key: "route", Value: route}, {Key: "user", Value: "42"}}
		if r := set.Match("api", d); r != nil {
			fmt.Printf("%q: %s, a bucket for each value of entries %v\n", route, r.Name, r.Vary)
		} else {
			fmt.Printf("%q: no rule\n", route)
		}
	}
	// Output:
	// "/pay": pay-per-user, a bucket for each value of entries [1]
	// "/search": everything-else, a bucket for each value of entries [0 1]
	// "": no rule
}

func ExampleErrors() {
	_, err := rules.Parse("rules.yaml", []byte(`
domain: api
rules:
  - name: slow
    match: [{key: user}]
    limit: 0.1/s
    bursts: 5
`))
	var all rules.Errors
	if errors.As(err, &all) {
		fmt.Println(len(all), "problems, the first in line", all[0].Line)
	}
	fmt.Println(err)
	// Output:
	// 2 problems, the first in line 6
	// rules: rules.yaml:6:12: requests: "0.1" is not a whole number; write digits alone, and for a slow rate a longer period, such as 1/10s
	// rules: rules.yaml:7:5: unknown field "bursts" in a rule; the fields are name, match, limit, unlimited, algorithm, mode, on_store_error, deadline, split, shadow, allowance, label, replaces
}

func ExamplePattern_String() {
	set, err := rules.Parse("rules.yaml", []byte(`
domain: api
rules:
  - name: a
    match: [{key: plan, value: free}, {key: path, value: /v1/*}, {key: user}]
    unlimited: true
`))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(set.Rule("api", "a").Match)
	// Output: [plan=free path=/v1/* user]
}
