package redisshard

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"
)

// topology says which node serves which slot. One server, or the master that
// sentinels name, is the topology of one range. Immutable once in force.
type topology struct {
	epoch    int64       // the greater of two is the newer; 0 if unknown
	ranges   []slotRange // disjoint, in order
	masters  []string    // addresses, distinct
	replicas []string    // addresses, distinct
}

// slotRange is a run of slots on one master.
type slotRange struct {
	first, last int
	addr        string
	client      *redis.Client // set when the topology comes into force
}

// everything is the topology of one server.
func everything(addr string, epoch int64) *topology {
	return &topology{
		epoch:   epoch,
		ranges:  []slotRange{{first: 0, last: slots - 1, addr: addr}},
		masters: []string{addr},
	}
}

// find gives the range of a slot, nil if no master serves it.
func (t *topology) find(slot int) *slotRange {
	i, found := slices.BinarySearchFunc(t.ranges, slot, func(r slotRange, slot int) int {
		switch {
		case r.last < slot:
			return -1
		case r.first > slot:
			return 1
		}
		return 0
	})
	if !found {
		return nil
	}
	return &t.ranges[i]
}

// masterOf is the address of the master that serves a tag, "" if none does.
func (t *topology) masterOf(tag string) string {
	if r := t.find(slot([]byte(tag))); r != nil {
		return r.addr
	}
	return ""
}

func (t *topology) covered() int {
	n := 0
	for _, r := range t.ranges {
		n += r.last - r.first + 1
	}
	return n
}

// names reports whether the address belongs to the topology.
func (t *topology) names(addr string) bool {
	return slices.Contains(t.masters, addr) || slices.Contains(t.replicas, addr)
}

// same reports whether both send every slot to the same place.
func (t *topology) same(o *topology) bool {
	return slices.EqualFunc(t.ranges, o.ranges, func(a, b slotRange) bool {
		return a.first == b.first && a.last == b.last && a.addr == b.addr
	})
}

// newest chooses among answers of several nodes. A node that was cut off does not know of
// the elections meanwhile: its epoch is behind.
func newest(answers []*topology) *topology {
	return slices.MaxFunc(answers, func(a, b *topology) int {
		return cmp.Or(cmp.Compare(a.epoch, b.epoch), cmp.Compare(a.covered(), b.covered()))
	})
}

// parseSlots reads the reply to CLUSTER SLOTS of the node at from. It is done
// here since go-redis cannot read the null that stands for an unknown host.
func parseSlots(reply any, from string) (*topology, error) {
	rows, ok := reply.([]any)
	if !ok {
		return nil, fmt.Errorf("CLUSTER SLOTS: %T is no list", reply)
	}
	t := new(topology)
	for _, row := range rows {
		if err := t.addRow(row, from); err != nil {
			return nil, fmt.Errorf("CLUSTER SLOTS: %w", err)
		}
	}
	if len(t.ranges) == 0 {
		return nil, errNoSlots
	}
	slices.SortFunc(t.ranges, func(a, b slotRange) int { return cmp.Compare(a.first, b.first) })
	for i := 1; i < len(t.ranges); i++ {
		if t.ranges[i].first <= t.ranges[i-1].last {
			return nil, fmt.Errorf("CLUSTER SLOTS: slot %d has two masters", t.ranges[i].first)
		}
	}
	return t, nil
}

// addRow takes first slot, last slot, master, replicas... A master without a
// known address leaves its slots without one.
func (t *topology) addRow(row any, from string) error {
	fields, _ := row.([]any)
	if len(fields) < 3 {
		return errors.New("a row lacks fields")
	}
	first, ok1 := fields[0].(int64)
	last, ok2 := fields[1].(int64)
	if !ok1 || !ok2 || first < 0 || first > last || last >= slots {
		return fmt.Errorf("%v to %v are no slots", fields[0], fields[1])
	}
	for i, f := range fields[2:] {
		addr, err := nodeAddr(f, from)
		switch {
		case err != nil:
			return err
		case addr == "":
		case i > 0 && !slices.Contains(t.replicas, addr):
			t.replicas = append(t.replicas, addr)
		case i == 0:
			t.ranges = append(t.ranges, slotRange{first: int(first), last: int(last), addr: addr})
			if !slices.Contains(t.masters, addr) {
				t.masters = append(t.masters, addr)
			}
		}
	}
	return nil
}

// nodeAddr reads host and port of a node. Empty: the node's host is not known yet.
func nodeAddr(field any, from string) (string, error) {
	parts, _ := field.([]any)
	if len(parts) < 2 {
		return "", errors.New("a node lacks fields")
	}
	host, ok := parts[0].(string)
	port, isInt := parts[1].(int64)
	if parts[0] != nil && !ok || !isInt {
		return "", errors.New("a node's address is no string and number")
	}
	if host == "?" {
		return "", nil
	}
	origin, originPort, err := net.SplitHostPort(from)
	if err != nil {
		return "", fmt.Errorf("the address %s of the node that was asked: %w", from, err)
	}
	switch {
	case host == "", isLoopback(host) && !isLoopback(origin):
		host = origin // unknown to itself, or reached through a forwarded port
	}
	if port == 0 { // a node that listens for TLS alone
		return net.JoinHostPort(host, originPort), nil
	}
	return net.JoinHostPort(host, fmt.Sprint(port)), nil
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback() || host == "localhost"
}

// redirectAddr is the address to dial for a MOVED or ASK that the node at from
// sent. A host that is missing means the host of that node; IPv6 comes without brackets.
func redirectAddr(addr, from string) string {
	i := strings.LastIndexByte(addr, ':')
	if i < 0 {
		return addr // no port: the dial will say so
	}
	host, port := strings.Trim(addr[:i], "[]"), addr[i+1:]
	if host == "" || host == "?" {
		if origin, _, err := net.SplitHostPort(from); err == nil {
			host = origin
		}
	}
	return net.JoinHostPort(host, port)
}

// slotOf is the slot of a key: that of the text between its first { and the
// next }, if there is any.
func slotOf(key string) int {
	if _, rest, found := strings.Cut(key, "{"); found {
		if tag, _, found := strings.Cut(rest, "}"); found && tag != "" {
			key = tag
		}
	}
	return slot([]byte(key))
}
