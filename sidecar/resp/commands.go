package resp

import (
	"fmt"
	"strings"

	"github.com/spillgate/spillgate/limit"
	"github.com/spillgate/spillgate/sidecar/resp/wire"
)

// command is what the door knows of a command. Either check and decided are
// set, or reply.
type command struct {
	name string // in small letters, as Redis writes it in errors
	// arity as in Redis' COMMAND: the number of arguments with the name, negative if more may come.
	arity int
	// most bounds the arguments where arity is negative; 0 does not.
	most int
	// key is the position of the key, 0 without one; for COMMAND.
	key int
	// quits ends the connection after the reply.
	quits bool

	// check adds the command to the batch; err is its error reply or "".
	check func(c *conn, args [][]byte) (n int, err string)
	// decided writes the decision. It is passed by value: a pointer would move it to the heap.
	decided func(w *wire.Writer, d limit.Decision)
	// reply writes the answer of a command that is no check.
	reply func(c *conn, args [][]byte)
}

func (c *command) takes(args int) bool {
	if c.arity >= 0 {
		return args == c.arity
	}
	return args >= -c.arity && (c.most == 0 || args <= c.most)
}

// commands by their names in capitals.
var commands = make(map[string]*command)

// init breaks the cycle between the table and COMMAND, which lists it.
func init() {
	for _, c := range []*command{
		&throttle,
		{name: "sg.check", arity: -5, check: checkHits, decided: writeDecision},
		{name: "sg.peek", arity: -4, check: checkPeek, decided: writeDecision},
		{name: "sg.reset", arity: -4, check: checkReset, decided: writeReset},
		{name: "ping", arity: -1, most: 2, reply: ping},
		{name: "echo", arity: 2, reply: echo},
		{name: "hello", arity: -1, reply: hello},
		{name: "auth", arity: -2, most: 3, reply: auth},
		{name: "client", arity: -2, reply: client},
		{name: "command", arity: -1, reply: commandInfo},
		{name: "info", arity: -1, reply: info},
		{name: "select", arity: 2, reply: selectDB},
		{name: "quit", arity: -1, quits: true, reply: quit},
	} {
		commands[strings.ToUpper(c.name)] = c
	}
}

// lookUp finds a command by its name in any case; nil if there is none.
//
// Hot path: 0 allocations.
func lookUp(name []byte) *command {
	var upper [16]byte
	if len(name) > len(upper) {
		return nil
	}
	for i, b := range name {
		if 'a' <= b && b <= 'z' {
			b -= 'a' - 'A'
		}
		upper[i] = b
	}
	u := upper[:len(name)]
	if string(u) == "CL.THROTTLE" {
		return &throttle
	}
	return commands[string(u)]
}

// errHTTP ends a connection at the first line of HTTP: a page in a browser could be made to
// post commands to a local port.
var errHTTP = &wire.ProtocolError{Reason: "this is RESP, not HTTP"}

func isHTTP(name []byte) bool {
	return strings.EqualFold(string(name), "POST") || strings.EqualFold(string(name), "Host:")
}

// shown bounds how much of a caller's text an error repeats.
const shown = 128

// unknownCommand is the error that Redis gives.
func unknownCommand(args [][]byte) string {
	var rest strings.Builder
	for _, a := range args[1:] {
		if rest.Len() >= shown {
			break
		}
		fmt.Fprintf(&rest, "'%s' ", a[:min(len(a), shown-rest.Len())])
	}
	return fmt.Sprintf("ERR unknown command '%s', with args beginning with: %s", args[0][:min(len(args[0]), shown)], rest.String())
}

func wrongArity(name string) string {
	return "ERR wrong number of arguments for '" + name + "' command"
}
