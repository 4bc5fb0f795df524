package limit

import "time"

// In this file is what an outcome says of later, for those who do not ask the store again.

// Later is what an outcome would be so much later, if nothing were asked of the bucket meanwhile. Of a sliding log it knows only
// when all is free, and when Wait is over.
func (t *Terms) Later(out Outcome, passed time.Duration) Outcome {
	ticks := t.Class.Ticks(min(max(0, int64(passed)), 2*int64(t.Class.Length))) // by then it is full
	switch t.Algorithm {
	case TokenBucket:
		out.Level = max(0, out.Level-ticks)
		return out
	case SlidingLog:
		if out.Wait, out.Left = max(0, out.Wait-ticks), max(0, out.Left-ticks); out.Left == 0 {
			out.Level = 0
		}
		return out
	}
	count, window := Tokens(out.Level)-t.faded(out.Fading, out.Left), Ticks(t.Class.Window.Microseconds())
	for out.Left -= ticks; out.Left <= 0; out.Left += window {
		out.Fading = 0
		if t.Algorithm == SlidingWindow {
			out.Fading = count
		}
		count = 0
		out.Epoch++
	}
	out.Level = Ticks(count + t.faded(out.Fading, out.Left))
	return out
}

// Wait is how long after the outcome n tokens, of at most Burst, can be there if nobody else takes any; 0 if they are.
func (t *Terms) Wait(n Tokens, out Outcome) time.Duration {
	switch {
	case t.Algorithm == TokenBucket:
		return t.Class.Duration(out.Level + Ticks(n)*t.Emission - t.Depth)
	case Tokens(out.Level)+n <= t.Burst:
		return 0
	}
	return t.Class.Duration(t.retries(n, &out))
}

// Full is how long after the outcome the bucket is full.
func (t *Terms) Full(out Outcome) time.Duration {
	switch {
	case t.Algorithm == TokenBucket:
		return t.Class.Duration(out.Level)
	case out.Level == 0:
		return 0
	}
	return t.Class.Duration(t.resets(&out))
}

// Refill is in how long a token comes back on average, and all of them.
func (t *Terms) Refill() (one, all time.Duration) {
	if t.Algorithm == TokenBucket {
		return t.Class.Duration(t.Emission), t.Class.Duration(t.Depth)
	}
	return t.Class.Window / time.Duration(t.Burst), t.Class.Window
}
