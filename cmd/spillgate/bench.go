package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/spillgate/spillgate/bench/viral"
)

// laterBenches are documented, and come with a later version.
var laterBenches = []string{"embedded", "uds", "grpc", "http", "fleet"}

func newBenchCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "bench",
		Short:   "Put load on the product and measure it",
		Long:    "Put load on the product, measure what it does, and print a table.",
		Example: "  spillgate bench redis --scenario viral",
		Args:    usage(noCommand),
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.SuggestionsMinimumDistance = 2
	cmd.AddCommand(newBenchRedisCommand())
	return cmd
}

// scenarios of the command bench redis.
var scenarios = []string{"viral"}

// benchOptions are the flags of the command bench redis that are not the bench's own.
type benchOptions struct {
	scenario, json string
}

func newBenchRedisCommand() *cobra.Command {
	o, cfg := benchOptions{}, viral.Default()
	cmd := &cobra.Command{
		Use:   "redis [flags]",
		Short: "Load a Redis Cluster; what splitting a viral key does",
		Long: "Load a Redis Cluster. Scenario viral: agents check one key, first with splitting\n" +
			"off, then on, and where the calls and the CPU go is compared.",
		Example: "  spillgate bench redis --scenario viral --rate 20000 --json out.json",
		Args:    usage(noArguments),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return benchRedis(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr(), o, cfg)
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&o.scenario, "scenario", scenarios[0], "what to do: `name`, only viral so far")
	flags.StringVar(&cfg.Store, "store", "", "`URL` of a cluster to load; none in use! Without it one is started")
	flags.IntVar(&cfg.Agents, "agents", cfg.Agents, "agents, each with a store of its own")
	flags.IntVar(&cfg.Connections, "connections", cfg.Connections, "callers of each agent")
	flags.Float64Var(&cfg.Rate, "rate", cfg.Rate, "checks per second in all; 0: as many as go")
	flags.Int64Var(&cfg.Limit, "limit", cfg.Limit, "limit of the key per second, and at once")
	flags.Int64Var(&cfg.SplitOps, "split-ops", cfg.SplitOps, "split from so many entries per second; 0: 5,000")
	flags.IntVar(&cfg.Rounds, "rounds", cfg.Rounds, "rounds, each with splitting off and on")
	flags.DurationVar(&cfg.Duration, "duration", cfg.Duration, "measured time of a round and variant")
	flags.DurationVar(&cfg.Settle, "settle", cfg.Settle, "load before the measured time")
	flags.StringVar(&o.json, "json", "", "also write every round to this `file`")
	return cmd
}

// writable reports why a file cannot be written.
func writable(file string) error {
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE, 0o666)
	if err != nil {
		return err
	}
	return f.Close()
}

// benchRedis runs a scenario until SIGTERM or SIGINT. A second one finds Go's default and ends the process; servers that
// were started end with it.
func benchRedis(ctx context.Context, out, progress io.Writer, o benchOptions, cfg viral.Config) error {
	if !slices.Contains(scenarios, o.scenario) {
		return usageError{fmt.Errorf("--scenario: there is no %q; there is %s", o.scenario, strings.Join(scenarios, ", "))}
	}
	if err := cfg.Validate(); err != nil {
		return usageError{fmt.Errorf("--%w", err)}
	}
	if o.json != "" { // rather than after all rounds
		if err := writable(o.json); err != nil {
			return usageError{fmt.Errorf("--json: %w", err)}
		}
	}
	cfg.Logger = newLogger(os.Stderr)
	adoptClientLog(cfg.Logger)
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	context.AfterFunc(ctx, stop)
	rep, err := viral.Run(ctx, cfg, progress)
	switch {
	case err != nil && ctx.Err() != nil:
		return fmt.Errorf("interrupted")
	case err != nil:
		return err
	}
	if err := rep.Print(out); err != nil {
		return err
	}
	if o.json != "" {
		return rep.Write(o.json)
	}
	return nil
}
