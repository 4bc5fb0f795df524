package rules

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"time"
)

// Sum is the SHA-256 of the text of a rules file. The zero value is of no text.
type Sum [sha256.Size]byte

// SumOf is the sum of a text.
func SumOf(text []byte) Sum { return sha256.Sum256(text) }

// String is the sum in 64 hexadecimal digits.
func (s Sum) String() string { return hex.EncodeToString(s[:]) }

// Head names a version of the rules. The zero value is none.
type Head struct {
	// Number is 1 or more. Of two versions of a store, the one with the greater number is the newer.
	Number int64
	// Sum of its text: a number alone does not tell whether a store has lost versions and counts again.
	Sum Sum
}

// Version is one text of the rules in a store, with its story. Nobody changes it once it is there: a change of
// mind is another version.
type Version struct {
	Head
	// Author and Comment are one line each, for people.
	Author, Comment string
	// Time of the push by the clock of who pushed, for people: numbers say what is newer.
	Time time.Time
	// Size of the text, in bytes.
	Size int
	// Text of a rules file; nil where only the story was asked for.
	Text []byte
}

// ErrDamaged marks a version that a store has, but cannot give whole.
var ErrDamaged = errors.New("it is damaged in the store")
