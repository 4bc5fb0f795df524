package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"github.com/spf13/cobra"

	"github.com/spillgate/spillgate/limit"
	"github.com/spillgate/spillgate/sidecar/socket"
)

// checkPatience bounds a check from the command line, connection included.
const checkPatience = 5 * time.Second

// checkOptions are the flags of the command check.
type checkOptions struct {
	addr string
	hits int64
	json bool
}

func newCheckCommand() *cobra.Command {
	var o checkOptions
	cmd := &cobra.Command{
		Use:   "check [flags] DOMAIN KEY=VALUE...",
		Short: "Ask a running agent whether a request may pass",
		Long: "Ask a running agent whether a request may pass; it is counted as one of\n" +
			"--hits tokens. Exit status: 0 admitted, 1 denied, 2 error.",
		Example: "  spillgate check api route=/pay user=42\n" +
			"  spillgate check --hits 0 --json api route=/pay user=42   # look, take nothing",
		Args: usage(checkArgs),
		RunE: func(cmd *cobra.Command, args []string) error {
			return check(cmd.Context(), cmd.OutOrStdout(), o, args[0], args[1:])
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&o.addr, "addr", defaultConfig().Listen.RESP, "`address` of the agent; default: that of an agent without flags")
	flags.Lookup("addr").DefValue = "" // it is the user's and would not fit
	o.hits = 1
	flags.Var((*hits)(&o.hits), "hits", "cost in `tokens`; 0 takes nothing")
	flags.BoolVar(&o.json, "json", false, "print JSON")
	return cmd
}

// hits is the value of --hits.
type hits int64

func (h *hits) String() string { return strconv.FormatInt(int64(*h), 10) }
func (h *hits) Type() string   { return "int" }

// Set refuses what no check can cost.
func (h *hits) Set(s string) error {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 0 || limit.Tokens(n) > limit.MaxTokens {
		return fmt.Errorf("write a whole number from 0 to %d", limit.MaxTokens)
	}
	*h = hits(n)
	return nil
}

// checkArgs wants a domain and pairs.
func checkArgs(_ *cobra.Command, args []string) error {
	if len(args) < 2 {
		return errors.New("a check needs a domain and at least one KEY=VALUE, such as: api user=42")
	}
	for _, pair := range args[1:] {
		if key, _, ok := strings.Cut(pair, "="); !ok || key == "" {
			return fmt.Errorf("%q is not KEY=VALUE", pair)
		}
	}
	return nil
}

// decision is the agent's decision, in the form of --json.
type decision struct {
	Admitted     bool   `json:"admitted"`
	Limit        int64  `json:"limit"`
	Remaining    int64  `json:"remaining"`
	RetryAfterMS int64  `json:"retry_after_ms"`
	ResetAfterMS int64  `json:"reset_after_ms"`
	Rule         string `json:"rule"`
	Reason       string `json:"reason"`
}

// check asks, prints, and returns errDenied for a denial.
func check(ctx context.Context, out io.Writer, o checkOptions, domain string, pairs []string) error {
	ctx, cancel := context.WithTimeout(ctx, checkPatience)
	defer cancel()
	a, err := ask(ctx, o, domain, pairs)
	if err != nil {
		return err
	}
	if o.json {
		err = json.NewEncoder(out).Encode(a)
	} else {
		_, err = fmt.Fprintln(out, a.text(o.hits))
	}
	switch {
	case err != nil:
		return err
	case !a.Admitted:
		return errDenied
	}
	return nil
}

// ask sends SG.CHECK.
func ask(ctx context.Context, o checkOptions, domain string, pairs []string) (decision, error) {
	network, address, err := socket.Parse(o.addr)
	if err != nil {
		return decision{}, usageError{fmt.Errorf("--addr: %w", err)}
	}
	// Dialled here, since go-redis would hide why there is no connection behind its retries.
	conn, err := new(net.Dialer).DialContext(ctx, network, address)
	if err != nil {
		return decision{}, fmt.Errorf("no agent answers on %s: %w\nStart one with: spillgate agent --resp %s", o.addr, err, o.addr)
	}
	client := redis.NewClient(&redis.Options{
		Dialer:                   func(context.Context, string, string) (net.Conn, error) { return conn, nil },
		Protocol:                 2,
		PoolSize:                 1,
		MaxRetries:               -1, // a check is counted: it is never sent twice
		DialerRetries:            1,
		ContextTimeoutEnabled:    true,
		DisableIdentity:          true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	defer client.Close()
	args := []any{"SG.CHECK", domain, o.hits}
	for _, pair := range pairs {
		key, value, _ := strings.Cut(pair, "=")
		args = append(args, key, value)
	}
	reply, err := client.Do(ctx, args...).Slice()
	if err != nil {
		return decision{}, fmt.Errorf("the agent on %s: %w", o.addr, err)
	}
	a, ok := readAnswer(reply)
	if !ok {
		return decision{}, fmt.Errorf("what answers on %s is no Spillgate agent: SG.CHECK returned %v", o.addr, reply)
	}
	return a, nil
}

// readAnswer takes the seven fields of SG.CHECK's reply; a later agent may send more.
func readAnswer(reply []any) (a decision, ok bool) {
	if len(reply) < 7 {
		return a, false
	}
	var numbers [5]int64
	for i := range numbers {
		if numbers[i], ok = reply[i].(int64); !ok {
			return a, false
		}
	}
	rule, isText := reply[5].(string)
	reason, alsoText := reply[6].(string)
	return decision{Admitted: numbers[0] == 1, Limit: numbers[1], Remaining: numbers[2],
		RetryAfterMS: numbers[3], ResetAfterMS: numbers[4], Rule: rule, Reason: reason}, isText && alsoText
}

// text is the decision on so many hits in one line for people.
func (a decision) text(hits int64) string {
	var b strings.Builder
	switch {
	case hits == 0 && a.Reason == limit.OK.String():
		b.WriteString("nothing taken") // no tokens are always there: that says nothing about a request
	case a.Admitted:
		fmt.Fprintf(&b, "admitted: %s", a.Reason)
	default:
		fmt.Fprintf(&b, "denied: %s", a.Reason)
	}
	switch a.Reason {
	case limit.Never.String():
		b.WriteString(" (the cost is above the limit, or the limit is 0)")
	case limit.NoRule.String():
		b.WriteString(" (no rule applies, so nothing is limited; spillgate rules explain says why)")
	}
	if a.Limit > 0 && a.counted() {
		fmt.Fprintf(&b, ", %d of %d left", a.Remaining, a.Limit)
	}
	if a.RetryAfterMS >= 0 {
		fmt.Fprintf(&b, ", retry in %s", millis(a.RetryAfterMS))
	}
	if a.ResetAfterMS > 0 {
		fmt.Fprintf(&b, ", full in %s", millis(a.ResetAfterMS))
	}
	if a.Rule != "" {
		fmt.Fprintf(&b, " (rule %s)", a.Rule)
	}
	return b.String()
}

// withoutStore are the reasons of decisions that no count stands behind.
var withoutStore = []string{limit.StoreOpen.String(), limit.StoreClosed.String(), limit.StoreLocal.String(), limit.Overloaded.String()}

// counted reports whether what remains is known. A cost that can never pass is denied without
// the store too, and remaining is then 0.
func (a decision) counted() bool {
	return !slices.Contains(withoutStore, a.Reason) && (a.Reason != limit.Never.String() || a.Remaining > 0)
}

func millis(ms int64) time.Duration {
	return time.Duration(min(ms, math.MaxInt64/int64(time.Millisecond))) * time.Millisecond
}
