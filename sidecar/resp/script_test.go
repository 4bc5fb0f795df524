package resp_test

import (
	"bufio"
	"bytes"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillgate/spillgate/sidecar/resp"
)

var rewrite = flag.Bool("rewrite", false, "write the replies into testdata")

// TestScripts plays the conversations in testdata. Each has blocks of lines: what is sent in one write, "----",
// and all that came back by the time when everything is at rest. Time is virtual. Lines to send:
//
//	CL.THROTTLE a "b c" ""    a command, with its arguments in Go's quotes where needed
//	raw "*1\r\n$4\r\nPING"    bytes as they are
//	repeat N TEXT             for an argument: TEXT N times
//	wait 1s                   time passes
//	store up|down|hung        what becomes of the store; the script runs on the batched store only
//	connect NAME              another connection, or back to one
//
// Each script runs on a direct and on a batched store, with the same replies.
func TestScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, batched := range []bool{false, true} {
			if !batched && regexp.MustCompile(`(?m)^store `).Match(text) {
				continue
			}
			t.Run(fmt.Sprintf("%s/batched=%t", strings.TrimSuffix(filepath.Base(file), ".txt"), batched), func(t *testing.T) {
				var got string
				synctest.Test(t, func(t *testing.T) { got = play(t, batched, string(text)) })
				if got != string(text) && *rewrite {
					if err := os.WriteFile(file, []byte(got), 0o666); err != nil {
						t.Fatal(err)
					}
				} else if got != string(text) {
					t.Errorf("go test -run TestScripts -rewrite, and look at the difference:\n%s", difference(string(text), got))
				}
			})
		}
	}
}

// difference shows the first lines that differ.
func difference(want, got string) string {
	w, g := strings.Split(want, "\n"), strings.Split(got, "\n")
	for i := range min(len(w), len(g)) {
		if w[i] != g[i] {
			return fmt.Sprintf("line %d:\n got %s\nwant %s", i+1, g[i], w[i])
		}
	}
	return fmt.Sprintf("%d lines, want %d", len(g), len(w))
}

// play returns a script with the replies that came.
func play(t *testing.T, batched bool, script string) string {
	d := onPipes(t, batched, resp.Config{Version: "1.2.3"})
	peers := map[string]*peer{}
	at := connect(d, peers, "")
	var out strings.Builder
	replies := false // the lines are replies of the last run
	var send strings.Builder
	for line := range strings.Lines(script) {
		text := strings.TrimSuffix(line, "\n")
		switch verb, rest, _ := strings.Cut(text, " "); {
		case text == "":
			replies = false
		case replies:
			continue
		case strings.HasPrefix(text, "#"):
		case text == "----":
			out.WriteString(line)
			at.send(send.String())
			out.WriteString(at.take())
			send.Reset()
			replies = true
			continue
		case verb == "wait":
			pause, err := time.ParseDuration(rest)
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(pause) // virtual
		case verb == "store":
			d.fake.state.Store(rest)
		case verb == "connect":
			at = connect(d, peers, rest)
		case verb == "raw":
			send.WriteString(unquote(t, rest))
		default:
			send.WriteString(frame(words(t, text)...))
		}
		out.WriteString(line)
	}
	for _, p := range peers {
		p.Close()
	}
	synctest.Wait()
	d.shut()
	return out.String()
}

// words splits a line into arguments.
func words(t *testing.T, line string) (args []string) {
	for line != "" {
		line = strings.TrimLeft(line, " ")
		quoted, err := strconv.QuotedPrefix(line)
		switch {
		case err == nil:
			args, line = append(args, unquote(t, quoted)), line[len(quoted):]
		case strings.HasPrefix(line, "repeat "):
			var n int
			var text string
			if _, err := fmt.Sscanf(line, "repeat %d %s", &n, &text); err != nil {
				t.Fatal(err)
			}
			args, line = append(args, strings.Repeat(text, n)), line[len(fmt.Sprintf("repeat %d %s", n, text)):]
		default:
			word, rest, _ := strings.Cut(line, " ")
			args, line = append(args, word), rest
		}
	}
	return args
}

func unquote(t *testing.T, s string) string {
	text, err := strconv.Unquote(s)
	if err != nil {
		t.Fatalf("%s: %v", s, err)
	}
	return text
}

// peer is a client that reads all the time.
type peer struct {
	net.Conn
	mu    sync.Mutex
	got   bytes.Buffer
	ended string
}

func connect(d *door, peers map[string]*peer, name string) *peer {
	if p := peers[name]; p != nil {
		return p
	}
	p := &peer{Conn: d.client().Conn}
	peers[name] = p
	go func() {
		buf := make([]byte, 4096)
		for {
			n, err := p.Read(buf)
			p.mu.Lock()
			p.got.Write(buf[:n])
			if err != nil {
				p.ended = closedText(err)
				p.mu.Unlock()
				return
			}
			p.mu.Unlock()
		}
	}()
	return p
}

// send writes; that the door may close before it has all is part of a script.
func (p *peer) send(text string) {
	if text != "" {
		io.WriteString(p, text)
	}
	synctest.Wait()
}

// chance are the figures of INFO that depend on which of two goroutines came first.
var chance = regexp.MustCompile(`(lease_tokens_\w+|lease_requests|local_admitted|store_calls\w*):[\d.]+`)

// take returns what has come, a line for each reply.
func (p *peer) take() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out strings.Builder
	for r := bufio.NewReader(&p.got); ; {
		text, err := readReply(r)
		if err == io.EOF {
			break
		}
		if err != nil {
			text = "no reply: " + err.Error()
		}
		text = chance.ReplaceAllString(text, "$1:N")
		if len(text) > 2000 {
			text = fmt.Sprintf("%s... (%d bytes)", text[:20], len(text))
		}
		out.WriteString(strings.TrimRight(text, " ") + "\n")
		if err != nil {
			break
		}
	}
	if p.ended != "" {
		out.WriteString(p.ended + "\n")
	}
	return out.String()
}
