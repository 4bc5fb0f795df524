package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillgate/spillgate/agent/split"
	"github.com/spillgate/spillgate/dashboard"
	"github.com/spillgate/spillgate/internal/redistest"
	"github.com/spillgate/spillgate/internal/window"
	"github.com/spillgate/spillgate/limit"
)

// The tests in split_*_test.go hold the promises about buckets that are divided, as hot_*_test.go do about hot ones: agent
// processes, a Redis Cluster, and what clients saw. What the agents know of divisions comes from their admin doors, what
// the store holds from the masters.
//
//	splitFleet   agents with one rules file, which can change under them
//	load         clients of all agents, in one of two gears
//	history      what became of a bucket, as the agents' events tell
//
// They run on one cluster after another, with keys of their own, unless they break it.

// splitLength has the tests of divided buckets last longer: go test -run TestSplit/viral ./cmd/spillgate -split.length=60s
var splitLength = flag.Duration("split.length", 0, "least length of the load in TestSplit; by default each test takes a few seconds")

// splitFrom is the threshold of splits: few enough that a busy machine gets there, with the race detector too.
const splitFrom = 300

// busyTimeout is after what time a master that does not answer is taken for dead: more than a busy machine leaves one without a turn. A
// failover that nobody asked for loses debits.
const busyTimeout = 3 * time.Second

// loadFor is how long the load of a test lasts: that short, or as the flag says.
func loadFor(short time.Duration) time.Duration { return max(short, *splitLength) }

// splitRule is a rule for all values of one descriptor key.
type splitRule struct {
	name, mode, split string
	limit             string
}

// exactRule is the rule of a bucket in mode exact.
func exactRule(b hotBucket) splitRule {
	return splitRule{name: b.check, mode: "exact", split: "auto", limit: b.ruleLimit()}
}

func (b hotBucket) ruleLimit() string {
	return fmt.Sprintf("{requests: %d, per: %ds, burst: %d}", b.count, b.period, b.burst)
}

// looks asks for no token of the bucket.
func (b hotBucket) looks() hotBucket {
	b.quantity = 0
	return b
}

// rulesFile is the text of a file with these rules.
func rulesFile(rules ...splitRule) string {
	var s strings.Builder
	s.WriteString("domain: api\nrules:\n  - {name: other, match: [{key: other}], unlimited: true}\n")
	for _, r := range rules {
		fmt.Fprintf(&s, "  - {name: %s, match: [{key: %s}], limit: %s, mode: %s, split: %s}\n", r.name, r.name, r.limit, r.mode, r.split)
	}
	return s.String()
}

// splitFleet is agents that share a rules file.
type splitFleet struct {
	*testing.T
	cluster *redistest.Cluster
	procs   []*agentProc
	file    string
}

// startSplitFleet starts agents that deny what the store does not decide, and wait long for it: what is slow on a busy machine is no
// failure.
func startSplitFleet(t *testing.T, cluster *redistest.Cluster, n int, rules string, args ...string) *splitFleet {
	t.Helper()
	dir := shortDir(t)
	f := &splitFleet{T: t, cluster: cluster, file: filepath.Join(dir, "rules.yaml"), procs: make([]*agentProc, n)}
	must(t, os.WriteFile(f.file, []byte(rules), 0o600))
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range f.procs {
		name := fmt.Sprint("agent", i)
		all := []string{"--rules", f.file, "--admin", "unix://" + filepath.Join(dir, name+".admin"), "--split-ops", strconv.Itoa(splitFrom),
			"--agent-deadline", "10s", "--store-timeout", "10s"}
		f.procs[i] = newProc(t, dir, name, cluster.URL(), append(all, args...)...)
		wg.Go(func() { errs[i] = f.procs[i].start() })
	}
	wg.Wait()
	must(t, errors.Join(errs...))
	return f
}

// reload changes the rules of all agents, and returns when the last one has them.
func (f *splitFleet) reload(rules string) {
	f.Helper()
	must(f.T, os.WriteFile(f.file, []byte(rules), 0o600))
	var before []int
	for _, p := range f.procs {
		before = append(before, p.reloads())
		must(f.T, p.signal(syscall.SIGHUP))
	}
	for i, p := range f.procs {
		f.await("an agent has the rules", func() bool { return p.reloads() > before[i] })
	}
}

// reloads is how often the agent has logged that it took new rules.
func (p *agentProc) reloads() int {
	log, _ := os.ReadFile(p.log) // there is one, or none is counted
	return strings.Count(string(log), "rules reloaded")
}

// await waits until something is so.
func (f *splitFleet) await(what string, so func() bool) {
	f.Helper()
	await(f.T, what, so)
}

// door is a client of the agent's admin door.
func (p *agentProc) door() *http.Client {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", p.socket+".admin")
	}
	return &http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}
}

// show reads what the agent's API shows.
func show(t *testing.T, p *agentProc, path string, into any) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), scriptPatience)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://admin/api/v1/"+path, nil)
	must(t, err)
	answer, err := p.door().Do(r)
	must(t, err)
	defer answer.Body.Close()
	must(t, json.NewDecoder(answer.Body).Decode(into))
}

// known is how a bucket is divided, as an agent knows it; ok is false if it is whole.
func (f *splitFleet) known(p *agentProc, key string) (s dashboard.Split, ok bool) {
	f.Helper()
	var all []dashboard.Split
	show(f.T, p, "splits", &all)
	for _, s := range all {
		if slices.Equal(s.Values, []string{key}) {
			return s, true
		}
	}
	return s, false
}

// divided waits until an agent knows that the bucket is divided, and that the masters of all parts are known.
func (f *splitFleet) divided(p *agentProc, key string) (s dashboard.Split) {
	f.Helper()
	f.await(key+" is divided", func() (ok bool) {
		s, ok = f.known(p, key)
		return ok && !slices.ContainsFunc(s.Parts, func(p dashboard.Part) bool { return p.Master == "" })
	})
	return s
}

// whole waits until no agent knows the bucket as divided.
func (f *splitFleet) whole(key string) {
	f.Helper()
	f.await(key+" is whole", func() bool {
		for _, p := range f.procs {
			if _, divided := f.known(p, key); divided {
				return false
			}
		}
		return true
	})
}

// totals adds up the agents' totals of splits.
func (f *splitFleet) totals() (sum dashboard.Splits) {
	f.Helper()
	for _, p := range f.procs {
		var s dashboard.Stats
		show(f.T, p, "stats", &s)
		sum.Split += s.Splits.Split
		sum.Merged += s.Splits.Merged
		sum.Ended += s.Splits.Ended
		sum.Touches += s.Splits.Touches
		sum.Refused += s.Splits.Refused
		sum.Overflows += s.Splits.Overflows
	}
	return sum
}

// served are the entries of a bucket by master, of all agents that know it as divided.
func (f *splitFleet) served(key string) map[string]uint64 {
	f.Helper()
	by := make(map[string]uint64)
	for _, p := range f.procs {
		s, _ := f.known(p, key)
		for _, m := range s.Masters {
			by[m.Master] += m.Ops
		}
	}
	return by
}

// awaitSpread waits until each of so many masters has served a tenth of what it would in an even division.
func (f *splitFleet) awaitSpread(key string, masters int) (by map[string]uint64) {
	f.Helper()
	f.await(fmt.Sprintf("%d masters serve %s", masters, key), func() bool {
		by = f.served(key)
		sum, least := uint64(0), uint64(1<<63)
		for _, n := range by {
			sum, least = sum+n, min(least, n)
		}
		return len(by) == masters && least > 0 && least*10*uint64(masters) >= sum
	})
	return by
}

// history is what became of a bucket, as the events of agents tell.
type history struct {
	key string

	mu      sync.Mutex
	splits  map[int64]bool            // by their start: there was one
	ends    map[int64]split.EventKind // by the start: merged, or only ended
	masters map[string]bool           // that had a part
}

// follow begins to read the events of all agents. Those before are told as well.
func (f *splitFleet) follow(key string) *history {
	f.Helper()
	h := &history{key: key, splits: make(map[int64]bool), ends: make(map[int64]split.EventKind), masters: make(map[string]bool)}
	for _, p := range f.procs {
		ctx, cancel := context.WithCancel(context.Background())
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://admin/api/v1/events", nil)
		must(f.T, err)
		answer, err := p.door().Do(r)
		must(f.T, err)
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			h.read(answer)
		}()
		f.Cleanup(func() {
			cancel()
			<-ended
		})
	}
	return h
}

// read takes events until the stream ends.
func (h *history) read(answer *http.Response) {
	defer answer.Body.Close()
	lines := bufio.NewScanner(answer.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		var e dashboard.Event
		if ok && json.Unmarshal([]byte(data), &e) == nil && slices.Equal(e.Values, []string{h.key}) {
			h.add(&e)
		}
	}
}

func (h *history) add(e *dashboard.Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	start := e.Since.UnixMicro()
	h.splits[start] = true
	for _, p := range e.Parts {
		h.masters[p.Master] = true
	}
	// One agent may have heard of the merge only when the time was over.
	if e.Event == split.EventMerged || e.Event == split.EventEnded && h.ends[start] == "" {
		h.ends[start] = e.Event
	}
}

// counts are how many splits there were, how many ended by a merge, and how many by their time.
func (h *history) counts() (splits, merged, ended int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, e := range h.ends {
		if e == split.EventMerged {
			merged++
		} else {
			ended++
		}
	}
	return len(h.splits), merged, ended
}

// gear is how hard a load presses.
type gear int32

const (
	// full: all agents, as fast as answers come.
	full gear = iota
	// slow: the first agent alone, with many commands at a time: more tokens than there are, and few entries.
	slow
)

// slowEvery is the pause between two batches in gear slow, and slowBatch how many commands are in one.
const (
	slowEvery = 150 * time.Millisecond
	slowBatch = 256
)

// load is a client of each agent that asks for one bucket.
type load struct {
	l      *ledger
	batch  int
	gear   atomic.Int32
	cancel context.CancelFunc
	wg     sync.WaitGroup
}

// press begins a load, in gear full. Each client has so many commands without an answer at a time.
func (f *splitFleet) press(l *ledger, batch int) *load {
	f.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	p := &load{l: l, batch: batch, cancel: cancel}
	f.Cleanup(p.end)
	for i, a := range f.procs {
		p.wg.Go(func() {
			for ctx.Err() == nil {
				if err := p.over(ctx, a, i == 0); err != nil && !broken(err) {
					f.Error(err)
					return
				}
			}
		})
	}
	return p
}

// over asks on one connection until it breaks or the load ends.
func (p *load) over(ctx context.Context, a *agentProc, first bool) error {
	c, err := a.caller(p.l)
	if err != nil { // it is not back yet
		time.Sleep(5 * time.Millisecond)
		return nil
	}
	defer c.conn.Close()
	for ctx.Err() == nil {
		switch {
		case gear(p.gear.Load()) == full:
			_, err = c.ask(p.batch)
		case first:
			_, err = c.ask(slowBatch)
			time.Sleep(slowEvery)
		default:
			time.Sleep(5 * time.Millisecond)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (p *load) shift(g gear) { p.gear.Store(int32(g)) }

// end ends the load and waits for the last answers.
func (p *load) end() {
	p.cancel()
	p.wg.Wait()
}

// checkReply reads the answer to an SG.CHECK.
func (c *caller) checkReply() (r throttleReply, err error) {
	var v [6]int64 // the header counts as the first number
	var texts [2]string
	for i := range v {
		if v[i], err = c.number("*:::::"[i]); err != nil {
			return r, err
		}
	}
	for i := range texts {
		n, err := c.number('$')
		if err != nil {
			return r, err
		}
		text := make([]byte, n+2)
		if _, err := io.ReadFull(c.r, text); err != nil {
			return r, err
		}
		texts[i] = string(text[:n])
	}
	return throttleReply{v[1] == 0, v[2], v[3], v[4], v[5], texts[1]}, nil
}

// number reads a line that has a mark and a number.
func (c *caller) number(mark byte) (n int64, err error) {
	line, err := c.r.ReadString('\n')
	if err != nil {
		return 0, err
	}
	if n, err = strconv.ParseInt(strings.TrimSuffix(line[1:], "\r\n"), 10, 64); err != nil || line[0] != mark {
		return 0, fmt.Errorf("the door answers %q", line)
	}
	return n, nil
}

// other counts a reply that no token stands behind, and that is no denial by the bucket; it is false of all others.
func (l *ledger) other(at time.Duration, reason string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch reason {
	case "store_closed", "store_open", "overloaded":
		l.policy = append(l.policy, at)
	case "no_rule":
		l.ruleless++
	default:
		return false
	}
	return true
}

// byPolicy is how many answers were by policy, to commands sent from a time on.
func (l *ledger) byPolicy(from time.Duration) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, at := range l.policy {
		if at >= from {
			n++
		}
	}
	return n
}

// forWant is how many were admitted for want of a rule.
func (l *ledger) forWant() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ruleless
}

// between is the part of a ledger with what was admitted in a stretch of time, whole, for another bucket if the limit has changed.
func (l *ledger) between(from, to time.Duration, b hotBucket) *ledger {
	l.mu.Lock()
	defer l.mu.Unlock()
	part := &ledger{bucket: b, start: l.start}
	part.admitted = slices.DeleteFunc(slices.Clone(l.admitted), func(a window.Admission) bool { return a.Sent < from || a.Received > to })
	return part
}

// hashes are the hashes of a bucket's parts on all masters, with their fields; home's is not one.
func (f *splitFleet) hashes(key string) map[string][]string {
	f.Helper()
	end := string(limit.AppendPart(nil, key))
	return f.fields(func(field string) bool { return field[0] == 0xfe && strings.HasSuffix(field, end) })
}

// fields are the fields of all hashes of ours on all masters that are wanted, by hash. A hash without a time to live fails the test.
func (f *splitFleet) fields(want func(field string) bool) map[string][]string {
	f.Helper()
	found := make(map[string][]string)
	for _, m := range f.cluster.Masters() {
		if !m.Alive() {
			continue
		}
		c := m.Client()
		for keys := c.Scan(f.Context(), 0, "sg:*", 1000).Iterator(); keys.Next(f.Context()); {
			hash := keys.Val()
			if left, err := c.PTTL(f.Context(), hash).Result(); err != nil || left == -1 {
				f.Errorf("%q has no time to live: %v, %v", hash, left, err)
			}
			fields, err := c.HKeys(f.Context(), hash).Result()
			if err != nil && !redis.HasErrorPrefix(err, "WRONGTYPE") { // the layout is no hash
				f.Fatal(err)
			}
			for _, field := range fields {
				if want(field) {
					found[hash] = append(found[hash], field)
				}
			}
		}
	}
	return found
}
