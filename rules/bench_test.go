package rules

import (
	"fmt"
	"strings"
	"testing"
)

// text is a file of n rules as people write them: most for a route and each user, some for
// all that begins alike.
func text(n int) string {
	var b strings.Builder
	b.WriteString("domain: api\nrules:\n")
	b.WriteString("  - {name: any, match: [{key: route}, {key: user}], limit: 100/s}\n")
	for i := 1; i < n; i++ {
		route := fmt.Sprintf("/v1/orders/%d", i)
		if i%10 == 0 {
			route = fmt.Sprintf("/v%d/*", i)
		}
		fmt.Fprintf(&b, `  - name: rule-%d
    match: [{key: route, value: %s}, {key: user}]
    limit: {requests: 100, per: 1s, burst: 200}
    mode: leased
    on_store_error: open
    deadline: 10ms
`, i, route)
	}
	return b.String()
}

func realistic(t testing.TB, n int) *Set {
	t.Helper()
	return mustParse(t, text(n))
}

func BenchmarkParse(b *testing.B) {
	for _, n := range []int{100, 10_000} {
		b.Run(fmt.Sprintf("rules=%d", n), func(b *testing.B) {
			text := []byte(text(n))
			b.SetBytes(int64(len(text)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Parse("", text); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

var matched *Rule

func BenchmarkMatch(b *testing.B) {
	for _, n := range []int{10, 1000, 10_000} {
		s := realistic(b, n)
		for _, c := range []struct {
			hit string
			d   Descriptor
		}{
			{"exact", d("route", "/v1/orders/7", "user", "42")},
			{"prefix", d("route", "/v10/things", "user", "42")},
			{"any", d("route", "/elsewhere", "user", "42")},
			{"none", d("client", "a")},
		} {
			b.Run(fmt.Sprintf("rules=%d/hit=%s", n, c.hit), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					matched = s.Match("api", c.d)
				}
			})
		}
	}
}

// envoyText is a file of n limits as envoyproxy/ratelimit has them: for a route and each user, with some of their own.
func envoyText(n int) string {
	var b strings.Builder
	b.WriteString("domain: api\ndescriptors:\n")
	for i := range n / 2 {
		fmt.Fprintf(&b, `  - key: route
    value: /v1/orders/%d
    descriptors:
      - key: user
        rate_limit:
          unit: second
          requests_per_unit: 100
      - key: user
        value: vip
        rate_limit:
          unit: minute
          requests_per_unit: 10000
`, i)
	}
	return b.String()
}

func BenchmarkEnvoy(b *testing.B) {
	const n = 10_000
	text := []byte(envoyText(n))
	b.Run(fmt.Sprintf("op=parse/rules=%d", n), func(b *testing.B) {
		b.SetBytes(int64(len(text)))
		b.ReportAllocs()
		for b.Loop() {
			if _, err := Parse("", text); err != nil {
				b.Fatal(err)
			}
		}
	})
	s, of := mustParse(b, string(text)), d("route", "/v1/orders/7", "user", "42")
	b.Run(fmt.Sprintf("op=match/rules=%d", n), func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			matched = s.Match("api", of)
		}
	})
}
