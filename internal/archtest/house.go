package archtest

// Module is the path of the module whose house this is.
const Module = "github.com/spillgate/spillgate"

// MaxLines is the most lines that a file of code that ships may have.
const MaxLines = 600

// anything, in Rule.May, allows all packages of ours.
const anything = "..."

// Import paths that only some rooms may reach. Each stands for itself and what
// lies below it.
const (
	redisClient = "github.com/redis"
	grpc        = "google.golang.org/grpc"
	otel        = "go.opentelemetry.io"
	prometheus  = "github.com/prometheus"
)

// Rule says what the packages of one room may import.
type Rule struct {
	// Room is a directory of the module: its package and those below are the
	// room, and may import each other. "dir/*" makes every directory in dir a
	// room of its own.
	Room string
	// May lists the rooms of ours that this one may import.
	May []string
	// Never lists import paths that it must not reach, not even through others.
	Never []string
	// Why is the reason, for whoever breaks the rule.
	Why string
}

// Rooms is the house: dependencies point inwards, from the bottom of this table
// to its top.
var Rooms = []Rule{
	{Room: "internal/strictyaml",
		Why: "strictyaml reads what operators write and knows no field of it: that is the business of rules and cmd"},
	{Room: "limit",
		Why: "limit is the vocabulary and the arithmetic of everyone; what it imports, everyone imports"},
	{Room: "rules", May: []string{"limit", "internal/strictyaml"},
		Why: "rules turns text into a compiled set and knows nothing of who uses it; of YAML it sees strictyaml alone"},
	{Room: "hotkeys", May: []string{"limit"},
		Why: "hotkeys counts keys and knows nothing of who asks"},
	{Room: "batcher", May: []string{"limit"},
		Why: "batcher declares the Store seam; it would be no seam if the batcher knew a store"},

	{Room: "redisshard", May: []string{"limit", "batcher", "rules"},
		Why: "a store implements the batcher's seam and can be swapped only while it knows nothing above it"},
	{Room: "memstore", May: []string{"limit", "batcher"}, Never: []string{redisClient},
		Why: "memstore is the store for those who run no Redis"},

	{Room: "agent", May: []string{"limit", "rules", "hotkeys", "batcher"},
		Never: []string{redisClient, grpc, otel, prometheus},
		Why:   "agent is what others embed: it brings no client, server or SDK into their binaries"},

	{Room: "sidecar/socket", Never: []string{redisClient},
		Why: "sidecar/socket opens sockets and knows nobody who listens on them"},
	{Room: "sidecar/*", May: []string{"agent", "limit", "rules"}, Never: []string{redisClient},
		Why: "a door decodes, asks the agent and encodes; it knows neither a store nor another door"},
	{Room: "telemetry", May: []string{"agent", "batcher", "limit", "rules"}, Never: []string{redisClient},
		Why: "telemetry reads the agent's Stats and hooks; it sits beside the doors and the stores, not among them"},
	{Room: "dashboard", May: []string{"agent", "limit", "rules"}, Never: []string{redisClient},
		Why: "the dashboard shows what the agent knows; it asks no store"},

	{Room: "cmd", May: []string{anything},
		Why: "cmd wires"},
	{Room: "bench", May: []string{anything},
		Why: "benchmarks drive the whole product"},
	{Room: "deploy", May: []string{anything},
		Why: "the examples are tested with the whole product"},
	{Room: "internal/sim", May: []string{anything},
		Why: "the simulator runs the whole product on virtual time"},
	{Room: "internal/redistest",
		Why: "redistest is the oracle of the product's tests and shares no code with it"},
	{Room: "internal/window",
		Why: "window is the oracle of the product's tests and shares no code with it"},
	{Room: "internal/storetest", May: []string{"limit", "batcher"},
		Why: "storetest knows the seam and no store: it holds each of them to it"},
	{Room: "internal/archtest",
		Why: "archtest looks at the house from outside"},
}

// EnvReaders are the rooms that may read environment variables.
var EnvReaders = []string{"cmd", "bench", "internal/redistest"}

const (
	whyListed = "every package has a room in the table of internal/archtest/house.go: add it there, " +
		"with what it may import"
	whyEnv = "only cmd reads the environment, so that every setting has one name, one default and one place: " +
		"take it as a field of Config"
	whyDoc  = "the package comment is where a newcomer learns what the package is for: write it in doc.go"
	whyLen  = "a file is read in one go: split it by subject"
	whyMark = "what is left to do is an issue or is done: finish it, or say in plain words what does not work"
	whyAny  = "rules that look at nothing hold nothing"
)
