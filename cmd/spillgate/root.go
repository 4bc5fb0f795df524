package main

import (
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/spillgate/spillgate/internal/strictyaml"
)

// usageTemplate is cobra's, in fewer lines, and with flags that fit 80 columns.
const usageTemplate = `Usage: {{if .HasSubCommands}}{{.CommandPath}} COMMAND{{else}}{{.UseLine}}{{end}}

Examples:
{{.Example}}
{{if .HasAvailableSubCommands}}
Commands:{{range .Commands}}{{if .IsAvailableCommand}}
  {{rpad .Name .NamePadding}} {{.Short}}{{end}}{{end}}

Help on one: {{.CommandPath}} COMMAND --help
{{else}}
Flags:
{{.LocalFlags.FlagUsagesWrapped 80 | trimTrailingWhitespaces}}
{{end}}`

// newRoot is the command tree.
func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "spillgate",
		Short: "Rate limits, decided next to your service",
		Long: "Spillgate decides who may pass: a rate-limit agent that runs next to your\n" +
			"service and shares its counts over Redis, or keeps them in memory.",
		Example: "  spillgate agent &\n" +
			"  redis-cli -s ./spillgate.sock CL.THROTTLE user:42 15 30 60",
		Args:          usage(noCommand),
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		SilenceErrors: true, // main tells them
		SilenceUsage:  true,
	}
	root.SuggestionsMinimumDistance = 2
	root.SetUsageTemplate(usageTemplate)
	root.CompletionOptions.DisableDefaultCmd = true
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{flagError(err)} })
	root.Version = versionLine()
	root.SetVersionTemplate("{{.Version}}\n")
	root.AddCommand(newAgentCommand(), newCheckCommand(), newRulesCommand(), newBenchCommand(), newVersionCommand())
	return root
}

// flagError says of a value that is no number what would be one.
func flagError(err error) error {
	var invalid *pflag.InvalidValueError
	var number *strconv.NumError
	if !errors.As(err, &invalid) || !errors.As(err, &number) {
		return err
	}
	flag, want := invalid.GetFlag(), "a whole number"
	if flag.Value.Type() == "float64" {
		want = "a number, such as 0.5"
	}
	if errors.Is(number, strconv.ErrRange) {
		want += " of this size"
	}
	return fmt.Errorf("--%s: %s is not %s", flag.Name, strictyaml.Show(invalid.GetValue()), want)
}

// laterCommands are documented, and come with a later version.
var laterCommands = []string{"top", "plan"}

// comesLater refuses a later command before its flags are read, which this version does not know.
func comesLater(args []string) error {
	name := ""
	switch {
	case len(args) > 0 && slices.Contains(laterCommands, args[0]):
		name = args[0]
	case len(args) > 1 && args[0] == "bench" && slices.Contains(laterBenches, args[1]):
		name = "bench " + args[1]
	default:
		return nil
	}
	return usageError{fmt.Errorf("the command %s is not supported in this version; it comes with a later one", name)}
}

// noArguments refuses words behind a command. It does not show them: one may be a URL with a password.
func noArguments(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("%s takes no arguments", cmd.Name())
	}
	return nil
}

// noCommand refuses a word that is no command.
func noCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	text := fmt.Sprintf("there is no command %q", args[0])
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		text += fmt.Sprintf(" (did you mean %q?)", near[0])
	}
	return fmt.Errorf("%s", text)
}
