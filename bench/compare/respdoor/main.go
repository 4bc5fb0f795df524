// Command respdoor measures Spillgate's RESP door with the embedded store against Redis' own GET,
// and what a door can reach at all: with our own reader and writer (sidecar/resp/wire) and
// nothing behind them, and with github.com/tidwall/redcon. Its figures are those of
// the README and of docs/adr/0002.
//
// Every server is a process of its own on a Unix socket. redis-benchmark loads
// them one after the other, round by round, so that noise of the machine falls
// on all of them. The ratio of a server is the median over the rounds of its
// rate divided by that of Redis in the same round. Linux only; needs
// redis-server and redis-benchmark. Run it in bench/compare:
//
//	go run ./respdoor -rounds 9 -rivals spillgate -n64 3000000
//	go run ./respdoor -rounds 9 -rivals redcon,wire-net,wire,ceiling
package main

import (
	"context"
	"encoding/csv"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

var (
	getCommand      = []string{"GET", "key:__rand_int__"}
	throttleCommand = []string{"CL.THROTTLE", "key:__rand_int__", "100", "1000", "1"}
)

// A rival is a running server and what it is asked.
type rival struct {
	name    string
	procs   int // GOMAXPROCS; 0 for Redis
	command []string
	socket  string
	process *exec.Cmd
}

// A load is one setting of redis-benchmark.
type load struct{ pipeline, requests int }

// A sample is the outcome of one load on one rival.
type sample struct {
	rate        float64       // commands a second
	cpu, client time.Duration // CPU time of the server and of redis-benchmark, per command
}

func main() {
	rounds := flag.Int("rounds", 9, "rounds over all servers")
	deep := flag.Int("n64", 500_000, "requests of a run with -P 64")
	single := flag.Int("n1", 50_000, "requests of a run with -P 1")
	rivals := flag.String("rivals", "spillgate,redcon,wire-net,wire,ceiling", "servers to compare with Redis")
	serve := flag.String("serve", "", "be this server (used by respdoor itself)")
	socket := flag.String("socket", "", "socket of -serve")
	flag.Parse()

	var err error
	if *serve != "" {
		err = servers[*serve](*socket)
	} else {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
		defer stop()
		err = measure(ctx, os.Stdout, strings.Split(*rivals, ","), *rounds, []load{{64, *deep}, {1, *single}})
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "respdoor:", err)
		os.Exit(1)
	}
}

// measure starts the servers, loads them and prints the tables.
func measure(ctx context.Context, out io.Writer, names []string, rounds int, loads []load) (err error) {
	dir, err := os.MkdirTemp("", "respdoor")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()

	rivals, err := start(ctx, dir, names)
	defer func() {
		for _, r := range rivals {
			r.process.Process.Kill()
			r.process.Wait()
		}
	}()
	if err != nil {
		return err
	}
	for _, l := range loads {
		samples := make([][]sample, len(rivals))
		for range rounds {
			for i, r := range rivals {
				s, err := r.run(ctx, l)
				if err != nil {
					return err
				}
				samples[i] = append(samples[i], s)
			}
		}
		printTable(out, l, rivals, samples)
	}
	return nil
}

// start starts all servers. The first is Redis, the one to compare with. It
// returns those it started, even with an error.
func start(ctx context.Context, dir string, names []string) (rivals []*rival, err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	add := func(r *rival, name string, args ...string) error {
		r.process = exec.CommandContext(ctx, name, args...)
		if r.procs > 0 {
			r.process.Env = append(os.Environ(), fmt.Sprint("GOMAXPROCS=", r.procs))
		}
		if err := r.process.Start(); err != nil {
			return err
		}
		rivals = append(rivals, r)
		return r.await()
	}

	redis := &rival{name: "redis GET", command: getCommand, socket: filepath.Join(dir, "redis.sock")}
	if err := add(redis, "redis-server", "--port", "0", "--unixsocket", redis.socket, "--dir", dir, "--save", ""); err != nil {
		return rivals, err
	}
	// GET finds values, as that of redis-benchmark -t set,get does.
	set := &rival{name: "redis SET", command: []string{"SET", "key:__rand_int__", "xxx"}, socket: redis.socket, process: redis.process}
	if _, err := set.run(ctx, load{64, 50_000}); err != nil {
		return rivals, err
	}
	for _, name := range names {
		program, args, err := command(ctx, name, self, dir)
		if err != nil {
			return rivals, err
		}
		for _, procs := range []int{1, 2} {
			r := &rival{name: name, procs: procs, command: throttleCommand, socket: filepath.Join(dir, fmt.Sprint(name, procs))}
			if err := add(r, program, args(r.socket)...); err != nil {
				return rivals, err
			}
		}
	}
	return rivals, nil
}

// command is the program of a rival and its arguments. Spillgate is built first.
func command(ctx context.Context, name, self, dir string) (program string, args func(socket string) []string, err error) {
	if name != "spillgate" {
		if servers[name] == nil {
			return "", nil, fmt.Errorf("-rivals: there is no server %q", name)
		}
		return self, func(socket string) []string { return []string{"-serve", name, "-socket", socket} }, nil
	}
	program = filepath.Join(dir, "spillgate")
	out, err := exec.CommandContext(ctx, "go", "build", "-C", "../..", "-o", program, "./cmd/spillgate").CombinedOutput()
	if err != nil {
		return "", nil, fmt.Errorf("go build: %w\n%s", err, out)
	}
	return program, func(socket string) []string {
		return []string{"agent", "--resp", "unix://" + socket, "--admin", "unix://" + socket + ".admin"}
	}, nil
}

// await waits until the server accepts connections.
func (r *rival) await() error {
	var err error
	for range 100 {
		var conn net.Conn
		if conn, err = net.Dial("unix", r.socket); err == nil {
			return conn.Close()
		}
		time.Sleep(20 * time.Millisecond)
	}
	return fmt.Errorf("%s does not start: %w", r.name, err)
}

// run loads the server once.
func (r *rival) run(ctx context.Context, l load) (sample, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	args := []string{"-s", r.socket, "-P", strconv.Itoa(l.pipeline), "-c", "50", "-r", "1000", "-n", strconv.Itoa(l.requests), "--csv"}
	before, err := cpuTime(r.process.Process.Pid)
	if err != nil {
		return sample{}, err
	}
	client := exec.CommandContext(ctx, "redis-benchmark", append(args, r.command...)...)
	out, err := client.Output()
	if err != nil {
		return sample{}, fmt.Errorf("redis-benchmark on %s: %w", r.name, err)
	}
	after, err := cpuTime(r.process.Process.Pid)
	if err != nil {
		return sample{}, err
	}
	rate, err := parseRate(string(out))
	if err != nil {
		return sample{}, fmt.Errorf("redis-benchmark on %s: %w", r.name, err)
	}
	n := time.Duration(l.requests)
	return sample{rate, (after - before) / n, (client.ProcessState.UserTime() + client.ProcessState.SystemTime()) / n}, nil
}

// parseRate takes the requests per second from the last line of --csv.
func parseRate(out string) (float64, error) {
	lines := strings.Split(strings.TrimSpace(out), "\n")
	fields, err := csv.NewReader(strings.NewReader(lines[len(lines)-1])).Read()
	if err != nil {
		return 0, err
	}
	if len(fields) < 2 {
		return 0, fmt.Errorf("no rate in %q", out)
	}
	return strconv.ParseFloat(fields[1], 64)
}

// cpuTime is what the process has used so far, in user and kernel mode.
func cpuTime(pid int) (time.Duration, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	// The fields after the name, which is in parentheses; see proc(5).
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	var ticks int64
	for _, field := range fields[11:13] {
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0, err
		}
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond, nil
}

func printTable(out io.Writer, l load, rivals []*rival, samples [][]sample) {
	fmt.Fprintf(out, "\nredis-benchmark -P %d -c 50 -r 1000 -n %d, %d rounds\n\n", l.pipeline, l.requests, len(samples[0]))
	t := tabwriter.NewWriter(out, 0, 0, 1, ' ', 0)
	fmt.Fprintln(t, "| server\t| Ps\t| commands/s\t| of GET\t| quartiles\t| server CPU/command\t| client CPU/command\t|")
	fmt.Fprintln(t, "|---\t|---\t|---\t|---\t|---\t|---\t|---\t|")
	for i, r := range rivals {
		var rates, ratios []float64
		var cpus, clients []time.Duration
		for round, s := range samples[i] {
			rates = append(rates, s.rate)
			ratios = append(ratios, s.rate/samples[0][round].rate)
			cpus = append(cpus, s.cpu)
			clients = append(clients, s.client)
		}
		procs := "-"
		if r.procs > 0 {
			procs = strconv.Itoa(r.procs)
		}
		fmt.Fprintf(t, "| %s\t| %s\t| %.0f\t| %.2f\t| %.2f-%.2f\t| %v\t| %v\t|\n", r.name, procs,
			quantile(rates, 0.5), quantile(ratios, 0.5), quantile(ratios, 0.25), quantile(ratios, 0.75),
			quantile(cpus, 0.5).Round(10*time.Nanosecond), quantile(clients, 0.5).Round(10*time.Nanosecond))
	}
	t.Flush()
}

// quantile is the value at q of the sorted values, the lower one of two.
func quantile[T float64 | time.Duration](values []T, q float64) T {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[int(q*float64(len(sorted)-1))]
}
