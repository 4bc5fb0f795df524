package resp

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/spillgate/spillgate/limit"
	"github.com/spillgate/spillgate/sidecar/resp/wire"
)

// throttle is CL.THROTTLE key max_burst count period_seconds [quantity], with
// the reply of redis-cell (https://github.com/brandur/redis-cell): denied, limit, remaining,
// seconds to retry, seconds to full.
var throttle = command{name: "cl.throttle", arity: -5, most: 6, key: 1, check: checkThrottle, decided: writeThrottle}

func checkThrottle(c *conn, args [][]byte) (n int, problem string) {
	var p throttleParams
	quantity := int64(1)
	for i, to := range [...]*int64{&p.maxBurst, &p.count, &p.period, &quantity} {
		if i+2 == len(args) {
			break
		}
		v, ok := wire.ParseInt(args[i+2])
		if !ok {
			return 0, "ERR " + throttleFields[i] + ": value is not an integer or out of range"
		}
		*to = v
	}
	terms, err := c.terms.get(&c.server.terms, p)
	switch {
	case err != nil:
		return 0, "ERR " + err.Error()
	case len(args[1]) == 0:
		return 0, "ERR key: an empty key names no bucket"
	case quantity < 0 || limit.Tokens(quantity) > limit.MaxTokens:
		return 0, fmt.Sprintf("ERR quantity: %d is not between 0 and %d", quantity, limit.MaxTokens)
	}
	return c.batch.Throttle(args[1], terms, limit.Tokens(quantity)), ""
}

var throttleFields = [...]string{"max_burst", "count", "period_seconds", "quantity"}

func writeThrottle(w *wire.Writer, d limit.Decision) {
	w.Array(5)
	w.Int(int64(b2i(!d.Admitted)))
	w.Int(int64(d.Limit))
	w.Int(int64(d.Remaining))
	w.Int(roundUp(d.RetryAfter, time.Second))
	w.Int(roundUp(d.ResetAfter, time.Second))
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

// roundUp is d in units, rounded up; -1 for limit.NoRetry.
func roundUp(d, unit time.Duration) int64 {
	if d == limit.NoRetry {
		return -1
	}
	n := int64(d / unit)
	if d%unit > 0 {
		n++
	}
	return n
}

// throttleParams are the numbers of a CL.THROTTLE.
type throttleParams struct{ maxBurst, count, period int64 }

// compile checks the numbers. Errors name the argument.
func (p throttleParams) compile() (*limit.Terms, error) {
	const mostSeconds = int64(limit.MaxPeriod / time.Second)
	switch {
	case p.maxBurst < 0 || p.maxBurst >= int64(limit.MaxTokens):
		return nil, fmt.Errorf("max_burst: %d is not between 0 and %d", p.maxBurst, limit.MaxTokens-1)
	case p.count < 1 || p.count > int64(limit.MaxTokens):
		return nil, fmt.Errorf("count: %d is not between 1 and %d", p.count, limit.MaxTokens)
	case p.period < 1 || p.period > mostSeconds:
		return nil, fmt.Errorf("period_seconds: %d is not between 1 and %d", p.period, mostSeconds)
	}
	t, err := limit.Rate{Requests: limit.Tokens(p.count), Period: time.Duration(p.period) * time.Second,
		Burst: limit.Tokens(p.maxBurst + 1)}.Terms()
	var field *limit.FieldError
	if errors.As(err, &field) { // what is left: the three together fill too slowly
		return nil, errors.New("period_seconds: " + field.Problem)
	}
	return t, err
}

// termsTable shares compiled terms between connections, so that checks on one bucket
// from several connections merge by pointer. Bounded: over maxTerms an
// arbitrary one is forgotten, which costs one compilation.
type termsTable struct {
	mu    sync.Mutex
	terms map[throttleParams]*limit.Terms
}

const maxTerms = 4096

func (t *termsTable) get(p throttleParams) (*limit.Terms, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if terms := t.terms[p]; terms != nil {
		return terms, nil
	}
	terms, err := p.compile()
	if err != nil {
		return nil, err
	}
	if t.terms == nil {
		t.terms = make(map[throttleParams]*limit.Terms)
	}
	if len(t.terms) >= maxTerms {
		for old := range t.terms {
			delete(t.terms, old)
			break
		}
	}
	t.terms[p] = terms
	return terms, nil
}

// termsCache is a connection's own few entries of the table, found without a lock.
type termsCache struct {
	slots [8]struct {
		params throttleParams
		terms  *limit.Terms
	}
}

// get is the hot path: 1 comparison, 0 allocations when the numbers are known.
func (c *termsCache) get(t *termsTable, p throttleParams) (*limit.Terms, error) {
	s := &c.slots[uint64(p.maxBurst+31*p.count+961*p.period)%uint64(len(c.slots))]
	if s.terms != nil && s.params == p {
		return s.terms, nil
	}
	terms, err := t.get(p)
	if err == nil {
		s.params, s.terms = p, terms
	}
	return terms, err
}
