package redistest

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if os.Getenv(orphanEnv) != "" {
		launchAndLinger()
	}
	goleak.VerifyTestMain(m)
}
