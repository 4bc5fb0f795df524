package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"strings"
	"time"
)

// Times of the admin door. A profile is written when it is complete, so the longest
// one that can be asked for ends within adminWrite.
const (
	adminReadHeader = 5 * time.Second
	adminRead       = 10 * time.Second
	adminWrite      = 2 * time.Minute
	adminIdle       = time.Minute
)

// adminIndex lists what the admin door has.
const adminIndex = `<!doctype html>
<meta charset="utf-8">
<title>Spillgate</title>
<h1>Spillgate %s</h1>
<ul>
<li><a href="healthz">/healthz</a>: 200 while the process lives
<li><a href="readyz">/readyz</a>: 503 and why, while rules or store of the configuration were never reached; else 200 and which rules serve
<li><a href="metrics">/metrics</a>: Prometheus
<li><a href="api/v1/rules">/api/v1/rules</a>: the rules in force, and at most how much each admits
<li><a href="api/v1/splits">/api/v1/splits</a>: buckets that are divided over several masters now
<li><a href="api/v1/events">/api/v1/events</a>: a stream of what becomes of them (server-sent events)
<li><a href="api/v1/stats">/api/v1/stats</a>: the agent's totals
<li><a href="debug/pprof/">/debug/pprof</a>: profiles of the running process
</ul>
`

// newAdmin is the server of the admin door. ready says what the agent serves, or why it is not ready.
func newAdmin(log *slog.Logger, ready func() (string, error), metrics, api http.Handler) *http.Server {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		fmt.Fprintf(w, adminIndex, programVersion())
	})
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusOK, "ok")
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		what, err := ready()
		if err != nil {
			answer(w, http.StatusServiceUnavailable, "not ready: "+err.Error())
			return
		}
		answer(w, http.StatusOK, "ready: "+what)
	})
	mux.Handle("GET /metrics", metrics)
	mux.Handle("/api/", api)
	// Without pprof's cmdline: the command line may hold the store's password.
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("POST /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	return &http.Server{
		Handler:           refuseRebound(mux),
		ReadHeaderTimeout: adminReadHeader,
		ReadTimeout:       adminRead,
		WriteTimeout:      adminWrite,
		IdleTimeout:       adminIdle,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}
}

// refuseRebound refuses requests to a loopback address that name another host. A page in a browser on this machine whose name
// was made to point here (DNS rebinding) could read keys of callers otherwise.
func refuseRebound(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		local, _ := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
		if local != nil && local.IP.IsLoopback() && !namesLoopback(r.Host) {
			answer(w, http.StatusMisdirectedRequest, "this door answers to localhost and to loopback addresses only")
			return
		}
		next.ServeHTTP(w, r)
	})
}

// namesLoopback reports whether a Host header names this machine.
func namesLoopback(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	ip := net.ParseIP(strings.Trim(host, "[]"))
	return ip != nil && ip.IsLoopback() || strings.EqualFold(host, "localhost") || host == ""
}

// answer is a reply in plain text.
func answer(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	io.WriteString(w, text+"\n")
}

// serveAdmin serves until the server is shut down.
func serveAdmin(srv *http.Server, ln net.Listener) error {
	if err := srv.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("admin: %w", err)
	}
	return nil
}
