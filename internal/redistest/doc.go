// Package redistest starts real redis-server processes, single ones and whole
// clusters, for tests, benchmarks and the fleet runner.
//
// The rate limiter's promises lean on what a real server does: Lua, slots,
// redirections, failovers, lost replies. A fake would only repeat our own
// beliefs about it, so nothing here is simulated and nothing is skipped: when
// redis-server is missing, the test fails and says how to get it.
//
// The life of a server, with the files that hold each step:
//
//	Start / StartCluster     testing.go   thin wrappers: fail the test, clean up, show logs
//	Launch / LaunchCluster                the same for programs: return errors
//	  [1] claim a port       ports.go     one that no other test binary on this machine uses
//	  [2] write redis.conf   config.go    own directory, loopback only, no persistence
//	  [3] start the process  process.go   its death is tied to ours
//	  [4] wait for PING      server.go    over the Unix socket, so that it is OUR server that answers
//	  [5] assemble           cluster.go   slots, MEET, REPLICATE, until every node agrees
//	Kill, Stop, Restart, Failover, BeginMigration ...  the faults a test wants
//	  [6] Close              server.go    SIGKILL to the pid we started, reap, remove the directory
//
// # A test
//
//	func TestTake(t *testing.T) {
//		srv := redistest.Start(t)
//		store := open(t, srv.URL())
//		...
//		redistest.Must(t, srv.Kill())
//	}
//
// A cluster takes a bit over two seconds to start: a master of Redis Cluster
// refuses to serve for its first two seconds, whatever one does. Share one
// among the tests of a package:
//
//	func TestMain(m *testing.M) {
//		c, err := redistest.LaunchCluster(context.Background(), "", redistest.Config{})
//		if err != nil {
//			log.Fatal(err)
//		}
//		cluster = c
//		code := m.Run()
//		c.Close() // os.Exit runs no deferred calls
//		os.Exit(code)
//	}
//
// # Who owns what
//
// Server and Cluster own their processes, directories and the clients that
// Client returns; Close ends all of them. Do not close those clients yourself.
// One goroutine waits for each process. A test that looks for leaked goroutines
// must therefore look after the servers are closed: register the check with
// t.Cleanup before calling Start, or use goleak.VerifyTestMain.
//
// # What it does not do
//
// No persistence: a server that was killed and restarted comes back empty (and
// a master that comes back before its replica was promoted empties the replica
// too, which is what Redis does). No TLS, no Sentinel, no Redis before 7.0.
package redistest
