package resp

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/spillgate/spillgate/agent"
	"github.com/spillgate/spillgate/rules"
	"github.com/spillgate/spillgate/sidecar/resp/wire"
)

// protocolVersion is the version of Redis whose protocol the door speaks, for clients that ask.
const protocolVersion = "7.0.0"

const wrongPass = "WRONGPASS invalid username-password pair or user is disabled."

func ping(c *conn, args [][]byte) {
	if len(args) == 2 {
		c.w.Bulk(args[1])
		return
	}
	c.w.Status("PONG")
}

func echo(c *conn, args [][]byte) { c.w.Bulk(args[1]) }

func quit(c *conn, _ [][]byte) { c.w.Status("OK") }

// hello is HELLO [2|3 [AUTH user password] [SETNAME name]].
func hello(c *conn, args [][]byte) {
	resp3, name := c.w.RESP3(), c.name
	if len(args) > 1 {
		switch n, ok := wire.ParseInt(args[1]); {
		case !ok:
			c.w.Error("ERR Protocol version is not an integer or out of range")
			return
		case n != 2 && n != 3:
			c.w.Error("NOPROTO unsupported protocol version")
			return
		default:
			resp3 = n == 3
		}
	}
	for rest := args[min(2, len(args)):]; len(rest) > 0; {
		switch {
		case len(rest) >= 3 && isWord(rest[0], "AUTH"):
			if !isDefaultUser(rest[1]) {
				c.w.Error(wrongPass)
				return
			}
			rest = rest[3:]
		case len(rest) >= 2 && isWord(rest[0], "SETNAME"):
			if !isClientName(rest[1]) {
				c.w.Error(badClientName)
				return
			}
			name, rest = string(rest[1]), rest[2:]
		default:
			c.w.Error("ERR Syntax error in HELLO option '" + string(rest[0][:min(len(rest[0]), shown)]) + "'")
			return
		}
	}
	c.name = name
	c.w.SetRESP3(resp3)
	c.writeHello(resp3)
}

func (c *conn) writeHello(resp3 bool) {
	proto := int64(2)
	if resp3 {
		proto = 3
	}
	w := c.w
	w.Map(7)
	w.BulkString("server")
	w.BulkString("spillgate")
	w.BulkString("version")
	w.BulkString(protocolVersion)
	w.BulkString("proto")
	w.Int(proto)
	w.BulkString("id")
	w.Int(c.id)
	w.BulkString("mode")
	w.BulkString("standalone")
	w.BulkString("role")
	w.BulkString("master")
	w.BulkString("modules")
	w.Array(0)
}

// auth answers as a Redis does whose default user needs no password. Who may connect is the socket's affair.
func auth(c *conn, args [][]byte) {
	switch {
	case len(args) == 2:
		c.w.Error("ERR AUTH <password> called without any password configured for the default user. Are you sure your configuration is correct?")
	case isDefaultUser(args[1]):
		c.w.Status("OK")
	default:
		c.w.Error(wrongPass)
	}
}

func isDefaultUser(user []byte) bool { return string(user) == "default" }

const badClientName = "ERR Client names cannot contain spaces, newlines or special characters."

// isClientName allows what Redis does: printable ASCII without blanks, and a bound of our own.
func isClientName(name []byte) bool {
	return len(name) <= 256 && !slices.ContainsFunc(name, func(b byte) bool { return b < '!' || b > '~' })
}

// client is CLIENT SETINFO, SETNAME, GETNAME or ID.
func client(c *conn, args [][]byte) {
	switch {
	case len(args) == 4 && isWord(args[1], "SETINFO"):
		c.w.Status("OK") // the library's name and version: of no use to us
	case len(args) == 3 && isWord(args[1], "SETNAME"):
		if !isClientName(args[2]) {
			c.w.Error(badClientName)
			return
		}
		c.name = string(args[2])
		c.w.Status("OK")
	case len(args) == 2 && isWord(args[1], "GETNAME"):
		if c.name == "" {
			c.w.Null()
			return
		}
		c.w.BulkString(c.name)
	case len(args) == 2 && isWord(args[1], "ID"):
		c.w.Int(c.id)
	default:
		c.w.Error("ERR unknown subcommand or wrong number of arguments for '" + string(args[1][:min(len(args[1]), shown)]) +
			"'. CLIENT takes SETINFO, SETNAME, GETNAME and ID.")
	}
}

// commandInfo is COMMAND, COMMAND COUNT, COMMAND LIST, and COMMAND DOCS, which redis-cli sends
// and which we have none of.
func commandInfo(c *conn, args [][]byte) {
	names := slices.Sorted(maps.Keys(commands))
	switch {
	case len(args) == 1:
		c.w.Array(len(names))
		for _, name := range names {
			writeCommand(c.w, commands[name])
		}
	case isWord(args[1], "COUNT") && len(args) == 2:
		c.w.Int(int64(len(names)))
	case isWord(args[1], "LIST") && len(args) == 2:
		c.w.Array(len(names))
		for _, name := range names {
			c.w.BulkString(commands[name].name)
		}
	case isWord(args[1], "DOCS"):
		c.w.Map(0)
	default:
		c.w.Error("ERR unknown subcommand '" + string(args[1][:min(len(args[1]), shown)]) + "'. COMMAND takes COUNT, LIST and DOCS.")
	}
}

// writeCommand describes one command in the six fields of Redis before version 7.
func writeCommand(w *wire.Writer, cmd *command) {
	w.Array(6)
	w.BulkString(cmd.name)
	w.Int(int64(cmd.arity))
	w.Array(1)
	w.Status("fast")
	w.Int(int64(cmd.key))
	w.Int(int64(cmd.key))
	w.Int(int64(b2i(cmd.key > 0)))
}

// info is INFO [section ...]; there is one section's worth, so sections are not told apart.
func info(c *conn, _ [][]byte) {
	s := c.server
	st, of := s.Stats(), s.cfg.Agent.Stats()
	var b strings.Builder
	fmt.Fprintf(&b, "# Server\r\nserver_name:spillgate\r\nspillgate_version:%s\r\nredis_version:%s\r\nredis_mode:standalone\r\n",
		s.cfg.Version, protocolVersion)
	fmt.Fprintf(&b, "uptime_in_seconds:%d\r\n", int(time.Since(s.started).Seconds()))
	fmt.Fprintf(&b, "\r\n# Clients\r\nconnected_clients:%d\r\nmaxclients:%d\r\n", st.Connections, s.cfg.MaxConns)
	fmt.Fprintf(&b, "\r\n# Stats\r\ntotal_connections_received:%d\r\nrejected_connections:%d\r\nprotocol_errors:%d\r\n",
		st.Accepted, st.Refused, st.ProtocolErrors)
	if s.cfg.Rules != nil {
		writeRules(&b, s.cfg.Agent.Rules().Len(), s.cfg.Rules())
	}
	fmt.Fprintf(&b, "\r\n# Checks\r\n")
	for _, n := range of.Checks {
		outcome := "denied"
		if n.Admitted {
			outcome = "admitted"
		}
		fmt.Fprintf(&b, "%s_%s:%d\r\n", outcome, n.Reason, n.Checks)
	}
	fmt.Fprintf(&b, "store_ready:%d\r\n", b2i(s.cfg.Agent.Ready()))
	if s.cfg.StoreUp != nil {
		fmt.Fprintf(&b, "store_up:%d\r\n", b2i(s.cfg.StoreUp()))
	}
	writeLeases(&b, &of)
	s.writeSplits(&b, &of)
	c.w.BulkString(b.String())
}

// writeLeases is the section of INFO about what was decided without the store, and with what.
func writeLeases(b *strings.Builder, of *agent.Stats) {
	l := &of.Leases
	fmt.Fprintf(b, "\r\n# Leases\r\nhot_buckets:%d\r\nhot_buckets_promoted:%d\r\nhot_buckets_demoted:%d\r\n",
		l.Holdings, l.Promoted, l.Demoted)
	fmt.Fprintf(b, "lease_tokens_held:%d\r\nlease_tokens_granted:%d\r\nlease_tokens_rode:%d\r\nlease_tokens_spent:%d\r\n",
		l.Held, l.Granted, l.Rode, l.Spent)
	fmt.Fprintf(b, "lease_tokens_returned:%d\r\nlease_tokens_expired:%d\r\nlease_requests:%d\r\n", l.Returned, l.Expired, l.Asks)
	fmt.Fprintf(b, "local_admitted:%d\r\nlocal_denied:%d\r\ncached_denied:%d\r\n", l.Admitted, l.Denied, l.KnownDenied)
	fmt.Fprintf(b, "tokens_charged:%d\r\ntokens_charged_lost:%d\r\n", l.Charged, l.ChargesLost)
	fmt.Fprintf(b, "store_calls:%d\r\nstore_calls_per_1000_checks:%.1f\r\n", of.Batcher.Calls, perThousand(of))
}

// writeSplits is the section of INFO about buckets that are divided over several masters.
func (s *Server) writeSplits(b *strings.Builder, of *agent.Stats) {
	t := &of.Splits
	fmt.Fprintf(b, "\r\n# Splits\r\nsplits_active:%d\r\nsplits_split:%d\r\nsplits_merged:%d\r\nsplits_ended:%d\r\n",
		t.Active, t.Split, t.Merged, t.Ended)
	fmt.Fprintf(b, "splits_touches:%d\r\nsplits_refused:%d\r\nsplits_overflows:%d\r\n", t.Touches, t.Refused, t.Overflow)
	if s.cfg.Skew != nil {
		if skew, ok := s.cfg.Skew(); ok {
			fmt.Fprintf(b, "store_skew_ms:%.1f\r\n", float64(skew.Microseconds())/1000)
		}
	}
}

// writeRules is the section of INFO about the rules in force.
func writeRules(b *strings.Builder, n int, s rules.Status) {
	since := int64(0)
	if !s.Since.IsZero() {
		since = s.Since.Unix()
	}
	reason := strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, cmp.Or(s.Missing, s.Stale))
	fmt.Fprintf(b, "\r\n# Rules\r\nrules:%d\r\nrules_source:%s\r\nrules_version:%d\r\nrules_since:%d\r\nrules_stale:%d\r\nrules_stale_reason:%s\r\n",
		n, s.From(), s.Version, since, b2i(reason != ""), reason)
}

// perThousand is the calls to the store for each 1,000 checks; 0 before the first check.
func perThousand(of *agent.Stats) float64 {
	var checks uint64
	for _, n := range of.Checks {
		checks += n.Checks
	}
	return 1000 * float64(of.Batcher.Calls) / float64(max(1, checks))
}

func selectDB(c *conn, args [][]byte) {
	n, ok := wire.ParseInt(args[1])
	switch {
	case !ok:
		c.w.Error("ERR value is not an integer or out of range")
	case n != 0:
		c.w.Error("ERR DB index is out of range")
	default:
		c.w.Status("OK")
	}
}

// isWord compares an argument with a word in capitals, in any case.
func isWord(arg []byte, word string) bool { return bytes.EqualFold(arg, []byte(word)) }
