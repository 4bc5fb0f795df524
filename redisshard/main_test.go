package redisshard

import (
	"bytes"
	"context"
	"fmt"
	"log"
	"log/slog"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/spillgate/spillgate/batcher"
	"github.com/spillgate/spillgate/internal/redistest"
	"github.com/spillgate/spillgate/limit"
)

// databases of the shared server; each test takes one for itself.
const databases = 512

// shared are the servers of this test binary, started by the first test that needs them.
var shared struct {
	server  func() (*redistest.Server, error)
	cluster func() (*redistest.Cluster, error)
	next    atomic.Int64 // database
}

func TestMain(m *testing.M) {
	var closers []func() error
	shared.server = sync.OnceValues(func() (*redistest.Server, error) {
		s, err := redistest.Launch(context.Background(), "", redistest.Config{Lines: []string{fmt.Sprint("databases ", databases)}})
		if err == nil {
			closers = append(closers, s.Close)
		}
		return s, err
	})
	shared.cluster = sync.OnceValues(func() (*redistest.Cluster, error) {
		// A dead master shall not silence the others until a replica takes its place.
		c, err := redistest.LaunchCluster(context.Background(), "", redistest.Config{Lines: []string{"cluster-require-full-coverage no"}})
		if err == nil {
			closers = append(closers, c.Close)
		}
		return c, err
	})
	code := m.Run()
	for _, closer := range closers {
		if err := closer(); err != nil {
			log.Print(err)
			code = 1
		}
	}
	// A closed pool of go-redis whose server was gone notices within a second, and after a last dial.
	dying := goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial")
	if err := goleak.Find(dying); err != nil && code == 0 {
		log.Print(err)
		code = 1
	}
	os.Exit(code)
}

// sharedServer gives the shared server and the URL of an empty database.
func sharedServer(tb testing.TB) (*redistest.Server, string) {
	tb.Helper()
	srv, err := shared.server()
	redistest.Must(tb, err)
	url := strings.TrimSuffix(srv.URL(), "0") + fmt.Sprint(shared.next.Add(1)%databases)
	client := adminOf(tb, url)
	redistest.Must(tb, client.FlushDB(tb.Context()).Err())
	return srv, url
}

// sharedCluster gives the shared cluster, empty.
func sharedCluster(tb testing.TB) *redistest.Cluster {
	tb.Helper()
	c, err := shared.cluster()
	redistest.Must(tb, err)
	for _, m := range c.Masters() {
		redistest.Must(tb, m.Client().FlushAll(tb.Context()).Err())
	}
	return c
}

// adminOf is a client of one database, for what tests do behind the store's back.
func adminOf(tb testing.TB, url string) *redis.Client {
	tb.Helper()
	opts, err := redis.ParseURL(url)
	redistest.Must(tb, err)
	opts.DisableIdentity = true
	client := redis.NewClient(opts)
	tb.Cleanup(func() { client.Close() })
	return client
}

// patience is how long tests wait for what must come; it decides only how soon a hopeless test gives up.
const patience = time.Minute

// openStore opens a store that answers in time on a busy machine.
func openStore(tb testing.TB, cfg Config) *Store {
	tb.Helper()
	if cfg.Timeout == 0 {
		cfg.Timeout = patience
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	s, err := Open(context.Background(), cfg)
	redistest.Must(tb, err)
	tb.Cleanup(func() {
		if err := s.Close(); err != nil {
			tb.Errorf("close: %v", err)
		}
	})
	return s
}

// journal is a log that tests can read while it is written.
type journal struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.buf.Write(p)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.buf.String()
}

func (j *journal) logger() *slog.Logger { return slog.New(slog.NewTextHandler(j, nil)) }

// bucket is the bucket of that name in the store.
func (s *Store) bucket(name string) (b limit.Bucket) {
	s.state.Load().layout.secret.Name(&b, limit.AppendPart(nil, name))
	return b
}

// tagOf is the tag under which the store keeps a bucket.
func (s *Store) tagOf(b *limit.Bucket) string {
	l := s.state.Load().layout
	tag, _ := l.place(b)
	return l.tags[tag]
}

// bucketWhere is a bucket that satisfies a condition.
func (s *Store) bucketWhere(ok func(b *limit.Bucket) bool) limit.Bucket {
	for i := 0; ; i++ {
		if b := s.bucket(fmt.Sprint("where ", i)); ok(&b) {
			return b
		}
	}
}

// do runs one entry.
func (s *Store) do(b limit.Bucket, terms *limit.Terms, op limit.Op, n limit.Tokens) (limit.Outcome, error) {
	e := batcher.Entry{Bucket: b, Terms: terms, Op: op, N: n}
	s.Apply(context.Background(), s.Shard(&b, nil), []*batcher.Entry{&e})
	return e.Out, e.Err
}

// must is do for what cannot fail.
func (s *Store) must(tb testing.TB, b limit.Bucket, terms *limit.Terms, op limit.Op, n limit.Tokens) limit.Outcome {
	tb.Helper()
	out, err := s.do(b, terms, op, n)
	if err != nil {
		tb.Fatal(err)
	}
	return out
}

// out is the number of tokens that are out of a bucket of slow terms.
func (s *Store) out(tb testing.TB, b limit.Bucket, terms *limit.Terms) limit.Tokens {
	tb.Helper()
	level := s.must(tb, b, terms, limit.TakePartial, 0).Level
	return limit.Tokens((level + terms.Emission - 1) / terms.Emission)
}

// compile gives the terms of a rate that is known to be valid.
func compile(tb testing.TB, requests limit.Tokens, period time.Duration) *limit.Terms {
	tb.Helper()
	terms, err := limit.Rate{Requests: requests, Period: period}.Terms()
	redistest.Must(tb, err)
	return terms
}

// key is the name of the hash that holds a bucket's cell at a time in nanoseconds.
func (s *Store) key(b *limit.Bucket, class limit.Class, nanos int64) string {
	l := s.state.Load().layout
	tag, bin := l.place(b)
	generation, _ := class.At(nanos)
	return hashKey(l.tags[tag], class, bin, generation)
}
