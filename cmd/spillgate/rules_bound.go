package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/pflag"

	"github.com/spillgate/spillgate/cmd/spillgate/config"
	"github.com/spillgate/spillgate/dashboard"
	"github.com/spillgate/spillgate/limit"
	"github.com/spillgate/spillgate/rules"
)

// mostDatacenters is how many data centers bounds are printed for.
const mostDatacenters = 1000

// boundOptions are the flags of a command that prints what rules promise.
type boundOptions struct {
	agents, dcs int
	headroom    float64
	config      string
	json        bool

	flags *pflag.FlagSet
}

func (o *boundOptions) bind(flags *pflag.FlagSet) {
	o.flags = flags
	flags.IntVar(&o.agents, "agents", 1, "agents in a data center; matters to optimistic rules")
	flags.IntVar(&o.dcs, "dcs", 1, "data centers, of equal share")
	flags.Float64Var(&o.headroom, "headroom", config.Default("").Datacenter.Headroom, "by which each admits more than its share")
	flags.StringVar(&o.config, "config", "", "take share and headroom from this `file`, an agent's")
	flags.BoolVar(&o.json, "json", false, "print JSON")
}

// datacenter is one of those that the flags describe.
func (o *boundOptions) datacenter() (dashboard.Datacenter, error) {
	dc := dashboard.Datacenter{Share: 1 / float64(o.dcs), Headroom: o.headroom}
	switch {
	case o.agents < 1 || o.agents > limit.MaxAgents:
		return dc, usageError{fmt.Errorf("--agents: %d is out of range; write 1 to %d", o.agents, limit.MaxAgents)}
	case o.dcs < 1 || o.dcs > mostDatacenters:
		return dc, usageError{fmt.Errorf("--dcs: %d is out of range; write 1 to %d", o.dcs, mostDatacenters)}
	}
	if o.config != "" {
		cfg := defaultConfig()
		if err := complete(cfg, o.config); err != nil {
			return dc, err
		}
		dc.Name, dc.Share = cfg.Datacenter.Name, cfg.Datacenter.Share
		if !o.flags.Changed("headroom") {
			dc.Headroom = cfg.Datacenter.Headroom
		}
	}
	portion, err := limit.Portion(dc.Share, dc.Headroom)
	if err != nil { // the shares are right: only the flag can be wrong
		return dc, usageError{fmt.Errorf("--headroom: %v is out of range; write 0 to 10", dc.Headroom)}
	}
	dc.Portion = portion.Float()
	return dc, nil
}

// bounds is what is promised of rules, in the form of --json.
type bounds struct {
	File        string               `json:"file"`
	Agents      int                  `json:"agents"` // in each data center
	Datacenters int                  `json:"datacenters"`
	Datacenter  dashboard.Datacenter `json:"datacenter"` // each of them
	Rules       []bound              `json:"rules"`
}

// bound is what is promised of a rule.
type bound struct {
	Domain    string           `json:"domain"`
	Name      string           `json:"name"`
	Match     string           `json:"match"` // as arguments of explain
	Algorithm string           `json:"algorithm"`
	Mode      string           `json:"mode"`     // empty if it is unlimited
	Shadow    bool             `json:"shadow"`   // it denies nothing
	Written   *dashboard.Limit `json:"written"`  // nil if it is unlimited
	Enforced  *dashboard.Limit `json:"enforced"` // by each data center
	Each      *dashboard.Bound `json:"bound"`    // of each data center; nil if nothing is promised
	All       *dashboard.Bound `json:"bound_all"`
}

// printBounds prints what the rules of a file promise, as the flags have it. The error may be one of the flags, or of a rule that cannot be
// enforced in so small a share.
func printBounds(out io.Writer, o *boundOptions, file string, set *rules.Set) error {
	dc, err := o.datacenter()
	if err != nil {
		return err
	}
	here, err := set.ForDatacenter(dc.Share, dc.Headroom)
	if err != nil {
		return err
	}
	b := bounds{File: file, Agents: o.agents, Datacenters: o.dcs, Datacenter: dc, Rules: []bound{}}
	for _, r := range here.Rules() {
		one := bound{Domain: r.Domain, Name: r.Name, Match: matchText(r), Algorithm: r.Rate.Algorithm.String(), Shadow: r.Shadow, Written: dashboard.LimitOf(r.Written()), Enforced: dashboard.LimitOf(r), Each: dashboard.BoundOf(r, o.agents)}
		if !r.Unlimited {
			one.Mode = r.Mode.String()
		}
		if each, limited := r.Bound(o.agents); limited {
			one.All = dashboard.ShowBound(each.Times(o.dcs), r.Written().Rate.Period)
		}
		b.Rules = append(b.Rules, one)
	}
	if o.json {
		e := json.NewEncoder(out)
		e.SetIndent("", "  ")
		return e.Encode(b)
	}
	if err := b.print(out); err != nil {
		return err
	}
	if notes := notesOf(set); len(notes) > 0 {
		_, err = fmt.Fprintf(out, "\n%s\n", strings.Join(notes, "\n"))
	}
	return err
}

// print prints the bounds for people.
func (b *bounds) print(out io.Writer) error {
	fmt.Fprintf(out, "%s: ok, rules %d\n", b.File, len(b.Rules))
	if len(b.Rules) == 0 {
		return nil
	}
	if dc := &b.Datacenter; b.Datacenters > 1 || dc.Portion < 1 {
		share, _ := limit.NearestFraction(dc.Share) // datacenter has looked at both
		portion, _ := limit.Portion(dc.Share, dc.Headroom)
		fmt.Fprintf(out, "Each data center enforces %v of every limit: share %v, headroom %v.\n", portion, share, dc.Headroom)
	}
	fmt.Fprintf(out, "In every window of length w one bucket admits at most:\n\n")
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, row := range b.table() {
		fmt.Fprintln(w, strings.Join(row, "\t"))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if slices.ContainsFunc(b.Rules, func(r bound) bool { return r.Each != nil && r.Each.Ahead > 0 }) {
		_, err := fmt.Fprintf(out, "\nOf optimistic rules the second number is what agents admit ahead of the store: %d in each data center.\n", b.Agents)
		return err
	}
	return nil
}

// table has a row for each rule, with the columns that say something.
func (b *bounds) table() [][]string {
	rows := [][]string{{"RULE", "MATCH", "MODE", "LIMIT", "ENFORCED", "ONE DATA CENTER", fmt.Sprintf("ALL %d", b.Datacenters)}}
	for i := range b.Rules {
		rows = append(rows, b.Rules[i].row())
	}
	for i, row := range rows {
		switch {
		case b.Datacenters > 1:
		case b.Datacenter.Portion < 1:
			rows[i] = row[:6]
		default:
			rows[i] = slices.Delete(row[:6], 4, 5)
		}
	}
	if len(rows[0]) == 5 {
		rows[0][4] = "AT MOST"
	}
	return rows
}

func (r *bound) row() []string {
	row := []string{r.Name, r.Match, cmp.Or(r.Mode, "-"), "unlimited", "unlimited", "no bound", "no bound"}
	if r.Mode != "" && r.Algorithm != limit.TokenBucket.String() {
		row[2] += ", " + r.Algorithm
	}
	if r.Shadow {
		row[2] += ", shadow"
	}
	if r.Written != nil {
		row[3], row[4] = r.Written.Text, r.Enforced.Text
	}
	if r.Each != nil {
		row[5], row[6] = r.Each.Text, r.All.Text
	}
	return row
}
