// Package sim simulates fleets of agents on virtual time.
package sim
