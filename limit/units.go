package limit

// Tokens counts admissions: a limit, a burst, a cost, a grant. Valid values
// are 0 to MaxTokens.
type Tokens int64

// MaxTokens bounds every count of tokens (2^40, about 1.1e12), so that no
// product of the arithmetic leaves the integers that a float64 holds exactly.
const MaxTokens Tokens = 1 << 40

// Ticks is a span of time in the unit of one time class (see Class). Every
// value that reaches a store is below MaxTicks.
type Ticks int64

// MaxTicks is 1e14: Lua prints numbers with 14 digits, so a tick count below it
// is exact in each path that a number can take through the script, and it
// fits a 16-byte allocation in Redis.
const MaxTicks Ticks = 1e14
