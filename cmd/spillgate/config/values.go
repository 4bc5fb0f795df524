package config

import (
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/pflag"

	"github.com/spillgate/spillgate/internal/strictyaml"
	"github.com/spillgate/spillgate/limit"
	"github.com/spillgate/spillgate/sidecar/socket"
)

// The types below are values of a Config as flags and files see them, by their text. Set says what is wrong with a
// text and what would be right; it may then have changed the value.

// text is any text that can stand in a line.
type text string

func (v *text) String() string { return string(*v) }
func (v *text) Type() string   { return "text" }

func (v *text) Set(s string) error {
	if strings.ContainsFunc(s, unicode.IsControl) {
		return errors.New("has a control character; remove it")
	}
	*v = text(s)
	return nil
}

// pattern is a text of limited alphabet.
type pattern struct {
	to     *string
	fits   *regexp.Regexp
	remedy string
}

var (
	agentID   = regexp.MustCompile(`^[A-Za-z0-9._:-]{0,64}$`)
	fleetName = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)
)

func (v *pattern) String() string { return *v.to }
func (v *pattern) Type() string   { return "name" }

func (v *pattern) Set(s string) error {
	if !v.fits.MatchString(s) {
		return fmt.Errorf("%s is no name; write %s", strictyaml.Show(s), v.remedy)
	}
	*v.to = s
	return nil
}

// boolean is true or false.
type boolean bool

func (v *boolean) String() string   { return strconv.FormatBool(bool(*v)) }
func (v *boolean) Type() string     { return "bool" }
func (v *boolean) IsBoolFlag() bool { return true }

func (v *boolean) Set(s string) error {
	if s != "true" && s != "false" {
		return fmt.Errorf("%s is not true or false", strictyaml.Show(s))
	}
	*v = s == "true"
	return nil
}

// address is where a door listens.
type address string

func (v *address) String() string { return string(*v) }
func (v *address) Type() string   { return "address" }

func (v *address) Set(s string) error {
	*v = address(s)
	if s == Off {
		return nil
	}
	if _, _, err := socket.Parse(s); err != nil {
		return fmt.Errorf("%s, or off", strings.TrimPrefix(err.Error(), "socket: "))
	}
	return nil
}

// number is an int, a float64 or a time.Duration between two bounds.
type number[T int | float64 | time.Duration] struct {
	to         *T
	kind       string
	least, max T
	read       func(string) (T, error)
	remedy     string
}

func integer(to *int, least, most int) *number[int] {
	return &number[int]{to, "int", least, most, strconv.Atoi, "is not a whole number"}
}

func decimal(to *float64, least, most float64) *number[float64] {
	read := func(s string) (float64, error) { return strconv.ParseFloat(s, 64) }
	return &number[float64]{to, "number", least, most, read, "is not a number"}
}

func duration(to *time.Duration, least, most time.Duration) *number[time.Duration] {
	return &number[time.Duration]{to, "duration", least, most, time.ParseDuration, "is no duration with a unit, such as 25ms"}
}

func (v *number[T]) String() string { return fmt.Sprint(*v.to) }
func (v *number[T]) Type() string   { return v.kind }

func (v *number[T]) Set(s string) error {
	n, err := v.read(s)
	if err != nil {
		return fmt.Errorf("%s %s; write %v to %v", strictyaml.Show(s), v.remedy, v.least, v.max)
	}
	if !(n >= v.least && n <= v.max) { // neither is NaN
		return fmt.Errorf("%s is out of range; write %v to %v", strictyaml.Show(s), v.least, v.max)
	}
	*v.to = n
	return nil
}

// ways is a number of parts. One part is no division.
type ways struct{ *number[int] }

func (v ways) Set(s string) error {
	if err := v.number.Set(s); err != nil {
		return err
	}
	if *v.to == 1 {
		return fmt.Errorf("%s divides nothing; write 2 to %d, or 0 to have it chosen, or split.ops: 0 to divide nothing", strictyaml.Show(s), v.max)
	}
	return nil
}

// share is a part of a whole, as a decimal or as a ratio such as 1/3.
type share float64

func (v *share) String() string { return fmt.Sprint(float64(*v)) }
func (v *share) Type() string   { return "number" }

func (v *share) Set(s string) error {
	above, below, ratio := strings.Cut(s, "/")
	x, err := strconv.ParseFloat(above, 64)
	if ratio && err == nil {
		var y float64
		y, err = strconv.ParseFloat(below, 64)
		x /= y
	}
	if err != nil {
		return fmt.Errorf("%s is not a number; write one above 0, up to 1, such as 0.5 or 1/3", strictyaml.Show(s))
	}
	if _, err := limit.Portion(x, 0); err != nil {
		return fmt.Errorf("%s is out of range; write a number above 0, up to 1, such as 0.5 or 1/3", strictyaml.Show(s))
	}
	*v = share(x)
	return nil
}

// choice is one of a few words.
type choice[T comparable] struct {
	to    *T
	words []string
	means []T
	later string // a word that a later version takes, if any
}

func (v *choice[T]) Type() string { return strings.Join(v.words, "|") }

func (v *choice[T]) String() string {
	if i := slices.Index(v.means, *v.to); i >= 0 {
		return v.words[i]
	}
	return fmt.Sprintf("unknown %T", *v.to)
}

func (v *choice[T]) Set(s string) error {
	i := slices.Index(v.words, s)
	switch {
	case i < 0 && s != "" && s == v.later:
		return fmt.Errorf("%s is not supported in this version; write %s", strictyaml.Show(s), strings.Join(v.words, " or "))
	case i < 0:
		return fmt.Errorf("%s is not %s%s", strictyaml.Show(s), strings.Join(v.words, " or "), strictyaml.DidYouMean(s, v.words))
	}
	*v.to = v.means[i]
	return nil
}

// mode is the mode of a socket file, in octal.
type mode fs.FileMode

func (v *mode) String() string { return fmt.Sprintf("%04o", uint32(*v)) }
func (v *mode) Type() string   { return "octal" }

func (v *mode) Set(s string) error {
	n, err := strconv.ParseUint(s, 8, 32)
	if err != nil || n == 0 || fs.FileMode(n)&^fs.ModePerm != 0 {
		return fmt.Errorf("%s is no mode of a file; write four octal digits such as 0660", strictyaml.Show(s))
	}
	*v = mode(n)
	return nil
}

// uids are numbers of users, divided by commas.
type uids []uint32

func (v *uids) Type() string { return "uid,uid" }

func (v *uids) String() string {
	words := make([]string, len(*v))
	for i, id := range *v {
		words[i] = strconv.FormatUint(uint64(id), 10)
	}
	return strings.Join(words, ",")
}

func (v *uids) Set(s string) error {
	*v = nil
	if s == "" {
		return nil
	}
	for word := range strings.SplitSeq(s, ",") {
		id, err := strconv.ParseUint(strings.TrimSpace(word), 10, 32)
		if err != nil {
			return fmt.Errorf("%s is not the number of a user; write numbers such as 1000 (id -u NAME prints one)", strictyaml.Show(word))
		}
		*v = append(*v, uint32(id))
	}
	return nil
}

// later is a value of which this version can only act on one.
type later struct {
	pflag.Value
	only   string
	remedy string
}

// Set refuses every other value.
func (v later) Set(s string) error {
	if err := v.Value.Set(s); err != nil {
		return err
	}
	if v.Value.String() != v.only {
		return fmt.Errorf("%s is not supported in this version; %s", strictyaml.Show(s), v.remedy)
	}
	return nil
}

// IsBoolFlag is true of a boolean in it.
func (v later) IsBoolFlag() bool { _, ok := v.Value.(*boolean); return ok }
