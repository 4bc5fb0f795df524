package wire

import (
	"regexp"
	"strconv"
	"strings"
)

// oracle is the Reader's dumb twin: it has the complete input as one string,
// copies every argument, and looks at everything as often as it likes. It
// returns the commands before the first error, and the text of that error.
func oracle(in string) (commands [][]string, reason string) {
	for {
		command, rest, state := oracleFrame(in)
		switch state {
		case "ok":
			if len(command) > 0 {
				commands = append(commands, command)
			}
			in = rest
		case "more":
			return commands, ""
		default:
			return commands, state
		}
	}
}

var canonicalInt = regexp.MustCompile(`^(0|-?[1-9][0-9]*)$`)

// oracleFrame takes the first frame off in. state is "ok", "more" or the reason
// of a protocol error.
func oracleFrame(in string) (args []string, rest, state string) {
	if in == "" {
		return nil, in, "more"
	}
	if in[0] != '*' {
		return oracleInline(in)
	}
	count, body, state := oracleLength(in, in[1:], "too big mbulk count string", "invalid multibulk length")
	if state != "ok" {
		return nil, in, state
	}
	if count > 1024 {
		return nil, in, "invalid multibulk length"
	}
	for left := count; left > 0; left-- {
		if body == "" {
			return nil, in, "more"
		}
		if body[0] != '$' {
			return nil, in, errNotBulk(body[0]).(*ProtocolError).Reason
		}
		n, after, state := oracleLength(in, body[1:], "too big bulk count string", "invalid bulk length")
		if state != "ok" {
			return nil, in, state
		}
		header := int64(len(in) - len(after))
		if n < 0 || n > 65536 || header+n+2+6*(left-1) > 65536 {
			return nil, in, "invalid bulk length"
		}
		if int64(len(after)) < n {
			return nil, in, "more"
		}
		if end := after[n:]; len(end) < 2 && strings.HasPrefix("\r\n", end) {
			return nil, in, "more"
		} else if !strings.HasPrefix(end, "\r\n") {
			return nil, in, "expected CRLF after bulk"
		}
		args = append(args, after[:n])
		body = after[n+2:]
	}
	return args, body, "ok"
}

// oracleLength takes a number and its line end off s, a part of frame.
func oracleLength(frame, s, tooBig, invalid string) (n int64, rest, state string) {
	line, rest, found := strings.Cut(s, "\n")
	taken := len(frame) - len(rest)
	if !found && len(frame) < 65536 {
		return 0, "", "more"
	}
	if !found || taken > 65536 {
		return 0, "", tooBig
	}
	digits, hasCR := strings.CutSuffix(line, "\r")
	if !hasCR || !canonicalInt.MatchString(digits) {
		return 0, "", invalid
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil {
		return 0, "", invalid
	}
	return n, rest, "ok"
}

func oracleInline(in string) (args []string, rest, state string) {
	line, rest, found := strings.Cut(in, "\n")
	if !found && len(in) < 65536 {
		return nil, in, "more"
	}
	if !found || len(line)+1 > 65536 {
		return nil, in, "too big inline request"
	}
	args, ok := oracleSplit(strings.TrimSuffix(line, "\r"))
	if len(args) > 1024 {
		return nil, in, "too big inline request"
	}
	if !ok {
		return nil, in, "unbalanced quotes in request"
	}
	return args, rest, "ok"
}

const blanks = " \t\n\v\f\r"

// oracleToken is one piece of an argument: a quoted string or a plain byte. In
// single quotes the last of several backslashes before a quote escapes it.
var oracleToken = regexp.MustCompile(`(?s)^(?:"((?:\\.|[^"\\])*)"|'((?:[^'\\]|\\+[^'\\]|\\+')*)'|([^"'` + blanks + `]))`)

// oracleEscape is one escape of a double-quoted string.
var oracleEscape = regexp.MustCompile(`(?s)\\(x[0-9a-fA-F]{2}|.)`)

func oracleSplit(line string) (args []string, ok bool) {
	// Bytes above 0x7f go through the regular expressions as code points.
	line = latin1(line)
	for {
		line = strings.TrimLeft(line, blanks)
		if line == "" {
			return args, true
		}
		var arg string
		for line != "" && !strings.ContainsRune(blanks, rune(line[0])) {
			m := oracleToken.FindStringSubmatch(line)
			if m == nil {
				return args, false
			}
			line = line[len(m[0]):]
			switch m[0][0] {
			case '"':
				arg += oracleEscape.ReplaceAllStringFunc(m[1], oracleUnescape)
			case '\'':
				arg += strings.ReplaceAll(m[2], `\'`, `'`)
			default:
				arg += m[3]
				continue
			}
			if line != "" && !strings.ContainsRune(blanks, rune(line[0])) {
				return args, false // text right after a closing quote
			}
		}
		args = append(args, fromLatin1(arg))
	}
}

func oracleUnescape(escape string) string {
	if len(escape) == 4 && escape[1] == 'x' {
		n, err := strconv.ParseUint(escape[2:], 16, 8)
		if err == nil {
			return string(rune(n))
		}
	}
	switch c := escape[1:]; c {
	case "n":
		return "\n"
	case "r":
		return "\r"
	case "t":
		return "\t"
	case "b":
		return "\b"
	case "a":
		return "\a"
	default:
		return c
	}
}

func latin1(s string) string {
	var b strings.Builder
	for i := range len(s) {
		b.WriteRune(rune(s[i]))
	}
	return b.String()
}

func fromLatin1(s string) string {
	var b []byte
	for _, r := range s {
		b = append(b, byte(r))
	}
	return string(b)
}
