//go:build !race

package resp_test

const perBatch = 0
