package main

import "github.com/spf13/cobra"

// newRulesCommand is the parent of all that is done with rules outside an agent.
func newRulesCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "rules",
		Short: "Keep the rules of a fleet in its store",
		Long: "Keep the rules of a fleet in its store, as versions: each push is a new one, and\n" +
			"agents with rules.store: true have it at once.",
		Example: "  spillgate rules push --store redis://127.0.0.1:6379 rules.yaml",
		Args:    usage(noCommand),
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.SuggestionsMinimumDistance = 2
	cmd.AddCommand(newPushCommand(), newShowCommand(), newHistoryCommand(), newDiffCommand(), newRollbackCommand())
	return cmd
}
