package redistest

import (
	"reflect"
	"strings"
	"testing"
)

// Two shards: node a with replica c, and node b.
const nodesText = `a 127.0.0.1:1@10001 myself,master - 0 0 1 connected 0-8191 [5->-b] [6-<-b]
b 127.0.0.1:2@10002,host master - 0 1700000000000 2 connected 8192-16382 16383
c 127.0.0.1:3@10003 slave a 0 1700000000000 1 connected
`

var testIDs = []string{"a", "b", "c"}

func TestParseNodes(t *testing.T) {
	got, err := parseNodes(nodesText)
	if err != nil {
		t.Fatal(err)
	}
	want := []nodeLine{
		{id: "a", flags: []string{"myself", "master"}, epoch: 1, slots: []slotRange{{0, 8191}}},
		{id: "b", flags: []string{"master"}, epoch: 2, slots: []slotRange{{8192, 16382}, {16383, 16383}}},
		{id: "c", flags: []string{"slave"}, epoch: 1, master: "a"},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestParseNodesTruncated(t *testing.T) {
	for i := range nodesText {
		if _, err := parseNodes(nodesText[:i]); err != nil && !strings.Contains(err.Error(), "CLUSTER NODES") {
			t.Errorf("at %d bytes: %v does not say what it was reading", i, err)
		}
	}
	for _, slots := range []string{"x", "1-x", "9-1", "0-16384", "-1"} {
		if _, err := parseNodes("a h:1@2 master - 0 0 1 connected " + slots); err == nil {
			t.Errorf("slots %q were accepted", slots)
		}
	}
}

// healthy returns the reports of three nodes that agree on nodesText.
func healthy(t *testing.T) []*report {
	t.Helper()
	reports := make([]*report, len(testIDs))
	for i := range reports {
		lines, err := parseNodes(strings.Replace(nodesText, "myself,", "", 1))
		if err != nil {
			t.Fatal(err)
		}
		lines[i].flags = append(lines[i].flags, "myself")
		reports[i] = &report{lines: lines, state: "ok"}
	}
	reports[0].replicas = 1
	reports[2].linkUp = true
	return reports
}

func TestParseReport(t *testing.T) {
	got, err := parseReport(nodesText, "cluster_state:fail\r\ncluster_size:2\r\n",
		"role:master\r\nslave0:ip=1,state=online\r\nslave1:ip=2,state=wait_bgsave\r\n")
	if err != nil {
		t.Fatal(err)
	}
	if got.state != "fail" || got.replicas != 1 || got.linkUp || got.syncing {
		t.Errorf("report of a master: %+v", got)
	}
	got, err = parseReport("", "", "master_link_status:up\r\nmaster_sync_in_progress:1\r\n")
	if err != nil || !got.linkUp || !got.syncing {
		t.Errorf("report of a replica: %+v, %v", got, err)
	}
	if _, err := got.self(); err == nil {
		t.Error("a report without the node itself was accepted")
	}
}

func TestAgreedAndLinked(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(r []*report)
		want   string // part of the error; empty for none
	}{
		{"healthy", func([]*report) {}, ""},
		{"state", func(r []*report) { r[1].state = "fail" }, "node 1: cluster_state"},
		{"stranger", func(r []*report) { r[0].lines[2].id = "z" }, "stranger"},
		{"suspicion", func(r []*report) { r[2].lines[0].flags = []string{"master", "fail?"} }, "not sure of node 0"},
		{"handshake", func(r []*report) { r[2].lines[0].flags = []string{"handshake"} }, "not sure of node 0"},
		{"declared dead", func(r []*report) { r[2].lines[0].flags = []string{"master", "fail"} }, "node 0 is dead"},
		{"death unnoticed", func(r []*report) { r[2] = nil }, "node 2 is alive"},
		{"death noticed", func(r []*report) {
			r[2] = nil
			r[0].lines[2].flags = []string{"slave", "fail"}
			r[1].lines[2].flags = []string{"slave", "fail"}
		}, ""},
		{"missing node", func(r []*report) { r[0].lines = r[0].lines[:2] }, "knows 2 live nodes of 3"},
		{"other owner", func(r []*report) {
			r[1].lines[0].slots = []slotRange{{0, 16383}}
			r[1].lines[1].slots = nil
		}, "nodes 0 and 1 disagree"},
		{"other master", func(r []*report) { r[1].lines[2].master = "b" }, "nodes 0 and 1 disagree"},
		{"hole", func(r []*report) { r[1].lines[0].slots = nil }, "owners for 8192 slots"},
		{"link down", func(r []*report) { r[2].linkUp = false }, "node 2: the link"},
		{"syncing", func(r []*report) { r[2].syncing = true }, "node 2: the link"},
		{"not online", func(r []*report) { r[0].replicas = 0 }, "0 of its 1 replicas"},
		{"all dead", func(r []*report) { clear(r) }, "no node is alive"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			reports := healthy(t)
			tt.change(reports)
			err := agreed(reports, testIDs)
			if err == nil {
				err = linked(reports, testIDs)
			}
			switch {
			case tt.want == "" && err != nil:
				t.Errorf("unexpected: %v", err)
			case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)):
				t.Errorf("error is %v, want %q", err, tt.want)
			}
		})
	}
}

func TestLayoutFollowsTheHigherEpoch(t *testing.T) {
	l := layout{master: make([]int, len(testIDs))}
	reports := healthy(t)
	Must(t, l.update(reports, testIDs))
	if l.owner[0] != 0 || l.owner[8192] != 1 || !reflect.DeepEqual(l.master, []int{nobody, nobody, 0}) {
		t.Fatalf("owners %d, %d; masters %v", l.owner[0], l.owner[8192], l.master)
	}

	// Node 2 was promoted; node 0 came back and has not heard of it.
	promoted := &reports[2].lines[2]
	promoted.master, promoted.epoch, promoted.slots = "", 7, []slotRange{{0, 8191}}
	Must(t, l.update(reports, testIDs))
	if l.owner[0] != 2 || l.master[2] != nobody {
		t.Errorf("slot 0 is on %d and node 2 follows %d after a failover to node 2", l.owner[0], l.master[2])
	}

	// What is down keeps what it had.
	reports[1] = nil
	Must(t, l.update(reports, testIDs))
	if l.owner[8192] != 1 {
		t.Errorf("slot 8192 moved from a dead node to %d though nobody claims it", l.owner[8192])
	}
}
