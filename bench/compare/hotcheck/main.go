package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"text/tabwriter"
	"time"
)

func main() {
	keys := flag.String("keys", "1000,10000,100000", "numbers of keys")
	rounds := flag.Int("rounds", 5, "rounds over all")
	length := flag.Duration("length", 500*time.Millisecond, "length of a run")
	warmup := flag.Duration("warmup", 500*time.Millisecond, "time before the measured time")
	flag.Parse()
	if err := compare(os.Stdout, *keys, *rounds, *warmup, *length); err != nil {
		fmt.Fprintln(os.Stderr, "hotcheck:", err)
		os.Exit(1)
	}
}

// sample is a run: checks are those of all callers.
type sample struct {
	checks, asked uint64
	took, cpu     time.Duration // cpu is that of the process, with what goes on behind the checks
	allocs        float64       // per check
}

func (s sample) rate() float64 { return float64(s.checks) / s.took.Seconds() }

func (s sample) cpuEach() float64 { return float64(s.cpu) / float64(max(1, s.checks)) }

// pair is a rival's round: on one core and on two.
type pair struct{ one, two sample }

func compare(out io.Writer, keys string, rounds int, warmup, length time.Duration) error {
	if rounds < 1 || length <= 0 {
		return fmt.Errorf("-rounds and -length must be positive")
	}
	t := tabwriter.NewWriter(out, 0, 0, 1, ' ', 0)
	fmt.Fprintln(t, "| keys\t| check\t| ns, 1 core\t| ratio\t| CPU ns\t| ratio\t| M/s, 2 cores\t| ratio\t| scaling\t| CPU ns\t| allocs\t| asked\t|")
	fmt.Fprintln(t, "|"+strings.Repeat("---\t|", 12))
	for field := range strings.SplitSeq(keys, ",") {
		n, err := strconv.Atoi(field)
		if err != nil || n < 2 {
			return fmt.Errorf("-keys: %q is no number of keys", field)
		}
		traffic := newTraffic(n)
		results := make([][]pair, len(rivals))
		for round := range rounds {
			for turn := range rivals {
				at := (round + turn) % len(rivals)
				p, err := runPair(at, traffic, warmup, length)
				if err != nil {
					return err
				}
				results[at] = append(results[at], p)
			}
		}
		for at := range rivals {
			printRow(t, n, rivals[at].name, results[at], results[len(rivals)-1])
		}
	}
	return t.Flush()
}

// runPair runs one rival, opened anew for each number of cores.
func runPair(at int, traffic *traffic, warmup, length time.Duration) (p pair, err error) {
	if p.one, err = runOn(1, at, traffic, warmup, length); err != nil {
		return p, err
	}
	p.two, err = runOn(2, at, traffic, warmup, length)
	return p, err
}

func runOn(cores, at int, traffic *traffic, warmup, length time.Duration) (sample, error) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(cores))
	r, err := rivals[at].open()
	if err != nil {
		return sample{}, err
	}
	defer r.close()
	if _, err := loop(cores, r, traffic, warmup); err != nil {
		return sample{}, err
	}
	runtime.GC()
	return loop(cores, r, traffic, length)
}

// chunk is how many checks a caller makes between two looks at the clock.
const chunk = 1024

// loop has callers check for a while, each from a place of its own in the stream.
func loop(callers int, r rival, traffic *traffic, length time.Duration) (sample, error) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	asked := r.asked()
	made, denied := make([]uint64, 16*callers), make([]uint64, 16*callers) // a cache line and more apart
	cpu, err := cpuTime()
	if err != nil {
		return sample{}, err
	}
	start := time.Now()
	var wg sync.WaitGroup
	for c := range callers {
		wg.Go(func() {
			check, i := r.caller(), c*streamLen/callers
			for time.Since(start) < length {
				refused := uint64(0)
				for range chunk {
					if !check(traffic.at(i)) {
						refused++
					}
					i++
				}
				made[16*c] += chunk
				denied[16*c] += refused
			}
		})
	}
	wg.Wait()
	s := sample{took: time.Since(start), asked: r.asked() - asked}
	if s.cpu, err = cpuTime(); err != nil {
		return s, err
	}
	s.cpu -= cpu
	runtime.ReadMemStats(&after)
	for c := range callers {
		s.checks += made[16*c]
		if n := denied[16*c]; n > 0 {
			return s, fmt.Errorf("%d of %d checks were denied under a limit that nobody reaches", n, made[16*c])
		}
	}
	s.allocs = float64(after.Mallocs-before.Mallocs) / float64(max(1, s.checks))
	return s, nil
}

// cpuTime is what this process has used so far, in user and kernel mode.
func cpuTime() (time.Duration, error) {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0, fmt.Errorf("getrusage: %w", err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), nil
}

// printRow prints the medians of a rival. Ratios are the row's over the base's: of times below 1 is better, of rates above.
func printRow(out io.Writer, keys int, name string, runs, base []pair) {
	of := func(f func(p, b pair) float64) float64 {
		values := make([]float64, len(runs))
		for i := range runs {
			values[i] = f(runs[i], base[i])
		}
		return median(values)
	}
	fmt.Fprintf(out, "| %d\t| %s\t| %.1f\t| %.2f\t| %.1f\t| %.2f\t| %.2f\t| %.2f\t| %.2f\t| %.1f\t| %.2f\t| %.4f\t|\n", keys, name,
		of(func(p, _ pair) float64 { return 1e9 / p.one.rate() }),
		of(func(p, b pair) float64 { return b.one.rate() / p.one.rate() }),
		of(func(p, _ pair) float64 { return p.one.cpuEach() }),
		of(func(p, b pair) float64 { return p.one.cpuEach() / b.one.cpuEach() }),
		of(func(p, _ pair) float64 { return p.two.rate() / 1e6 }),
		of(func(p, b pair) float64 { return p.two.rate() / b.two.rate() }),
		of(func(p, _ pair) float64 { return p.two.rate() / p.one.rate() }),
		of(func(p, _ pair) float64 { return p.two.cpuEach() }),
		of(func(p, _ pair) float64 { return p.one.allocs }),
		of(func(p, _ pair) float64 { return float64(p.one.asked) / float64(max(1, p.one.checks)) }))
}

// median is the middle of the sorted values, the mean of the two in the middle.
func median(values []float64) float64 {
	v := slices.Sorted(slices.Values(values))
	return (v[len(v)/2] + v[(len(v)-1)/2]) / 2
}
