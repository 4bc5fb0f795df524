package strictyaml

import (
	"fmt"
	"strconv"
	"strings"
)

// Show quotes a text of a file for a message, cut where it is very long.
func Show(text string) string {
	const most = 80
	if len(text) <= most {
		return strconv.Quote(text)
	}
	return strconv.Quote(strings.ToValidUTF8(text[:most], "")) + "..."
}

// DidYouMean is a hint at the word that was probably meant, or "".
func DidYouMean(word string, known []string) string {
	best, least := "", 3
	for _, k := range known {
		if d := distance(word, k); d < least && 2*d < len(k) {
			best, least = k, d
		}
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf(" (did you mean %q?)", best)
}

// distance is the number of bytes to insert, delete, replace or swap with their neighbour that
// makes b of a; words of very different lengths are just far apart.
func distance(a, b string) int {
	if d := len(a) - len(b); d > 2 || d < -2 {
		return 3
	}
	above2, above, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range above {
		above[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			change := 1
			if a[i-1] == b[j-1] {
				change = 0
			}
			row[j] = min(above[j]+1, row[j-1]+1, above[j-1]+change)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], above2[j-2]+1)
			}
		}
		above2, above, row = above, row, above2
	}
	return above[len(b)]
}
