// Command spillgate decides who may pass: a rate-limit agent for one machine or a fleet.
//
// # Life of the agent process
//
//	command line, file          config                                [1]
//	  |                         store: memstore or redisshard         [2]
//	  |                         rules: file, or store and snapshot    [3]
//	  |                         agent, telemetry, dashboard           [4]
//	  v                         doors and admin listen                [5]
//	serving                     rules change; bad ones change nothing. SIGHUP: look now
//	  |
//	  | SIGTERM, SIGINT         a second one ends the process at once
//	  v                         doors: accept no more, finish, close  [6]
//	                            agent: send what is queued            [7]
//	                            store, dashboard, admin, telemetry    [8]
//
// What makes a start impossible (a bad flag, file or password, a socket in use) is told on
// standard error, with exit status 2, before anything is served. A store that is
// away is no such thing: the agent serves by fail policy, says so under /readyz
// and keeps trying.
//
// # Where things are
//
//	main.go, root.go     exit codes, the command tree, help
//	agent.go, service.go the command agent, and what it wires and runs
//	store.go, rules.go   the two stores as one; the sources of rules as one
//	datacenter.go        the part of the rules that is enforced in this data center
//	admin.go             health, metrics, profiles, the API of package dashboard
//	check.go, version.go one command each
//	rules_*.go           the command rules and what is below it: files, and versions in the store
//	bench.go             the command bench, which drives bench/
//	config/              the configuration file and the flags
//
// Packages here wire and talk to operators; decisions are made in package agent.
package main
