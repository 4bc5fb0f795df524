package redisshard

import (
	"cmp"
	"context"
	_ "embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/redis/go-redis/v9"

	"github.com/spillgate/spillgate/rules"
)

const (
	// MaxVersions and MaxVersionBytes bound what is kept of a fleet's rules: the newest versions, at most so many, and of their texts so
	// many bytes. The version in force stays in any case.
	MaxVersions     = 1000
	MaxVersionBytes = 64 << 20
	// MaxAuthor and MaxComment bound what is said of a version, in bytes.
	MaxAuthor  = 128
	MaxComment = 1024
	// MaxNumber bounds the numbers that a push may ask for.
	MaxNumber = 1 << 40

	// rulesTimeout replaces a shorter Config.Timeout: a text may have megabytes, and nobody's check waits for it.
	rulesTimeout = 3 * time.Second
)

// pushScript adds a version.
//
//go:embed lua/pushrules.lua
var pushScript string

// Rules are the versions of a fleet's rules in Redis: immutable, numbered, the last one in force. It implements
// source.Store, and is safe for concurrent use.
//
// It lives on the slot of {rules}, on one master. A failover may lose a push that was not replicated
// yet: agents that have it keep it and say that the store has lost data.
type Rules struct {
	keys  ruleKeys
	nodes func() (*nodes, error)
	own   *nodes // closed by Close; nil if they are a Store's
}

// OpenRules connects to the rules of a fleet, for programs that do not decide checks. It leaves the rest of the store alone: no
// layout is made. Unlike Open it returns an error if no server answers.
func OpenRules(ctx context.Context, cfg Config, fleet string) (*Rules, error) {
	cfg.ensureDefaults()
	cfg.Timeout = max(cfg.Timeout, rulesTimeout)
	n, err := connect(ctx, cfg)
	if err != nil {
		return nil, err
	}
	return &Rules{keys: ruleKeysOf(fleet), nodes: func() (*nodes, error) { return n, nil }, own: n}, nil
}

// Rules are the rules of a fleet in the same servers, over the same connections. They end with the Store.
func (s *Store) Rules(fleet string) *Rules {
	return &Rules{keys: ruleKeysOf(fleet), nodes: func() (*nodes, error) {
		if st := s.state.Load(); st != nil {
			return st.nodes, nil
		}
		if err := s.Status(); err != nil {
			return nil, err
		}
		return nil, errors.New("redisshard: not connected yet")
	}}
}

// Close closes the connections of OpenRules.
func (r *Rules) Close() error {
	if r.own == nil {
		return nil
	}
	return r.own.close()
}

// Head is the version in force; zero if nobody has pushed yet.
func (r *Rules) Head(ctx context.Context) (h rules.Head, err error) {
	reply, err := r.ask(ctx, "hmget", r.keys.head, "number", "sum").Slice()
	if err != nil {
		return h, explainRules(err)
	}
	if len(reply) != 2 || reply[0] == nil && reply[1] == nil {
		return h, nil
	}
	number, _ := reply[0].(string)
	sum, _ := reply[1].(string)
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || n < 1 || !decodeSum(&h.Sum, sum) {
		return h, fmt.Errorf("redisshard: %s: %w; push the rules again", r.keys.head, rules.ErrDamaged)
	}
	h.Number = n
	return h, nil
}

// decodeSum reads a sum in hexadecimal digits.
func decodeSum(sum *rules.Sum, text string) bool {
	b, err := hex.DecodeString(text)
	return copy(sum[:], b) == len(sum) && len(b) == len(sum) && err == nil
}

// story is what is known of a version, as it stands in Redis.
type story struct {
	Author  string    `json:"author"`
	Comment string    `json:"comment"`
	Time    time.Time `json:"time"`
	Sum     string    `json:"sum"` // hex
	Size    int       `json:"size"`
}

// version is a story with its number.
func (r *Rules) version(number int64, text string) (v rules.Version, err error) {
	var s story
	if err := json.Unmarshal([]byte(text), &s); err != nil || !decodeSum(&v.Sum, s.Sum) || s.Size > rules.MaxSize { // nobody pushed that
		return v, fmt.Errorf("redisshard: version %d in %s: %w", number, r.keys.versions, rules.ErrDamaged)
	}
	v.Number, v.Author, v.Comment, v.Time, v.Size = number, s.Author, s.Comment, s.Time, s.Size
	return v, nil
}

// Version is one version with its text.
func (r *Rules) Version(ctx context.Context, number int64) (v rules.Version, err error) {
	name := strconv.FormatInt(number, 10)
	about, err := r.ask(ctx, "hget", r.keys.versions, name).Text()
	if err == nil {
		if v, err = r.version(number, about); err != nil {
			return v, err
		}
		about, err = r.ask(ctx, "hget", r.keys.texts, name).Text()
	}
	switch {
	case errors.Is(err, redis.Nil):
		return v, fmt.Errorf("redisshard: the store has no version %d; spillgate rules history lists those that it has", number)
	case err != nil:
		return v, explainRules(err)
	}
	if v.Text = []byte(about); rules.SumOf(v.Text) != v.Sum {
		return v, fmt.Errorf("redisshard: the text of version %d in %s: %w", number, r.keys.texts, rules.ErrDamaged)
	}
	return v, nil
}

// History has what is known of the versions that are kept, the newest first, without their texts.
func (r *Rules) History(ctx context.Context) ([]rules.Version, error) {
	reply, err := r.ask(ctx, "hgetall", r.keys.versions).StringSlice()
	if err != nil {
		return nil, explainRules(err)
	}
	var all []rules.Version
	for i := 0; i+1 < len(reply); i += 2 {
		n, err := strconv.ParseInt(reply[i], 10, 64)
		if err != nil {
			return nil, fmt.Errorf("redisshard: %s: %w: %q is no number", r.keys.versions, rules.ErrDamaged, reply[i])
		}
		v, err := r.version(n, reply[i+1])
		if err != nil {
			return nil, err
		}
		all = append(all, v)
	}
	slices.SortFunc(all, func(a, b rules.Version) int { return cmp.Compare(b.Number, a.Number) })
	return all, nil
}

// Draft is a version to be.
type Draft struct {
	// File is the text's name in messages.
	File string
	Text []byte
	// Author and Comment are one line each, of at most MaxAuthor and MaxComment bytes; both may be empty.
	Author, Comment string
	// Above is a number that the version has to be above, for a store that has lost versions which agents still
	// serve. At most MaxNumber; 0 in all other cases.
	Above int64
}

// Pushed is what became of a Draft.
type Pushed struct {
	// Number of the version that is in force now.
	Number int64
	// Before is the number of the one before; 0 if there was none.
	Before int64
	// New: it was added. Else the version in force has the same text, and there was nothing to do.
	New bool
	// Announced: agents were told. Else the user has no right to publish, and they find it within their cache_ttl.
	Announced bool
	// Rules in it.
	Rules int
}

// Push makes a version of a text and puts it in force. Of two pushes at once each becomes a version of its own. A text that does not
// compile is refused before anything is sent; the error is then of type rules.Errors. After a lost reply nobody knows whether
// the version is there, and it is safe to push the same text again.
func (r *Rules) Push(ctx context.Context, d Draft) (p Pushed, err error) {
	if err := d.validate(); err != nil {
		return p, err
	}
	set, err := rules.Parse(d.File, d.Text)
	if err != nil {
		return p, err
	}
	sum := rules.SumOf(d.Text).String()
	about, err := json.Marshal(story{d.Author, d.Comment, time.Now().UTC().Truncate(time.Millisecond), sum, len(d.Text)})
	if err != nil {
		return p, fmt.Errorf("redisshard: %w", err)
	}
	reply, err := r.ask(ctx, "eval", pushScript, 3, r.keys.head, r.keys.versions, r.keys.texts,
		sum, about, d.Text, d.Above, MaxVersions, MaxVersionBytes, r.keys.channel).Int64Slice()
	switch {
	case err != nil && !forbidden(err) && classify(err).verdict == verdictUnknown: // a push that is forbidden has put nothing in force
		return p, fmt.Errorf("redisshard: no answer, the rules may have been pushed or not; push them again, which is safe: %w", explainRules(err))
	case err != nil:
		return p, explainRules(err)
	case len(reply) != 4:
		return p, fmt.Errorf("redisshard: the script for a push answered %v: want 4 numbers", reply)
	}
	return Pushed{Number: reply[0], New: reply[1] == 1, Before: reply[2], Announced: reply[3] == 1, Rules: set.Len()}, nil
}

// Rollback makes a new version of the text of an old one: the newest number wins, so going back is going on.
func (r *Rules) Rollback(ctx context.Context, number int64, author, comment string) (p Pushed, err error) {
	v, err := r.Version(ctx, number)
	if err != nil {
		return p, err
	}
	back := fmt.Sprintf("rollback to version %d", number)
	if comment != "" {
		back += ": " + comment
	}
	return r.Push(ctx, Draft{File: fmt.Sprintf("version %d", number), Text: v.Text, Author: author, Comment: back})
}

func (d *Draft) validate() error {
	if err := checkLine("author", d.Author, MaxAuthor); err != nil {
		return err
	}
	if err := checkLine("comment", d.Comment, MaxComment); err != nil {
		return err
	}
	if d.Above < 0 || d.Above > MaxNumber {
		return fmt.Errorf("redisshard: a version cannot be above %d: want 0 to %d", d.Above, int64(MaxNumber))
	}
	return nil
}

// checkLine wants a text that is safe to show in a line.
func checkLine(what, text string, most int) error {
	switch {
	case len(text) > most:
		return fmt.Errorf("redisshard: the %s has %d bytes: at most %d fit", what, len(text), most)
	case !utf8.ValidString(text):
		return fmt.Errorf("redisshard: the %s is no UTF-8", what)
	case strings.ContainsFunc(text, unicode.IsControl):
		return fmt.Errorf("redisshard: the %s has control characters: write it in one line", what)
	}
	return nil
}

// ask sends a command to the master of the rules. Each kind of proof that nothing ran buys one repetition.
func (r *Rules) ask(ctx context.Context, args ...any) *redis.Cmd {
	cmd := redis.NewCmd(ctx, args...)
	n, err := r.nodes()
	if err != nil {
		cmd.SetErr(err)
		return cmd
	}
	node, err := n.master(ctx, r.keys.head)
	if err != nil {
		n.reload(ctx)
	}
	to, tried := target{node: node}, uint32(0)
	for err == nil {
		cmd = redis.NewCmd(ctx, args...)
		to.process(ctx, cmd)
		if cmd.Err() == nil || errors.Is(cmd.Err(), redis.Nil) {
			return cmd
		}
		f := classify(cmd.Err())
		if f.kind.staleTopology() {
			n.reload(ctx)
		}
		bit := uint32(1) << f.kind
		if f.verdict != verdictResend || tried&bit != 0 || ctx.Err() != nil {
			return cmd
		}
		tried |= bit
		to, err = n.redirect(ctx, to, r.keys.head, f)
	}
	cmd.SetErr(err)
	return cmd
}

// process sends a command there, with patience for long ones.
func (t *target) process(ctx context.Context, cmd redis.Cmder) {
	node := t.node.WithTimeout(max(rulesTimeout, t.node.Options().ReadTimeout))
	if !t.asking {
		_ = node.Process(ctx, cmd) // the command keeps the error
		return
	}
	pipe := node.Pipeline()
	pipe.Do(ctx, "asking")
	_ = pipe.Process(ctx, cmd)
	_, _ = pipe.Exec(ctx)
}

// explainRules says what can be done about an error.
func explainRules(err error) error {
	if forbidden(err) {
		return fmt.Errorf("redisshard: %w (allow EVAL, HMGET, HGET, HGETALL, HSET, HDEL, HKEYS, HSTRLEN and PUBLISH on sg:* and &sg:* to who pushes; "+
			"HMGET, HGET and SUBSCRIBE to agents)", err)
	}
	if strings.HasPrefix(err.Error(), "redisshard: ") {
		return err
	}
	return fmt.Errorf("redisshard: rules: %w", err)
}

// forbidden reports whether the user of the connection lacks a right.
func forbidden(err error) bool {
	return classify(err).kind == kindNoPerm || strings.Contains(err.Error(), "can't run this command") // the latter from within a script
}
