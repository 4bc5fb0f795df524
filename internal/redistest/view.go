package redistest

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// This file is the pure part of the cluster: what its nodes say, parsed, and
// what follows from it. No I/O, no clock.

// nodeLine is one line of CLUSTER NODES: what one node believes of another, or
// of itself.
type nodeLine struct {
	id     string
	flags  []string
	master string // id of the master it replicates; empty for a master
	epoch  int64  // of its claim to its slots; the highest claim to a slot counts
	slots  []slotRange
}

// slotRange is a range of slots, both ends included.
type slotRange struct{ first, last int }

func (l nodeLine) has(flag string) bool { return slices.Contains(l.flags, flag) }

func (l nodeLine) numSlots() int {
	n := 0
	for _, r := range l.slots {
		n += r.last - r.first + 1
	}
	return n
}

// parseNodes parses the reply to CLUSTER NODES:
//
//	<id> <ip:port@bus> <flags> <master or -> <ping> <pong> <epoch> <link> [slot or first-last or [migration]]...
func parseNodes(text string) ([]nodeLine, error) {
	var lines []nodeLine
	for row := range strings.Lines(text) {
		f := strings.Fields(row)
		if len(f) == 0 {
			continue
		}
		if len(f) < 8 {
			return nil, fmt.Errorf("CLUSTER NODES: %q has %d fields, want at least 8", row, len(f))
		}
		epoch, err := strconv.ParseInt(f[6], 10, 64)
		if err != nil {
			return nil, fmt.Errorf("CLUSTER NODES: epoch in %q: %w", row, err)
		}
		l := nodeLine{id: f[0], flags: strings.Split(f[2], ","), epoch: epoch}
		if f[3] != "-" {
			l.master = f[3]
		}
		for _, word := range f[8:] {
			if strings.HasPrefix(word, "[") {
				continue // a slot on its way in or out: the owner is unchanged
			}
			r, err := parseRange(word)
			if err != nil {
				return nil, fmt.Errorf("CLUSTER NODES: slots in %q: %w", row, err)
			}
			l.slots = append(l.slots, r)
		}
		lines = append(lines, l)
	}
	return lines, nil
}

func parseRange(word string) (slotRange, error) {
	first, last, isRange := strings.Cut(word, "-")
	if !isRange {
		last = first
	}
	a, err1 := strconv.Atoi(first)
	b, err2 := strconv.Atoi(last)
	if err := errors.Join(err1, err2); err != nil {
		return slotRange{}, err
	}
	if a < 0 || b < a || b >= numSlots {
		return slotRange{}, fmt.Errorf("%q is not a range of slots", word)
	}
	return slotRange{a, b}, nil
}

// report is what one live node says of the cluster and of itself.
type report struct {
	lines    []nodeLine
	state    string // cluster_state
	linkUp   bool   // a replica: its link to the master is up
	syncing  bool   // a replica: a sync is under way
	replicas int    // a master: the replicas that are online
}

// self returns the node's line about itself.
func (r *report) self() (nodeLine, error) {
	i := slices.IndexFunc(r.lines, func(l nodeLine) bool { return l.has("myself") })
	if i < 0 {
		return nodeLine{}, errors.New("CLUSTER NODES does not name the node itself")
	}
	return r.lines[i], nil
}

// parseReport reads the replies to CLUSTER NODES, CLUSTER INFO and INFO replication.
func parseReport(nodes, clusterInfo, replication string) (*report, error) {
	lines, err := parseNodes(nodes)
	if err != nil {
		return nil, err
	}
	r := &report{lines: lines, state: infoField(clusterInfo, "cluster_state")}
	r.linkUp = infoField(replication, "master_link_status") == "up"
	r.syncing = infoField(replication, "master_sync_in_progress") == "1"
	r.replicas = strings.Count(replication, "state=online")
	return r, nil
}

// infoField returns a field of an INFO-like reply, or nothing.
func infoField(info, name string) string {
	for row := range strings.Lines(info) {
		if v, ok := strings.CutPrefix(row, name+":"); ok {
			return strings.TrimSpace(v)
		}
	}
	return ""
}

// agreed returns nil when all live nodes tell the same story: who lives, who is
// whose replica, who owns which slots, and that every slot is served. reports
// and ids go by node; the report of a node that is down is nil.
func agreed(reports []*report, ids []string) error {
	var story, teller string
	for i, r := range reports {
		if r == nil {
			continue
		}
		if r.state != "ok" {
			return fmt.Errorf("node %d: cluster_state is %q", i, r.state)
		}
		s, err := storyOf(r.lines, reports, ids)
		if err != nil {
			return fmt.Errorf("node %d: %w", i, err)
		}
		if story == "" {
			story, teller = s, strconv.Itoa(i)
		}
		if s != story {
			return fmt.Errorf("nodes %s and %d disagree:\n%s\n%s", teller, i, story, s)
		}
	}
	if story == "" {
		return errors.New("no node is alive")
	}
	return nil
}

// storyOf renders what one node believes, without what may differ between
// nodes that agree. It refuses a belief that is unsettled or at odds with the
// processes that live.
func storyOf(lines []nodeLine, reports []*report, ids []string) (string, error) {
	var rows []string
	slots := 0
	for _, l := range lines {
		i := slices.Index(ids, l.id)
		switch {
		case i < 0:
			return "", fmt.Errorf("knows a stranger, %s (%s)", l.id, strings.Join(l.flags, ","))
		case l.has("fail?"), l.has("handshake"):
			return "", fmt.Errorf("is not sure of node %d (%s)", i, strings.Join(l.flags, ","))
		case l.has("fail") && reports[i] != nil:
			return "", fmt.Errorf("believes that node %d is dead", i)
		case l.has("fail"):
			continue
		case reports[i] == nil:
			return "", fmt.Errorf("believes that node %d is alive", i)
		}
		slots += l.numSlots()
		rows = append(rows, fmt.Sprintf("node %d: master %d, slots %v", i, slices.Index(ids, l.master), l.slots))
	}
	alive := 0
	for _, r := range reports {
		if r != nil {
			alive++
		}
	}
	if len(rows) != alive {
		return "", fmt.Errorf("knows %d live nodes of %d", len(rows), alive)
	}
	if slots != numSlots {
		return "", fmt.Errorf("sees owners for %d slots of %d", slots, numSlots)
	}
	slices.Sort(rows)
	return strings.Join(rows, "\n"), nil
}

// linked returns nil when every live replica is in sync with its master.
func linked(reports []*report, ids []string) error {
	want := make([]int, len(ids)) // live replicas by master
	for i, r := range reports {
		if r == nil {
			continue
		}
		me, err := r.self()
		if err != nil {
			return fmt.Errorf("node %d: %w", i, err)
		}
		if me.master == "" {
			continue
		}
		if !r.linkUp || r.syncing {
			return fmt.Errorf("node %d: the link to its master is not up yet", i)
		}
		if m := slices.Index(ids, me.master); m >= 0 {
			want[m]++
		}
	}
	for i, r := range reports {
		if r != nil && r.replicas < want[i] {
			return fmt.Errorf("node %d: %d of its %d replicas are online", i, r.replicas, want[i])
		}
	}
	return nil
}

// layout is who owns and who follows, by index of the node.
type layout struct {
	owner  [numSlots]int // node that serves the slot
	master []int         // node that this one replicates, or nobody
}

const nobody = -1

// update takes over what the live nodes say of themselves: each is the
// authority on its own part. Where two claim a slot, the higher epoch has it.
// Of a node that is down it keeps what it knew, unless another took its slots.
func (l *layout) update(reports []*report, ids []string) error {
	var epoch [numSlots]int64
	for i, r := range reports {
		if r == nil {
			continue
		}
		me, err := r.self()
		if err != nil {
			return fmt.Errorf("redistest: node %d: %w", i, err)
		}
		l.master[i] = slices.Index(ids, me.master) // nobody == not found
		for _, r := range me.slots {
			for s := r.first; s <= r.last; s++ {
				if me.epoch >= epoch[s] {
					epoch[s], l.owner[s] = me.epoch, i
				}
			}
		}
	}
	return nil
}
