package resp

import (
	"errors"
	"net"
	"runtime"
	"time"

	"github.com/spillgate/spillgate/agent"
	"github.com/spillgate/spillgate/rules"
	"github.com/spillgate/spillgate/sidecar/resp/wire"
)

// conn is one connection. All of it belongs to its goroutine, but for
// net, whose deadline and Close Shutdown uses.
type conn struct {
	server *Server
	net    net.Conn
	r      *wire.Reader
	w      *wire.Writer
	id     int64
	name   string
	batch  *agent.Batch
	taken  []taken
	terms  termsCache
	armed  time.Time // when the deadline of writes was set

	descriptor  rules.Descriptor
	descriptors []rules.Descriptor
}

// taken is a command whose reply is due.
type taken struct {
	cmd   *command
	args  [][]byte // valid until the batch is answered
	check int      // its number in the agent's batch, if cmd is a check
	err   string   // the error reply, if it is not ""
}

func newConn(s *Server, nc net.Conn) *conn {
	stream := wire.Socket(nc)
	c := &conn{server: s, net: nc, r: wire.NewReader(stream), w: wire.NewWriter(stream), id: s.nextID.Add(1),
		batch: s.cfg.Agent.NewBatch()}
	c.descriptors = make([]rules.Descriptor, 1)
	return c
}

// serve answers batches until the peer goes, errs or quits, or the server closes.
//
// Hot path: one read and one write per batch, 0 allocations per CL.THROTTLE.
func (c *conn) serve() {
	growStack()
	for {
		if err := c.r.Fill(); err != nil { // [1]
			return
		}
		quit, err := c.takeAll()
		c.batch.Decide(c.server.life) // [3]
		c.armWrites()
		for i := range c.taken {
			c.answer(&c.taken[i])
		}
		clear(c.taken)
		if err != nil {
			c.refuse(err)
		}
		if c.w.Flush() != nil || quit || err != nil { // [5]
			return
		}
	}
}

// writePatience is how long a peer may leave its replies untaken, at least; at most twice that. One that writes
// a pipeline of thousands of commands before it reads would otherwise wait for us as we wait for it, for ever.
const writePatience = 15 * time.Second

// armWrites sets the deadline of the writes to come, at most once in writePatience.
func (c *conn) armWrites() {
	if now := time.Now(); now.Sub(c.armed) >= writePatience {
		c.armed = now
		c.net.SetWriteDeadline(now.Add(2 * writePatience))
	}
}

// growStack makes room on the stack for all that a command calls, while nobody waits for it yet.
//
//go:noinline
func growStack() {
	var frame [12 << 10]byte
	runtime.KeepAlive(&frame)
}

// refuse answers what is no command.
func (c *conn) refuse(err error) {
	var protocol *wire.ProtocolError
	if errors.As(err, &protocol) {
		c.server.stats.protocolErrors.Add(1)
		c.w.Error(protocol.Reply())
	}
}

// takeAll takes the commands of the batch, up to the end, a protocol error, or QUIT.
func (c *conn) takeAll() (quit bool, err error) {
	c.taken = c.taken[:0]
	c.batch.Begin()
	for {
		args, err := c.r.Next()
		if args == nil {
			return false, err
		}
		if quit, err := c.take(args); quit || err != nil {
			return quit, err
		}
	}
}

// take puts a command on the list of those to be answered, and its check into the batch. [2]
func (c *conn) take(args [][]byte) (quit bool, err error) {
	cmd := lookUp(args[0])
	if cmd == nil {
		if isHTTP(args[0]) {
			return false, errHTTP
		}
		c.taken = append(c.taken, taken{err: unknownCommand(args)})
		return false, nil
	}
	t := taken{cmd: cmd, args: args}
	switch {
	case !cmd.takes(len(args)):
		t.err = wrongArity(cmd.name)
	case cmd.check != nil:
		t.check, t.err = cmd.check(c, args)
	}
	c.taken = append(c.taken, t)
	return cmd.quits, nil
}

// answer adds the reply to a command. [4]
func (c *conn) answer(t *taken) {
	switch {
	case t.err != "":
		c.w.Error(t.err)
	case t.cmd.check == nil:
		t.cmd.reply(c, t.args)
	default:
		d, err := c.batch.Decision(t.check)
		if err != nil {
			c.w.Error("ERR " + err.Error())
			return
		}
		t.cmd.decided(c.w, d)
	}
}
