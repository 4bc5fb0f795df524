package redisshard

import (
	"slices"
	"strings"
	"testing"
)

func node(host any, port int64) []any { return []any{host, port, "id", []any{}} }

func TestParseSlots(t *testing.T) {
	reply := []any{
		[]any{int64(8192), int64(16383), node("10.0.0.2", 7002), node("10.0.0.4", 7004)},
		[]any{int64(0), int64(100), node("10.0.0.1", 7001), node("10.0.0.3", 7003)},
		[]any{int64(200), int64(300), node("10.0.0.1", 7001), node("10.0.0.3", 7003)},
	}
	top, err := parseSlots(reply, "10.0.0.1:7001")
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		slot int
		want string
	}{
		{0, "10.0.0.1:7001"}, {100, "10.0.0.1:7001"}, {101, ""}, {199, ""}, {200, "10.0.0.1:7001"},
		{301, ""}, {8191, ""}, {8192, "10.0.0.2:7002"}, {16383, "10.0.0.2:7002"},
	} {
		got := ""
		if r := top.find(test.slot); r != nil {
			got = r.addr
		}
		if got != test.want {
			t.Errorf("slot %d is on %q, want %q", test.slot, got, test.want)
		}
	}
	for tag, want := range map[string]string{"foo": "10.0.0.2:7002", "bl": "10.0.0.1:7001", "cr": ""} {
		if got := top.masterOf(tag); got != want {
			t.Errorf("tag %s in slot %d is on %q, want %q", tag, slot([]byte(tag)), got, want)
		}
	}
	if len(top.masters) != 2 || len(top.replicas) != 2 || top.covered() != 101+101+8192 {
		t.Errorf("masters %v, replicas %v, %d slots", top.masters, top.replicas, top.covered())
	}
	if !top.names("10.0.0.4:7004") || top.names("10.0.0.5:7005") {
		t.Error("names is wrong")
	}
}

func TestParseSlotsAddresses(t *testing.T) {
	for _, test := range []struct {
		host any
		port int64
		from string
		want string
	}{
		{"10.0.0.9", 7, "10.0.0.1:1", "10.0.0.9:7"},
		{"::2", 7, "10.0.0.1:1", "[::2]:7"},
		{nil, 7, "10.0.0.1:1", "10.0.0.1:7"},
		{"", 7, "[::1]:1", "[::1]:7"},
		{"127.0.0.1", 7, "10.0.0.1:1", "10.0.0.1:7"},
		{"127.0.0.1", 7, "127.0.0.2:1", "127.0.0.1:7"},
		{"127.0.0.1", 7, "localhost:1", "127.0.0.1:7"},
		{"a.example", 0, "b.example:1", "a.example:1"},
		{"?", 7, "10.0.0.1:1", ""},
	} {
		got, err := nodeAddr(node(test.host, test.port), test.from)
		if got != test.want || err != nil {
			t.Errorf("%v:%d from %s is %q, %v; want %q", test.host, test.port, test.from, got, err, test.want)
		}
	}
}

func TestParseSlotsRefuses(t *testing.T) {
	good := node("h", 1)
	for i, reply := range []any{
		nil, "x", []any{}, []any{"x"}, []any{[]any{int64(0), int64(1)}},
		[]any{[]any{int64(5), int64(1), good}}, []any{[]any{int64(0), int64(slots), good}}, []any{[]any{"0", "1", good}},
		[]any{[]any{int64(0), int64(1), "h:1"}}, []any{[]any{int64(0), int64(1), []any{"h"}}}, []any{[]any{int64(0), int64(1), []any{"h", "1"}}},
		[]any{[]any{int64(0), int64(9), good}, []any{int64(9), int64(12), good}},
		[]any{[]any{int64(0), int64(9), node("?", 1)}},
	} {
		if top, err := parseSlots(reply, "h:1"); err == nil {
			t.Errorf("%d: %v is taken for %+v", i, reply, top)
		}
	}
}

func TestNewest(t *testing.T) {
	whole, part := everything("a:1", 7), &topology{epoch: 7, ranges: []slotRange{{first: 0, last: 9}}}
	stale := everything("b:1", 6)
	for _, answers := range [][]*topology{{whole, part, stale}, {stale, part, whole}, {part, whole}} {
		if newest(answers) != whole {
			t.Errorf("of %v not the newest whole one was taken", answers)
		}
	}
}

func TestRedirectAddr(t *testing.T) {
	for _, test := range []struct{ addr, from, want string }{
		{"10.0.0.2:7002", "10.0.0.1:7001", "10.0.0.2:7002"},
		{"node.example:7002", "10.0.0.1:7001", "node.example:7002"},
		{":7002", "10.0.0.1:7001", "10.0.0.1:7002"},
		{":7002", "[::1]:7001", "[::1]:7002"},
		{"?:7002", "10.0.0.1:7001", "10.0.0.1:7002"},
		{"::2:7002", "10.0.0.1:7001", "[::2]:7002"},
		{"[::2]:7002", "10.0.0.1:7001", "[::2]:7002"},
		{"nonsense", "10.0.0.1:7001", "nonsense"},
	} {
		if got := redirectAddr(test.addr, test.from); got != test.want {
			t.Errorf("%s from %s leads to %s, want %s", test.addr, test.from, got, test.want)
		}
	}
}

func TestSlotOf(t *testing.T) {
	// From the Redis Cluster specification, and by CLUSTER KEYSLOT.
	for key, want := range map[string]int{
		"123456789": 0x31c3, "foo": 12182, "{foo}bar": 12182, "x{foo}{bar}": 12182, "foo{}{bar}": 8363, "foo{{bar}}": slotOf("{bar"),
	} {
		if got := slotOf(key); got != want {
			t.Errorf("%s is in slot %d, want %d", key, got, want)
		}
	}
	if name := strings.Repeat("k", 3); slotOf("sg:{"+name+"}:a") != slotOf("sg:{"+name+"}:b") {
		t.Error("keys of one tag are apart")
	}
}

func TestCandidates(t *testing.T) {
	n := &nodes{addr: &address{hosts: []string{"seed:1", "m2:1"}}}
	if got := n.candidates(); len(got) != 2 {
		t.Errorf("before the first answer %v are asked", got)
	}
	n.topology.Store(&topology{masters: []string{"m1:1", "m2:1"}, replicas: []string{"r1:1", "r2:1"}})
	got := n.candidates()
	first, rest := slices.Sorted(slices.Values(got[:2])), slices.Sorted(slices.Values(got[2:]))
	if !slices.Equal(first, []string{"m1:1", "m2:1"}) || !slices.Equal(rest, []string{"r1:1", "r2:1", "seed:1"}) {
		t.Errorf("asked in this order: %v", got)
	}
}

func TestCheckVersion(t *testing.T) {
	for text, good := range map[string]bool{
		"7.0.15": true, "6.2.0": true, "6.2": true, "10.1.0": true, "255.255.255": true, "": true, "unknown": true,
		"6.0.16": false, "5.0.7": false, "2.8.4": false,
	} {
		if err := checkVersion("h:1", text); (err == nil) != good || (err != nil && !isPermanent(err)) {
			t.Errorf("version %q: %v", text, err)
		}
	}
}
