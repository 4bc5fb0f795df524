package redisshard

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spillgate/spillgate/internal/redistest"
	"github.com/spillgate/spillgate/limit"
)

// TestSilentMaster: of a cluster one master stops and comes back; the operator is told which one, and that it is not the whole.
func TestSilentMaster(t *testing.T) {
	c := redistest.StartCluster(t, redistest.WithShards(3, -1), redistest.WithConfig("cluster-require-full-coverage no"))
	var log journal
	s, terms := openStore(t, Config{URL: c.URL(), Timeout: 100 * time.Millisecond, Logger: log.logger()}), compile(t, 10, time.Hour)
	masters := c.Masters()
	victim := masters[slices.IndexFunc(masters, func(m *redistest.Server) bool { return m != c.MasterOf(layoutKey) })]
	b := s.onMaster(c, victim)
	silent := func() (addrs []string) {
		for _, m := range s.Masters() {
			if m.Err != nil {
				addrs = append(addrs, m.Addr)
			}
		}
		return addrs
	}
	if all := s.Masters(); len(all) != 3 || len(silent()) != 0 {
		t.Errorf("%v", all)
	}
	redistest.Must(t, victim.Stop())
	if _, err := s.do(b, terms, limit.Take, 1); err == nil {
		t.Fatal("a stopped server answered")
	}
	if got := silent(); len(got) != 1 || got[0] != victim.Addr() {
		t.Errorf("%v do not answer, want %s", got, victim.Addr())
	}
	if err := s.Status(); err == nil || !strings.Contains(err.Error(), victim.Addr()) {
		t.Errorf("the status is %v, want %s named", err, victim.Addr())
	}
	told := func(text string) func() bool {
		return func() bool {
			_, _ = s.do(b, terms, limit.TakePartial, 0)
			return strings.Contains(log.String(), text+`" master=`+victim.Addr())
		}
	}
	until(t, told("calls to a master of the store fail, fail policies decide for its buckets"))
	redistest.Must(t, victim.Continue())
	until(t, told("calls to a master of the store succeed again"))
	until(t, func() bool {
		_, _ = s.do(b, terms, limit.TakePartial, 0)
		return len(silent()) == 0 && s.Status() == nil
	})
	if text := log.String(); strings.Contains(text, `"store does not answer`) {
		t.Errorf("the whole is said to be away:\n%s", text)
	}
}

// TestFaultsExpire: a fault stays until it is old, so that a shard that is asked by probes only is not well in between.
func TestFaultsExpire(t *testing.T) {
	_, url := sharedServer(t)
	s := openStore(t, Config{URL: url, Timeout: time.Minute})
	st, cause := s.state.Load(), errors.New("lost")
	for age, stays := range map[time.Duration]bool{0: true, 5 * time.Second: true, time.Minute: false} {
		st.faults[0].Store(&fault{"server", cause, s.now() - int64(age)})
		s.expireFaults(st)
		if got := s.Status(); (got != nil) != stays || stays && !errors.Is(got, cause) {
			t.Errorf("a fault of %v: the status is %v", age, got)
		}
	}
}
