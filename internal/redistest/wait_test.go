package redistest

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestPoll(t *testing.T) {
	broken := errors.New("broken")
	t.Run("until it works", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			start, tries := time.Now(), 0
			err := poll(t.Context(), time.Second, func(context.Context) error {
				if tries++; tries < 4 {
					return broken
				}
				return nil
			})
			if err != nil || tries != 4 || time.Since(start) != 3*time.Second {
				t.Errorf("%v after %d tries, %v", err, tries, time.Since(start))
			}
		})
	})
	t.Run("halt", func(t *testing.T) {
		err := poll(t.Context(), time.Hour, func(context.Context) error { return halt{broken} })
		if err != broken {
			t.Errorf("error is %v, want the one that halted", err)
		}
	})
	t.Run("says what was missing", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			err := poll(ctx, time.Second, func(ctx context.Context) error {
				if ctx.Err() != nil {
					return ctx.Err()
				}
				return broken
			})
			if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, broken) {
				t.Errorf("error is %v", err)
			}
		})
	})
}

func TestEachJoinsErrors(t *testing.T) {
	err := each(make([]*Server, 3), func(i int, _ *Server) error {
		if i == 1 {
			return nil
		}
		return errors.New(strings.Repeat("x", i+1))
	})
	if err == nil || err.Error() != "x\nxxx" {
		t.Errorf("error is %v", err)
	}
}
