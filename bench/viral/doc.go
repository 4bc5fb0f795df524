// Package viral measures what it does to split a viral key: it drives one key in mode exact, decided by Redis at
// every check, once with splitting off and once with splitting on. It is `spillgate bench redis --scenario viral`.
//
// # A run
//
//	[1] start     three masters, each a process, or the cluster that is named     cluster.go
//	[2] open      fresh agents, each with a store and connections of its own      fleet.go
//	[3] load      callers of each agent check the one key                         load.go
//	[4] sample    every 100 ms: the checks so far, and INFO of every master       sample.go
//	[5] whole     the load is over: when do the agents know the bucket as whole?  viral.go
//	[6] measure   what the samples say                                            measure.go
//	[7] report    medians over the rounds                                         report.go
//
// The variants take turns, and the one that begins changes from round to round. All runs drive the same key, so
// that its home is the same master; a run begins when no split of the run before can be left.
//
// # What is measured
//
// Rates are those of the measured time, which begins after a time to settle. Calls are scripts that a master has run
// (EVALSHA and EVAL in INFO commandstats), whoever sent them: on a cluster that others use, theirs count too. CPU is
// used_cpu_user + used_cpu_sys of INFO, as share of a core. The ratio busiest/mean is 1 when all masters do the
// same, and the number of masters when one does everything.
//
// Traffic is spread from the end of the first slice of 100 ms in which three quarters of the calls went to all masters
// alike, and only a quarter to one of them alone: busiest/mean is at most 1 + (masters-1)/4, which is 1.5 with
// three. A lower bound would ask for luck, since each agent begins at a part of its own choice for a second at a
// time. A slice with few calls is joined with the next.
//
// The bucket is whole again when no agent knows of its split any more (Agent.Splits).
//
// # What is not
//
// Agents and callers share one process, and with servers of its own the whole run shares one machine: the figure to
// look at is where the calls go, not how many there are. Only with a rate (Config.Rate) do both variants serve
// the same checks.
package viral
