package batcher

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// Config of a Batcher. The zero value of each field but Store stands for its default.
type Config struct {
	// Store that the calls go to. Required.
	Store Store
	// MaxPending bounds the claims that wait or are in flight, over all shards. More memory and
	// longer queues against earlier refusals. Default 65,536.
	MaxPending int
	// MaxEntries bounds the entries of one call: larger calls cost Redis less
	// per entry and block it longer (about 3 us per entry). Default 256.
	MaxEntries int
	// MaxInFlight bounds the calls in flight per shard. A second call leaves only
	// when MaxEntries have gathered. Default 4.
	MaxInFlight int
	// Linger is how long lazy claims wait for company: longer makes fuller calls, and what the
	// store knows gets older. Default 25 ms.
	Linger time.Duration
	// Timeout of one call; a reply that is later counts as lost. Default 50 ms.
	Timeout time.Duration
	// Recovery is for how long Health says of a shard that it was down. Longer than it takes all agents to notice that it
	// is back: a second and Timeout, the default, is.
	Recovery time.Duration
	// OnCall, if set, is told of every call after its reply. It must not block.
	OnCall func(CallInfo)
}

// CallInfo describes one call to the store.
type CallInfo struct {
	Shard   int
	Entries int
	Claims  int
	Took    time.Duration
	// NotRun, Unknown and Damaged count the entries that failed, by kind.
	NotRun, Unknown, Damaged int
}

func (c *Config) ensureDefaults() {
	if c.MaxPending == 0 {
		c.MaxPending = 65536
	}
	if c.MaxEntries == 0 {
		c.MaxEntries = 256
	}
	if c.MaxInFlight == 0 {
		c.MaxInFlight = 4
	}
	if c.Linger == 0 {
		c.Linger = 25 * time.Millisecond
	}
	if c.Timeout == 0 {
		c.Timeout = 50 * time.Millisecond
	}
	if c.Recovery == 0 {
		c.Recovery = time.Second + c.Timeout
	}
}

func (c *Config) validate() error {
	// The script unpacks the fields of a call onto Lua's stack, which holds 7,999 values.
	const mostEntries = 2048
	switch {
	case c.Store == nil:
		return fmt.Errorf("batcher: Store is missing")
	case c.MaxPending < 1:
		return fmt.Errorf("batcher: MaxPending is %d, it must be at least 1", c.MaxPending)
	case c.MaxEntries < 1 || c.MaxEntries > mostEntries:
		return fmt.Errorf("batcher: MaxEntries is %d, it must be 1 to %d", c.MaxEntries, mostEntries)
	case c.MaxInFlight < 1:
		return fmt.Errorf("batcher: MaxInFlight is %d, it must be at least 1", c.MaxInFlight)
	case c.Linger < 0:
		return fmt.Errorf("batcher: Linger is %v, it must be positive", c.Linger)
	case c.Timeout < 0:
		return fmt.Errorf("batcher: Timeout is %v, it must be positive", c.Timeout)
	case c.Recovery < 0:
		return fmt.Errorf("batcher: Recovery is %v, it must be positive", c.Recovery)
	}
	return nil
}

// Batcher merges claims into calls. It is safe for concurrent use.
type Batcher struct {
	cfg     Config
	queues  atomic.Pointer[[]*queue] // by shard; grows, under mu
	waiting atomic.Int64             // claims queued or in flight
	stats   counters
	groups  sync.Pool // of *Group

	// troubled counts the shards that are down or recovering. Hot checks read it, so nothing that claims write is in its cache line.
	_        [64]byte
	troubled atomic.Int64
	_        [56]byte

	// life ends when Close gives up on calls in flight.
	life context.Context
	kill context.CancelFunc

	mu     sync.Mutex // guards the growth of queues, and closed
	closed bool
	calls  sync.WaitGroup // the goroutines that run calls
}

// New checks the configuration. It starts nothing.
func New(cfg Config) (*Batcher, error) {
	cfg.ensureDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	b := &Batcher{cfg: cfg}
	b.queues.Store(new([]*queue))
	b.life, b.kill = context.WithCancel(context.Background())
	return b, nil
}

// queue returns the queue of a shard, made at its first use.
func (b *Batcher) queue(shard int) *queue {
	if qs := *b.queues.Load(); shard < len(qs) {
		return qs[shard]
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	qs := append([]*queue(nil), *b.queues.Load()...)
	for len(qs) <= shard {
		qs = append(qs, newQueue(b, len(qs), b.closed))
	}
	b.queues.Store(&qs)
	return qs[shard]
}

// Send queues a claim that nobody waits for: its Done, if set, is told of the outcome. With an error it is
// not: the claim was not queued.
func (b *Batcher) Send(c *Claim) error {
	c.queue = b.queueOf(c)
	return c.queue.add(c)
}

// queueOf returns the queue of a claim's shard.
func (b *Batcher) queueOf(c *Claim) *queue { return b.queue(b.cfg.Store.Shard(&c.Bucket, c.Part)) }

// Close refuses new claims, sends what is queued and waits for the replies. When
// ctx ends first, the calls in flight are cut off and ctx's error is returned.
func (b *Batcher) Close(ctx context.Context) error {
	b.mu.Lock()
	b.closed = true
	qs := *b.queues.Load()
	b.mu.Unlock()
	for _, q := range qs {
		q.close()
	}
	drained := make(chan struct{})
	go func() {
		b.calls.Wait()
		close(drained)
	}()
	defer b.kill()
	select {
	case <-drained:
		return nil
	case <-ctx.Done():
		b.kill()
		<-drained
		return fmt.Errorf("batcher: closed before the store had answered: %w", ctx.Err())
	}
}

// counters are totals since New.
type counters struct {
	calls, entries, claims, notRun, unknown, damaged, overloaded, refunded, givenUp atomic.Uint64

	// Of breakers.
	refused, opened, probes atomic.Uint64
	down                    atomic.Int64
}

// record adds a call to the totals.
func (s *counters) record(i CallInfo) {
	s.calls.Add(1)
	s.entries.Add(uint64(i.Entries))
	s.claims.Add(uint64(i.Claims))
	s.notRun.Add(uint64(i.NotRun))
	s.unknown.Add(uint64(i.Unknown))
	s.damaged.Add(uint64(i.Damaged))
}

// Stats are totals since New.
type Stats struct {
	Calls   uint64 // calls to the store
	Entries uint64 // entries in them
	Claims  uint64 // claims that the entries carried
	// NotRun, Unknown and Damaged count failed entries by kind.
	NotRun, Unknown, Damaged uint64
	Overloaded               uint64 // claims refused because too many waited
	GivenUp                  uint64 // claims whose deadline passed
	Refunded                 uint64 // tokens sent back by the batcher itself
	Waiting                  int64  // claims queued or in flight now

	Down    int64  // shards that are not asked now, since they do not answer
	Opened  uint64 // times that a shard was found down
	Probes  uint64 // calls that asked whether it is back; not in Calls
	Refused uint64 // claims that met a shard that was down
}

// Stats returns the totals.
func (b *Batcher) Stats() Stats {
	s := &b.stats
	return Stats{Calls: s.calls.Load(), Entries: s.entries.Load(), Claims: s.claims.Load(), NotRun: s.notRun.Load(),
		Unknown: s.unknown.Load(), Damaged: s.damaged.Load(), Overloaded: s.overloaded.Load(), GivenUp: s.givenUp.Load(),
		Refunded: s.refunded.Load(), Waiting: b.waiting.Load(),
		Down: s.down.Load(), Opened: s.opened.Load(), Probes: s.probes.Load(), Refused: s.refused.Load()}
}
