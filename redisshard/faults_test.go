package redisshard

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillgate/spillgate/batcher"
	"github.com/spillgate/spillgate/internal/redistest"
	"github.com/spillgate/spillgate/limit"
)

// TestLostReply is fault 4: a call whose reply was lost counts as spent, and is never sent again.
func TestLostReply(t *testing.T) {
	srv, url := sharedServer(t)
	p := startProxy(t, srv.Addr())
	direct := openStore(t, Config{URL: url})
	through := openStore(t, Config{URL: strings.Replace(url, srv.Addr(), p.addr, 1), Timeout: 2 * time.Second})
	terms := compile(t, 10, time.Hour)
	direct.must(t, direct.bucket("first"), terms, limit.Take, 1) // the server knows the script from here on
	for i, tt := range []struct {
		name string
		what loss
		out  limit.Tokens // debited, whatever the store was told
	}{
		{"the connection ends", lossHangUp, 3}, {"silence", lossSilence, 3}, {"the request is lost", lossRequest, 0},
	} {
		b := direct.bucket(tt.name)
		before := through.Stats()
		p.lose(tt.what)
		_, err := through.do(b, terms, limit.Take, 3)
		if !errors.Is(err, batcher.ErrUnknown) {
			t.Errorf("%s: %v", tt.name, err)
		}
		after := through.Stats()
		if after.Unknown != before.Unknown+1 || after.Calls != before.Calls+1 || after.Resent != before.Resent {
			t.Errorf("%s: from %+v to %+v", tt.name, before, after)
		}
		if out := direct.out(t, b, terms); out != tt.out {
			t.Errorf("%s: %d tokens are out, want %d", tt.name, out, tt.out)
		}
		if out := through.must(t, b, terms, limit.TakePartial, 100); out.Granted != 10-tt.out {
			t.Errorf("case %d, afterwards: %+v", i, out)
		}
	}
}

// TestLostReplyOfMany: all entries of a lost call share its fate, those of others do not.
func TestLostReplyOfMany(t *testing.T) {
	srv, url := sharedServer(t)
	p := startProxy(t, srv.Addr())
	s := openStore(t, Config{URL: strings.Replace(url, srv.Addr(), p.addr, 1)})
	terms := compile(t, 10, time.Hour)
	var mu sync.Mutex
	lost := map[string]bool{}
	s.must(t, s.bucket("first"), terms, limit.Take, 1) // the server knows the script from here on: what is lost is an answer
	p.lose(lossHangUp)
	var calls sync.WaitGroup
	for call := range 8 {
		calls.Go(func() {
			var entries []*batcher.Entry
			for i := range 5 {
				entries = append(entries, &batcher.Entry{Bucket: s.bucket(fmt.Sprint(call, " ", i)), Terms: terms, Op: limit.Take, N: 1})
			}
			s.Apply(context.Background(), 0, entries)
			mu.Lock()
			defer mu.Unlock()
			for i, e := range entries {
				if e.Err != nil && !errors.Is(e.Err, batcher.ErrUnknown) || (e.Err == nil) != (entries[0].Err == nil) {
					t.Errorf("call %d, entry %d: %v", call, i, e.Err)
				}
				lost[fmt.Sprint(call, " ", i)] = e.Err != nil
			}
		})
	}
	calls.Wait()
	n := 0
	for name, was := range lost {
		if was {
			n++
		}
		if out := s.out(t, s.bucket(name), terms); out != 1 {
			t.Errorf("%s: %d tokens are out", name, out)
		}
	}
	if n != 5 || s.Stats().Unknown != 5 {
		t.Errorf("%d entries were lost, the store counts %d", n, s.Stats().Unknown)
	}
}

// commandCalls is how often a server has run a command.
func commandCalls(t *testing.T, admin *redis.Client, command string) int {
	t.Helper()
	info := admin.Info(t.Context(), "commandstats").Val()
	m := regexp.MustCompile(`cmdstat_` + command + `:calls=(\d+)`).FindStringSubmatch(info)
	if m == nil {
		return 0
	}
	n, err := strconv.Atoi(m[1])
	redistest.Must(t, err)
	return n
}

// TestScriptFlush is fault 7: each call runs once, and EVALSHA stays in use.
func TestScriptFlush(t *testing.T) {
	srv, url := sharedServer(t)
	s, admin := openStore(t, Config{URL: url}), adminOf(t, url)
	const callers, each, flushes = 50, 20, 15
	terms := compile(t, 1000, 24*time.Hour)
	var callersDone sync.WaitGroup
	for i := range callers {
		callersDone.Go(func() {
			b := s.bucket(fmt.Sprint(i % 10))
			for range each {
				if out, err := s.do(b, terms, limit.Take, 1); err != nil || out.Granted != 1 {
					t.Errorf("%+v, %v", out, err)
				}
			}
		})
	}
	for range flushes {
		redistest.Must(t, srv.ScriptFlush(t.Context()))
		time.Sleep(2 * time.Millisecond)
	}
	callersDone.Wait()
	for i := range 10 {
		if out := s.out(t, s.bucket(fmt.Sprint(i)), terms); out != callers/10*each {
			t.Errorf("bucket %d: %d tokens are out, want %d", i, out, callers/10*each)
		}
	}
	if s.Stats().Resent == 0 || s.Stats().Unknown != 0 {
		t.Errorf("%+v", s.Stats())
	}
	full, short := commandCalls(t, admin, "eval"), commandCalls(t, admin, "evalsha")
	for range 50 {
		s.must(t, s.bucket("after"), terms, limit.Take, 1)
	}
	if e, s := commandCalls(t, admin, "eval")-full, commandCalls(t, admin, "evalsha")-short; e != 0 || s != 50 {
		t.Errorf("50 calls later: EVAL %d times, EVALSHA %d times", e, s)
	}
}

// TestReadOnly: a master that became a replica refuses; its calls are not debited, and go on when
// it is a master again.
func TestReadOnly(t *testing.T) {
	srv := redistest.Start(t)
	s, terms := openStore(t, Config{URL: srv.URL()}), compile(t, 10, time.Hour)
	b := s.bucket("b")
	s.must(t, b, terms, limit.Take, 1)
	redistest.Must(t, srv.Client().ReplicaOf(t.Context(), "127.0.0.1", "1").Err())
	if _, err := s.do(b, terms, limit.Take, 1); !errors.Is(err, batcher.ErrNotRun) || !strings.Contains(err.Error(), "READONLY") {
		t.Errorf("on a replica: %v", err)
	}
	redistest.Must(t, srv.Client().ReplicaOf(t.Context(), "no", "one").Err())
	if out := s.must(t, b, terms, limit.TakePartial, 100); out.Granted != 9 {
		t.Errorf("afterwards: %+v", out)
	}
}

// TestStoppedServer: calls end in time, nothing piles up, and it goes on by itself.
func TestStoppedServer(t *testing.T) {
	srv := redistest.Start(t)
	patient, terms := openStore(t, Config{URL: srv.URL()}), compile(t, 1000, 24*time.Hour)
	s, b := openStore(t, Config{URL: srv.URL(), Timeout: 100 * time.Millisecond}), patient.bucket("b")
	until(t, func() bool { _, err := s.do(b, terms, limit.Take, 1); return err == nil })
	redistest.Must(t, srv.Stop())
	var calls sync.WaitGroup
	for range 3 * poolSize {
		calls.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
			defer cancel()
			e := batcher.Entry{Bucket: b, Terms: terms, Op: limit.Take, N: 1}
			s.Apply(ctx, 0, []*batcher.Entry{&e})
			if !errors.Is(e.Err, batcher.ErrUnknown) && !errors.Is(e.Err, batcher.ErrNotRun) {
				t.Errorf("%v", e.Err)
			}
		})
	}
	calls.Wait()
	unknown := s.Stats().Unknown
	redistest.Must(t, srv.Continue())
	until(t, func() bool { _, err := s.do(b, terms, limit.TakePartial, 0); return err == nil })
	if out := patient.out(t, b, terms); out > 1+limit.Tokens(unknown) {
		t.Errorf("%d tokens are out, of at most %d", out, 1+unknown)
	}
}

func TestDecodeReply(t *testing.T) {
	_, url := sharedServer(t)
	s := openStore(t, Config{URL: url})
	st := s.state.Load()
	c := new(call)
	var entries []*batcher.Entry
	for i := range 3 {
		entries = append(entries, &batcher.Entry{Bucket: s.bucket(fmt.Sprint(i)), Terms: compile(t, 10, time.Hour), Op: limit.Take, N: 1})
	}
	c.load(st.layout, entries)
	args := c.encode("eval", debitScript, &s.names, time.Now().UnixNano(), 0)
	reply, err := adminOf(t, url).Do(t.Context(), args...).Text()
	redistest.Must(t, err)
	if _, err := c.decode([]byte(reply)); err != nil {
		t.Fatal(err)
	}
	for n := range len(reply) {
		if _, err := c.decode([]byte(reply)[:n]); err == nil {
			t.Errorf("the first %d of %d bytes were taken for a reply", n, len(reply))
		}
	}
	clock := len("\x98\xcf") + 8 // it comes first, and has any bytes; then come grants of 1
	if reply[:2] != "\x98\xcf" {
		t.Fatalf("%q does not begin with the server's time", reply)
	}
	for _, strange := range []string{"\xc0", "\x98", "OK", reply[:clock] + strings.Replace(reply[clock:], "\x01", "\xfc", 1)} {
		if _, err := c.decode([]byte(strange)); err == nil {
			t.Errorf("%q was taken for a reply", strange)
		}
	}
}

// FuzzDecodeReply: whatever comes for a reply, every entry has an outcome or the call an error.
func FuzzDecodeReply(f *testing.F) {
	f.Add([]byte("\x96\x01\x00\x01\x02\xff\x00"))
	f.Add([]byte("\x96\xcf\x00\x06a\x80c\x06-\xa2\x00\xfe\x00\x01\xcf\x00\x00\x02\x9e\x8d`\x80\x00"))
	f.Fuzz(func(t *testing.T, reply []byte) {
		var entries [2]batcher.Entry
		c := new(call)
		for i := range entries {
			c.items = append(c.items, item{entry: &entries[i]})
		}
		if _, err := c.decode(reply); err != nil {
			return
		}
		for _, e := range entries {
			if e.Err == nil && e.Out.Granted < 0 {
				t.Errorf("%+v", e)
			}
		}
	})
}
