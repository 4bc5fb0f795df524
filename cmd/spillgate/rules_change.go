package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spillgate/spillgate/redisshard"
	"github.com/spillgate/spillgate/rules"
)

// mostChanges bounds the rules that a push names, of each kind.
const mostChanges = 10

// rehearse says what a push of a file would do, and does nothing.
func rehearse(ctx context.Context, out io.Writer, r *redisshard.Rules, d redisshard.Draft, after *rules.Set) error {
	head, err := r.Head(ctx)
	switch {
	case err != nil:
		return err
	case head.Number > d.Above && head.Sum == rules.SumOf(d.Text):
		_, err = fmt.Fprintf(out, "nothing to do: version %d, which is in force, has the same text\n", head.Number)
		return err
	case head.Number == 0:
		_, err = fmt.Fprintf(out, "nothing was pushed; it would be the first version, rules %d\n", after.Len())
		return err
	}
	fmt.Fprintf(out, "nothing was pushed; a push would replace version %d, rules %d:\n", head.Number, after.Len())
	return showChanges(ctx, out, r, head.Number, after)
}

// changesBy tells what a version that is in force now has changed. That it is in force was told: what cannot be read for this is no error.
func changesBy(ctx context.Context, out io.Writer, r *redisshard.Rules, p redisshard.Pushed) error {
	if p.Before == 0 {
		return nil
	}
	return showChanges(ctx, out, r, p.Before, setOf(ctx, r, p.Number))
}

// showChanges says what is different for requests since a version. A nil set is one that cannot be read.
func showChanges(ctx context.Context, out io.Writer, r *redisshard.Rules, since int64, after *rules.Set) error {
	lines := []string{"what changes is not known: a version cannot be read"}
	if before := setOf(ctx, r, since); before != nil && after != nil {
		lines = changes(before, after)
	}
	_, err := fmt.Fprintf(out, "  %s\n", strings.Join(lines, "\n  "))
	return err
}

// setOf is a version compiled; nil if that cannot be.
func setOf(ctx context.Context, r *redisshard.Rules, number int64) *rules.Set {
	v, err := r.Version(ctx, number)
	if err != nil {
		return nil
	}
	set, err := rules.Parse("", v.Text)
	if err != nil {
		return nil
	}
	return set
}

// changes are lines for people: what is different in the second of two files, which have one domain each.
func changes(before, after *rules.Set) []string {
	if a, b := domainOf(before), domainOf(after); a != b && a != "" && b != "" {
		return []string{fmt.Sprintf("domain   %s -> %s: requests of the domain %s have no rule any more", a, b, a)}
	}
	var changed, gone, added []string
	for _, r := range before.Rules() {
		switch now := after.Rule(r.Domain, r.Name); {
		case now == nil:
			gone = append(gone, fmt.Sprintf("gone     %s: %s", r.Name, limitText(r)))
		default:
			if d := differences(r, now); len(d) > 0 {
				changed = append(changed, fmt.Sprintf("changed  %s: %s", r.Name, strings.Join(d, "; ")))
			}
		}
	}
	for _, r := range after.Rules() {
		if before.Rule(r.Domain, r.Name) == nil {
			added = append(added, fmt.Sprintf("new      %s: %s", r.Name, limitText(r)))
		}
	}
	lines := slices.Concat(few(changed), few(gone), few(added))
	if len(lines) == 0 {
		return []string{"no rule is different"}
	}
	return lines
}

// differences are old and new of what is not the same in two rules of one name.
func differences(a, b *rules.Rule) (all []string) {
	for _, part := range []func(*rules.Rule) string{limitText, matchText} {
		if was, is := part(a), part(b); was != is {
			all = append(all, was+" -> "+is)
		}
	}
	was, is := settingsOf(a), settingsOf(b)
	if gone, added := without(was, is), without(is, was); len(gone)+len(added) > 0 {
		all = append(all, orDefault(gone)+" -> "+orDefault(added))
	}
	return all
}

// settingsOf are all settings of a rule beside match and limit.
func settingsOf(r *rules.Rule) []string {
	all := optionTexts(r)
	if r.Label != "" {
		all = append(all, "label "+r.Label)
	}
	if r.Empty {
		all = append(all, "matching envoy")
	}
	return all
}

func without(all, others []string) (rest []string) {
	for _, s := range all {
		if !slices.Contains(others, s) {
			rest = append(rest, s)
		}
	}
	return rest
}

func orDefault(settings []string) string {
	if len(settings) == 0 {
		return "default"
	}
	return strings.Join(settings, ", ")
}

// few are the first lines, and how many more there are.
func few(lines []string) []string {
	if more := len(lines) - mostChanges; more > 0 {
		kind, _, _ := strings.Cut(lines[0], " ")
		return append(slices.Clone(lines[:mostChanges]), fmt.Sprintf("%-7s  %d more", kind, more))
	}
	return lines
}

// domainOf is the domain of a file; empty without rules.
func domainOf(s *rules.Set) string {
	if all := s.Rules(); len(all) > 0 {
		return all[0].Domain
	}
	return ""
}
