package memstore

import (
	"testing"

	"github.com/spillgate/spillgate/batcher"
	"github.com/spillgate/spillgate/internal/storetest"
)

// TestConformance: what every store must do, this one does too.
func TestConformance(t *testing.T) {
	storetest.Run(t, func(t *testing.T) batcher.Store { return newStore(t, Config{}) })
}
