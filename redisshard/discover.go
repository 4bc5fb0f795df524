package redisshard

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// greeting is what a server says about itself.
type greeting struct {
	addr    string
	version string
	mode    string // standalone, cluster or sentinel
	role    string // master or replica; empty if unknown
}

// greet asks a server who it is and whether it serves.
func (n *nodes) greet(ctx context.Context, addr string) (greeting, error) {
	client := n.at(addr)
	g, err := askWho(ctx, client)
	g.addr = addr
	if err == nil {
		err = checkVersion(addr, g.version)
	}
	if err == nil && g.mode != "sentinel" {
		err = client.Ping(ctx).Err() // refused while the server loads its data
	}
	if err != nil {
		return g, explain(addr, err)
	}
	return g, nil
}

// askWho reads the reply to HELLO, which no ACL forbids; what does not know
// HELLO is asked by INFO.
func askWho(ctx context.Context, client *redis.Client) (greeting, error) {
	reply, err := client.Do(ctx, "hello", "2").Slice()
	if err == nil {
		var g greeting
		for i := 0; i+1 < len(reply); i += 2 {
			value, _ := reply[i+1].(string)
			switch reply[i] {
			case "version":
				g.version = value
			case "mode":
				g.mode = value
			case "role":
				g.role = value
			}
		}
		return g, nil
	}
	var answered redis.Error
	if !errors.As(err, &answered) {
		return greeting{}, err
	}
	info, err := client.Info(ctx, "server").Result()
	if err != nil {
		return greeting{}, err
	}
	return greeting{version: infoField(info, "redis_version"), mode: infoField(info, "redis_mode")}, nil
}

// infoField is the value of one line of INFO; empty if it is not there.
func infoField(info, name string) string {
	for line := range strings.Lines(info) {
		if value, found := strings.CutPrefix(line, name+":"); found {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// checkVersion refuses servers before 6.2: they lack GETEX. A version that
// cannot be read (a proxy, a fork) is let through.
func checkVersion(addr, text string) error {
	major, rest, _ := strings.Cut(text, ".")
	minor, _, _ := strings.Cut(rest, ".")
	a, err1 := strconv.Atoi(major)
	b, err2 := strconv.Atoi(minor)
	if err1 == nil && err2 == nil && (a < 6 || a == 6 && b < 2) {
		return permanentError{fmt.Errorf("redisshard: %s: the server is Redis %s: want 6.2 or later", addr, text)}
	}
	return nil
}

// survey asks where the masters are: a few nodes at once, then the next few
// if none of them answers.
func (n *nodes) survey(ctx context.Context) (*topology, error) {
	ask := n.askNode
	if n.addr.sentinel {
		ask = n.askSentinel
	}
	var errs []error
	for some := range slices.Chunk(n.candidates(), askAtOnce) {
		answers, err := gather(ctx, some, n.patience(), answerWindow, ask)
		if err == nil {
			return newest(answers), nil
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

// candidates are the nodes to ask, masters first, then replicas and the hosts of the URL: those may be
// gone by now, or may be names that lead to new machines.
func (n *nodes) candidates() []string {
	t := n.topology.Load()
	if n.addr.sentinel || t == nil {
		return shuffled(n.addr.hosts)
	}
	all := shuffled(t.masters)
	for _, addr := range shuffled(append(slices.Clone(t.replicas), n.addr.hosts...)) {
		if !slices.Contains(all, addr) {
			all = append(all, addr)
		}
	}
	return all
}

func shuffled(list []string) []string {
	list = slices.Clone(list)
	rand.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	return list
}

// askNode asks a node of a cluster for the slots, and how new that is.
func (n *nodes) askNode(ctx context.Context, addr string) (*topology, error) {
	pipe := n.at(addr).Pipeline()
	slots := pipe.Do(ctx, "cluster", "slots")
	info := pipe.ClusterInfo(ctx)
	_, _ = pipe.Exec(ctx) // the commands keep their errors
	reply, err := slots.Result()
	if err != nil {
		return nil, explain(addr, err)
	}
	t, err := parseSlots(reply, addr)
	if err != nil {
		return nil, fmt.Errorf("redisshard: %s: %w", addr, err)
	}
	// Without the right to CLUSTER INFO the epoch stays 0.
	t.epoch, _ = strconv.ParseInt(infoField(info.Val(), "cluster_current_epoch"), 10, 64)
	return t, nil
}

// askSentinel asks a sentinel for the master. Sentinels mostly have no password; one
// that wants any gets the store's.
func (n *nodes) askSentinel(ctx context.Context, addr string) (*topology, error) {
	anonymous := func(context.Context) (string, string, error) { return "", "", nil }
	t, err := n.askSentinelAs(ctx, addr, anonymous)
	if classify(err).kind == kindAuth {
		t, err = n.askSentinelAs(ctx, addr, n.cfg.credentials(n.addr))
	}
	if err != nil {
		return nil, explain(addr, err)
	}
	return t, nil
}

func (n *nodes) askSentinelAs(ctx context.Context, addr string, as credentials) (*topology, error) {
	client := n.newClientAs(addr, 0, as, 0)
	defer client.Close()
	pipe := client.Pipeline()
	where := pipe.Do(ctx, "sentinel", "get-master-addr-by-name", n.addr.master)
	about := pipe.Do(ctx, "sentinel", "master", n.addr.master)
	_, _ = pipe.Exec(ctx)
	parts, err := where.StringSlice()
	switch {
	case errors.Is(err, redis.Nil):
		return nil, permanentError{fmt.Errorf("redisshard: %s: the sentinel knows no master %q", addr, n.addr.master)}
	case err != nil:
		return nil, err
	case len(parts) != 2:
		return nil, fmt.Errorf("redisshard: %s: the sentinel's answer has %d parts: want host and port", addr, len(parts))
	}
	fields, _ := about.StringSlice()
	var epoch int64
	for i := 0; i+1 < len(fields); i += 2 {
		if fields[i] == "config-epoch" {
			epoch, _ = strconv.ParseInt(fields[i+1], 10, 64)
		}
	}
	return everything(net.JoinHostPort(parts[0], parts[1]), epoch), nil
}

// gather puts a question to all addresses at once and returns the answers that
// came until window after the first one; an error if there is none at all.
// Nobody is waited for longer than patience. The context of those who are late ends with gather.
func gather[T any](
	ctx context.Context, addrs []string, patience, window time.Duration, ask func(context.Context, string) (T, error),
) ([]T, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	type result struct {
		answer T
		err    error
	}
	results := make(chan result, len(addrs))
	for _, addr := range addrs {
		go func() {
			answer, err := ask(ctx, addr)
			results <- result{answer, err}
		}()
	}
	var answers []T
	var errs []error
	var late <-chan time.Time
	for range addrs {
		select {
		case r := <-results:
			if r.err != nil {
				errs = append(errs, r.err)
				continue
			}
			answers = append(answers, r.answer)
			if late == nil {
				late = time.After(window)
			}
			if window == 0 {
				return answers, nil
			}
		case <-late:
			return answers, nil
		}
	}
	if len(answers) == 0 {
		return nil, errors.Join(errs...)
	}
	return answers, nil
}
