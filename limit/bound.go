package limit

import (
	"math/big"
	"strconv"
	"strings"
	"time"
)

// Bound is what a rule promises in numbers (G1 and G2 in docs/guarantees.md): of one of its buckets, in every window of length w, at most
// Burst + Ahead + Rate*w tokens are admitted. The zero value is that of a limit of 0: nothing is.
type Bound struct {
	// Burst is how much a bucket can hold, or twice the limit of a window that is aligned; where several data centers enforce the rule, all
	// buckets of the name together.
	Burst Tokens
	// Ahead is what agents may have admitted of which the store has not heard: 0 but in mode Optimistic.
	Ahead Tokens
	// Rate is how many tokens are refilled in a second, exactly; nil for none.
	Rate *big.Rat
}

// Bound is that of the rule, as one data center with so many agents enforces it. limited is false of a rule that promises
// nothing: an unlimited one, or one that is a shadow.
func (r *Rule) Bound(agents int) (b Bound, limited bool) {
	switch {
	case r.Unlimited, r.Shadow:
		return b, false
	case r.Terms == nil:
		return b, true
	}
	second := big.NewRat(int64(time.Second), int64(r.Rate.Period))
	burst := r.Terms.Burst
	if a := r.Rate.Algorithm; a == FixedWindow || a == SlidingWindow {
		burst *= 2 // at the edge of two aligned windows, each of which has at most the limit
	}
	return Bound{
		Burst: burst,
		Ahead: r.Allowance * Tokens(agents),
		Rate:  second.Mul(second, new(big.Rat).SetInt64(int64(r.Rate.Requests))),
	}, true
}

// Plus is the bound of two data centers together.
func (b Bound) Plus(o Bound) Bound {
	return Bound{b.Burst + o.Burst, b.Ahead + o.Ahead, new(big.Rat).Add(b.rate(), o.rate())}
}

// Times is the bound of n data centers like that of b.
func (b Bound) Times(n int) Bound {
	times := new(big.Rat).SetInt64(int64(n))
	return Bound{b.Burst * Tokens(n), b.Ahead * Tokens(n), times.Mul(times, b.rate())}
}

func (b Bound) rate() *big.Rat {
	if b.Rate == nil {
		return new(big.Rat)
	}
	return b.Rate
}

// In is the most that a window of length w holds, exactly.
func (b Bound) In(w time.Duration) *big.Rat {
	most := big.NewRat(int64(w), int64(time.Second))
	most.Mul(most, b.rate())
	return most.Add(most, new(big.Rat).SetInt64(int64(b.Burst+b.Ahead)))
}

// Text is the bound in words, such as "200 + 100/s*w", its rate counted per period. Numbers are rounded up to six digits.
func (b Bound) Text(per time.Duration) string {
	text := strconv.FormatInt(int64(b.Burst), 10)
	if b.Ahead > 0 {
		text += " + " + strconv.FormatInt(int64(b.Ahead), 10)
	}
	rate := b.rate()
	if rate.Sign() == 0 {
		return text
	}
	rate = new(big.Rat).Mul(rate, big.NewRat(int64(per), int64(time.Second)))
	return text + " + " + roundUp(rate, 6) + "/" + PeriodText(per) + "*w"
}

// Text is the rate counted per period, with its burst where that is another number: "100/s", "2.8/m burst 2". Numbers are rounded up to
// six digits. Of a window kind it is the limit and the length of its window, whatever the period: "1/3h".
func (r Rate) Text(per time.Duration) string {
	if r.Algorithm != TokenBucket {
		return strconv.FormatInt(int64(r.Requests), 10) + "/" + PeriodText(r.Period)
	}
	count := "0"
	if r.Requests > 0 {
		count = roundUp(new(big.Rat).Mul(big.NewRat(int64(r.Requests), int64(r.Period)), big.NewRat(int64(per), 1)), 6)
	}
	text := count + "/" + PeriodText(per)
	burst := r.Burst
	if burst == 0 {
		burst = r.Requests
	}
	if of := strconv.FormatInt(int64(burst), 10); of != count {
		text += " burst " + of
	}
	return text
}

// PeriodText is a period as it can be written behind the "/" of a limit: s, 30s, 2h, 1.5s.
func PeriodText(d time.Duration) string {
	const day = 24 * time.Hour
	for _, unit := range []struct {
		length time.Duration
		name   string
	}{{day, "d"}, {time.Hour, "h"}, {time.Minute, "m"}, {time.Second, "s"}, {time.Millisecond, "ms"}} {
		switch {
		case d == unit.length:
			return unit.name
		case d > 0 && d%unit.length == 0:
			return strconv.FormatInt(int64(d/unit.length), 10) + unit.name
		}
	}
	return d.String()
}

// roundUp is a positive number with so many digits that count, or all those before the point.
func roundUp(x *big.Rat, digits int) string {
	ten, decimals := big.NewInt(10), 0
	least := new(big.Int).Exp(ten, big.NewInt(int64(digits-1)), nil)
	scaled := new(big.Int).Set(x.Num())
	for ; decimals < 30 && new(big.Int).Div(scaled, x.Denom()).Cmp(least) < 0; decimals++ {
		scaled.Mul(scaled, ten)
	}
	whole := ceil(new(big.Rat).SetFrac(scaled, x.Denom()))
	text := whole.String()
	if decimals == 0 {
		return text
	}
	if missing := decimals + 1 - len(text); missing > 0 {
		text = strings.Repeat("0", missing) + text
	}
	text = text[:len(text)-decimals] + "." + text[len(text)-decimals:]
	return strings.TrimRight(strings.TrimRight(text, "0"), ".")
}
