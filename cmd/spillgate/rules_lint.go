package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/spillgate/spillgate/rules"
)

func newLintCommand() *cobra.Command {
	native := false
	cmd := &cobra.Command{
		Use:   "lint [flags] FILE",
		Short: "Check a rules file, ours or one of envoyproxy/ratelimit",
		Long: "Check a rules file, ours or one of envoyproxy/ratelimit: a line for each rule,\n" +
			"or every mistake with its place. Exit status: 0 good, 2 bad.",
		Example: "  spillgate rules lint rules.yaml\n" +
			"  spillgate rules lint --as-native ratelimit.yaml > rules.yaml",
		Args: usage(lintArgs),
		RunE: func(cmd *cobra.Command, args []string) error {
			return lint(cmd.OutOrStdout(), args[0], native)
		},
	}
	cmd.Flags().BoolVar(&native, "as-native", false, "print it as a file of rules of our own form")
	return cmd
}

func lintArgs(_ *cobra.Command, args []string) error {
	if len(args) != 1 {
		return errors.New("lint needs one rules file, such as: rules.yaml")
	}
	return nil
}

// lint checks a file and prints its rules.
func lint(out io.Writer, file string, native bool) error {
	set, err := rules.Load(file)
	switch {
	case err != nil:
		return err
	case native:
		_, err = io.WriteString(out, set.Native())
		return err
	}
	if err := printRules(out, set); err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "%s: ok, rules %d\n", file, set.Len())
	return err
}

// printRules prints a line for each rule.
func printRules(out io.Writer, set *rules.Set) error {
	if set.Len() == 0 {
		return nil
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "RULE\tMATCH\tLIMIT\tSETTINGS")
	for _, r := range set.Rules() {
		settings := strings.Join(optionTexts(r), ", ")
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", r.Name, matchText(r), limitText(r), cmp.Or(settings, "-"))
	}
	return w.Flush()
}
