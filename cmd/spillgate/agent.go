package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strconv"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/spillgate/spillgate/cmd/spillgate/config"
	"github.com/spillgate/spillgate/rules"
)

// mainFlags are in the help of the agent; --help-all has every one.
var mainFlags = []string{"config", "store", "rules", "resp", "http", "grpc", "admin", "check-config", "help-all", "help"}

// agentOptions are the flags of the command agent that are no settings.
type agentOptions struct {
	file             string
	check, listFlags bool
}

func newAgentCommand() *cobra.Command {
	var o agentOptions
	cfg := defaultConfig()
	cmd := &cobra.Command{
		Use:   "agent [flags]",
		Short: "Run the agent",
		Long: "Run the agent: it answers checks until SIGTERM. SIGHUP reloads the rules.\n" +
			"Every key of the configuration file is a flag, and flags win: see --help-all.",
		Example: "  spillgate agent --store redis://127.0.0.1:6379 --rules rules.yaml",
		Args:    usage(noArguments),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.listFlags {
				return listFlags(cmd.OutOrStdout())
			}
			if err := complete(cfg, o.file); err != nil {
				return err
			}
			if o.check {
				return checkConfig(cmd.OutOrStdout(), cfg)
			}
			return runAgent(cmd.Context(), cfg)
		},
	}
	flags := cmd.Flags()
	config.Bind(flags, cfg)
	flags.StringVar(&o.file, "config", "", "configuration `file` (YAML)")
	flags.BoolVar(&o.check, "check-config", false, "check configuration and rules, then end")
	flags.BoolVar(&o.listFlags, "help-all", false, "list all flags")
	flags.VisitAll(func(f *pflag.Flag) { f.Hidden = !slices.Contains(mainFlags, f.Name) })
	return cmd
}

// defaultConfig is the configuration of an agent without file and flags.
func defaultConfig() *config.Config { return config.Default(os.Getenv("XDG_RUNTIME_DIR")) }

// complete adds the file, if there is one, to what the flags have set, and checks the whole, [1].
func complete(cfg *config.Config, file string) error {
	if file == "" {
		return cfg.Validate()
	}
	return cfg.Load(file)
}

// listFlags prints the flags of all settings.
func listFlags(out io.Writer) error {
	all := pflag.NewFlagSet("", pflag.ContinueOnError)
	all.SortFlags = false
	config.Bind(all, defaultConfig())
	_, err := io.WriteString(out, all.FlagUsagesWrapped(80))
	return err
}

// checkConfig does what a start does before it opens anything.
func checkConfig(out io.Writer, cfg *config.Config) error {
	of := "0"
	if cfg.Rules.Store {
		of = "of the store"
	}
	if cfg.Rules.File != "" {
		set, err := rules.Load(cfg.Rules.File)
		if err == nil {
			set, err = set.ForDatacenter(cfg.Datacenter.Share, cfg.Datacenter.Headroom)
		}
		if err != nil {
			return err
		}
		of = strconv.Itoa(set.Len())
	}
	_, err := fmt.Fprintf(out, "config ok: store %s, rules %s, resp %s, admin %s\n", storeName(cfg), of, cfg.Listen.RESP, cfg.Listen.Admin)
	return err
}

// runAgent runs until SIGTERM or SIGINT. A second one finds Go's default and ends the process.
func runAgent(ctx context.Context, cfg *config.Config) error {
	setProcs(cfg.Agent.Procs)
	log := newLogger(os.Stderr)
	slog.SetDefault(log)
	reload := make(chan os.Signal, 1)
	signal.Notify(reload, syscall.SIGHUP)
	defer signal.Stop(reload)
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	return newService(cfg, log).run(ctx, reload, stop)
}

// defaultProcs is for a sidecar: on a Unix socket one thread serves as many checks as
// two, and the other cores stay with what it serves.
const defaultProcs = 1

// setProcs sets how many threads run Go code at once: n, or if that is 0, what the
// environment says, or else defaultProcs.
func setProcs(n int) {
	if n == 0 && os.Getenv("GOMAXPROCS") == "" {
		n = defaultProcs
	}
	if n > 0 {
		runtime.GOMAXPROCS(n)
	}
}

// aside runs f, which computes for long, beside everything else. With one thread, each goroutine that a check needs would
// wait for f to be interrupted, some 10 ms each time, and checks would miss their deadlines: f has a thread of its own then.
func aside(f func()) {
	if n := runtime.GOMAXPROCS(0); n == 1 {
		runtime.GOMAXPROCS(n + 1)
		defer runtime.GOMAXPROCS(n)
	}
	f()
}
