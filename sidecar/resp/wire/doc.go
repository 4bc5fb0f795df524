// Package wire reads commands and writes replies in the Redis protocol (RESP),
// as the server of a connection. It knows bytes, lengths and limits; what a
// command means is the business of its user, the RESP door in sidecar/resp.
//
// # Its part in the life of a check
//
// One goroutine serves one connection, and takes these steps in turn:
//
//	 connection
//	     │ bytes                                   bytes ▲
//	[1] Reader.Fill   one read;               [4] Writer.Flush   one write
//	     │            the old batch ends                 ▲
//	[2] Reader.Next   a command, or nil       [3] Writer.Int ... replies, in
//	     │            at the end of the batch            │       order
//	     └──────────> the door decides the batch ────────┘
//
// A batch is what one read brought: one command from a client that waits for
// each answer, dozens from one that pipelines. The door sees all of a batch
// before it decides, and answers it with one write. Steps 1 to 4 allocate
// nothing, and a check costs as many system calls as there are batches.
//
// # Who owns what
//
// The Reader owns the bytes of the commands: arguments alias its buffer, all of
// a batch stay valid until the next Fill, and who needs one longer copies it.
// The Writer owns the bytes of the replies and copies what it is given. The
// connection, its deadlines and its end belong to the door.
//
// A connection at rest holds 13 KB: 8 KB of read buffer, 4 KB of reply buffer,
// and the headers of a few arguments. What a large frame, a deep pipeline or a
// long reply needs beyond that comes from pools shared by all connections, at
// most 64 KB at a time for each, and goes back as soon as it is not needed; so
// the most that a peer can hold with half a frame and silence is one buffer of
// the size it really sent, 8 or 64 KB.
//
// # What is accepted
//
// Arrays of bulk strings, and inline commands (a line of words, as typed into
// nc), with the limits of MaxFrame bytes and MaxArgs arguments. Frames are
// checked as strictly as Redis does, with its error texts, and in two points
// more strictly: every line of an array ends in CRLF, and so does every bulk.
// Frames that contain no command, such as *0 and *-1, are skipped, as Redis does.
// An error shows as soon as its first byte is there, and before the bytes that a
// wrong length announces.
//
// # What it does not do
//
// It has no commands, no timeouts, no goroutines, no locks and no log. It does
// not speak as a client, and knows of RESP3 only Null and Map. It does not tell
// HTTP from inline commands: a door open to browsers has to refuse POST itself.
package wire
