package main

import (
	"errors"
	"io"

	"github.com/spf13/cobra"

	"github.com/spillgate/spillgate/rules"
)

func newLintCommand() *cobra.Command {
	var o boundOptions
	native := false
	cmd := &cobra.Command{
		Use:   "lint [flags] FILE",
		Short: "Check a rules file, and print what its rules promise",
		Long: "Check a rules file, ours or one of envoyproxy/ratelimit, and print how much one\n" +
			"bucket of each rule admits at most. Exit status: 0, or 2 for a mistake.",
		Example: "  spillgate rules lint --agents 20 --dcs 3 rules.yaml\n" +
			"  spillgate rules lint --as-native ratelimit.yaml > rules.yaml",
		Args: usage(oneFile),
		RunE: func(cmd *cobra.Command, args []string) error {
			return lint(cmd.OutOrStdout(), &o, args[0], native)
		},
	}
	o.bind(cmd.Flags())
	cmd.Flags().BoolVar(&native, "as-native", false, "print the rules as a file of our own form instead")
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
func lint(out io.Writer, o *boundOptions, file string, native bool) error {
	set, err := rules.Load(file)
	switch {
	case err != nil:
		return err
	case native:
		_, err = io.WriteString(out, set.Native())
		return err
	}
	return printBounds(out, o, file, set)
}
