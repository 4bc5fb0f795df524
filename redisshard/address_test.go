package redisshard

import (
	"slices"
	"strings"
	"testing"
)

func TestParseAddress(t *testing.T) {
	tcp := func(hosts ...string) address { return address{scheme: "redis", network: "tcp", hosts: hosts} }
	with := func(a address, change func(*address)) address { change(&a); return a }
	tests := []struct {
		url  string
		want address
	}{
		{"redis://h:1", tcp("h:1")},
		{"redis://h", tcp("h:6379")},
		{"redis://h:1/", tcp("h:1")},
		{"redis://h:1/3", with(tcp("h:1"), func(a *address) { a.db = 3 })},
		{"redis://h:1/3?cluster=off", with(tcp("h:1"), func(a *address) { a.db, a.cluster = 3, clusterOff })},
		{"redis://h1:1,h2:2,h1:1", tcp("h1:1", "h2:2")},
		{"redis://h1:1,h2?cluster=on", with(tcp("h1:1", "h2:6379"), func(a *address) { a.cluster = clusterOn })},
		{"redis://h1:1,h2:2/0?cluster=auto", tcp("h1:1", "h2:2")},
		{"redis://[::1]:7,[fe80::1]", tcp("[::1]:7", "[fe80::1]:6379")},
		{"redis://:pw@h:1", with(tcp("h:1"), func(a *address) { a.password = "pw" })},
		{"redis://u:p%40%2F%3A@h:1", with(tcp("h:1"), func(a *address) { a.user, a.password = "u", "p@/:" })},
		{"redis://u:p@w:x@h:1", with(tcp("h:1"), func(a *address) { a.user, a.password = "u", "p@w:x" })},
		{"rediss://h:1", address{scheme: "rediss", network: "tcp", hosts: []string{"h:1"}, tls: true}},
		{"redis+sentinel://s1:1,s2/main", address{scheme: "redis+sentinel", network: "tcp", sentinel: true,
			hosts: []string{"s1:1", "s2:26379"}, master: "main"}},
		{"rediss+sentinel://u:p@s1:1/my%20main/2", address{scheme: "rediss+sentinel", network: "tcp", sentinel: true, tls: true,
			hosts: []string{"s1:1"}, master: "my main", db: 2, user: "u", password: "p"}},
		{"unix:///run/r%20s.sock", address{scheme: "unix", network: "unix", hosts: []string{"/run/r s.sock"}}},
		{"unix:///run/a@b.sock?db=4", address{scheme: "unix", network: "unix", hosts: []string{"/run/a@b.sock"}, db: 4}},
		{"unix://u:p@/run/r.sock", address{scheme: "unix", network: "unix", hosts: []string{"/run/r.sock"}, user: "u", password: "p"}},
	}
	for _, test := range tests {
		got, err := parseAddress(test.url)
		if err != nil {
			t.Errorf("%s: %v", test.url, err)
			continue
		}
		hosts := slices.Equal(got.hosts, test.want.hosts)
		g, w := *got, test.want
		g.hosts, w.hosts = nil, nil
		if !hosts || !equalAddress(g, w) {
			t.Errorf("%s:\n got %+v\nwant %+v", test.url, *got, test.want)
		}
	}
}

func equalAddress(a, b address) bool {
	return a.scheme == b.scheme && a.network == b.network && a.user == b.user && a.password == b.password && a.db == b.db &&
		a.tls == b.tls && a.cluster == b.cluster && a.sentinel == b.sentinel && a.master == b.master
}

func TestParseAddressRefuses(t *testing.T) {
	tests := []struct{ url, want string }{
		{"", "no scheme"},
		{"localhost:6379", "no scheme"},
		{"http://h:1", "scheme is unknown"},
		{"redis://", "empty"},
		{"redis://:6379", "empty"},
		{"redis://h1:1,", "host 2"},
		{"redis://h:0", "port"},
		{"redis://h:65536", "port"},
		{"redis://h:x", "port"},
		{"redis://h:", "port"},
		{"redis://user:s3cret", "port"},
		{"redis://::1:6379", "brackets"},
		{"redis://[::1", "[IPv6 address]:port"},
		{"redis://[::1]6379", "[IPv6 address]:port"},
		{"redis://[host]:1", "no IP address"},
		{"redis://a b:1", "host names"},
		{"redis://u:s3cret/x@h:1", "%2F"},
		{"redis://u:s3cret?x@h:1", "%3F"},
		{"redis://u:s3cret#x@h:1", "%23"},
		{"redis://u:s3cret%zz@h:1", "%25"},
		{"redis://h:1/db", "not a number"},
		{"redis://h:1/-1", "not a number"},
		{"redis://h:1/1/2", "not a number"},
		{"redis://h:1#x", "%23"},
		{"redis://h:1?db=2", "in the path"},
		{"redis://h:1?cluster=maybe", "auto, on or off"},
		{"redis://h:1?cluster=on&cluster=on", "twice"},
		{"redis://h:1?timeout=3s", `"timeout" is unknown`},
		{"redis://h:1?%zz", "cannot be read"},
		{"redis://h:1/2?cluster=on", "only database 0"},
		{"redis://h1:1,h2:2?cluster=off", "several hosts"},
		{"redis+sentinel://h:1", "master's name"},
		{"redis+sentinel://h:1/", "master's name"},
		{"redis+sentinel://h:1/m/x", "not a number"},
		{"redis+sentinel://h:1/m?cluster=on", "takes no cluster"},
		{"unix://run/redis.sock", "not absolute"},
		{"unix://", "not absolute"},
		{"unix:///r.sock?db=x", "not a number"},
		{"unix:///r.sock?cluster=on", "takes no cluster"},
	}
	for _, test := range tests {
		_, err := parseAddress(test.url)
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: error is %v, want one with %q", test.url, err, test.want)
		}
		if err != nil && strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: the error shows the password: %v", test.url, err)
		}
	}
}

// FuzzParseAddress: whatever surrounds a password, it is never shown.
func FuzzParseAddress(f *testing.F) {
	const secret = "hUnTeR2"
	for _, s := range []string{
		"redis://|@h:1/2?cluster=on", "redis://u:|@h", "redis://u:|", "redis://u:|/x@h:1", "redis://:|#@h", "rediss://u:|?a=b@h",
		"redis+sentinel://u:|@s1,s2/m/1", "unix://u:|@/r.sock?db=1", "redis://u:%zz|@[::1]:1", "redis://u:|@h:99999", "|", "redis://u:|@@h,,",
	} {
		before, after, _ := strings.Cut(s, "|")
		f.Add(before, after)
	}
	f.Fuzz(func(t *testing.T, before, after string) {
		scheme, rest, found := strings.Cut(before, "://")
		// The secret is in the place of a password if a colon stands before it, and nothing
		// that begins another part of a URL.
		if !found || scheme == "unix" && rest == "" || !strings.Contains(rest, ":") || strings.ContainsAny(rest, "/?#,@[") {
			return
		}
		a, err := parseAddress(before + secret + after)
		if err != nil && strings.Contains(err.Error(), secret) {
			t.Fatalf("the error shows the password: %v", err)
		}
		if err == nil && strings.Contains(a.String(), secret) {
			t.Fatalf("the address shows the password: %s", a)
		}
	})
}
