package redisshard

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"regexp"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

var (
	// errPermanent marks what trying again cannot mend; somebody must change a
	// setting first.
	errPermanent = errors.New("redisshard: refused")

	errClusterDB = errors.New("a Redis Cluster has only database 0: leave the database out of the URL")
	// errPasswordFile marks a password file that cannot be used.
	errPasswordFile = errors.New("no password from Config.PasswordFile")

	errNoMaster = errors.New("redisshard: no master serves this slot")
	errNoSlots  = errors.New("redisshard: the cluster serves no slots yet")
)

// permanentError carries errPermanent without adding to the message.
type permanentError struct{ error }

func (e permanentError) Unwrap() []error { return []error{errPermanent, e.error} }

// isPermanent reports whether trying again cannot help.
func isPermanent(err error) bool { return errors.Is(err, errPermanent) }

// dialError is a connection that did not come about: refused, unreachable, no TLS.
type dialError struct {
	addr  string
	cause error
}

func (e *dialError) Error() string {
	return fmt.Sprintf("redisshard: connect to %s: %v", e.addr, e.cause)
}
func (e *dialError) Unwrap() error { return e.cause }

// handshakeError is a connection that was refused or lost before it could carry
// a command: HELLO, AUTH or SELECT failed. It has no Unwrap on purpose.
// go-redis strips one layer of such errors on their way to the caller, and takes an error
// reply to HELLO for an old server: it would go on and send the command
// on a connection that the server has closed (max number of clients).
type handshakeError struct {
	addr  string
	cause error
}

func (e *handshakeError) Error() string {
	return fmt.Sprintf("redisshard: handshake with %s: %v", e.addr, e.cause)
}

// handshakeHook turns the failures of a connection's first commands into
// handshakeErrors. go-redis runs these on a Conn that inherits the client's hooks.
// The price for other commands is one call; the rest happens only after an error.
type handshakeHook struct{ addr string }

func (handshakeHook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h handshakeHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if err == nil {
			return nil
		}
		switch cmd.Name() {
		case "hello":
			// Proxies may not know HELLO; go-redis then falls back to AUTH.
			if !redis.HasErrorPrefix(err, "unknown command") {
				return h.wrap(err)
			}
		case "auth":
			return h.wrap(err)
		}
		return err
	}
}

// wrap leaves alone what says already that there was no connection: a HELLO of
// our own waits for one like any command.
func (h handshakeHook) wrap(err error) error {
	var dial *dialError
	var shake *handshakeError
	if errors.As(err, &dial) || errors.As(err, &shake) {
		return err
	}
	return &handshakeError{h.addr, err}
}

func (h handshakeHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		if err != nil && len(cmds) > 0 && cmds[0].Name() == "select" {
			return h.wrap(err)
		}
		return err
	}
}

// verdict says what a failed call proves.
type verdict uint8

const (
	// verdictUnknown: the command may have run. It is never sent again.
	verdictUnknown verdict = iota
	// verdictNotRun: nothing ran, and sending again at once has no point.
	verdictNotRun
	// verdictResend: nothing ran, and sending once more can help.
	verdictResend
)

// kind names a failure, for metrics and to choose the remedy. There are fewer than 31.
type kind uint8

const (
	kindOther kind = iota // an error reply or a client's error that proves nothing
	kindNoScript
	kindMoved
	kindAsk
	kindTryAgain
	kindReadOnly
	kindClusterDown
	kindLoading
	kindMasterDown
	kindOOM
	kindMisconf
	kindNoReplicas
	kindBusy
	kindAuth
	kindNoPerm
	kindMaxClients
	kindCrossSlot
	kindDial
	kindHandshake
	kindPool
	kindContext
	kindClosed
	kindTimeout
	kindBroken
	numKinds
)

var kindNames = [numKinds]string{
	"other", "noscript", "moved", "ask", "tryagain", "readonly", "clusterdown", "loading", "masterdown", "oom",
	"misconf", "noreplicas", "busy", "auth", "noperm", "maxclients", "crossslot", "dial", "handshake", "pool",
	"context", "closed", "timeout", "broken",
}

// String is the name for metrics.
func (k kind) String() string { return kindNames[k] }

// staleTopology reports whether the failure hints that another node serves
// the slot by now.
func (k kind) staleTopology() bool {
	switch k {
	case kindMoved, kindReadOnly, kindClusterDown, kindLoading, kindMasterDown,
		kindDial, kindHandshake, kindPool, kindTimeout, kindBroken, kindClosed:
		return true
	}
	return false
}

// noWrites reports whether the server answers who only reads.
func (k kind) noWrites() bool {
	switch k {
	case kindOOM, kindMisconf, kindNoReplicas, kindReadOnly:
		return true
	}
	return false
}

// failure is a failed call, understood.
type failure struct {
	verdict verdict
	kind    kind
	slot    int    // of MOVED and ASK
	addr    string // of MOVED and ASK, as the server wrote it: for redirectAddr
}

// proofs are the error replies that prove that nothing ran, by their first word.
// inScript: also when a command inside the script was refused. The server
// refuses so only before the first write of a script (or on a replica, where no write
// passes), since it lets no script end half-way for the server's own reasons.
var proofs = map[string]struct {
	verdict  verdict
	kind     kind
	inScript bool
}{
	"NOSCRIPT":    {verdictResend, kindNoScript, false},
	"MOVED":       {verdictResend, kindMoved, false},
	"ASK":         {verdictResend, kindAsk, false},
	"TRYAGAIN":    {verdictResend, kindTryAgain, false},
	"READONLY":    {verdictResend, kindReadOnly, true},
	"CLUSTERDOWN": {verdictResend, kindClusterDown, false},
	"LOADING":     {verdictResend, kindLoading, false},
	"MASTERDOWN":  {verdictResend, kindMasterDown, true},
	"OOM":         {verdictNotRun, kindOOM, true},
	"MISCONF":     {verdictNotRun, kindMisconf, true},
	"NOREPLICAS":  {verdictNotRun, kindNoReplicas, true},
	"BUSY":        {verdictNotRun, kindBusy, false},
	"NOAUTH":      {verdictNotRun, kindAuth, false},
	"WRONGPASS":   {verdictNotRun, kindAuth, false},
	"NOPERM":      {verdictNotRun, kindNoPerm, false},
	"CROSSSLOT":   {verdictNotRun, kindCrossSlot, false},
}

// classify says what the error of a command, as go-redis returned it, proves.
//
// A bare context error comes only from the wait for a connection: while a command is written
// or read, the context acts as a deadline of the socket and its end shows as
// a net.Error. Wrapped context errors are therefore not trusted.
func classify(err error) failure {
	var reply redis.Error
	var dial *dialError
	var shake *handshakeError
	var network net.Error
	switch {
	case errors.As(err, &shake):
		return failure{verdict: verdictNotRun, kind: shake.kind()}
	case errors.As(err, &dial):
		return failure{verdict: verdictNotRun, kind: kindDial}
	case err == context.Canceled || err == context.DeadlineExceeded: //nolint:errorlint // see above
		return failure{verdict: verdictNotRun, kind: kindContext}
	case errors.Is(err, redis.ErrPoolTimeout), errors.Is(err, redis.ErrPoolExhausted):
		return failure{verdict: verdictNotRun, kind: kindPool}
	case errors.Is(err, redis.ErrClosed):
		return failure{verdict: verdictNotRun, kind: kindClosed}
	case errors.Is(err, errNoMaster):
		return failure{verdict: verdictNotRun, kind: kindClusterDown}
	case errors.As(err, &reply):
		return classifyReply(reply.Error())
	case errors.As(err, &network) && network.Timeout():
		return failure{kind: kindTimeout}
	case errors.As(err, &network), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return failure{kind: kindBroken}
	}
	return failure{kind: kindOther}
}

// oldScriptError is how Redis before 7 wraps the refusal of a command inside a script. Since 7
// the refusal stands first and a note of the place follows.
var oldScriptError = regexp.MustCompile(`^ERR Error running script \(call to f_[0-9a-f]{40}\): @user_script:\d+: @user_script: \d+: -(.*)`)

const scriptNote = ", on @user_script:"

func classifyReply(text string) failure {
	inScript := strings.Contains(text, scriptNote)
	if old := oldScriptError.FindStringSubmatch(text); old != nil {
		text, inScript = old[1], true
	}
	if text == "ERR max number of clients reached" {
		return failure{verdict: verdictNotRun, kind: kindMaxClients}
	}
	word, rest, _ := strings.Cut(text, " ")
	proof, known := proofs[word]
	if !known || inScript && !proof.inScript {
		return failure{kind: kindOther}
	}
	f := failure{verdict: proof.verdict, kind: proof.kind}
	if f.kind != kindMoved && f.kind != kindAsk {
		return f
	}
	slot, addr, _ := strings.Cut(rest, " ")
	n, err := strconv.ParseUint(slot, 10, 16)
	if err != nil || n >= slots || addr == "" {
		return failure{verdict: verdictNotRun, kind: kindOther} // refused, but nobody knows where to
	}
	f.slot, f.addr = int(n), addr
	return f
}

// kind says why the handshake failed, as far as metrics care.
func (e *handshakeError) kind() kind {
	var reply redis.Error
	if errors.As(e.cause, &reply) {
		if k := classifyReply(reply.Error()).kind; k != kindOther {
			return k
		}
	}
	return kindHandshake
}

// explain makes the error of a first contact fit for an operator: it names the
// server, says what to do, and is permanent if trying again cannot help.
func explain(addr string, err error) error {
	var shake *handshakeError
	var dial *dialError
	var reply redis.Error
	cause, where := err, ""
	if errors.As(err, &shake) {
		cause = shake.cause
	} else if errors.As(err, &dial) {
		cause = dial.cause
	}
	remedy, hopeless := "", true
	switch {
	case errors.Is(err, errPermanent):
		return err
	case errors.As(cause, &reply):
		remedy, hopeless = adviseReply(reply.Error())
	case isTLSFault(cause):
		remedy = "check rediss:// against redis:// and Config.TLS"
	case errors.Is(cause, errPasswordFile):
	default:
		hopeless = false
	}
	if remedy != "" {
		where = " (" + remedy + ")"
	}
	err = fmt.Errorf("redisshard: %s: %w%s", addr, cause, where)
	if hopeless {
		return permanentError{err}
	}
	return err
}

// adviseReply knows the error replies that meet a newcomer.
func adviseReply(text string) (remedy string, hopeless bool) {
	word, _, _ := strings.Cut(text, " ")
	switch {
	case word == "NOAUTH":
		return "the server wants a password: put it into the URL or a PasswordFile", true
	case word == "WRONGPASS", strings.HasPrefix(text, "ERR invalid password"), strings.HasPrefix(text, "ERR AUTH"):
		return "user or password is wrong", true
	case word == "NOPERM":
		return "allow it to the user in the server's ACL", true
	case word == "DENIED":
		return "give the server a password, or switch its protected mode off", true
	case strings.HasPrefix(text, "ERR DB index is out of range"):
		return "the server has fewer databases", true
	case strings.HasPrefix(text, "ERR SELECT is not allowed in cluster mode"):
		return errClusterDB.Error(), true
	}
	return "", false
}

// isTLSFault reports that both ends were reached but did not agree on TLS.
func isTLSFault(err error) bool {
	var verify *tls.CertificateVerificationError
	var header tls.RecordHeaderError
	var alert tls.AlertError
	var system x509.SystemRootsError
	var remote *net.OpError // "remote error: tls: ...", whose alert has no exported type
	return errors.As(err, &verify) || errors.As(err, &header) || errors.As(err, &alert) || errors.As(err, &system) ||
		errors.As(err, &remote) && (remote.Op == "remote error" || remote.Op == "local error")
}
