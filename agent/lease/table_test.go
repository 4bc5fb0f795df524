package lease

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/spillgate/spillgate/limit"
)

func named(id string) *Holding { return &Holding{id: id} }

func (t *table) get(id string) *Holding { return t.find([]byte(id)) }

func TestTable(t *testing.T) {
	tab := newTable(2)
	a, b := named("a"), named("b")
	if tab.get("a") != nil || tab.insert(a) != a || tab.insert(b) != b {
		t.Fatal("an empty table does not take two")
	}
	if tab.get("a") != a || tab.get("b") != b || tab.get("c") != nil || tab.get("") != nil {
		t.Error("found what is not there, or not what is")
	}
	if there := tab.insert(named("a")); there != a {
		t.Errorf("a second a: %v", there)
	}
	if tab.insert(named("c")) != nil {
		t.Error("there is room for a third of two")
	}
	if tab.remove(named("a")) || !tab.remove(a) || tab.remove(a) {
		t.Error("removed what is not there, or twice, or not what is")
	}
	if tab.get("a") != nil || tab.insert(named("c")) == nil {
		t.Error("the place of what was removed is not free")
	}
	if got := tab.all(nil); len(got) != 2 {
		t.Errorf("%d are there, want 2", len(got))
	}
}

// TestTableAgainstAMap: long churn loses nothing and brings nothing back, over many copies.
func TestTableAgainstAMap(t *testing.T) {
	const most, names = 50, 120
	tab, want := newTable(most), map[string]*Holding{}
	r := rand.New(rand.NewPCG(1, 2))
	copies, before := 0, tab.slots.Load()
	for step := range 50_000 {
		id := fmt.Sprint(r.IntN(names))
		if r.IntN(2) == 0 {
			h := named(id)
			got := tab.insert(h)
			switch there := want[id]; {
			case there != nil && got != there, there == nil && len(want) < most && got != h, there == nil && len(want) == most && got != nil:
				t.Fatalf("step %d: insert %s: %v, there is %v of %d", step, id, got, there, len(want))
			case got == h:
				want[id] = h
			}
		} else if h := want[id]; h != nil {
			if !tab.remove(h) || tab.remove(h) {
				t.Fatalf("step %d: remove %s", step, id)
			}
			delete(want, id)
		}
		if now := tab.slots.Load(); now != before {
			copies, before = copies+1, now
		}
		probe := fmt.Sprint(r.IntN(names))
		if got := tab.get(probe); got != want[probe] {
			t.Fatalf("step %d: %s is %v, want %v", step, probe, got, want[probe])
		}
		if step%1000 == 0 {
			seen := map[*Holding]bool{}
			for _, h := range tab.all(nil) {
				if seen[h] || want[h.id] != h {
					t.Fatalf("step %d: all has %s, once too often", step, h.id)
				}
				seen[h] = true
			}
			if len(seen) != len(want) {
				t.Fatalf("step %d: all has %d of %d", step, len(seen), len(want))
			}
		}
	}
	if copies < 50 || len(*tab.slots.Load()) != 256 {
		t.Errorf("%d copies, %d slots", copies, len(*tab.slots.Load()))
	}
}

// TestTableWhileOthersLook: what stays in the table is found at every moment, also while the slots are copied; what was removed
// is found no more; and a name never gives another's Holding.
func TestTableWhileOthersLook(t *testing.T) {
	const stay, churn, rounds = 8, 24, 8000
	tab := newTable(stay + churn)
	for i := range stay {
		tab.insert(named(fmt.Sprint("stay", i)))
	}
	var readers, writers sync.WaitGroup
	stop := make(chan struct{})
	for g := range 2 {
		readers.Go(func() {
			for i := g; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				id := fmt.Sprint("stay", i%stay)
				if h := tab.get(id); h == nil || h.id != id {
					t.Errorf("%s is %v", id, h)
					return
				}
				if id = fmt.Sprint("churn", i%churn); i%5 == 0 {
					if h := tab.get(id); h != nil && h.id != id {
						t.Errorf("%s is %s", id, h.id)
						return
					}
				}
			}
		})
	}
	for g := range 2 {
		writers.Go(func() {
			for i := range rounds {
				id := fmt.Sprint("churn", 2*(i%(churn/2))+g)
				h := named(id)
				if tab.insert(h) != h || tab.get(id) != h {
					t.Errorf("%s was not inserted", id)
					return
				}
				if !tab.remove(h) || tab.get(id) != nil {
					t.Errorf("%s was not removed", id)
					return
				}
			}
		})
	}
	writers.Wait()
	close(stop)
	readers.Wait()
	if got := len(tab.all(nil)); got != stay {
		t.Errorf("%d are left, want %d", got, stay)
	}
}

// TestTableOfOneInsert: many who insert the same name agree on one.
func TestTableOfOneInsert(t *testing.T) {
	tab := newTable(10)
	var wg sync.WaitGroup
	got := make([]*Holding, 8)
	for i := range got {
		wg.Go(func() { got[i] = tab.insert(named("x")) })
	}
	wg.Wait()
	for _, h := range got {
		if h == nil || h != got[0] {
			t.Fatal("two of one name")
		}
	}
}

func TestCredits(t *testing.T) {
	var c credits
	a, b := limit.Sum{Hi: 1}, limit.Sum{Hi: 17} // of one shard
	steps := []struct {
		what string
		ok   bool
		want bool
	}{
		{"3 of 5", c.reserve(a, 3, 5, 0), true},
		{"3 more", c.reserve(a, 3, 5, 0), false},
		{"2 more", c.reserve(a, 2, 5, 0), true},
		{"1 more", c.reserve(a, 1, 5, 0), false},
		{"of another", c.reserve(b, 5, 5, 0), true},
	}
	for _, s := range steps {
		if s.ok != s.want {
			t.Errorf("%s: %v", s.what, s.ok)
		}
	}
	c.heard(a, 2, 0)
	if !c.reserve(a, 2, 5, 0) || c.reserve(a, 1, 5, 0) {
		t.Error("what was heard of is free again, and no more")
	}
	c.block(a, 3, 0, 100)
	c.heard(a, 2, 0)
	if c.reserve(a, 3, 5, 99) || !c.reserve(a, 2, 5, 99) || c.reserve(a, 3, 5, 99) || !c.reserve(a, 3, 5, 100) {
		t.Error("what was lost is blocked until its time, and no longer")
	}
	c.heard(a, 5, 100)
	c.heard(b, 5, 100)
	if n := c.entries(); n != 0 {
		t.Errorf("%d entries, want none", n)
	}
}

func (c *credits) entries() (n int) {
	for i := range c.shards {
		n += len(c.shards[i].buckets)
	}
	return n
}
