package redistest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// withPatience gives ctx a deadline if it has none.
func withPatience(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, patience)
}

// halt wraps an error after which poll need not try again.
type halt struct{ error }

func (h halt) Unwrap() error { return h.error }

// poll calls try until it returns nil, returns a halt or ctx is over, and then
// says what was missing last.
func poll(ctx context.Context, every time.Duration, try func(context.Context) error) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	var last error
	for {
		err := try(ctx)
		var h halt
		switch {
		case err == nil:
			return nil
		case errors.As(err, &h):
			return h.error
		case last == nil || ctx.Err() == nil:
			last = err // a try that ctx cut short has nothing to tell
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w; last seen: %w", context.Cause(ctx), last)
		case <-tick.C:
		}
	}
}

// each calls f for all servers at once and joins the errors.
func each(servers []*Server, f func(i int, s *Server) error) error {
	errs := make([]error, len(servers))
	var wg sync.WaitGroup
	for i, s := range servers {
		wg.Go(func() { errs[i] = f(i, s) })
	}
	wg.Wait()
	return errors.Join(errs...)
}
