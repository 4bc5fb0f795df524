package dashboard

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/spillgate/spillgate/limit"
)

// idOf builds an id as the agent does.
func idOf(parts ...string) []byte {
	var id []byte
	for _, part := range parts {
		id = limit.AppendPart(id, part)
	}
	return id
}

// bucketOf is the bucket of an id, under a secret of the tests.
func bucketOf(id []byte) (b limit.Bucket) {
	secret := limit.Secret{1, 2, 3}
	secret.Name(&b, id)
	return b
}

func TestBucket(t *testing.T) {
	long := strings.Repeat("x", 300)
	digest := bucketOf(idOf("api", "per-user", long))
	for _, tt := range []struct {
		name string
		id   []byte
		want Bucket
	}{
		{"a rule with two values", idOf("api", "per-user", "/pay", "42"), Bucket{Domain: "api", Rule: "per-user", Values: []string{"/pay", "42"}}},
		{"a rule without values", idOf("api", "free"), Bucket{Domain: "api", Rule: "free", Values: []string{}}},
		{"an empty value", idOf("api", "free", ""), Bucket{Domain: "api", Rule: "free", Values: []string{""}}},
		{"a key of CL.THROTTLE", idOf("", "tenant:7"), Bucket{Values: []string{"tenant:7"}}},
		{"a value that would be cut elsewhere", idOf("a", "b\x01c", "d"), Bucket{Domain: "a", Rule: "b\x01c", Values: []string{"d"}}},
		{"a long value, whose length takes two bytes", idOf("api", "r", long), Bucket{Domain: "api", Rule: "r", Values: []string{long}}},
		{"a domain whose length begins with the mark of digests", idOf(long[:255], "r", "v"), Bucket{Domain: long[:255], Rule: "r", Values: []string{"v"}}},
		{"no UTF-8", idOf("", "\xff\x00é"), Bucket{Values: []string{`\xff\x00é`}}},
		{"a digest", digest.ID(), Bucket{Values: []string{fmt.Sprintf("siphash:%016x%016x", digest.Sum().Hi, digest.Sum().Lo)}, Hashed: true}},
		{"no id", nil, Bucket{Values: []string{"id:"}}},
		{"one part", idOf("api"), Bucket{Values: []string{"id:03617069"}}},
		{"cut short", idOf("api", "r")[:5], Bucket{Values: []string{"id:0361706901"}}},
		{"a length that ends in the middle", []byte{0x80}, Bucket{Values: []string{"id:80"}}},
	} {
		got := new(Config).bucket(tt.id)
		if !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%s: %+v, want %+v", tt.name, got, tt.want)
		}
	}
}

// TestRedact: no byte of a key is shown, equal keys look equal on agents with one secret, and only there.
func TestRedact(t *testing.T) {
	secret, ok := limit.Secret{1}, true
	redact := func() (*limit.Secret, bool) { return &secret, ok }
	one, two := Config{Redact: redact}, Config{Redact: redact}
	rule := one.bucket(idOf("api", "per-user", "alice", "bob"))
	if rule.Domain != "api" || rule.Rule != "per-user" || !rule.Hashed || len(rule.Values) != 2 || rule.Values[0] == rule.Values[1] {
		t.Errorf("%+v", rule)
	}
	for _, v := range rule.Values {
		if !strings.HasPrefix(v, "hash:") || len(v) != len("hash:")+16 || strings.Contains(v, "alice") || strings.Contains(v, "bob") {
			t.Errorf("%q is no hash", v)
		}
	}
	if other := two.bucket(idOf("", "alice")); other.Values[0] != rule.Values[0] || !other.Hashed {
		t.Errorf("alice is %s and %s", rule.Values[0], other.Values[0])
	}
	secret[0]++
	if other := two.bucket(idOf("", "alice")); other.Values[0] == rule.Values[0] {
		t.Error("the hash does not depend on the secret: whoever knows the code can try keys")
	}
	ok = false
	if other := two.bucket(idOf("", "alice")); other.Values[0] != "hidden" || !other.Hashed {
		t.Errorf("without a secret alice is %+v", other)
	}
}

// FuzzBucket: an id that was built is read back, and one that was not harms nobody.
func FuzzBucket(f *testing.F) {
	f.Add("api", "rule", "value")
	f.Add("", "k\xff", "")
	f.Fuzz(func(t *testing.T, domain, rule, value string) {
		new(Config).bucket([]byte(domain))
		got, ok := partsOf(idOf(domain, rule, value))
		if want := []string{domain, rule, value}; !ok || !reflect.DeepEqual(got, want) {
			t.Fatalf("%q, %v, want %q", got, ok, want)
		}
	})
}
