package source

import (
	"runtime"
	"testing"

	"github.com/spillgate/spillgate/rules"
)

// TestParsedAside: while a text is compiled there is a thread for the checks, and afterwards there are as many as before; after an error too.
func TestParsedAside(t *testing.T) {
	before := runtime.GOMAXPROCS(0)
	defer runtime.GOMAXPROCS(before)
	for of, want := range map[int]int{1: 2, 2: 2, 5: 5} {
		runtime.GOMAXPROCS(of)
		during := 0
		set, err := parse("", []byte("domain: api\nrules: []\n"), func(s *rules.Set) (*rules.Set, error) {
			during = runtime.GOMAXPROCS(0)
			return s, nil
		})
		if err != nil || set == nil || during != want || runtime.GOMAXPROCS(0) != of {
			t.Errorf("of %d threads %d, and then %d (%v)", of, during, runtime.GOMAXPROCS(0), err)
		}
		if _, err := parse("", []byte("domain: [\n"), nil); err == nil || runtime.GOMAXPROCS(0) != of {
			t.Errorf("after an error (%v) %d threads, want %d", err, runtime.GOMAXPROCS(0), of)
		}
	}
}
