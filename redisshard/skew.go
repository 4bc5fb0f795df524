package redisshard

// tooSkewed reports whether the masters' clocks are further apart than a division of buckets can bear.
func (st *state) tooSkewed() bool { return st.skewed.Load() }
