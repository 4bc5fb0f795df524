// Package config is the agent's configuration: what can be set, by which key of the file and which flag, and
// what is wrong with what was set.
//
//	cmd                  c := Default($XDG_RUNTIME_DIR)                      [1]
//	                     Bind(flags, c); parse the command line               [2]
//	                     c.Load("spillgate.yaml"), or c.Validate() without    [3]
//	settings.go          one table: key, flag, usage, value
//	  |    \
//	flags   decode.go    both set a value by its text                        (values.go)
//	  |    /
//	Config               flags win, whichever comes first
//	  |
//	validate.go          what no value can know alone
//
// # One table
//
// A key is a path in the file, agent.max_pending; its flag is the path with dashes, --agent-max-pending, or one
// of a few short names, --store for store.url. Both come from the same row of the table in settings.go and
// are read by the same value, so a setting cannot exist in one of them only or mean
// two things.
//
// # Nothing is ignored
//
// An unknown key, a value out of range and two values that contradict each other are errors with file, line and column, all at
// once. So is a key that is documented but that this version does not act on yet, if
// it is set to anything but its default.
//
// # What it does not do
//
// It reads no environment and connects to nothing. It looks the group of the sockets up and has
// redisshard read the files of password and TLS, to refuse at once what a start would refuse. Of
// store.url it knows the scheme; the rest is the business of redisshard.
package config
