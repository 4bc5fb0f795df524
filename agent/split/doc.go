// Package split is the agent's side of dividing a bucket: whether home is to be told of the load, and, of a bucket
// that is divided, which sub-bucket to ask next and what all of them have together.
package split
