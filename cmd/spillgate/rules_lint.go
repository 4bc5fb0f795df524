package main

import (
	"errors"
	"io"

	"github.com/spf13/cobra"

	"github.com/spillgate/spillgate/rules"
)

// newRulesCommand is the parent of what works on rules files.
func newRulesCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "rules",
		Short:   "Check rules and see what they promise",
		Example: "  spillgate rules lint rules.yaml",
		Args:    usage(noCommand),
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.SuggestionsMinimumDistance = 2
	cmd.AddCommand(newLintCommand())
	return cmd
}

func newLintCommand() *cobra.Command {
	var o boundOptions
	cmd := &cobra.Command{
		Use:   "lint [flags] FILE",
		Short: "Check a rules file, and print what its rules promise",
		Long: "Check a rules file, and print for each rule how much one of its buckets admits\n" +
			"at most, in one data center and in all. Exit status: 0, or 2 for a mistake.",
		Example: "  spillgate rules lint --agents 20 --dcs 3 rules.yaml",
		Args:    usage(oneFile),
		RunE: func(cmd *cobra.Command, args []string) error {
			return lint(cmd.OutOrStdout(), &o, args[0])
		},
	}
	o.bind(cmd.Flags())
	return cmd
}

// oneFile wants the name of a file.
func oneFile(_ *cobra.Command, args []string) error {
	if len(args) != 1 {
		return errors.New("write the name of one rules file, such as rules.yaml")
	}
	return nil
}

// lint reads a file as an agent would. Its mistakes are the error.
func lint(out io.Writer, o *boundOptions, file string) error {
	set, err := rules.Load(file)
	if err != nil {
		return err
	}
	return printBounds(out, o, file, set)
}
