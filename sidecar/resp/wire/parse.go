package wire

import "bytes"

// The pure half of the Reader: functions from bytes to values, without a buffer
// to manage and without I/O. All of them see the frame from its first byte, and
// none keeps state: a frame that is not complete is parsed again from its start
// when enough bytes have come for a new result (Reader.need).

// minBulk is the size of the shortest argument, "$0\r\n\r\n".
const minBulk = 6

// parseLength reads "123\r\n" at the start of b: the number and the bytes it
// took with its CRLF. used is 0 while the line is not complete; ok is false for
// a complete line that is not a decimal integer.
func parseLength(b []byte) (n int64, used int, ok bool) {
	// Fast path: the short non-negative numbers that clients send.
	for i := 0; i < len(b) && i < 7; i++ {
		c := b[i] - '0'
		if c <= 9 {
			n = n*10 + int64(c)
			continue
		}
		if b[i] == '\r' && i > 0 && i+1 < len(b) && b[i+1] == '\n' && (b[0] != '0' || i == 1) {
			return n, i + 2, true
		}
		break
	}

	end := bytes.IndexByte(b, '\n')
	if end < 0 {
		return 0, 0, true
	}
	if end == 0 || b[end-1] != '\r' {
		return 0, end + 1, false
	}
	n, ok = ParseInt(b[:end-1])
	return n, end + 1, ok
}

// parseCount reads the "*5\r\n" at the start of a frame. used is 0 while the
// line is not complete. A count of zero or less is a frame without a command.
func parseCount(b []byte) (count, used int, err error) {
	n, used, ok := parseLength(b[1:])
	switch {
	case used == 0 && len(b) >= MaxFrame:
		return 0, 0, errCountLine
	case used == 0:
		return 0, 0, nil
	case !ok || n > MaxArgs:
		return 0, 0, errArgCount
	case n < 0:
		n = 0
	}
	return int(n), used + 1, nil
}

// parseBulks reads the count arguments that follow the first pos bytes of frame
// b and appends them to args, which has the room. It returns the size of the
// frame; or, while that is not complete, size 0 and how long b has to be to tell
// more: the byte after the bulk that it ends in, or one more byte of a header.
//
// Hot path: 0 allocations.
func parseBulks(b []byte, pos, count int, args [][]byte) (_ [][]byte, size, need int, err error) {
	for left := count; left > 0; left-- {
		if pos == len(b) {
			return args, 0, pos + 1, nil
		}
		if b[pos] != '$' {
			return args, 0, 0, errNotBulk(b[pos])
		}
		n, used, ok := parseLength(b[pos+1:])
		if used == 0 {
			if len(b) >= MaxFrame {
				return args, 0, 0, errBulkLine
			}
			return args, 0, len(b) + 1, nil
		}
		start := pos + 1 + used
		// The sum is refused as soon as it is known, before its bytes are read.
		if !ok || n < 0 || n > MaxFrame || start+int(n)+2+(left-1)*minBulk > MaxFrame {
			return args, 0, 0, errBulkLen
		}
		end := start + int(n)
		if end < len(b) && b[end] != '\r' || end+1 < len(b) && b[end+1] != '\n' {
			return args, 0, 0, errBulkEnd
		}
		if end+2 > len(b) {
			return args, 0, max(end, len(b)) + 1, nil
		}
		args = append(args, b[start:end:end])
		pos = end + 2
	}
	return args, pos, 0, nil
}

// inlineLine returns the line at the start of b without its line end, and the
// bytes it took; used is 0 while the line is not complete.
func inlineLine(b []byte) (line []byte, used int, err error) {
	end := bytes.IndexByte(b, '\n')
	if end < 0 {
		if len(b) >= MaxFrame {
			return nil, 0, errInlineSize
		}
		return nil, 0, nil
	}
	line = b[:end]
	if end > 0 && line[end-1] == '\r' {
		line = line[:end-1]
	}
	return line, end + 1, nil
}

// splitInline splits a line into arguments by the rules of redis-cli: blanks
// separate, "..." takes the escapes \n \r \t \b \a \xHH and \c for any other c,
// '...' takes \' only, and a closing quote must end its argument. Unquoting is
// done in place. args has room for maxInline(line) more.
func splitInline(line []byte, args [][]byte) ([][]byte, error) {
	taken := len(args)
	for i := 0; ; {
		for i < len(line) && isBlank(line[i]) {
			i++
		}
		if i == len(line) {
			return args, nil
		}
		if len(args)-taken == MaxArgs {
			return args, errInlineSize
		}
		start, out := i, i // line[start:out] is the argument, unquoted
		for i < len(line) && !isBlank(line[i]) {
			c := line[i]
			if c != '"' && c != '\'' {
				line[out] = c
				out, i = out+1, i+1
				continue
			}
			var ok bool
			if out, i, ok = unquote(line, out, i); !ok {
				return args, errInlineQuote
			}
		}
		args = append(args, line[start:out:out])
	}
}

// unquote copies the quoted text that starts at line[i] down to line[out] and
// returns both positions after it.
func unquote(line []byte, out, i int) (_, _ int, ok bool) {
	quote := line[i]
	for i++; i < len(line); {
		c := line[i]
		switch {
		case c == quote:
			i++
			return out, i, i == len(line) || isBlank(line[i])
		case c == '\\' && quote == '"' && i+1 < len(line):
			c, i = unescape(line, i+1)
		case c == '\\' && quote == '\'' && i+1 < len(line) && line[i+1] == '\'':
			c, i = '\'', i+2
		default:
			i++
		}
		line[out] = c
		out++
	}
	return out, i, false
}

// unescape reads what follows a backslash at line[i] and returns the byte it
// means and the position after it.
func unescape(line []byte, i int) (byte, int) {
	switch c := line[i]; c {
	case 'n':
		return '\n', i + 1
	case 'r':
		return '\r', i + 1
	case 't':
		return '\t', i + 1
	case 'b':
		return '\b', i + 1
	case 'a':
		return '\a', i + 1
	case 'x':
		if i+2 < len(line) {
			hi, okHi := hexDigit(line[i+1])
			lo, okLo := hexDigit(line[i+2])
			if okHi && okLo {
				return hi<<4 | lo, i + 3
			}
		}
		return c, i + 1
	default:
		return c, i + 1
	}
}

// maxInline is the most arguments a line can hold, or MaxArgs if that is less.
func maxInline(line []byte) int { return min((len(line)+1)/2, MaxArgs) }

// isBlank is C's isspace, which Redis separates by.
func isBlank(c byte) bool { return c == ' ' || c-'\t' <= '\r'-'\t' }

func hexDigit(c byte) (byte, bool) {
	switch {
	case c >= '0' && c <= '9':
		return c - '0', true
	case c >= 'a' && c <= 'f':
		return c - 'a' + 10, true
	case c >= 'A' && c <= 'F':
		return c - 'A' + 10, true
	}
	return 0, false
}
