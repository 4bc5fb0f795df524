// Package resp is the RESP door: any Redis client can ask Spillgate over a
// Unix socket or TCP. It decodes commands, has the agent decide, and encodes the answers.
//
// # Part in the life of a check
//
//	wire.Reader.Fill     one read: a batch of pipelined commands      [1]
//	  conn.take          each command: arguments -> agent.Batch       [2]
//	agent.Batch.Decide   all checks of the batch together             [3]
//	  conn.answer        each command: its reply, in order            [4]
//	wire.Writer.Flush    one write                                    [5]
//
// A connection is one goroutine. It owns its reader, writer and batch; nothing is
// shared with other connections but the agent and the table of terms.
//
// # Commands
//
// CL.THROTTLE as in redis-cell, SG.CHECK, SG.PEEK, SG.RESET, and what clients
// send on their own: PING, ECHO, HELLO, AUTH, CLIENT, COMMAND, INFO, SELECT, QUIT.
//
// # What it does not do
//
// It keeps no counts and no limits. It does not listen: it serves a net.Listener,
// which package socket makes.
package resp
