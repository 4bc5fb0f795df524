// Package telemetry makes the agent's totals visible as OpenTelemetry metrics, and
// serves them in Prometheus's text format.
//
//	check path                        scrape
//	  agent counts in its Stats         Handler                      [1]
//	                                      | one reading: Stats() etc. [2]
//	store call                            v
//	  OnCall --> 2 histograms  [3]      names.go -> text
//
// All names are in names.go, in the form in which Prometheus shows them, so that a
// name found on a dashboard is found in the code; docs/metrics.md holds the same table
// and a test compares the two.
//
// # Who owns what
//
// The counts belong to the agent and the store. This package reads them when it
// is asked, by asynchronous instruments, and has nothing on the path of a check. Only the two
// histograms are fed: once for each call to the store, which carries many checks.
//
// # What it does not do
//
// It knows no store: whoever wires it gives it a function that takes a Reading. No key becomes a label, and the names of
// rules do in one metric only, so the number of series depends on the rules and not on traffic.
// Spans and export by OTLP are not in this version.
package telemetry
