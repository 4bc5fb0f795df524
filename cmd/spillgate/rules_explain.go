package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/spillgate/spillgate/rules"
)

func newExplainCommand() *cobra.Command {
	var file string
	asJSON := false
	cmd := &cobra.Command{
		Use:   "explain [flags] DOMAIN KEY=VALUE...",
		Short: "Say which rule applies to a request, and why no other does",
		Long: "Say which rule of a file applies to a descriptor, and why no other does.\n" +
			"Exit status: 0 a rule applies, 1 none does, 2 error.",
		Example: "  spillgate rules explain --rules rules.yaml api route=/pay user=42",
		Args:    usage(explainArgs),
		RunE: func(cmd *cobra.Command, args []string) error {
			if file == "" {
				return usageError{errors.New("--rules is missing: name the rules file")}
			}
			set, err := rules.Load(file)
			if err != nil {
				return err
			}
			return explain(cmd.OutOrStdout(), set, args[0], pairs(args[1:]), asJSON)
		},
	}
	cmd.Flags().StringVar(&file, "rules", "", "rules `file`, ours or one of envoyproxy/ratelimit")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func explainArgs(cmd *cobra.Command, args []string) error {
	if len(args) < 2 {
		return errors.New("explain needs a domain and at least one KEY=VALUE, such as: api user=42")
	}
	return checkArgs(cmd, args)
}

// pairs makes a descriptor of arguments that are KEY=VALUE.
func pairs(args []string) (d rules.Descriptor) {
	for _, arg := range args {
		key, value, _ := strings.Cut(arg, "=")
		d = append(d, rules.Entry{Key: key, Value: value})
	}
	return d
}

// explained is an explanation in the form of --json.
type explained struct {
	Applies  *appliesTo  `json:"applies"` // null if no rule does
	Fits     []candidate `json:"fits"`    // and lost
	MoreFits int         `json:"more_fits"`
	Near     []candidate `json:"near"` // failed in one point
	MoreNear int         `json:"more_near"`
}

type appliesTo struct {
	Rule     string   `json:"rule"`
	Match    string   `json:"match"`
	Limit    string   `json:"limit"`
	Settings []string `json:"settings"`
	// Bucket has what tells the rule's buckets apart; null if it needs none.
	Bucket *bucketOf `json:"bucket"`
}

// bucketOf is the identity of a bucket.
type bucketOf struct {
	Domain string   `json:"domain"`
	Rule   string   `json:"rule"`
	Values []string `json:"values"` // KEY=VALUE
}

type candidate struct {
	Rule  string `json:"rule"`
	Match string `json:"match"`
	Why   string `json:"why"`
}

// explain prints which rule applies, and returns errDenied if none does: that is the exit code.
func explain(out io.Writer, set *rules.Set, domain string, d rules.Descriptor, asJSON bool) error {
	e := set.Explain(domain, d)
	shown := explained{Fits: candidates(e.Fits), MoreFits: e.MoreFits, Near: candidates(e.Near), MoreNear: e.MoreNear}
	if e.Rule != nil {
		shown.Applies = applies(e.Rule, d)
	}
	var err error
	if asJSON {
		err = json.NewEncoder(out).Encode(shown)
	} else {
		_, err = io.WriteString(out, shown.text(domain, set))
	}
	switch {
	case err != nil:
		return err
	case e.Rule == nil:
		return errDenied
	}
	return nil
}

func applies(r *rules.Rule, d rules.Descriptor) *appliesTo {
	a := &appliesTo{Rule: r.Name, Match: matchText(r), Limit: limitText(r), Settings: append([]string{}, optionTexts(r)...)}
	if r.Terms != nil {
		a.Bucket = &bucketOf{Domain: r.Domain, Rule: r.Name, Values: []string{}}
		for _, at := range r.Vary {
			a.Bucket.Values = append(a.Bucket.Values, d[at].Key+"="+d[at].Value)
		}
	}
	return a
}

func candidates(all []rules.Candidate) []candidate {
	shown := make([]candidate, len(all))
	for i, c := range all {
		shown[i] = candidate{c.Rule.Name, matchText(c.Rule), c.Why}
	}
	return shown
}

// text is the explanation for people.
func (e *explained) text(domain string, set *rules.Set) string {
	var b strings.Builder
	switch a := e.Applies; {
	case a != nil:
		fmt.Fprintf(&b, "rule %s applies\n  match     %s\n  limit     %s\n", a.Rule, a.Match, a.Limit)
		if len(a.Settings) > 0 {
			fmt.Fprintf(&b, "  settings  %s\n", strings.Join(a.Settings, ", "))
		}
		if a.Bucket != nil {
			fmt.Fprintf(&b, "  bucket    %s\n", strings.Join(append([]string{a.Bucket.Domain, a.Bucket.Rule}, a.Bucket.Values...), ", "))
		}
	case !set.Has(domain):
		fmt.Fprintf(&b, "no rule applies: there is no domain %q; the file is for %q\n", domain, domainOf(set))
	default:
		b.WriteString("no rule applies: there is no limit\n")
	}
	list(&b, "fits too, and lost:", e.Fits, e.MoreFits)
	list(&b, "fails in one point:", e.Near, e.MoreNear)
	return b.String()
}

func list(b *strings.Builder, title string, all []candidate, more int) {
	if len(all) == 0 {
		return
	}
	fmt.Fprintf(b, "%s\n", title)
	for _, c := range all {
		fmt.Fprintf(b, "  %s (%s): %s\n", c.Rule, c.Match, c.Why)
	}
	if more > 0 {
		fmt.Fprintf(b, "  and %d more\n", more)
	}
}
