// Command fleet drives a fleet of agents against real Redis and compares rules of mode exact, decided by
// Redis at every check, with rules of mode leased. It starts its servers and stops them.
//
//	go run ./bench/fleet -scenario zipf
//	go run ./bench/fleet -scenario viral -cluster -rounds 5
//	go run ./bench/fleet -scenario trace -trace orm-busy.trace.xz
//	go run ./bench/fleet -scenario saturated -rounds 1 -json out.json
//
// # A run
//
//	[1] start     one Redis, or three masters                          servers.go
//	[2] draw      the keys of the round's checks, before any runs      keys.go, trace.go
//	[3] open      empty Redis; a fresh agent, with its own store       fleet.go
//	[4] load      check i is due i/rate after the start, at the agents
//	              in turn, whatever became of the ones before          load.go
//	[5] sample    counters and CPU times where the warm-up ends and
//	              when the last check is answered                      compare.go
//	[6] report    medians over the rounds; ratios within a round       report.go, saturated.go
//
// Both modes get the same keys at the same times. They take turns, and the one that begins changes from
// round to round, so that noise of the machine falls on both.
//
// # Scenarios
//
//   - viral: all checks on one bucket; once with a limit of ten times the load, once with half of it.
//   - zipf: a million keys, the k-th in proportion to 1/k; generous limits.
//   - uniform: a million keys, all alike; generous limits. Nothing to lease: what mode leased costs.
//   - trace: the keys of a recorded trace in their order, dealt to the agents one by one; generous limits.
//   - saturated: one bucket at ten times its rate, for several capacities C and rates r.
//
// # What is measured
//
// Checks are those answered between the end of the warm-up and the end of the run. Calls and entries are those of the
// agents' batchers. Redis CPU is used_cpu_user + used_cpu_sys of INFO, over all servers, with what an idle server
// uses. Agent CPU is the user and system time of this process: all agents and the load generator, whose own
// share is measured beforehand with checks that do nothing, and printed. The latency of a check is the time in
// Handle.Check. "From due" it also includes the pacing, in steps of a millisecond, and the wait for a free
// worker; a check is not made, and counted as lost, when a quarter of a second's load of its agent waits already.
//
// Scenario saturated records when each admitted check was called and when it returned, from the first
// check of the warm-up on. In every window from a call to a return, the admissions that lie in it whole are
// at most C + r*w; the worst excess is printed (internal/window). The same with each admission booked at its
// return is printed beside it: delays of replies bunch there, so it may be above zero. "Granted"
// is what was admitted in the measured time over r times that time: the warm-up has used up the burst,
// and tokens left from it may bring the share above 1 by C/(r*time) at most. "With the burst" is all that
// was admitted, over C + r times the whole time.
//
// # What is not
//
// No network: agents and Redis share one machine and its cores, so throughput is no subject here and latencies are
// those of a busy machine. No door either; the checks are calls in Go. The agents are in one process and share its
// scheduler and garbage collector. What an agent sends at its close, such as unspent leases, is not
// counted.
package main
