package redisshard

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spillgate/spillgate/internal/redistest"
	"github.com/spillgate/spillgate/rules"
	"github.com/spillgate/spillgate/rules/source"
)

var _ source.Store = (*Rules)(nil)

// ruleText is a rules file with a limit that tells it from others.
func ruleText(limit int) []byte {
	return fmt.Appendf(nil, "domain: api\nrules:\n  - {name: r, match: [{key: user}], limit: %d/s}\n", limit)
}

func openRules(tb testing.TB, url string) *Rules {
	tb.Helper()
	r, err := OpenRules(tb.Context(), Config{URL: url, Logger: slog.New(slog.DiscardHandler)}, "default")
	redistest.Must(tb, err)
	tb.Cleanup(func() { redistest.Must(tb, r.Close()) })
	return r
}

func mustPush(tb testing.TB, r *Rules, d Draft) Pushed {
	tb.Helper()
	p, err := r.Push(tb.Context(), d)
	redistest.Must(tb, err)
	return p
}

// TestRulesVersions is the life of a fleet's rules: numbers, stories, texts, a push of nothing new, a way back.
func TestRulesVersions(t *testing.T) {
	_, url := sharedServer(t)
	r, ctx := openRules(t, url), t.Context()
	if h, err := r.Head(ctx); err != nil || h != (rules.Head{}) {
		t.Errorf("nothing pushed: %+v, %v", h, err)
	}
	if all, err := r.History(ctx); err != nil || len(all) != 0 {
		t.Errorf("nothing pushed: %+v, %v", all, err)
	}
	if _, err := r.Version(ctx, 1); err == nil || !strings.Contains(err.Error(), "no version 1;") {
		t.Errorf("a version that is not there: %v", err)
	}
	begin := time.Now().Truncate(time.Millisecond)
	if p := mustPush(t, r, Draft{Text: ruleText(1), Author: "ann", Comment: "first {x} 🙂"}); p != (Pushed{Number: 1, New: true, Announced: true, Rules: 1}) {
		t.Errorf("first push: %+v", p)
	}
	if p := mustPush(t, r, Draft{Text: ruleText(2), Author: "bob"}); p != (Pushed{Number: 2, Before: 1, New: true, Announced: true, Rules: 1}) {
		t.Errorf("second push: %+v", p)
	}
	if p := mustPush(t, r, Draft{Text: ruleText(2), Author: "eve"}); p != (Pushed{Number: 2, Before: 2, Rules: 1}) {
		t.Errorf("the same text again: %+v", p)
	}
	if p, err := r.Rollback(ctx, 2, "eve", ""); err != nil || p.New {
		t.Errorf("rollback to what is in force: %+v, %v", p, err)
	}
	p, err := r.Rollback(ctx, 1, "carl", "too slow")
	if want := (Pushed{Number: 3, Before: 2, New: true, Announced: true, Rules: 1}); err != nil || p != want {
		t.Errorf("rollback: %+v, %v", p, err)
	}
	if _, err := r.Rollback(ctx, 9, "carl", ""); err == nil || !strings.Contains(err.Error(), "no version 9;") {
		t.Errorf("rollback to what is not there: %v", err)
	}
	h, err := r.Head(ctx)
	if want := (rules.Head{Number: 3, Sum: rules.SumOf(ruleText(1))}); err != nil || h != want {
		t.Errorf("head: %+v, %v", h, err)
	}
	all, err := r.History(ctx)
	redistest.Must(t, err)
	var stories []string
	for _, v := range all {
		stories = append(stories, fmt.Sprintf("%d %s: %s", v.Number, v.Author, v.Comment))
		if v.Time.Before(begin) || v.Time.After(time.Now()) || v.Size != len(ruleText(1)) || v.Text != nil {
			t.Errorf("%+v", v)
		}
	}
	if want := []string{"3 carl: rollback to version 1: too slow", "2 bob: ", "1 ann: first {x} 🙂"}; !slices.Equal(stories, want) {
		t.Errorf("history: %q", stories)
	}
	v, err := r.Version(ctx, 1)
	if err != nil || string(v.Text) != string(ruleText(1)) || v.Author != "ann" || v.Sum != rules.SumOf(ruleText(1)) {
		t.Errorf("version 1: %+v, %v", v, err)
	}
	// Another fleet has rules of its own.
	other := &Rules{keys: ruleKeysOf("other"), nodes: r.nodes}
	if h, err := other.Head(ctx); err != nil || h.Number != 0 {
		t.Errorf("another fleet: %+v, %v", h, err)
	}
}

// TestPushRefuses: nothing of a draft that is not right reaches the store.
func TestPushRefuses(t *testing.T) {
	_, url := sharedServer(t)
	r, ctx := openRules(t, url), t.Context()
	for name, tt := range map[string]struct {
		draft Draft
		want  string
	}{
		"bad text":          {Draft{File: "f.yaml", Text: []byte("domain: api\nrules:\n  - {nmae: r}\n")}, `f.yaml:3:6: unknown field "nmae"`},
		"duplicate name":    {Draft{File: "f.yaml", Text: append(ruleText(1), "  - {name: r, match: [{key: x}], limit: 1/s}\n"...)}, "f.yaml:4:12: "},
		"too large":         {Draft{Text: slices.Concat(ruleText(1), []byte("# "), slices.Repeat([]byte("x"), rules.MaxSize))}, "16"},
		"long author":       {Draft{Text: ruleText(1), Author: strings.Repeat("x", MaxAuthor+1)}, "author has 129 bytes"},
		"two lines":         {Draft{Text: ruleText(1), Comment: "a\nb"}, "comment has control characters"},
		"no UTF-8":          {Draft{Text: ruleText(1), Comment: "\xff"}, "comment is no UTF-8"},
		"negative number":   {Draft{Text: ruleText(1), Above: -1}, "cannot be above -1"},
		"number too large":  {Draft{Text: ruleText(1), Above: MaxNumber + 1}, "cannot be above"},
		"nothing in a file": {Draft{Text: nil}, "the file is empty"},
	} {
		if p, err := r.Push(ctx, tt.draft); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %+v, %v, want %q", name, p, err, tt.want)
		}
	}
	if keys := scan(t, adminOf(t, url)); len(keys) > 0 {
		t.Errorf("left behind: %q", keys)
	}
}

// TestPushersRace: of many pushers at once each gets a number of its own, and the head is the greatest.
func TestPushersRace(t *testing.T) {
	_, url := sharedServer(t)
	r, ctx := openRules(t, url), t.Context()
	const pushers = 8
	numbers := make([]int64, pushers)
	var all sync.WaitGroup
	for i := range pushers {
		all.Go(func() {
			p, err := r.Push(ctx, Draft{Text: ruleText(i + 1)})
			if err != nil {
				t.Error(err)
			}
			numbers[i] = p.Number
		})
	}
	all.Wait()
	for i, n := range numbers {
		v, err := r.Version(ctx, n)
		if err != nil || string(v.Text) != string(ruleText(i+1)) {
			t.Errorf("pusher %d has number %d: %+v, %v", i, n, v, err)
		}
	}
	slices.Sort(numbers)
	if h, err := r.Head(ctx); err != nil || !slices.Equal(numbers, []int64{1, 2, 3, 4, 5, 6, 7, 8}) || h.Number != pushers {
		t.Errorf("numbers %v, head %+v, %v", numbers, h, err)
	}
}

// TestVersionsAreBounded: the newest versions are kept, as many as fit by number and by size, and no number comes again.
func TestVersionsAreBounded(t *testing.T) {
	_, url := sharedServer(t)
	r, admin, ctx := openRules(t, url), adminOf(t, url), t.Context()
	push := func(name string, size, most, bytes int) {
		t.Helper()
		text := strings.Repeat(name, size)
		redistest.Must(t, admin.Eval(ctx, pushScript, []string{r.keys.head, r.keys.versions, r.keys.texts},
			rules.SumOf([]byte(text)).String(), `{"sum":"`+strings.Repeat("0", 64)+`"}`, text, 0, most, bytes, r.keys.channel).Err())
	}
	kept := func() string {
		t.Helper()
		all, err := r.History(ctx)
		redistest.Must(t, err)
		var numbers []int64
		for _, v := range all {
			numbers = append(numbers, v.Number)
		}
		if n := admin.HLen(ctx, r.keys.texts).Val(); n != int64(len(all)) {
			t.Errorf("%d texts of %d versions", n, len(all))
		}
		return fmt.Sprint(numbers)
	}
	for i := range 12 {
		push(string(rune('a'+i)), 10, 5, 1000)
	}
	if got := kept(); got != "[12 11 10 9 8]" {
		t.Errorf("at most 5: %s", got)
	}
	push("x", 50, 5, 75)
	if got := kept(); got != "[13 12 11]" {
		t.Errorf("50 bytes of at most 75, and 10 each: %s", got)
	}
	push("y", 500, 5, 75)
	if got := kept(); got != "[14]" {
		t.Errorf("one that is larger than all may be: %s", got)
	}
	// A head that is lost does not make numbers begin again.
	redistest.Must(t, admin.Del(ctx, r.keys.head).Err())
	push("y", 10, 5, 1000)
	if got := kept(); got != "[15 14]" {
		t.Errorf("after the loss of the head: %s", got)
	}
	// Rules that nobody pushes for long are still the rules.
	for _, key := range scan(t, admin) {
		if ttl := admin.TTL(ctx, key).Val(); ttl != -1 {
			t.Errorf("%s has a time to live of %v", key, ttl)
		}
	}
}

// TestPushAbove is the way out after a loss: a version above what agents serve.
func TestPushAbove(t *testing.T) {
	_, url := sharedServer(t)
	r := openRules(t, url)
	for _, step := range []struct {
		limit int
		above int64
		want  Pushed
	}{
		{1, 7, Pushed{Number: 8, New: true, Announced: true, Rules: 1}},
		{1, 7, Pushed{Number: 8, Before: 8, Rules: 1}},
		{1, 8, Pushed{Number: 9, Before: 8, New: true, Announced: true, Rules: 1}},
		{2, 3, Pushed{Number: 10, Before: 9, New: true, Announced: true, Rules: 1}},
		{3, MaxNumber, Pushed{Number: MaxNumber + 1, Before: 10, New: true, Announced: true, Rules: 1}},
		{4, 0, Pushed{Number: MaxNumber + 2, Before: MaxNumber + 1, New: true, Announced: true, Rules: 1}},
	} {
		if got := mustPush(t, r, Draft{Text: ruleText(step.limit), Above: step.above}); got != step.want {
			t.Errorf("%+v: %+v", step, got)
		}
	}
}

// TestDamagedRules: what cannot be read is an error that says so, and a push mends it.
func TestDamagedRules(t *testing.T) {
	_, url := sharedServer(t)
	r, admin, ctx := openRules(t, url), adminOf(t, url), t.Context()
	mustPush(t, r, Draft{Text: ruleText(1)})
	redistest.Must(t, admin.HSet(ctx, r.keys.texts, "1", "else").Err())
	if _, err := r.Version(ctx, 1); !errors.Is(err, rules.ErrDamaged) {
		t.Errorf("another text: %v", err)
	}
	redistest.Must(t, admin.HSet(ctx, r.keys.versions, "1", "{").Err())
	if _, err := r.Version(ctx, 1); !errors.Is(err, rules.ErrDamaged) {
		t.Errorf("half a story: %v", err)
	}
	if _, err := r.History(ctx); !errors.Is(err, rules.ErrDamaged) {
		t.Errorf("half a story in the history: %v", err)
	}
	for _, bad := range []string{"x", "-1", "1e3", ""} {
		redistest.Must(t, admin.HSet(ctx, r.keys.head, "number", bad).Err())
		if _, err := r.Head(ctx); !errors.Is(err, rules.ErrDamaged) {
			t.Errorf("number %q: %v", bad, err)
		}
	}
	redistest.Must(t, admin.Del(ctx, r.keys.head).Err())
	redistest.Must(t, admin.Set(ctx, r.keys.head, "x", 0).Err())
	if _, err := r.Head(ctx); err == nil || !strings.Contains(err.Error(), "WRONGTYPE") {
		t.Errorf("another type: %v", err)
	}
}

// TestDamagedNumber: whatever stands where the number in force should be, a push mends it, and its version is above all that were given.
func TestDamagedNumber(t *testing.T) {
	_, url := sharedServer(t)
	r, admin, ctx := openRules(t, url), adminOf(t, url), t.Context()
	last := int64(0)
	for i, number := range []string{"1e300", "nan", "-nan", "inf", "-5", "0", "0x10", "1.5", " 7", "9007199254740993", "9223372036854775807", "18446744073709551616", "", "abc"} {
		mustPush(t, r, Draft{Text: ruleText(i + 1)})
		last++
		redistest.Must(t, admin.HSet(ctx, r.keys.head, "number", number).Err())
		redistest.Must(t, admin.HSet(ctx, r.keys.versions, number, "{}").Err()) // by the same hand
		if p := mustPush(t, r, Draft{Text: ruleText(i + 1)}); p.Number != last+1 || !p.New || p.Before != 0 {
			t.Errorf("over the number %q: %+v, want version %d", number, p, last+1)
		}
		last++
		redistest.Must(t, admin.HDel(ctx, r.keys.versions, number).Err())
		if h, err := r.Head(ctx); err != nil || h.Number != last {
			t.Fatalf("after %q: %+v, %v", number, h, err)
		}
	}
	if all, err := r.History(ctx); err != nil || int64(len(all)) != last {
		t.Errorf("%d versions are left of %d: %v", len(all), last, err)
	}
}

// follow listens until the test ends. It gives what is heard; 0 stands for ready.
func (r *Rules) followAll(t *testing.T) <-chan int64 {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	heard, ended := make(chan int64, 100), make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			_ = r.Listen(ctx, func() { heard <- 0 }, func(n int64) { heard <- n }) // the test looks at what is heard
		}
	}()
	t.Cleanup(func() { stop(); <-ended })
	return heard
}

func wantHeard(t *testing.T, heard <-chan int64, want int64) {
	t.Helper()
	select {
	case got := <-heard:
		if got != want {
			t.Fatalf("heard %d, want %d", got, want)
		}
	case <-time.After(patience):
		t.Fatalf("%d was not heard", want)
	}
}

// TestListen: each push is heard, also after the server was away.
func TestListen(t *testing.T) {
	srv := redistest.Start(t, redistest.WithPassword("secret"))
	r := openRules(t, srv.URL())
	heard := r.followAll(t)
	wantHeard(t, heard, 0)
	mustPush(t, r, Draft{Text: ruleText(1)})
	wantHeard(t, heard, 1)
	mustPush(t, r, Draft{Text: ruleText(1)}) // nothing to hear of
	mustPush(t, r, Draft{Text: ruleText(2)})
	wantHeard(t, heard, 2)
	redistest.Must(t, srv.Restart(t.Context()))
	wantHeard(t, heard, 0)
	mustPush(t, r, Draft{Text: ruleText(3)})
	wantHeard(t, heard, 1)
}

// TestListenEnds: at once with its context, and with an error where nothing can be heard.
func TestListenEnds(t *testing.T) {
	srv := redistest.Start(t, redistest.WithUser("deaf", "secret", "~sg:*", "+@all", "resetchannels"))
	r := openRules(t, srv.URL())
	ctx, stop := context.WithCancel(t.Context())
	if err := r.Listen(ctx, stop, func(int64) {}); !errors.Is(err, context.Canceled) {
		t.Errorf("stopped: %v", err)
	}
	deaf := openRules(t, "redis://deaf:secret@"+srv.Addr())
	if err := deaf.Listen(t.Context(), func() { t.Error("ready") }, func(int64) {}); err == nil || !strings.Contains(err.Error(), "allow") {
		t.Errorf("without the right: %v", err)
	}
	// Without it a push works as well; it is only not told.
	if p := mustPush(t, deaf, Draft{Text: ruleText(1)}); p != (Pushed{Number: 1, New: true, Rules: 1}) {
		t.Errorf("push without the right to publish: %+v", p)
	}
	heard := r.followAll(t)
	wantHeard(t, heard, 0)
	redistest.Must(t, srv.Client().Publish(t.Context(), r.keys.channel, "nonsense").Err())
	wantHeard(t, heard, 0) // by a new subscription
}

// TestListenToASilentServer: a server that vanishes without a word is noticed.
func TestListenToASilentServer(t *testing.T) {
	srv := redistest.Start(t)
	r := openRules(t, srv.URL())
	ready, ended := make(chan struct{}, 1), make(chan error, 1)
	go func() { ended <- r.Listen(context.Background(), func() { ready <- struct{}{} }, func(int64) {}) }()
	<-ready
	redistest.Must(t, srv.Stop())
	defer func() { redistest.Must(t, srv.Continue()) }()
	select {
	case err := <-ended:
		if err == nil {
			t.Error("no error")
		}
	case <-time.After(patience):
		t.Fatal("it still listens")
	}
}

// TestRulesOnACluster: the keys are on one slot; a slot on the move and a failover lose nothing.
func TestRulesOnACluster(t *testing.T) {
	c, ctx := sharedCluster(t), t.Context()
	store := openStore(t, Config{URL: c.URL()})
	r := store.Rules("default")
	heard := r.followAll(t)
	wantHeard(t, heard, 0)
	mustPush(t, r, Draft{Text: ruleText(1)})
	wantHeard(t, heard, 1)

	from := c.MasterOf(r.keys.head)
	to := c.Masters()[0]
	if to == from {
		to = c.Masters()[1]
	}
	m, err := c.BeginMigration(ctx, redistest.Slot(r.keys.head), to)
	redistest.Must(t, err)
	redistest.Must(t, m.MoveKeys(ctx))
	if h, err := r.Head(ctx); err != nil || h.Number != 1 { // by ASK
		t.Errorf("while the slot moves: %+v, %v", h, err)
	}
	redistest.Must(t, m.Finish(ctx))
	defer moveBack(t, c, m.Slot, from)
	mustPush(t, r, Draft{Text: ruleText(2)}) // by MOVED
	for got := int64(0); got != 2; {         // perhaps after a new subscription, on the new master
		select {
		case got = <-heard:
		case <-time.After(patience):
			t.Fatal("the push was not heard")
		}
	}
	if v, err := r.Version(ctx, 2); err != nil || string(v.Text) != string(ruleText(2)) {
		t.Errorf("%+v, %v", v, err)
	}

	redistest.Must(t, to.Client().Wait(ctx, 1, 5*time.Second).Err())
	redistest.Must(t, to.Kill())
	defer revive(t, c, to)
	_, err = c.WaitFailover(ctx, to)
	redistest.Must(t, err)
	for ready := false; !ready; { // a new subscription, and then all is heard again
		select {
		case n := <-heard:
			ready = n == 0
		case <-time.After(patience):
			t.Fatal("no new subscription")
		}
	}
	until(t, func() bool {
		h, err := r.Head(ctx)
		return err == nil && h.Number == 2
	})
	mustPush(t, r, Draft{Text: ruleText(3)})
	for got := int64(0); got != 3; {
		select {
		case got = <-heard:
		case <-time.After(patience):
			t.Fatal("the push after the failover was not heard")
		}
	}
}

// TestRulesBeforeTheServer: the rules of a store that was not reached yet are away, with the reason.
func TestRulesBeforeTheServer(t *testing.T) {
	s, err := Open(t.Context(), Config{URL: "unix:///nowhere/redis.sock", Logger: slog.New(slog.DiscardHandler)})
	redistest.Must(t, err)
	defer s.Close()
	r := s.Rules("default")
	if _, err := r.Head(t.Context()); err == nil || !strings.Contains(err.Error(), "nowhere") {
		t.Errorf("head: %v", err)
	}
	if err := r.Listen(t.Context(), func() {}, func(int64) {}); err == nil || !strings.Contains(err.Error(), "nowhere") {
		t.Errorf("listen: %v", err)
	}
	if _, err := OpenRules(t.Context(), Config{URL: "unix:///nowhere/redis.sock"}, "default"); err == nil || !strings.Contains(err.Error(), "nowhere") {
		t.Errorf("open: %v", err)
	}
}

// TestPushWithoutAnswer: a push whose reply is lost may be there, and pushing again is safe.
func TestPushWithoutAnswer(t *testing.T) {
	srv, url := sharedServer(t)
	p := startProxy(t, srv.Addr())
	r := openRules(t, strings.Replace(url, srv.Addr(), p.addr, 1))
	p.lose(lossHangUp)
	if _, err := r.Push(t.Context(), Draft{Text: ruleText(1)}); err == nil || !strings.Contains(err.Error(), "push them again, which is safe") {
		t.Fatalf("%v", err)
	}
	if got := mustPush(t, r, Draft{Text: ruleText(1)}); got.New || got.Number != 1 {
		t.Errorf("again: %+v", got)
	}
}

// TestRulesRights: the rights that docs/configuration.md names are enough for who follows, and for who pushes.
func TestRulesRights(t *testing.T) {
	srv := redistest.Start(t,
		redistest.WithUser("follower", "secret", "~sg:*", "resetchannels", "&sg:*", "+ping", "+hmget", "+hget", "+subscribe"),
		redistest.WithUser("pusher", "secret", "~sg:*", "resetchannels", "&sg:*", "+ping", "+eval", "+hmget", "+hget", "+hgetall", "+hset", "+hdel", "+hkeys",
			"+hstrlen", "+publish"))
	follower, pusher := openRules(t, "redis://follower:secret@"+srv.Addr()), openRules(t, "redis://pusher:secret@"+srv.Addr())
	heard := follower.followAll(t)
	wantHeard(t, heard, 0)
	for i := range 2 {
		if p := mustPush(t, pusher, Draft{Text: ruleText(i + 1)}); !p.Announced {
			t.Errorf("%+v", p)
		}
	}
	wantHeard(t, heard, 1)
	wantHeard(t, heard, 2)
	if v, err := follower.Version(t.Context(), 2); err != nil || string(v.Text) != string(ruleText(2)) {
		t.Errorf("%+v, %v", v, err)
	}
	if _, err := pusher.Rollback(t.Context(), 1, "", ""); err != nil {
		t.Error(err)
	}
	if all, err := pusher.History(t.Context()); err != nil || len(all) != 3 {
		t.Errorf("%+v, %v", all, err)
	}
	if _, err := follower.Push(t.Context(), Draft{Text: ruleText(9)}); err == nil || !strings.Contains(err.Error(), "(allow EVAL, ") {
		t.Errorf("a follower that pushes: %v", err)
	}
}

// TestPushWithoutARight: a right that is missing is told, and leaves what is in force as it was.
func TestPushWithoutARight(t *testing.T) {
	for _, lacking := range []string{"eval", "hmget", "hkeys", "hset", "hdel", "hstrlen"} {
		srv := redistest.Start(t, redistest.WithUser("pusher", "secret", "~sg:*", "&sg:*", "+@all", "-"+lacking))
		admin, pusher := openRules(t, srv.URL()), openRules(t, "redis://pusher:secret@"+srv.Addr())
		mustPush(t, admin, Draft{Text: ruleText(1)})
		if p, err := pusher.Push(t.Context(), Draft{Text: ruleText(2)}); err == nil || !strings.Contains(err.Error(), "(allow EVAL, ") ||
			strings.Contains(err.Error(), "or not") {
			t.Errorf("without %s: %+v, %v", lacking, p, err)
		}
		all, err := admin.History(t.Context())
		if h, err2 := admin.Head(t.Context()); err != nil || err2 != nil || h.Number != 1 || len(all) != 1 {
			t.Errorf("without %s: head %+v, %v, history %+v, %v", lacking, h, err2, all, err)
		}
		if p := mustPush(t, admin, Draft{Text: ruleText(3)}); p.Number != 2 {
			t.Errorf("without %s: then %+v", lacking, p)
		}
		redistest.Must(t, srv.Close())
	}
}

// TestPushIntoAFullServer is refused, and nothing changes.
func TestPushIntoAFullServer(t *testing.T) {
	srv := redistest.Start(t)
	r := openRules(t, srv.URL())
	mustPush(t, r, Draft{Text: ruleText(1)})
	redistest.Must(t, srv.Client().ConfigSet(t.Context(), "maxmemory", "1").Err())
	if p, err := r.Push(t.Context(), Draft{Text: ruleText(2)}); err == nil || !strings.Contains(err.Error(), "OOM") || strings.Contains(err.Error(), "or not") {
		t.Errorf("%+v, %v", p, err)
	}
	if h, err := r.Head(t.Context()); err != nil || h.Number != 1 {
		t.Errorf("%+v, %v", h, err)
	}
}
