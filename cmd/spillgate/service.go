package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	"github.com/spillgate/spillgate/agent"
	"github.com/spillgate/spillgate/cmd/spillgate/config"
	"github.com/spillgate/spillgate/dashboard"
	"github.com/spillgate/spillgate/hotkeys"
	"github.com/spillgate/spillgate/rules"
	"github.com/spillgate/spillgate/sidecar/resp"
	"github.com/spillgate/spillgate/sidecar/socket"
	"github.com/spillgate/spillgate/telemetry"
)

// stopPatience bounds the whole way from the first signal to the end, doorPatience the
// part in which clients take their last replies, and the rules are read to the end.
const (
	stopPatience = 5 * time.Second
	doorPatience = 3 * time.Second
)

// errStopping is why a process that is about to end is not ready.
var errStopping = errors.New("the agent is stopping")

// service is the agent process: what open has wired, until close takes it apart.
type service struct {
	cfg   *config.Config
	log   *slog.Logger
	rules ruleSource

	store     *store
	agent     *agent.Agent
	telemetry *telemetry.Telemetry
	api       *dashboard.API
	resp      door[*resp.Server] // zero if off
	admin     door[*http.Server] // zero if off
	stopping  atomic.Bool
}

// door is a server and what it listens on.
type door[S any] struct {
	server S
	ln     net.Listener
}

// address is where the door really listens, for the log: a port 0 is chosen by the system.
func (d door[S]) address() string {
	switch {
	case d.ln == nil:
		return config.Off
	case d.ln.Addr().Network() == "unix":
		return "unix://" + d.ln.Addr().String()
	}
	return d.ln.Addr().String()
}

func newService(cfg *config.Config, log *slog.Logger) *service {
	return &service{cfg: cfg, log: log, rules: noRules{log}}
}

// run is the life of the process: it returns when ctx has ended and all is
// closed, or when it could not start or a door failed. reload takes SIGHUP; stopping is called
// when ctx has ended, before anything else.
func (s *service) run(ctx context.Context, reload <-chan os.Signal, stopping func()) error {
	if err := s.open(ctx); err != nil {
		s.close()
		return err
	}
	s.log.Info("spillgate serves", "version", programVersion(), "store", s.store.name, "rules", s.agent.Rules().Len(),
		"rules_file", s.cfg.Rules.File, "rules_status", s.rules.Status().String(), "resp", s.resp.address(), "admin", s.admin.address())
	failed := make(chan error, 2)
	if s.resp.ln != nil {
		go func() { failed <- s.resp.server.Serve(s.resp.ln) }()
	}
	if s.admin.ln != nil {
		go func() { failed <- serveAdmin(s.admin.server, s.admin.ln) }()
	}
	for {
		select {
		case <-reload:
			s.rules.Reload()
		case err := <-failed:
			s.close()
			return err
		case <-ctx.Done():
			stopping()
			s.log.Info("spillgate stops")
			s.close()
			return nil
		}
	}
}

// open does steps [2] to [5] of the package comment.
func (s *service) open(ctx context.Context) (err error) {
	if s.store, err = openStore(ctx, s.cfg, s.log); err != nil {
		return err
	}
	from, err := newRuleSource(s.cfg, s.store, s.log)
	if err != nil {
		return err
	}
	s.rules = from
	set, err := from.Begin(ctx)
	if err != nil {
		return err
	}
	if s.telemetry, err = telemetry.New(telemetry.Config{Version: programVersion()}); err != nil {
		return err
	}
	api := dashboard.New(s.shown())
	s.agent, err = agent.New(agent.Config{
		Store:        s.store.Store,
		Rules:        set,
		Deadline:     s.cfg.Agent.Deadline,
		OnStoreError: s.cfg.Agent.OnStoreError,
		ID:           s.cfg.Agent.ID,
		Fleet:        s.cfg.Agent.Fleet,
		FleetSize:    s.cfg.Agent.FleetSize,
		MaxPending:   s.cfg.Agent.MaxPending,
		StoreTimeout: max(s.cfg.Store.Timeout, s.cfg.Agent.Deadline),
		Hotkeys:      hotkeys.Config{Top: s.cfg.Hotkeys.Top, MinRate: s.cfg.Hotkeys.MinRate},
		SplitOps:     splitOps(s.cfg.Split.Ops),
		OnSplit:      api.OnSplit,
		OnCall:       s.telemetry.OnCall,
	})
	if err != nil {
		return err
	}
	s.telemetry.Observe(s.reading)
	s.api = api
	s.api.Observe(s.agent)
	s.rules.Follow(s.agent.SetRules)
	return s.listen()
}

// splitOps is a number of entries in the agent's words, where 0 is the default.
func splitOps(ops int) int64 {
	if ops == 0 {
		return -1
	}
	return int64(ops)
}

// shown says how the API shows buckets and rules.
func (s *service) shown() dashboard.Config {
	dc := &s.cfg.Datacenter
	c := dashboard.Config{Logger: s.log, Master: s.store.master, Rules: s.rules.Status,
		Datacenter:   dashboard.Datacenter{Name: dc.Name, Share: dc.Share, Headroom: dc.Headroom},
		OnStoreError: s.cfg.Agent.OnStoreError, Deadline: s.cfg.Agent.Deadline}
	if s.cfg.Listen.RedactKeys {
		c.Redact = s.store.Secret
	}
	return c
}

// listen opens the doors, [5]. The RESP door first: it is the one that two agents quarrel about.
func (s *service) listen() error {
	l := &s.cfg.Listen
	options := socket.Options{Mode: l.SocketMode, Group: l.SocketGroup, AllowUIDs: l.AllowUIDs, Logger: s.log}
	if l.RESP != config.Off {
		server, err := resp.New(resp.Config{Agent: s.agent, Logger: s.log, Version: programVersion(),
			StoreUp: func() bool { return s.store.status() == nil }, Skew: s.store.skew, Rules: s.rules.Status})
		if err != nil {
			return err
		}
		ln, err := socket.Listen(l.RESP, options)
		if err != nil {
			return fmt.Errorf("listen.resp: %w", err)
		}
		s.resp = door[*resp.Server]{server, ln}
	}
	if l.Admin != config.Off {
		if network, _, _ := socket.Parse(l.Admin); network == "tcp" {
			options.AllowUIDs = nil // they are for Unix sockets; a TCP peer has no user
		}
		ln, err := socket.Listen(l.Admin, options)
		if err != nil {
			return fmt.Errorf("listen.admin: %w", err)
		}
		s.admin = door[*http.Server]{newAdmin(s.log, s.ready, s.telemetry.Handler(), s.api.Handler()), ln}
	}
	return nil
}

// ready says whether the agent is ready, or else why not: it stops, has no rules yet from a source that should have some, or has not reached
// its store yet. A store that was reached and is lost does not count, and neither does one that was not reached by an agent that
// has the rules of a snapshot: the fail policies serve, and taking every gateway out of service would make an outage of it. What
// is not as it should be is told all the same.
func (s *service) ready() (what string, err error) {
	rule := s.rules.Status()
	away := s.store.status()
	switch {
	case s.stopping.Load():
		return "", errStopping
	case rule.Missing != "":
		return "", fmt.Errorf("rules: %s", rule.Missing)
	case away != nil && !s.agent.Ready() && rule.From() != rules.FromSnapshot:
		return "", fmt.Errorf("store: %w", away)
	}
	what = rule.String()
	if away != nil {
		what += "; " + who(s.store.masters()) + ": " + away.Error()
	}
	return what, nil
}

// who says what of a store with a fault does not answer.
func who(masters []telemetry.Master) string {
	down := 0
	for _, m := range masters {
		if !m.Up {
			down++
		}
	}
	if down == 0 || down == len(masters) {
		return "the store does not answer"
	}
	verb := "do"
	if down == 1 {
		verb = "does"
	}
	return fmt.Sprintf("%d of the store's %d masters %s not answer", down, len(masters), verb)
}

// reading is what a scrape sees.
func (s *service) reading() telemetry.Reading {
	rule := s.rules.Status()
	return telemetry.Reading{
		Agent:       s.agent.Stats(),
		Active:      s.agent.Active(),
		ByPolicy:    s.agent.ByPolicy(),
		Fleet:       s.fleet(),
		StoreUp:     s.store.status() == nil,
		Masters:     s.store.masters(),
		StoreResent: s.store.resent(),
		StoreSkew:   s.store.skew,
		Memstore:    s.store.memory(),
		Rules:       s.agent.Rules().Len(),
		RulesStatus: rule,
	}
}

// fleet is the number of agents, 0 if it is not known.
func (s *service) fleet() int {
	n, _ := s.agent.Fleet()
	return n
}

// close takes apart what open has made, in steps [6] to [8] of the package comment.
// The admin door goes late: whoever asks sees the agent stopping.
func (s *service) close() {
	s.stopping.Store(true)
	ctx, cancel := context.WithTimeout(context.Background(), stopPatience)
	defer cancel()
	step := func(what string, err error) {
		if err != nil {
			s.log.Warn("not closed cleanly", "what", what, "error", err)
		}
	}
	patience, end := context.WithTimeout(ctx, doorPatience)
	defer end()
	following := make(chan struct{})
	go func() {
		s.rules.Close() // it may wait for a store that stands still, meanwhile
		close(following)
	}()
	if s.resp.ln != nil {
		step("resp", s.resp.server.Shutdown(patience))
		s.resp.ln.Close() // where Serve had not begun
	}
	if s.agent != nil {
		step("agent", s.agent.Close(ctx))
		leases := s.agent.Stats().Leases
		s.log.Info("leases are given back", "returned", leases.Returned, "expired", leases.Expired)
	}
	select {
	case <-following:
	case <-patience.Done(): // a file system that stands still is not to be interrupted
		step("rules", errors.New("the rules file is still being read"))
	}
	if s.store != nil {
		step("store", s.store.close())
	}
	if s.api != nil {
		s.api.Close() // ends the streams that the admin door would wait for
	}
	if s.admin.ln != nil {
		step("admin", s.admin.server.Shutdown(ctx))
		s.admin.ln.Close()
	}
	if s.telemetry != nil {
		step("telemetry", s.telemetry.Shutdown(ctx))
	}
}
