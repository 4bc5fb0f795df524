package rules

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// In this file are the names of rules that the file did not name.

// Characters that have a meaning in a name are written as a percent sign and two digits.
var (
	escapeKey   = strings.NewReplacer("%", "%25", ",", "%2C", "=", "%3D")
	escapeValue = strings.NewReplacer("%", "%25", ",", "%2C")
)

// pathName makes a name of patterns: "route=/pay,user", "path=/v1/*,user=bob". Different patterns have different names. One that would
// be longer than MaxName ends in a hash of all of it.
func pathName(match []Pattern) string {
	var b strings.Builder
	for i, p := range match {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(escapeKey.Replace(p.Key))
		switch p.Fit {
		case Exactly:
			b.WriteByte('=')
			b.WriteString(escapeValue.Replace(p.Value))
		case Prefix:
			b.WriteByte('=')
			b.WriteString(escapeValue.Replace(p.Value))
			b.WriteByte('*')
		}
	}
	name := b.String()
	if len(name) <= MaxName {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	tail := "~" + hex.EncodeToString(sum[:12])
	return strings.ToValidUTF8(name[:MaxName-len(tail)], "") + tail
}
