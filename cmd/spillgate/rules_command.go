package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/spillgate/spillgate/limit"
	"github.com/spillgate/spillgate/rules"
)

// newRulesCommand is the parent of all that is done with rules outside an agent.
func newRulesCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "rules",
		Short: "Check rules files, and keep the rules of a fleet in its store",
		Long: "Check rules files, see which rule applies to a request, and keep the rules of a\n" +
			"fleet in its store, as versions that agents with rules.store: true have at once.",
		Example: "  spillgate rules lint rules.yaml\n" +
			"  spillgate rules explain --rules rules.yaml api route=/pay user=42\n" +
			"  spillgate rules push --store redis://127.0.0.1:6379 rules.yaml",
		Args: usage(noCommand),
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.SuggestionsMinimumDistance = 2
	cmd.AddCommand(newLintCommand(), newExplainCommand(), newPushCommand(), newShowCommand(), newHistoryCommand(), newDiffCommand(), newRollbackCommand())
	return cmd
}

// matchText is what a rule matches, as arguments of explain have it.
func matchText(r *rules.Rule) string {
	parts := make([]string, len(r.Match))
	for i, p := range r.Match {
		parts[i] = p.String()
	}
	return strings.Join(parts, " ")
}

// limitText is what a rule allows, as lint has it.
func limitText(r *rules.Rule) string {
	switch {
	case r.Unlimited:
		return "unlimited"
	case r.Terms == nil:
		return "denies all"
	}
	return r.Rate.Text(r.Rate.Period)
}

// optionTexts are the other settings of a rule that counts, but for those that are the default.
func optionTexts(r *rules.Rule) (all []string) {
	if r.Terms != nil {
		all = append(all, r.Rate.Algorithm.String(), "mode "+r.Mode.String())
	}
	if r.Mode == limit.Optimistic && r.Allowance > 0 {
		all = append(all, fmt.Sprintf("allowance %d", r.Allowance))
	}
	if r.Shadow {
		all = append(all, "shadow")
	}
	if r.HasPolicy {
		all = append(all, "on_store_error "+r.OnStoreError.String())
	}
	if r.Deadline > 0 {
		all = append(all, fmt.Sprintf("deadline %v", r.Deadline))
	}
	if r.NoSplit {
		all = append(all, "split off")
	}
	if len(r.Replaces) > 0 {
		all = append(all, "replaces "+strings.Join(slices.Sorted(slices.Values(r.Replaces)), ", "))
	}
	return all
}
