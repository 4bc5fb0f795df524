package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/user"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/aymanbagabas/go-udiff"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/spillgate/spillgate/cmd/spillgate/config"
	"github.com/spillgate/spillgate/internal/strictyaml"
	"github.com/spillgate/spillgate/redisshard"
	"github.com/spillgate/spillgate/rules"
)

// rulesPatience bounds a command on the store's rules, connection included.
const rulesPatience = 15 * time.Second

// ruleStore are the flags that say where the rules are: those of an agent.
type ruleStore struct {
	cfg  *config.Config
	file string
}

// bind defines the flags. Those of TLS are not in the help, as with the agent.
func (s *ruleStore) bind(flags *pflag.FlagSet) {
	s.cfg = defaultConfig()
	all := pflag.NewFlagSet("", pflag.ContinueOnError)
	config.Bind(all, s.cfg)
	for _, name := range []string{"store", "agent-fleet", "store-password-file", "store-tls-ca", "store-tls-cert", "store-tls-key"} {
		f := all.Lookup(name)
		f.Hidden = strings.HasPrefix(name, "store-tls")
		flags.AddFlag(f)
	}
	store := flags.Lookup("store")
	store.Usage, store.DefValue = "redis://host:port/db, rediss://, redis+sentinel:// or unix:///redis.sock", ""
	flags.Lookup("agent-fleet").Usage = "`name` of the fleet whose rules they are: agent.fleet"
	flags.StringVar(&s.file, "config", "", "an agent's configuration `file`, for its store and fleet")
}

// with opens the rules for one command.
func (s *ruleStore) with(ctx context.Context, do func(context.Context, *redisshard.Rules) error) error {
	if err := complete(s.cfg, s.file); err != nil {
		return err
	}
	if s.cfg.Store.InMemory() {
		return usageError{errors.New("the store memory:// keeps no rules; name a Redis store, such as --store redis://127.0.0.1:6379, " +
			"or the file of an agent that has one: --config FILE")}
	}
	ctx, cancel := context.WithTimeout(ctx, rulesPatience)
	defer cancel()
	quiet := slog.New(slog.DiscardHandler) // errors are told once, at the end
	adoptClientLog(quiet)
	rc := s.cfg.Redis()
	rc.Logger = quiet
	r, err := redisshard.OpenRules(ctx, rc, s.cfg.Agent.Fleet)
	if err != nil {
		return err
	}
	defer r.Close()
	return do(ctx, r)
}

// osUser is who runs the program, for the history.
func osUser() string {
	if u, err := user.Current(); err == nil && u.Username != "" {
		return u.Username
	}
	return "uid " + strconv.Itoa(os.Getuid())
}

// signature are the flags that say who made a version, and why.
type signature struct{ author, comment string }

func (s *signature) bind(flags *pflag.FlagSet) {
	flags.StringVar(&s.author, "author", osUser(), "who makes the version, for the history")
	flags.Lookup("author").DefValue = "" // it is the user's
	flags.StringVar(&s.comment, "comment", "", "why, for the history")
}

func newPushCommand() *cobra.Command {
	var at ruleStore
	var by signature
	var above int64
	var asJSON, dryRun bool
	cmd := &cobra.Command{
		Use:   "push [flags] FILE",
		Short: "Put a file in force, as a new version",
		Long: "Put a file in force, as a new version. A file with an error is refused whole,\n" +
			"and nothing changes. Without a change there is nothing to do.",
		Example: "  spillgate rules push --store redis://127.0.0.1:6379 --dry-run rules.yaml\n" +
			"  spillgate rules push --store redis://127.0.0.1:6379 --comment why rules.yaml",
		Args: usage(oneArgument("a push needs the name of a rules file, such as: rules push rules.yaml")),
		RunE: func(cmd *cobra.Command, args []string) error {
			if dryRun && asJSON {
				return usageError{errors.New("--dry-run and --json do not go together: remove one of them")}
			}
			text, err := strictyaml.ReadFile(args[0], rules.MaxSize)
			if err != nil {
				return fmt.Errorf("rules: %w", err)
			}
			set, err := rules.Parse(args[0], text)
			if err != nil { // before anything is asked of the store
				return err
			}
			draft := redisshard.Draft{File: args[0], Text: text, Author: by.author, Comment: by.comment, Above: above}
			return at.with(cmd.Context(), func(ctx context.Context, r *redisshard.Rules) error {
				if dryRun {
					return rehearse(ctx, cmd.OutOrStdout(), r, draft, set)
				}
				p, err := r.Push(ctx, draft)
				if err != nil {
					return err
				}
				if err := showPushed(cmd.OutOrStdout(), p, asJSON); err != nil || asJSON || !p.New {
					return err
				}
				if p.Before == 0 {
					return warnFirst(cmd.ErrOrStderr(), above)
				}
				return changesBy(ctx, cmd.OutOrStdout(), r, p)
			})
		},
	}
	flags := cmd.Flags()
	at.bind(flags)
	by.bind(flags)
	flags.Int64Var(&above, "above", 0, "`number` that the version is to be above; after the store has lost some")
	flags.BoolVar(&asJSON, "json", false, "print JSON")
	flags.BoolVar(&dryRun, "dry-run", false, "say what would change, and push nothing")
	return cmd
}

func newRollbackCommand() *cobra.Command {
	var at ruleStore
	var by signature
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "rollback [flags] VERSION",
		Short: "Put the text of an old version in force again, as a new version",
		Long: "Put the text of an old version in force again, as a new version: the newest\n" +
			"number always counts. It takes any version that the history has.",
		Example: "  spillgate rules rollback --store redis://127.0.0.1:6379 3",
		Args:    usage(versionArguments("rollback", 1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			return at.with(cmd.Context(), func(ctx context.Context, r *redisshard.Rules) error {
				p, err := r.Rollback(ctx, versionNumber(args[0]), by.author, by.comment)
				if err != nil {
					return err
				}
				if err := showPushed(cmd.OutOrStdout(), p, asJSON); err != nil || asJSON || !p.New {
					return err
				}
				return changesBy(ctx, cmd.OutOrStdout(), r, p)
			})
		},
	}
	flags := cmd.Flags()
	at.bind(flags)
	by.bind(flags)
	flags.BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// warnFirst tells who makes the first version of a store what he cannot see: a store that has lost its versions looks like a new one.
func warnFirst(out io.Writer, above int64) error {
	if above > 0 {
		return nil // he knows
	}
	_, err := fmt.Fprintln(out, "It is the first version in this store. If the store has lost others, agents keep what they have, and /readyz says so:\n"+
		"then push again with --above and the number that /readyz shows.")
	return err
}

// showPushed tells what became of a push or a rollback.
func showPushed(out io.Writer, p redisshard.Pushed, asJSON bool) error {
	if asJSON {
		return json.NewEncoder(out).Encode(struct {
			Version   int64 `json:"version"`
			Before    int64 `json:"before"`
			New       bool  `json:"new"`
			Announced bool  `json:"announced"`
			Rules     int   `json:"rules"`
		}{p.Number, p.Before, p.New, p.Announced, p.Rules})
	}
	before := "none"
	if p.Before > 0 {
		before = fmt.Sprintf("version %d", p.Before)
	}
	var err error
	switch {
	case !p.New:
		_, err = fmt.Fprintf(out, "nothing to do: version %d, which is in force, has the same text\n", p.Number)
	case !p.Announced:
		_, err = fmt.Fprintf(out, "version %d is in force, rules %d (before: %s)\n"+
			"It could not be announced: agents find it within their rules.cache_ttl. Allow PUBLISH on &sg:* to the user to have it at once.\n",
			p.Number, p.Rules, before)
	default:
		_, err = fmt.Fprintf(out, "version %d is in force, rules %d (before: %s)\n", p.Number, p.Rules, before)
	}
	return err
}

func newShowCommand() *cobra.Command {
	var at ruleStore
	var number int64
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "show [flags]",
		Short: "Print the rules in force, or an older version",
		Long: "Print the rules in force, or an older version: the text on standard output, and\n" +
			"whose it is on standard error.",
		Example: "  spillgate rules show --store redis://127.0.0.1:6379 --version 3 > rules.yaml",
		Args:    usage(noArguments),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if number < 0 || cmd.Flags().Changed("version") && number == 0 {
				return usageError{fmt.Errorf("--version: there is no version %d; write a number of the history, 1 or more", number)}
			}
			return at.with(cmd.Context(), func(ctx context.Context, r *redisshard.Rules) error {
				return at.showVersion(ctx, cmd, r, number, asJSON)
			})
		},
	}
	flags := cmd.Flags()
	at.bind(flags)
	flags.Int64Var(&number, "version", 0, "`number` of a version (default: the one in force)")
	flags.BoolVar(&asJSON, "json", false, "print JSON, with the text in it")
	return cmd
}

// errNothingPushed: there are no rules of this fleet to show.
func (s *ruleStore) errNothingPushed() error {
	fleet := s.cfg.Agent.Fleet
	return fmt.Errorf("no rules were pushed to this store yet for the fleet %q; push some with: spillgate rules push --agent-fleet %s FILE, or name another fleet",
		fleet, fleet)
}

// showVersion prints a version; 0 is the one in force.
func (s *ruleStore) showVersion(ctx context.Context, cmd *cobra.Command, r *redisshard.Rules, number int64, asJSON bool) error {
	head, err := r.Head(ctx)
	if err != nil {
		return err
	}
	if number == 0 {
		number = head.Number
	}
	if number == 0 {
		return s.errNothingPushed()
	}
	v, err := r.Version(ctx, number)
	if err != nil {
		return err
	}
	if asJSON {
		shown := shownVersion(&v, head.Number)
		text := string(v.Text)
		shown.Text = &text
		return json.NewEncoder(cmd.OutOrStdout()).Encode(shown)
	}
	which := ""
	if v.Number == head.Number {
		which = ", in force"
	}
	why := ""
	if v.Comment != "" {
		why = ": " + oneLine(v.Comment)
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "# version %d%s, pushed %s by %s%s\n", v.Number, which, v.Time.UTC().Format(time.RFC3339), oneLine(v.Author), why)
	_, err = cmd.OutOrStdout().Write(v.Text)
	return err
}

// versionJSON is a version in the form of --json.
type versionJSON struct {
	Version int64     `json:"version"`
	InForce bool      `json:"in_force"`
	Author  string    `json:"author"`
	Comment string    `json:"comment"`
	Time    time.Time `json:"time"`
	Size    int       `json:"size"`
	SHA256  string    `json:"sha256"`
	Text    *string   `json:"text,omitempty"`
}

func shownVersion(v *rules.Version, inForce int64) versionJSON {
	return versionJSON{Version: v.Number, InForce: v.Number == inForce, Author: v.Author, Comment: v.Comment, Time: v.Time, Size: v.Size, SHA256: v.Sum.String()}
}

func newHistoryCommand() *cobra.Command {
	var at ruleStore
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "history [flags]",
		Short:   "List the versions, the newest first",
		Long:    fmt.Sprintf("List the versions, the newest first. The star marks the one in force. The last\n%d are kept, with %d MiB of text at most.", redisshard.MaxVersions, redisshard.MaxVersionBytes>>20),
		Example: "  spillgate rules history --store redis://127.0.0.1:6379",
		Args:    usage(noArguments),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return at.with(cmd.Context(), func(ctx context.Context, r *redisshard.Rules) error {
				return at.showHistory(ctx, cmd.OutOrStdout(), r, asJSON)
			})
		},
	}
	flags := cmd.Flags()
	at.bind(flags)
	flags.BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func (s *ruleStore) showHistory(ctx context.Context, out io.Writer, r *redisshard.Rules, asJSON bool) error {
	head, err := r.Head(ctx)
	if err != nil {
		return err
	}
	all, err := r.History(ctx)
	if err != nil {
		return err
	}
	if asJSON {
		shown := []versionJSON{}
		for i := range all {
			shown = append(shown, shownVersion(&all[i], head.Number))
		}
		return json.NewEncoder(out).Encode(shown)
	}
	if len(all) == 0 {
		return s.errNothingPushed()
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "VERSION\tTIME\tAUTHOR\tBYTES\tCOMMENT")
	for i := range all {
		v, mark := &all[i], ""
		if v.Number == head.Number {
			mark = " *"
		}
		fmt.Fprintf(w, "%d%s\t%s\t%s\t%d\t%s\n", v.Number, mark, v.Time.UTC().Format(time.RFC3339), oneLine(v.Author), v.Size, oneLine(v.Comment))
	}
	return w.Flush()
}

func newDiffCommand() *cobra.Command {
	var at ruleStore
	cmd := &cobra.Command{
		Use:     "diff [flags] VERSION VERSION",
		Short:   "Show what is different in two versions",
		Long:    "Show what is different in the second of two versions, as a unified diff; nothing\nif they have the same text.",
		Example: "  spillgate rules diff --store redis://127.0.0.1:6379 3 4",
		Args:    usage(versionArguments("diff", 2)),
		RunE: func(cmd *cobra.Command, args []string) error {
			return at.with(cmd.Context(), func(ctx context.Context, r *redisshard.Rules) error {
				a, err := r.Version(ctx, versionNumber(args[0]))
				if err != nil {
					return err
				}
				b, err := r.Version(ctx, versionNumber(args[1]))
				if err != nil {
					return err
				}
				_, err = io.WriteString(cmd.OutOrStdout(), udiff.Unified("version "+args[0], "version "+args[1], string(a.Text), string(b.Text)))
				return err
			})
		},
	}
	at.bind(cmd.Flags())
	return cmd
}

// oneArgument wants one word.
func oneArgument(otherwise string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) != 1 || args[0] == "" {
			return errors.New(otherwise)
		}
		return nil
	}
}

// versionArguments wants the number of a version, or of two.
func versionArguments(name string, n int) cobra.PositionalArgs {
	what, example := "the number of a version", name+" 3"
	if n == 2 {
		what, example = "the numbers of two versions", name+" 3 4"
	}
	return func(_ *cobra.Command, args []string) error {
		if len(args) != n {
			return fmt.Errorf("%s needs %s, such as: rules %s; spillgate rules history lists them", name, what, example)
		}
		for _, arg := range args {
			if versionNumber(arg) < 1 {
				return fmt.Errorf("%s is no number of a version; spillgate rules history lists them", strictyaml.Show(arg))
			}
		}
		return nil
	}
}

// versionNumber reads the number of a version; 0 if it is none.
func versionNumber(arg string) int64 {
	n, err := strconv.ParseInt(arg, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// oneLine keeps what others wrote into the store from moving the cursor.
func oneLine(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return unicode.ReplacementChar
		}
		return r
	}, text)
}
