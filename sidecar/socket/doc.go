// Package socket opens the listening sockets of the doors: Unix sockets with a
// mode, a group and a choice of peers, and TCP.
//
// # Birth and death of a Unix socket
//
//	Listen
//	  |  lock the directory (flock)                                  [1]
//	  |  what is there under the name?                               [2]
//	  |    nothing                        go on
//	  |    a socket, connection refused   stale: remove it, go on
//	  |    any other socket               live: ErrInUse
//	  |    no socket                      refuse, never remove
//	  |  bind and listen, for the owner alone                        [3]
//	  |  give it the group, then the mode                            [4]
//	  |  unlock
//	Accept
//	  |  is the peer's user among Options.AllowUIDs? else close      [5]
//	Close
//	     lock; remove the file if it is still ours; unlock; close    [6]
//
// # Why a lock on the directory
//
// Looking and binding are two steps, so two agents that start at once over a stale
// file could both find it dead, and the slower would remove the faster one's new socket:
// both run, and one is unreachable. Whoever looks and binds therefore holds the
// directory's lock, for the few milliseconds that it takes; the second then finds
// a live socket. From there on the socket itself says who serves.
//
// Rejected: a lock file beside the socket, held while serving. It litters after kill -9, removing
// it has a race of its own, and one that root left keeps everybody else out. Rejected
// too: binding under another name and renaming, which replaces atomically but
// still decides on a look that has aged; and lists of open sockets (ss -xl) would
// show the other name for ever.
//
// The price: the directory must be readable, and whoever may read it can delay a start,
// for at most lockPatience.
//
// # Why the mode is never too wide
//
// bind creates the file under the process's umask, which is set to the owner's bits of
// the wanted mode for that moment. Files that other goroutines create just then get
// fewer rights than they asked for, never more. The group comes before the mode, since 0660
// would otherwise let in the process's own group first.
//
// The file is changed by name. In a directory where strangers may rename files, names
// are worth nothing; the socket belongs into a directory of the agent's user.
//
// # What it does not do
//
// It knows no protocol and no agent, and reads nothing from a connection.
package socket
